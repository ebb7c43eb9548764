//! The log: to stderr, in colours only on a terminal, and without the time where the journal adds its own.

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts the log with the filter of the command line, else of `RUST_LOG`, else at level info.
pub fn start(filter: Option<&str>) -> anyhow::Result<()> {
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let (filter, mistake) = match (filter, &variable) {
        (Some(text), _) => (parse(text)?, None),
        (None, Some(text)) => match parse(text) {
            Ok(filter) => (filter, None),
            Err(error) => (default(), Some(error)),
        },
        (None, None) => (default(), None),
    };
    let terminal = io::stderr().is_terminal();
    let lines =
        fmt::layer().with_writer(io::stderr).with_ansi(terminal && std::env::var_os("NO_COLOR").is_none());
    // Programs started from a desktop inherit JOURNAL_STREAM, but have a terminal.
    if !terminal && std::env::var_os("JOURNAL_STREAM").is_some() {
        tracing_subscriber::registry().with(lines.without_time().with_filter(filter)).init();
    } else {
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    }
    if let Some(error) = mistake {
        tracing::warn!("RUST_LOG is not used: {error:#}");
    }
    Ok(())
}

fn parse(text: &str) -> anyhow::Result<Targets> {
    text.parse().with_context(|| {
        format!("{text:?} is no log filter, expected a level such as debug, or carnet=debug,info")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        let filter = parse("warn,carnet=debug").expect("a filter");
        assert!(filter.would_enable("carnet::run", &tracing::Level::DEBUG));
        assert!(!filter.would_enable("hyper", &tracing::Level::INFO));
        assert!(parse("carnet=loud").is_err());
    }
}
