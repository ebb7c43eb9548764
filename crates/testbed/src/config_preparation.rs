//! Writes the files for stations: their configs, with placeholders replaced, and the traces of their
//! movements.
//!
//! The lab replaces placeholders in a config: `{node}` by the name of the node, `{n}` by its number in a
//! series, `{trace}` by the file with its track. `{signals}` becomes the folder with a signal file for each
//! interface on an emulated link. [`ScenarioPki`] and [`ScenarioKeys`] replace further placeholders. The lab
//! repeats lines between `# each NAME{n}` and `# end` for each node of that series, with its number. The lab
//! uses a config without placeholders directly, without a copy.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::clock;
use crate::emulation::runner;
use crate::scenario::Scenario;
use crate::scenario_pki::ScenarioPki;
use crate::session_keys::ScenarioKeys;

/// Writes the traces of all moving nodes into `folder`.
pub fn write_position_traces(scenario: &Scenario, folder: &Path) -> anyhow::Result<()> {
    let Some(medium) = &scenario.medium else { return Ok(()) };
    let shift = clock::realtime_now() as i64 - clock::monotonic_now() as i64;
    let epoch = scenario.epoch.saturating_add_signed(shift) as f64 / 1e9;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (node, track) in &scenario.tracks {
        let file = trace_file(folder, node);
        std::fs::write(&file, track.position_trace(&medium.origin_of_coordinates(), epoch))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn trace_file(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.trace"))
}

/// Returns the config for a node: `config` itself, or a copy in `folder` with placeholders replaced. `path`
/// is the data path for configs that name no path.
pub fn prepare_config(
    scenario: &Scenario,
    node: &str,
    config: &Path,
    path: Option<&str>,
    trust: &ScenarioPki,
    keys: &ScenarioKeys,
    folder: &Path,
) -> anyhow::Result<PathBuf> {
    let original =
        std::fs::read_to_string(config).with_context(|| format!("cannot read {}", config.display()))?;
    let text = repeat_blocks(&original, |series| {
        let fits = |(name, n): (&String, u32)| (*name == series.replace("{n}", &n.to_string())).then_some(n);
        scenario.nodes.iter().filter_map(|(name, node)| fits((name, node.series?))).collect()
    })
    .with_context(|| config.display().to_string())?;
    let number = scenario.nodes.get(node).and_then(|n| n.series).map(|n| n.to_string());
    let mut filled = trust.replace_placeholders(
        node,
        &replace_placeholders(&text, node, number.as_deref(), &trace_file(folder, node)),
    );
    filled = keys.replace_placeholders(node, &filled).with_context(|| config.display().to_string())?;
    if let Some(path) = path.filter(|_| !text.contains("[dataplane]")) {
        filled += &format!("\n[dataplane]\npath = {path:?}\n");
    }
    if filled == original {
        return Ok(config.into());
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(format!("{node}.toml"));
    std::fs::write(&file, filled).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Expands the blocks of a config that repeat for each node of a series. `numbers` returns the numbers of a
/// series.
fn repeat_blocks(text: &str, numbers: impl Fn(&str) -> Vec<u32>) -> anyhow::Result<String> {
    let mut written = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(series) = line.strip_prefix("# each ") else {
            written += &format!("{line}\n");
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "# end").collect();
        let mut numbers = numbers(series);
        anyhow::ensure!(
            !numbers.is_empty(),
            "`# each {series}`: expected the name of a series of the scenario, found none with nodes"
        );
        numbers.sort_unstable();
        for number in numbers {
            for line in &block {
                written += &format!("{}\n", line.replace("{n}", &number.to_string()));
            }
        }
    }
    Ok(written)
}

fn replace_placeholders(text: &str, node: &str, number: Option<&str>, trace: &Path) -> String {
    let signals = runner::signal_folder(node);
    let text = text.replace("{node}", node).replace("{trace}", &trace.to_string_lossy());
    let text = text.replace("{signals}", &signals.to_string_lossy());
    match number {
        Some(number) => text.replace("{n}", number),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_a_config_are_replaced() {
        let text = "name = \"{node}\"\nposition = \"trace:{trace}\"\nx = {n}\n";
        let filled = replace_placeholders(text, "car7", Some("7"), Path::new("/out/car7.trace"));
        assert_eq!(filled, "name = \"car7\"\nposition = \"trace:/out/car7.trace\"\nx = 7\n");
        assert_eq!(
            replace_placeholders("{signals}/w0", "mr", None, Path::new("t")),
            "/run/carnet-lab/signals/mr/w0"
        );
        assert_eq!(replace_placeholders("{n}", "a", None, Path::new("t")), "{n}");
    }

    #[test]
    fn config_block_is_repeated_for_each_node_of_series() {
        let numbers = |series: &str| if series == "mr{n}" { vec![10, 9] } else { Vec::new() };
        let text = "a = 1\n# each mr{n}\n[[b]]\nc = {n}\n# end\nd = {n}\n";
        let written = repeat_blocks(text, numbers).expect("is good");
        assert_eq!(written, "a = 1\n[[b]]\nc = 9\n[[b]]\nc = 10\nd = {n}\n");
        let told = repeat_blocks("# each car{n}\n# end\n", numbers).expect_err("no such series").to_string();
        assert!(told.contains("`# each car{n}`"), "{told}");
        assert_eq!(repeat_blocks("a\nb\n", numbers).expect("is good"), "a\nb\n");
    }
}
