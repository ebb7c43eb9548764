//! The log: goes to stderr, in colours only on a terminal, and without the time if the journal adds its own.
//!
//! Log lines contain text of other systems (gpsd, ModemManager, mobile nodes, stations, etcd). So an entry of
//! the log is *one* line: characters that could begin another line, or control a terminal, are escaped. A
//! line has at most [`MAX_LINE_LENGTH`] characters. Each place in the program that logs may write
//! [`LINE_BURST`] lines at once, and one line a second after that. If a place left lines out, its next line
//! gives their number. Events that the mobility protocols have authenticated have a higher limit
//! ([`LineLimiter`]).

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use carnet_base::RateLimiter;
use carnet_linux::clock;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Largest number of characters of a log line.
const MAX_LINE_LENGTH: usize = 2000;
/// Number of lines that one place in the program may write without a pause.
const LINE_BURST: u32 = 100;
/// Interval between lines of one place in the program after it has written [`LINE_BURST`] lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the log. The filter comes from the command line, else from `RUST_LOG`; else the level is info.
pub fn start_log(filter: Option<&str>) -> anyhow::Result<()> {
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let (filter, mistake) = match (filter, &variable) {
        (Some(text), _) => (parse_filter(text)?, None),
        (None, Some(text)) => match parse_filter(text) {
            Ok(filter) => (filter, None),
            Err(error) => (default(), Some(error)),
        },
        (None, None) => (default(), None),
    };
    let terminal = io::stderr().is_terminal();
    let colours = terminal && std::env::var_os("NO_COLOR").is_none();
    let lines = fmt::layer()
        .with_writer(move || SingleLineWriter { inner_writer: io::stderr(), permits_colours: colours })
        .with_ansi(colours);
    // A program started from a desktop inherits JOURNAL_STREAM, although its stderr may be a terminal.
    if !terminal && std::env::var_os("JOURNAL_STREAM").is_some() {
        let lines = lines.event_format(LineLimiter::with_format(fmt::format().without_time()));
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    } else {
        let lines = lines.event_format(LineLimiter::with_format(fmt::format()));
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    }
    if let Some(error) = mistake {
        tracing::warn!("carnet ignores the environment variable RUST_LOG: {error:#}");
    }
    Ok(())
}

fn parse_filter(text: &str) -> anyhow::Result<Targets> {
    text.parse().with_context(|| {
        format!("{text:?} is no log filter, expected a level such as debug, or carnet=debug,info")
    })
}

/// Returns whether a character could begin a new line, control a terminal or reverse the text.
fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a text for a terminal: every character becomes visible, except for line feeds and tabs. Escapes
/// have the form of JSON, such as `\u001b`.
pub fn escape_for_terminal(text: &str) -> Cow<'_, str> {
    escape_except(text, |character| matches!(character, '\n' | '\t'))
}

