//! The figures as tables, for the terminal and for documentation: Markdown does for both.

use std::fmt::Write as _;

use super::figures::Bench;
use super::path::Path;

/// A table whose columns are as wide as their widest cell; the first row is the heading.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text += "|\n";
        if number == 0 {
            for (column, width) in widths.iter().enumerate() {
                let line = "-".repeat(*width);
                text += &if column == 0 { format!("| {line} ") } else { format!("| {}: ", &line[1..]) };
            }
            text += "|\n";
        }
    }
    text
}

/// Everything.
pub fn text(bench: &Bench) -> String {
    let mut text = String::new();
    let machine = &bench.machine;
    let _ = writeln!(
        text,
        "{}, {} cores, {} MiB; Linux {}, {}; {}{}; {}; load before {:.2} {:.2} {:.2}{}.\n",
        machine.cpu,
        machine.cores,
        machine.memory_mib,
        machine.kernel,
        machine.system,
        machine.carnet,
        machine.commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})")),
        bench.time,
        bench.load_before[0],
        bench.load_before[1],
        bench.load_before[2],
        if bench.quick { "; a quick run: short, few rounds" } else { "" }
    );
    for path in &bench.paths {
        let missing =
            path.missing.as_ref().map_or(String::new(), |why| format!(" (not measured here: {why})"));
        let _ = writeln!(text, "* `{}`: {}{missing}", path.path.name(), path.about);
    }
    text.push('\n');
    packets(&mut text, bench);
    text
}

fn measured(bench: &Bench) -> Vec<Path> {
    bench.paths.iter().filter(|path| path.missing.is_none()).map(|path| path.path).collect()
}

fn packets(text: &mut String, bench: &Bench) {
    if bench.packets.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "Packets per second, in thousands (ns for a packet; ratio to plain forwarding through the same part of the \
         network). Sender, routers and sink share core {}; a closed loop with at most {} packets under way, so this \
         is what passes without loss.\n",
        bench.core, bench.window
    );
    let paths = measured(bench);
    let mut arrangements: Vec<&str> = Vec::new();
    for figure in &bench.packets {
        if arrangements.last() != Some(&figure.arrangement.as_str()) {
            arrangements.push(&figure.arrangement);
        }
    }
    for arrangement in arrangements {
        let mut rows = vec![vec![format!("{arrangement}; octets")]];
        rows[0].extend(paths.iter().map(|path| path.name().to_owned()));
        let figures: Vec<_> = bench.packets.iter().filter(|f| f.arrangement == arrangement).collect();
        let mut sizes: Vec<usize> = figures.iter().map(|f| f.size).collect();
        sizes.dedup();
        for size in sizes {
            let mut row = vec![size.to_string()];
            for path in &paths {
                let figure = figures.iter().find(|f| f.size == size && f.path == *path);
                row.push(figure.map_or("-".into(), |f| {
                    let ratio = f.to_plain.map_or(String::new(), |ratio| format!("; {ratio:.2}"));
                    format!("{:.0} ({:.0}{ratio})", f.rate.median / 1e3, f.ns)
                }));
            }
            rows.push(row);
        }
        *text += &aligned(&rows);
        text.push('\n');
    }
    let lost: u64 = bench.packets.iter().map(|figure| figure.lost).sum();
    let sent: u64 = bench.packets.iter().map(|figure| figure.sent).sum();
    let spread = bench.packets.iter().filter(|f| f.rate.median > 0.0);
    let spread = spread.map(|f| (f.rate.highest - f.rate.lowest) / f.rate.median);
    let _ = writeln!(
        text,
        "{lost} of {sent} packets were lost. Between rounds the rates spread by up to {:.0} %.",
        spread.fold(0.0, f64::max) * 100.0
    );
    for figure in bench.packets.iter().filter(|figure| figure.lost > 0) {
        let _ = writeln!(
            text,
            "* {} of {} through `{}`: {}, {} octets",
            figure.lost,
            figure.sent,
            figure.path.name(),
            figure.arrangement,
            figure.size
        );
    }
    text.push('\n');
}
