//! Prints the figures as Markdown tables, for the terminal and the documentation.

use std::fmt::Write as _;

use super::figures::{BenchResults, PacketFigure, TcpFigure};
use super::path::DataPath;
use super::sender::SEGMENTS_PER_BURST;
use super::sessions::HOST_MTU;

/// Returns a table whose columns are as wide as their widest cell; the first row is the heading.
pub fn align_columns(rows: &[Vec<String>]) -> String {
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

/// Returns the tables of all figures as Markdown.
pub fn bench_report(bench: &BenchResults) -> String {
    let mut text = String::new();
    let machine = &bench.machine;
    let _ = writeln!(
        text,
        "{}, {} MiB; Linux {}, {}; {}{}; {}; load before {:.2} {:.2} {:.2}{}.\n",
        machine.processor_text(),
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
    if !machine.mitigations.is_empty() {
        let _ = writeln!(text, "Faults of the processor: {}.\n", machine.mitigations_text());
    }
    for why in bench.machine.emulation_warning().iter().chain(&bench.disturbed) {
        let _ = writeln!(text, "**Not to be relied on: {why}.**\n");
    }
    for run in &bench.runs_of_others {
        let _ = writeln!(text, "Of another run on this machine: {run}.\n");
    }
    for path in &bench.paths {
        let missing = path
            .reason_not_measured
            .as_ref()
            .map_or(String::new(), |why| format!(" (not measured here: {why})"));
        let _ = writeln!(text, "* `{}`: {}{missing}", path.path.name(), path.description);
    }
    text.push('\n');
    write_packet_tables(&mut text, bench);
    write_tcp_table(&mut text, bench);
    write_ipv4_table(&mut text, bench);
    write_ruleset_table(&mut text, bench);
    write_rtt_table(&mut text, bench);
    write_cpu_table(&mut text, bench);
    write_handover_table(&mut text, bench);
    write_bindings_table(&mut text, bench);
    write_registrations_table(&mut text, bench);
    write_attacks_table(&mut text, bench);
    write_sessions_table(&mut text, bench);
    write_handshakes_table(&mut text, bench);
    write_session_floods_table(&mut text, bench);
    write_takeovers_table(&mut text, bench);
    write_faults_table(&mut text, bench);
    write_targets_table(&mut text, bench);
    text
}

fn measured_paths(bench: &BenchResults) -> Vec<DataPath> {
    bench.paths.iter().filter(|path| path.reason_not_measured.is_none()).map(|path| path.path).collect()
}

fn write_packet_tables(text: &mut String, bench: &BenchResults) {
    if bench.packets.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "Packets per second, in thousands (ns for a packet; ratio to plain forwarding through the same part \
         of the network). Sender, routers and sink share core {}; a closed loop with at most {} packets \
         under way, so this is what passes without loss. The source hands over bursts of {} packets, which \
         the kernel cuts before the first interface: every path gets the same single packets, a list of them \
         at a time, as from a network card. The first table is the share that source and sink have in all \
         others.\n",
        bench.core, bench.window, SEGMENTS_PER_BURST
    );
    write_rate_table(text, bench, &bench.packets);
    write_net_cost_table(text, bench, &measured_paths(bench));
    write_losses(text, &bench.packets);
}

/// Writes a table of packet rates for each arrangement.
fn write_rate_table(text: &mut String, bench: &BenchResults, all: &[PacketFigure]) {
    let paths = measured_paths(bench);
    let mut arrangements: Vec<&str> = Vec::new();
    for figure in all {
        if arrangements.last() != Some(&figure.arrangement.as_str()) {
            arrangements.push(&figure.arrangement);
        }
    }
    for arrangement in &arrangements {
        let mut rows = vec![vec![format!("{arrangement}; octets")]];
        rows[0].extend(paths.iter().map(|path| path.name().to_owned()));
        let figures: Vec<_> = all.iter().filter(|f| f.arrangement == *arrangement).collect();
        let mut sizes: Vec<usize> = figures.iter().map(|f| f.size).collect();
        sizes.dedup();
        for size in sizes {
            let mut row = vec![size.to_string()];
            for path in &paths {
                let figure = figures.iter().find(|f| f.size == size && f.path == *path);
                row.push(figure.map_or("-".into(), |f| {
                    let ratio = f.ratio_to_plain.map_or(String::new(), |ratio| format!("; {ratio:.2}"));
                    format!("{:.0} ({:.0}{ratio})", f.rate.median / 1e3, f.nanoseconds_per_packet)
                }));
            }
            rows.push(row);
        }
        *text += &align_columns(&rows);
        text.push('\n');
    }
}

/// Writes how many packets were lost, and by how much the rates of the rounds differ.
fn write_losses(text: &mut String, all: &[PacketFigure]) {
    let lost: u64 = all.iter().map(|figure| figure.lost).sum();
    let sent: u64 = all.iter().map(|figure| figure.sent).sum();
    let spread = all.iter().filter(|f| f.rate.median > 0.0);
    let spread = spread.map(|f| (f.rate.highest - f.rate.lowest) / f.rate.median);
    let _ = writeln!(
        text,
        "{lost} of {sent} packets were lost. Between rounds the rates spread by up to {:.0} %.",
        spread.fold(0.0, f64::max) * 100.0
    );
    for figure in all.iter().filter(|figure| figure.lost > 0) {
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

fn write_ipv4_table(text: &mut String, bench: &BenchResults) {
    if !bench.ipv4.is_empty() {
        *text += "Packets per second of IPv4 inside the tunnel through both routers, beside those of IPv6, \
                  size by size in turn. The ratio is to plain forwarding of the same address family.\n\n";
        write_rate_table(text, bench, &bench.ipv4);
        write_losses(text, &bench.ipv4);
        write_slow_path_table(text, &bench.ipv4);
    }
    if !bench.ipv4_tcp.is_empty() {
        *text += "TCP over IPv4, with the columns of the table for IPv6:\n\n";
        write_transfer_table(text, bench, &bench.ipv4_tcp);
    }
}

fn write_ruleset_table(text: &mut String, bench: &BenchResults) {
    if bench.ruleset.is_empty() {
        return;
    }
    *text += "Packets per second of a UDP flow through both routers, if both have nftables rules that use \
              connection tracking. The rules accept established flows and what the mobile network began, and \
              drop all other forwarded packets. The ratio is to plain forwarding with the same rules.\n\n";
    write_rate_table(text, bench, &bench.ruleset);
    write_losses(text, &bench.ruleset);
    write_slow_path_table(text, &bench.ruleset);
}

/// Writes how many packets of the fast paths took the slow path.
fn write_slow_path_table(text: &mut String, all: &[PacketFigure]) {
    let fast = all.iter().filter(|figure| figure.path == DataPath::Bpf || figure.path == DataPath::Xdp);
    let (by_tun, sent) = fast.fold((0, 0), |sum, one| (sum.0 + one.by_tun, sum.1 + one.sent));
    let _ = writeln!(
        text,
        "The TUN devices of both routers, which are the slow path, carried {by_tun} of the {sent} packets of \
         `bpf` and `xdp`.\n"
    );
}

/// Writes a table of the cost of both routers, without source and sink.
fn write_net_cost_table(text: &mut String, bench: &BenchResults, paths: &[DataPath]) {
    let all: Vec<_> = bench.packets.iter().filter(|figure| figure.arrangement.starts_with("both")).collect();
    if all.iter().all(|figure| bench.nanoseconds_without_source_and_sink(figure).is_none()) {
        return;
    }
    *text += "The same through both routers without the share of source and sink: ns for a packet, and how \
              many times as many packets as plain forwarding.\n\n";
    let mut rows = vec![vec!["both routers, net; octets".to_owned()]];
    rows[0].extend(paths.iter().map(|path| path.name().to_owned()));
    for first in all.iter().filter(|figure| figure.path == DataPath::Plain) {
        let way = first.arrangement.rsplit(' ').next().unwrap_or("");
        let mut row = vec![format!("{} {way}", first.size)];
        for path in paths {
            let alike = |one: &&&PacketFigure| {
                (one.path, &one.arrangement, one.size) == (*path, &first.arrangement, first.size)
            };
            let cell = all.iter().find(alike).and_then(|one| {
                Some(format!(
                    "{:.0} ({:.2})",
                    bench.nanoseconds_without_source_and_sink(one)?,
                    bench.net_ratio_to_plain(one)?
                ))
            });
            row.push(cell.unwrap_or_else(|| "-".into()));
        }
        rows.push(row);
    }
    *text += &align_columns(&rows);
    text.push('\n');
}

/// Returns a table with a heading row and rows of cells.
fn table_rows<const N: usize>(heading: [&str; N], cells: impl Iterator<Item = [String; N]>) -> String {
    let heading = heading.map(str::to_owned).to_vec();
    align_columns(&std::iter::once(heading).chain(cells.map(|row| row.to_vec())).collect::<Vec<_>>())
}

fn write_tcp_table(text: &mut String, bench: &BenchResults) {
    if bench.tcp.is_empty() {
        return;
    }
    let rounds = bench.tcp.iter().map(|figure| figure.gbit.rounds.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "TCP (iperf3) in Gbit/s of payload, medians of {rounds}; in brackets the ratio to plain forwarding, \
         the median of the rounds' ratios, and between what it lies with a probability of 95 %; all cores. \
         `up` is from the mobile network, `down` to it.\n"
    );
    write_transfer_table(text, bench, &bench.tcp);
}

/// Writes a table of TCP transfers.
fn write_transfer_table(text: &mut String, bench: &BenchResults, all: &[TcpFigure]) {
    let paths = measured_paths(bench);
    let mut table = vec![vec!["hosts; streams".to_owned()]];
    table[0].extend(paths.iter().map(|path| path.name().to_owned()));
    for first in all.iter().filter(|figure| figure.path == DataPath::Plain) {
        let mut row = vec![format!("{}; {} {}", first.hosts, first.streams, first.direction)];
        for path in &paths {
            let alike = all.iter().find(|one| {
                (&one.hosts, one.streams, &one.direction, one.path)
                    == (&first.hosts, first.streams, &first.direction, *path)
            });
            row.push(alike.map_or("-".into(), |one| {
                let sure = one
                    .ratio_confidence_limits
                    .map_or(String::new(), |[low, high]| format!("; {low:.2} to {high:.2}"));
                let ratio = one.ratio_to_plain.map_or(String::new(), |ratio| format!(" ({ratio:.3}{sure})"));
                let error = if one.error.is_some() { " !" } else { "" };
                format!("{:.2}{ratio}{error}", one.gbit.median)
            }));
        }
        table.push(row);
    }
    *text += &align_columns(&table);
    text.push('\n');
    for figure in all {
        if let Some(why) = &figure.error {
            let _ = writeln!(
                text,
                "* `{}`, {}, {} {}: {why}",
                figure.path.name(),
                figure.hosts,
                figure.streams,
                figure.direction
            );
        }
    }
    let sent_again: u64 = all.iter().map(|figure| figure.retransmits).sum();
    let _ = writeln!(text, "{sent_again} segments were sent again, in all.\n");
}

fn write_rtt_table(text: &mut String, bench: &BenchResults) {
    if bench.rtt.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "Round-trip time of a UDP echo between the hosts in microseconds, all on core {}; `added` is for \
         each direction, half the median difference to the plain echo beside it.\n",
        bench.core
    );
    let cells = bench.rtt.iter().map(|one| {
        let added = one.added_us.map_or("-".into(), |added| format!("{added:.2}"));
        [
            one.path.name().to_owned(),
            format!("{:.2}", one.median_us),
            format!("{:.2}", one.p10_us),
            format!("{:.2}", one.p90_us),
            added,
        ]
    });
    *text += &table_rows(["path", "median", "10 %", "90 %", "added"], cells);
    text.push('\n');
}

fn write_cpu_table(text: &mut String, bench: &BenchResults) {
    if bench.cpu.is_empty() {
        return;
    }
    *text += "Processor time for each Gbit of TCP at a fixed rate, in milliseconds of one core: the whole \
              machine (hosts, routers, network), and the carnet programs alone.\n\n";
    let cells = bench.cpu.iter().map(|one| {
        [
            format!("{} {}", one.path.name(), one.direction),
            format!("{:.2}", one.gbit),
            format!("{:.1}", one.machine.median * 1e3),
            format!("{:.1}", one.carnet * 1e3),
        ]
    });
    *text += &table_rows(["path", "Gbit/s", "machine", "carnet"], cells);
    text.push('\n');
}

fn write_handover_table(text: &mut String, bench: &BenchResults) {
    if bench.handover.is_empty() {
        return;
    }
    *text += "Handovers by order between two live uplinks, while packets of 500 octets flow at 70 % of the \
              highest rate without loss. In brackets the same without handovers.\n\n";
    let cells = bench.handover.iter().map(|one| {
        [
            format!("{} {}", one.path.name(), one.direction),
            format!("{:.0}", one.rate / 1e3),
            one.handovers.to_string(),
            one.sent.to_string(),
            format!("{} ({})", one.lost, one.quiet[0]),
            format!("{} ({})", one.duplicated, one.quiet[1]),
            format!("{} ({})", one.reordered, one.quiet[2]),
        ]
    });
    let heading = ["path", "thousand/s", "handovers", "sent", "lost", "duplicated", "reordered"];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_bindings_table(text: &mut String, bench: &BenchResults) {
    if bench.bindings.is_empty() {
        return;
    }
    *text += "The home agent alone with many bindings: packets per second, in thousands (ratio to the same \
              with one binding), to and from mobile networks. `plain` is a router without carnet that has as \
              many routes. Each packet goes elsewhere; so here the source sends one by one.\n\n";
    let mut numbers: Vec<u32> = bench.bindings.iter().map(|one| one.bindings).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut table = vec![vec!["path; octets; bindings".to_owned()]];
    table[0].extend(numbers.iter().map(u32::to_string));
    for first in bench.bindings.iter().filter(|one| Some(&one.bindings) == numbers.first()) {
        let mut row = vec![format!("{}; {}; {}", first.path.name(), first.size, first.packet_kind)];
        for number in &numbers {
            let alike = bench.bindings.iter().find(|one| {
                (one.path, &one.packet_kind, one.size, one.bindings)
                    == (first.path, &first.packet_kind, first.size, *number)
            });
            row.push(alike.map_or("-".into(), |one| {
                let ratio = one.ratio_to_one_binding.map_or(String::new(), |ratio| format!(" ({ratio:.2})"));
                format!("{:.0}{ratio}", one.rate.median / 1e3)
            }));
        }
        table.push(row);
    }
    *text += &align_columns(&table);
    let lost: u64 = bench.bindings.iter().map(|one| one.lost).sum();
    let _ = writeln!(text, "\n{lost} packets were lost. From the start of the program until it answers:\n");
    let cells = bench.starts.iter().map(|one| {
        [
            one.path.name().to_owned(),
            one.bindings.to_string(),
            format!("{:.2}", one.ready_s),
            format!("{:.0}", one.memory_mib),
        ]
    });
    *text += &table_rows(["path", "bindings", "seconds", "MiB"], cells);
    text.push('\n');
}

fn write_registrations_table(text: &mut String, bench: &BenchResults) {
    if bench.registrations.is_empty() {
        return;
    }
    *text += "Routers that register with authentication (RFC 4285), all at once, at a home agent whose state \
              is on the disk; every acknowledgement was checked. `processor` is what the home agent ran, on \
              one core; `octets` what its memory grew by for each binding. In rows with `IPv4` each router \
              also registers an IPv4 prefix (RFC 5555). Then all renew once, at the rate \
              of a lifetime of 60 s; `share` is of a core. At last the home agent is killed and started \
              again.\n\n";
    let cells = bench.registrations.iter().map(|one| {
        [
            format!("{} {}{}", one.path.name(), one.routers, if one.has_ipv4 { ", IPv4" } else { "" }),
            format!("{:.2}", one.seconds),
            format!("{:.0}", one.per_second),
            format!("{:.2}", one.agent_processor_seconds),
            format!("{} ({}, {})", one.acknowledged, one.lost, one.wrong_acknowledgements),
            format!("{:.0}, {:.0}", one.memory_before_mib, one.memory_mib),
            format!("{:.0}", one.octets_per_binding),
            format!("{:.1} %", one.refresh.agent_core_share * 100.0),
            format!(
                "{} ({}, {})",
                one.refresh.acknowledged, one.refresh.lost, one.refresh.wrong_acknowledgements
            ),
            format!("{:.2}", one.restart_s),
            one.missing_bindings.to_string(),
        ]
    });
    let heading = [
        "path, routers",
        "seconds",
        "per second",
        "processor",
        "acknowledged (lost, wrong)",
        "MiB before, after",
        "octets",
        "share",
        "renewed (lost, wrong)",
        "restart",
        "missing",
    ];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_attacks_table(text: &mut String, bench: &BenchResults) {
    if bench.attacks.is_empty() {
        return;
    }
    *text += "Routers that renew their registrations, and a stream of packets to one of them, while \
              strangers flood their home agent. `waited` is the longest time until an acknowledgement; a \
              router asks again after a second. `processor` is the share of a core that the home agent \
              ran.\n\n";
    let cells = bench.attacks.iter().map(|one| {
        let lost = 100.0 * one.packets_lost as f64 / one.packets.max(1) as f64;
        [
            format!("{}: {}", one.path.name(), one.kind),
            format!("{:.0}", one.attack_frames_per_second),
            format!("{} of {}", one.acknowledged - one.late_routers, one.routers),
            format!("{}, {}", one.lost, one.wrong),
            one.repeated_updates.to_string(),
            format!("{:.1}", one.longest_ms),
            format!("{} of {} ({lost:.2} %)", one.packets_lost, one.packets),
            format!("{:.2}", one.agent_core_share),
        ]
    });
    let heading = [
        "path: flood",
        "a second",
        "registered within 1 s",
        "lost, wrong",
        "asked again",
        "waited, ms",
        "packets lost",
        "processor",
    ];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_sessions_table(text: &mut String, bench: &BenchResults) {
    let Some(first) = bench.sessions.first() else { return };
    let _ = writeln!(
        text,
        "TCP (iperf3, cubic, one stream) in Gbit/s of payload, medians of {} rounds in which the tunnels \
         take turns, with the lowest and the highest round. {} Hosts have MTU {}. `library alone` is the \
         library `sanstun` in a program that has nothing but a TUN device, a UDP socket and one peer. The \
         ratios are medians of the rounds' ratios. In brackets is between what the ratio to the library \
         lies with a probability of 95 %.\n",
        first.gbit.rounds.len(),
        match first.ends_have_own_cores {
            true => {
                "Each end has one core: one for the mobile router and its host, the other for the home agent \
                 and its correspondent."
            }
            false => "All share one core.",
        },
        HOST_MTU
    );
    let cells = bench.sessions.iter().map(|one| {
        let sure = one
            .library_confidence_limits
            .map_or(String::new(), |[low, high]| format!(" ({low:.2} to {high:.2})"));
        [
            format!("{}, {}", one.lane.lane_description(), one.direction),
            format!("{:.2}", one.gbit.median),
            format!("{:.2} to {:.2}", one.gbit.lowest, one.gbit.highest),
            one.ratio_to_plain.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            one.ratio_to_library.map_or("-".into(), |ratio| format!("{ratio:.2}{sure}")),
            one.retransmits.to_string(),
            one.error.clone().unwrap_or_default(),
        ]
    });
    let heading = ["tunnel", "Gbit/s", "rounds", "of plain", "of library", "sent again", "error"];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_handshakes_table(text: &mut String, bench: &BenchResults) {
    for one in &bench.handshakes {
        let _ = writeln!(
            text,
            "{} mobile routers with key pairs at one home agent, which has its state on the disk{}. All \
             begin at once. For the power cut the home agent is killed with `kill -9` and started again. \
             Each router then renews its registration, gets no answer, and begins a handshake.\n",
            one.routers,
            if one.agent_has_own_core { ", and a core of its own" } else { "" }
        );
        let share =
            |figure: &super::figures::RefreshFigure| format!("{:.1} %", figure.agent_core_share * 100.0);
        let rows = [
            ("sessions, s", format!("{:.2}", one.sessions_s)),
            (
                "processor of the home agent for them, s",
                format!("{:.2}", one.sessions_agent_processor_seconds),
            ),
            ("initiations, cookie replies", format!("{}, {}", one.initiations, one.cookie_replies)),
            ("registrations in the sessions, s", format!("{:.2}", one.registrations_s)),
            ("lost: sessions, registrations", format!("{}, {}", one.sessions_lost, one.registrations_lost)),
            ("wrong acknowledgements", one.wrong.to_string()),
            ("octets of memory for each session", format!("{:.0}", one.octets_per_session)),
            ("octets of memory for each binding", format!("{:.0}", one.octets_per_binding)),
            (
                "MiB: before, with all, after the power cut",
                format!(
                    "{:.1}, {:.1}, {:.1}",
                    one.memory_before_mib, one.memory_mib, one.memory_after_cut_mib
                ),
            ),
            ("renewals of registrations, each 45 s: share of a core", share(&one.refresh)),
            ("renewals of sessions, each 120 s: share of a core", share(&one.renewal)),
            ("lost renewals: registrations, sessions", format!("{}, {}", one.refresh.lost, one.renewal.lost)),
            ("power cut: home agent ready after, s", format!("{:.2}", one.restart_s)),
            ("power cut: all registered after, s", format!("{:.2}", one.power_cut_s)),
            (
                "power cut: processor of the home agent, s",
                format!("{:.2}", one.power_cut_agent_processor_seconds),
            ),
            ("power cut: lost", one.power_cut_lost.to_string()),
        ];
        let cells = rows.into_iter().map(|(what, value)| [what.to_owned(), value]);
        *text += &table_rows(["what", "found"], cells);
        text.push('\n');
    }
}

fn write_session_floods_table(text: &mut String, bench: &BenchResults) {
    if bench.session_floods.is_empty() {
        return;
    }
    *text += "Mobile routers that open sessions and register while attackers flood the home agent's tunnel \
              port with initiations. The first attacker does not know the home agent's public key. The \
              second one knows it, and sends valid initiations of unknown keys. Each source has an address \
              of its own. Two streams of data pass meanwhile, from a mobile network and to it. `needed` is \
              the longest time from a router's first initiation to its acknowledgement. `processor` is the \
              share of a core that the home agent's process ran.\n\n";
    let cells = bench.session_floods.iter().map(|one| {
        let lost = |at: usize| 100.0 * one.packets_lost[at] as f64 / one.packets[at].max(1) as f64;
        [
            one.kind.clone(),
            one.attack_frames.to_string(),
            format!("{:.0}", one.attack_frames_per_second),
            one.answers.to_string(),
            one.cookie_replies.to_string(),
            format!("{} of {}", one.registered - one.late_routers, one.routers),
            format!("{:.0}", one.longest_ms),
            format!("{} of {} ({:.2} %)", one.packets_lost[0], one.packets[0], lost(0)),
            format!("{} of {} ({:.2} %)", one.packets_lost[1], one.packets[1], lost(1)),
            format!("{:.2}", one.agent_core_share),
        ]
    });
    let heading = [
        "flood",
        "sent",
        "a second",
        "answers",
        "cookie replies",
        "registered within 1 s",
        "needed, ms",
        "lost up",
        "lost down",
        "processor",
    ];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_takeovers_table(text: &mut String, bench: &BenchResults) {
    let Some(first) = bench.takeovers.first() else { return };
    let _ = writeln!(
        text,
        "Three machines that are home agents together (docs/fleet.md), with {} of etcd, a home agent each \
         and a third of the routers. All that is on one of them is killed with `kill -9`, and started again; \
         each in turn. A flow is the traffic of one router in one direction, a packet each {:.0} ms, and \
         silent for the longest time without one. What a routing protocol takes is no part of it: packets \
         are sent to all machines, and only one forwards them. `others` are flows through machines that \
         live; `back` is the longest silence when the machine has its home agent again.\n",
        if first.stores == 1 { "one server".to_owned() } else { format!("{} servers", first.stores) },
        first.period_ms
    );
    let cells = bench.takeovers.iter().map(|one| {
        let share = |count: u64| format!("{:.2} %", 100.0 * count as f64 / one.flows.max(1) as f64);
        [
            format!("{} {}", one.path.name(), one.routers),
            format!("{:.0}", one.packets),
            one.kills.to_string(),
            one.flows.to_string(),
            share(one.within_1s),
            share(one.within_2s),
            format!("{:.0}", one.median_ms),
            format!("{:.0}", one.p99_ms),
            format!("{:.0}", one.longest_ms),
            format!("{:.0}", one.longest_outage_of_other_seats_ms),
            format!("{:.0}", one.back_ms),
            format!(
                "{}, {}, {}",
                one.missing_bindings, one.acknowledgements_of_two_members, one.wrong_acknowledgements
            ),
        ]
    });
    let heading = [
        "path, routers",
        "packets/s",
        "kills",
        "flows",
        "within 1 s",
        "within 2 s",
        "median, ms",
        "99 %",
        "longest",
        "others",
        "back",
        "bindings lost, two acknowledge, wrong",
    ];
    *text += &table_rows(heading, cells);
    text.push('\n');
}

fn write_faults_table(text: &mut String, bench: &BenchResults) {
    if bench.faults.is_empty() {
        return;
    }
    *text += "The same machines in a series of random faults, each of which is healed after up to 2.5 s. \
              Half of the routers keep silent from before a fault until all has been looked at; the others \
              go on to register, at another care-of address each time. `late` are acknowledgements of a \
              former home agent, of what was asked and stored before there was another. `forwarded by two`: \
              a home agent that cannot reach etcd, or is stalled, goes on to forward what it has until it \
              hears of the next one; packets are sent to both here, which no network does.\n\n";
    let cells = bench.faults.iter().map(|one| {
        [
            format!("{} {}", one.path.name(), one.routers),
            one.seed.to_string(),
            one.faults.to_string(),
            one.acknowledged.to_string(),
            one.lost.to_string(),
            one.two.to_string(),
            one.late_acknowledgements.to_string(),
            one.wrong.to_string(),
            format!("{} ({})", one.changes, one.takeovers_in_logs),
            one.faults_without_recovery.to_string(),
            format!("{} of {}, {:.0} ms", one.doubled, one.packets, one.doubled_ms),
            format!("{:.1}", one.longest_ms / 1e3),
        ]
    });
    let heading = [
        "path, routers",
        "seed",
        "faults",
        "acknowledged",
        "bindings lost",
        "two acknowledge",
        "late",
        "wrong",
        "changes (taken)",
        "not well after 30 s",
        "forwarded by two, up to",
        "silence, s",
    ];
    *text += &table_rows(heading, cells);
    text.push('\n');
    for one in &bench.faults {
        let kinds: Vec<String> = one.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = writeln!(text, "* {}: {}", one.path.name(), kinds.join(", "));
    }
    text.push('\n');
}

fn write_targets_table(text: &mut String, bench: &BenchResults) {
    let cells = bench.targets.iter().map(|one| {
        let word = match one.is_met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        [one.quantity.clone(), one.target_value.clone(), one.measured_value.clone(), word.to_owned()]
    });
    *text += &table_rows(["target", "aim", "found", ""], cells);
}