fn escape_except(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let goes = |character: char| needs_escape(character) && !is_kept(character);
    if !text.contains(goes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' if goes(character) => out.push_str("\\n"),
            '\r' if goes(character) => out.push_str("\\r"),
            _ if goes(character) => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// Returns a text as one line, cut to `max_characters` characters.
pub fn as_single_line(text: &str, max_characters: usize) -> String {
    truncate_to(&escape_except(text, |character| character == '\t'), max_characters).into_owned()
}

/// Returns the beginning of a text, with a mark if it was cut.
pub fn truncate_to(text: &str, max_characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_characters) {
        Some((end, _)) => Cow::Owned(format!("{} [...]", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

thread_local! {
    /// Number of lines that the log has left out at the place in the program that writes the next line.
    static OMITTED_LINES: Cell<u64> = const { Cell::new(0) };
}

/// Writes each entry of the log as one line.
struct SingleLineWriter<W> {
    inner_writer: W,
    /// Whether the line may contain escape sequences for the log's own colours. Those in the message's text
    /// have already been escaped.
    permits_colours: bool,
}

impl<W: Write> Write for SingleLineWriter<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(octets);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let line = escape_except(text, |character| {
            character == '\t' || self.permits_colours && character == '\u{1b}'
        });
        let mut line = truncate_to(&line, MAX_LINE_LENGTH).into_owned();
        let left_out = OMITTED_LINES.take();
        if left_out > 0 {
            let _ = write!(line, " ({left_out} lines like this one were left out before it)");
        }
        line.push('\n');
        self.inner_writer.write_all(line.as_bytes())?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner_writer.flush()
    }
}

/// Formats lines of the log, and leaves out lines above the limit of their place in the program.
#[derive(Debug)]
struct LineLimiter<F> {
    inner_format: F,
    limiters_by_place: Mutex<HashMap<Identifier, (RateLimiter, u64)>>,
}

impl<F> LineLimiter<F> {
    fn with_format(format: F) -> LineLimiter<F> {
        LineLimiter { inner_format: format, limiters_by_place: Mutex::default() }
    }

    fn limiter_for(metadata: &Metadata<'_>) -> RateLimiter {
        // Events of the station, such as new bindings, have this target. No unauthenticated source can cause
        // such an event at this level. The limit is high, because a home agent with very many routers logs
        // very many events.
        if metadata.target() == "carnet::run" && *metadata.level() == Level::INFO {
            return RateLimiter::new(LINE_BURST * 200, LINE_INTERVAL / 100);
        }
        RateLimiter::new(LINE_BURST, LINE_INTERVAL)
    }

    /// Returns whether the log may write a line. Sets [`OMITTED_LINES`] to the number of lines that were
    /// left out before this line.
    fn allows_line(&self, metadata: &'static Metadata<'static>) -> bool {
        let mut places = self.limiters_by_place.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(metadata.callsite());
        let (limiter, left_out) = place.or_insert_with(|| (Self::limiter_for(metadata), 0));
        let allowed = limiter.try_take_token(clock::now());
        if allowed {
            OMITTED_LINES.set(std::mem::take(left_out));
        } else {
            *left_out += 1;
        }
        allowed
    }
}

impl<S, N, F> FormatEvent<S, N> for LineLimiter<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        // If the line is left out, the text is empty, and the writer writes no empty line.
        if self.allows_line(event.metadata()) {
            self.inner_format.format_event(context, writer, event)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("octets").extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the text that the function `what` writes to the log.
    fn log_of(what: impl FnOnce()) -> String {
        let written = LogBuffer::default();
        let out = written.clone();
        let lines = fmt::layer()
            .with_writer(move || SingleLineWriter { inner_writer: out.clone(), permits_colours: false })
            .with_ansi(false);
        let lines = lines.event_format(LineLimiter::with_format(fmt::format()));
        let filter = parse_filter("info").expect("a filter");
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(lines.with_filter(filter)),
            what,
        );
        let octets = written.0.lock().expect("octets").clone();
        String::from_utf8(octets).expect("text")
    }

    #[test]
    fn log_filters_are_parsed_or_refused() {
        let filter = parse_filter("warn,carnet=debug").expect("a filter");
        assert!(filter.would_enable("carnet::run", &tracing::Level::DEBUG));
        assert!(!filter.would_enable("hyper", &tracing::Level::INFO));
        assert!(parse_filter("carnet=loud").is_err());
    }

    /// Text of another program, such as gpsd, cannot forge a line of the log.
    #[test]
    fn text_of_a_remote_station_cannot_forge_a_log_line() {
        let forged = "error\r\n2026-11-26T00:00:00Z  INFO carnet::run: binding \
                      created\u{1b}[2J\u{9b}2J\u{2028}\u{202e}";
        let text = log_of(|| {
            tracing::warn!("gpsd: {forged}");
            tracing::warn!(message = forged);
            tracing::warn!(release = forged, "connected");
        });
        assert_eq!(text.lines().count(), 3, "{text}");
        for line in text.lines() {
            assert!(!line.contains(needs_escape), "{line:?}");
            assert!(line.contains("error\\r\\n2026"), "{line:?}");
        }
    }

    #[test]
    fn long_text_of_a_remote_station_is_shortened() {
        let text = log_of(|| tracing::warn!("gpsd: {}", "x".repeat(1_000_000)));
        assert!(text.len() < MAX_LINE_LENGTH + 100 && text.ends_with("x [...]\n"), "{} octets", text.len());
    }

    #[test]
    fn many_log_lines_of_one_call_are_dropped_and_counted() {
        let say = |text: &str| tracing::warn!("gpsd: {text}");
        let text = log_of(|| {
            (0..5000).for_each(|_| say("error"));
            tracing::info!("something else");
            tracing::debug!("nothing");
            std::thread::sleep(LINE_INTERVAL + Duration::from_millis(100));
            say("again");
        });
        let errors = text.lines().filter(|line| line.contains("gpsd: error")).count();
        assert!((LINE_BURST as usize..LINE_BURST as usize + 60).contains(&errors), "{errors} lines");
        assert!(text.contains("something else\n"), "{text}");
        let last = text.lines().last().expect("a line");
        let expected = format!("gpsd: again ({} lines like this one were left out before it)", 5000 - errors);
        assert!(last.ends_with(&expected), "{last}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(escape_for_terminal("name\tvalue\nb\u{fc}s\n"), "name\tvalue\nb\u{fc}s\n");
        assert_eq!(escape_for_terminal("\u{1b}[2Jx\u{9b}31m\r\u{202e}"), "\\u001b[2Jx\\u009b31m\\r\\u202e");
        // The escapes in a JSON text keep it valid JSON.
        let json = escape_for_terminal("{\"name\": \"\u{9b}2J\"}").into_owned();
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["name"], "\u{9b}2J");
    }
}
