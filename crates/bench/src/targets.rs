//! Compares the figures with the targets. A missed target does not make the run fail, because the figures
//! depend on the machine.

use super::figures::{
    AttackFigure, BenchResults, FaultsFigure, HandshakesFigure, PacketFigure, PerformanceTarget,
    RegistrationsFigure, SessionFloodFigure, SessionSpeedFigure, TakeoverFigure,
};
use super::ipv4::{IPV4_ARRANGEMENT_PREFIX, IPV6_ARRANGEMENT_PREFIX};
use super::path::DataPath;

/// Returns a target that several figures have to meet. `found` has the value of each figure and where it was
/// measured. The target reports the worst value.
fn judge_target(
    what: &str,
    aim: &str,
    found: Vec<(f64, String)>,
    meets: impl Fn(f64) -> bool,
    least: bool,
    unit: &str,
) -> PerformanceTarget {
    let total = found.len();
    let met = found.iter().filter(|(value, _)| meets(*value)).count();
    let worst = found.into_iter().reduce(|a, b| if (b.0 < a.0) == least { b } else { a });
    let found = match &worst {
        None => String::new(),
        Some((value, place)) if total == 1 => format!("{value:.2}{unit} ({place})"),
        Some((value, place)) => format!("{met} of {total} met; worst {value:.2}{unit} ({place})"),
    };
    PerformanceTarget {
        quantity: what.into(),
        target_value: aim.into(),
        measured_value: found,
        is_met: worst.is_some().then_some(met == total),
    }
}

/// Returns the ratio of each figure of a path through both routers, with the packet size and direction.
/// `ratio` computes the ratio from a figure.
fn packet_ratios(
    bench: &BenchResults,
    path: DataPath,
    ratio: impl Fn(&PacketFigure) -> Option<f64>,
) -> Vec<(f64, String)> {
    let both = bench.packets.iter().filter(|one| one.path == path && one.arrangement.starts_with("both"));
    both.filter_map(|one| Some((ratio(one)?, describe_measurement(one)))).collect()
}

/// Compares the results of a bench with every target, and returns the targets with their verdicts.
pub fn judge_all(bench: &BenchResults) -> Vec<PerformanceTarget> {
    let mut targets = Vec::new();
    let aims = [(DataPath::Bpf, 1.0), (DataPath::Xdp, 1.5), (DataPath::Tun, 0.25)];
    for (path, aim) in aims {
        targets.push(judge_target(
            &format!("{}: packets/s through both routers", path.name()),
            &format!(">= {aim:.2} of plain, every size"),
            packet_ratios(bench, path, |one| one.ratio_to_plain),
            |ratio| ratio >= aim,
            true,
            "",
        ));
        targets.push(judge_target(
            &format!("{}: the same without the share of source and sink", path.name()),
            &format!(">= {aim:.2} of plain, every size"),
            packet_ratios(bench, path, |one| bench.net_ratio_to_plain(one)),
            |ratio| ratio >= aim,
            true,
            "",
        ));
    }
    let fitting = super::tcp::HostSetting::Fitting.setting_description();
    let tcp = bench.tcp.iter().filter(|one| one.path == DataPath::Bpf && one.hosts == fitting);
    let tcp = tcp.filter_map(|one| Some((one.ratio_to_plain?, format!("{} {}", one.streams, one.direction))));
    targets.push(judge_target(
        "bpf: TCP",
        ">= 0.98 of plain",
        tcp.collect(),
        |ratio| ratio >= 0.98,
        true,
        "",
    ));
    for hosts in [super::tcp::HostSetting::Large, super::tcp::HostSetting::Deaf] {
        let tcp = bench
            .tcp
            .iter()
            .filter(|one| one.path == DataPath::Bpf && one.hosts == hosts.setting_description());
        let tcp =
            tcp.filter_map(|one| Some((one.ratio_to_plain?, format!("{} {}", one.streams, one.direction))));
        let what = format!("bpf: TCP, {}", hosts.setting_description());
        targets.push(judge_target(&what, ">= 0.98 of plain", tcp.collect(), |ratio| ratio >= 0.98, true, ""));
    }
    targets.extend(judge_ipv4(bench));
    targets.extend([DataPath::Bpf, DataPath::Xdp].map(|path| {
        let found = bench.ruleset.iter().filter(|one| one.path == path);
        judge_target(
            &format!("{}: packets/s with a ruleset and conntrack", path.name()),
            ">= 1.00 of plain, every size",
            found.filter_map(|one| Some((one.ratio_to_plain?, describe_measurement(one)))).collect(),
            |ratio| ratio >= 1.0,
            true,
            "",
        )
    }));
    let rtt = bench.rtt.iter().filter(|one| one.path == DataPath::Bpf);
    let rtt = rtt.filter_map(|one| Some((one.added_us?, "median".to_owned())));
    targets.push(judge_target(
        "bpf: delay added for each direction",
        "<= 5 us",
        rtt.collect(),
        |us| us <= 5.0,
        false,
        " us",
    ));
    for path in [DataPath::Bpf, DataPath::Xdp] {
        let many = bench.bindings.iter().filter(|one| one.path == path && one.bindings == 100_000);
        let many = many.filter_map(|one| {
            Some((one.ratio_to_one_binding?, format!("{}, {} octets", one.packet_kind, one.size)))
        });
        targets.push(judge_target(
            &format!("{}: packets/s with 100000 bindings", path.name()),
            ">= 0.85 of one binding",
            many.collect(),
            |ratio| ratio >= 0.85,
            true,
            "",
        ));
    }
    // Compare with a plain router that has as many routes. It gets slower with many routes too, because its
    // tables do not fit into a cache.
    for path in [DataPath::Bpf, DataPath::Xdp] {
        let many = bench.bindings.iter().filter(|one| one.path == path && one.bindings == 100_000);
        let many = many.filter_map(|one| {
            let alike = bench.bindings.iter().find(|plain| {
                (plain.path, &plain.packet_kind, plain.size, plain.bindings)
                    == (DataPath::Plain, &one.packet_kind, one.size, one.bindings)
            });
            let ratio = one.rate.median / alike.filter(|plain| plain.rate.median > 0.0)?.rate.median;
            Some((ratio, format!("{}, {} octets", one.packet_kind, one.size)))
        });
        targets.push(judge_target(
            &format!("{}: the same beside plain with 100000 routes", path.name()),
            ">= 0.85 of plain",
            many.collect(),
            |ratio| ratio >= 0.85,
            true,
            "",
        ));
    }
    for path in [DataPath::Bpf, DataPath::Xdp, DataPath::Tun] {
        let moves = bench.handover.iter().filter(|one| one.path == path);
        let moves = moves.map(|one| {
            let place = format!("{}: {} lost, {} duplicated", one.direction, one.lost, one.duplicated);
            ((one.lost + one.duplicated) as f64, place)
        });
        targets.push(judge_target(
            &format!("{}: lost and duplicated by handovers under load", path.name()),
            "0",
            moves.collect(),
            |count| count == 0.0,
            false,
            "",
        ));
    }
    targets.extend(judge_registrations(bench));
    targets.extend(judge_attacks(bench));
    targets.extend(judge_session_speed(bench));
    targets.extend(judge_handshakes(bench));
    targets.extend(judge_session_floods(bench));
    targets.extend(judge_takeovers(bench));
    targets.extend(judge_faults(bench));
    targets
}

/// Returns the packet size and the direction of a figure.
fn describe_measurement(figure: &PacketFigure) -> String {
    format!("{} octets {}", figure.size, figure.arrangement.rsplit(' ').next().unwrap_or(""))
}

/// Returns the targets for IPv4 inside the tunnel.
fn judge_ipv4(bench: &BenchResults) -> Vec<PerformanceTarget> {
    let mut targets = Vec::new();
    for path in [DataPath::Bpf, DataPath::Xdp] {
        let of = |family: &'static str| {
            bench.ipv4.iter().filter(move |one| one.path == path && one.arrangement.starts_with(family))
        };
        let more = of(IPV4_ARRANGEMENT_PREFIX).filter_map(|one| {
            let beside = of(IPV6_ARRANGEMENT_PREFIX)
                .find(|ipv6| describe_measurement(ipv6) == describe_measurement(one))?;
            Some((one.ratio_to_plain? - beside.ratio_to_plain?, describe_measurement(one)))
        });
        targets.push(judge_target(
            &format!("{}: IPv4 inside, ratio to plain less that of IPv6", path.name()),
            ">= -0.05, every size",
            more.collect(),
            |difference| difference >= -0.05,
            true,
            "",
        ));
    }
    // As for IPv6, the target is for `bpf`: an XDP program at a veth takes no super packets of TCP.
    let tcp = bench.ipv4_tcp.iter().filter(|one| one.path == DataPath::Bpf);
    targets.push(judge_target(
        "bpf: TCP over IPv4, hosts with MTU 1500",
        ">= 0.95 of plain",
        tcp.filter_map(|one| Some((one.ratio_to_plain?, one.direction.clone()))).collect(),
        |ratio| ratio >= 0.95,
        true,
        "",
    ));
    targets
}

/// Returns the targets for a home agent under attack.
fn judge_attacks(bench: &BenchResults) -> [PerformanceTarget; 2] {
    let of = |value: fn(&AttackFigure) -> f64| {
        let floods = bench.attacks.iter().filter(|one| one.attack_frames_per_second > 0.0);
        floods.map(|one| (value(one), format!("{}, {}", one.path.name(), one.kind))).collect::<Vec<_>>()
    };
    let slow = of(|one| f64::from(one.routers) - (one.acknowledged - one.late_routers) as f64);
    let lost = of(|one| 100.0 * one.packets_lost as f64 / one.packets.max(1) as f64);
    [
        judge_target("under attack: routers not registered within 1 s", "0", slow, |it| it == 0.0, false, ""),
        judge_target("under attack: packets lost", "< 1 %", lost, |it| it < 1.0, false, " %"),
    ]
}

/// Returns the targets for TCP through encrypted tunnels.
fn judge_session_speed(bench: &BenchResults) -> [PerformanceTarget; 2] {
    let encrypted = || bench.sessions.iter().filter(|one| one.lane.library_lane().is_some());
    let place = |one: &SessionSpeedFigure| format!("{}, {}", one.lane.lane_description(), one.direction);
    let ratios = encrypted().filter_map(|one| Some((one.ratio_to_library?, place(one)))).collect();
    let rates = encrypted().map(|one| (one.gbit.median, place(one))).collect();
    let what = |text: &str| format!("encrypted TCP, one core for each end: {text}");
    [
        judge_target(&what("beside the library alone"), ">= 0.90", ratios, |it| it >= 0.9, true, ""),
        judge_target(&what("Gbit/s"), ">= 1.5 Gbit/s", rates, |it| it >= 1.5, true, " Gbit/s"),
    ]
}

/// Returns the targets for many routers with sessions.
fn judge_handshakes(bench: &BenchResults) -> [PerformanceTarget; 2] {
    let of = |value: fn(&HandshakesFigure) -> f64| {
        let many = bench.handshakes.iter().filter(|one| one.routers >= 10_000);
        many.map(|one| (value(one), format!("{} routers", one.routers))).collect::<Vec<_>>()
    };
    let seconds = of(|one| one.power_cut_s);
    let lost = of(|one| (one.sessions_lost + one.registrations_lost + one.power_cut_lost + one.wrong) as f64);
    [
        judge_target(
            "10000 routers with sessions: all registered after a power cut",
            "<= 60 s",
            seconds,
            |it| it <= 60.0,
            false,
            " s",
        ),
        judge_target("10000 routers with sessions: lost or wrong", "0", lost, |it| it == 0.0, false, ""),
    ]
}

/// Returns the targets for a home agent whose tunnel port is flooded.
fn judge_session_floods(bench: &BenchResults) -> [PerformanceTarget; 3] {
    let of = |value: fn(&SessionFloodFigure) -> f64| {
        let floods = bench.session_floods.iter().filter(|one| one.attack_frames > 0);
        floods.map(|one| (value(one), one.kind.clone())).collect::<Vec<_>>()
    };
    let answers = of(|one| one.answers as f64);
    let slow = of(|one| f64::from(one.routers) - (one.registered - one.late_routers) as f64);
    let lost = of(|one| {
        let share = |at: usize| 100.0 * one.packets_lost[at] as f64 / one.packets[at].max(1) as f64;
        share(0).max(share(1))
    });
    [
        judge_target(
            "flood of handshakes: answers but cookie replies",
            "0",
            answers,
            |it| it == 0.0,
            false,
            "",
        ),
        judge_target(
            "flood of handshakes: routers not registered within 1 s",
            "0",
            slow,
            |it| it == 0.0,
            false,
            "",
        ),
        judge_target("flood of handshakes: packets lost", "< 1 %", lost, |it| it < 1.0, false, " %"),
    ]
}

/// Returns the targets for machines that serve as home agents together, when one is killed.
fn judge_takeovers(bench: &BenchResults) -> [PerformanceTarget; 3] {
    let of = |value: fn(&TakeoverFigure) -> f64| {
        let many = bench.takeovers.iter().filter(|one| one.routers >= 1000);
        many.map(|one| (value(one), one.path.name().to_owned())).collect::<Vec<_>>()
    };
    let one = of(|one| share_of_flows(one.within_1s, one.flows));
    let two = of(|one| share_of_flows(one.within_2s, one.flows));
    let missing = of(|one| one.missing_bindings as f64);
    fn share_of_flows(count: u64, flows: u64) -> f64 {
        100.0 * count as f64 / flows.max(1) as f64
    }
    let what = |text: &str| format!("one of three machines is killed, 1000 routers: {text}");
    [
        judge_target(&what("flows again within 1 s"), ">= 99 %", one, |it| it >= 99.0, true, " %"),
        judge_target(&what("flows again within 2 s"), "all", two, |it| it >= 100.0, true, " %"),
        judge_target(&what("acknowledged bindings missing"), "0", missing, |it| it == 0.0, false, ""),
    ]
}

/// Returns the targets for a series of faults.
fn judge_faults(bench: &BenchResults) -> [PerformanceTarget; 3] {
    let of = |value: fn(&FaultsFigure) -> f64| {
        let many = bench.faults.iter().filter(|one| one.faults >= 200);
        many.map(|one| (value(one), one.path.name().to_owned())).collect::<Vec<_>>()
    };
    let what = |text: &str| format!("200 faults of three machines: {text}");
    let (lost, two) = (of(|one| one.lost as f64), of(|one| one.two as f64));
    let broken = of(|one| one.faults_without_recovery as f64);
    [
        judge_target(&what("acknowledged bindings lost"), "0", lost, |it| it == 0.0, false, ""),
        judge_target(&what("two acknowledge for one home agent"), "0", two, |it| it == 0.0, false, ""),
        judge_target(&what("not well after half a minute"), "0", broken, |it| it == 0.0, false, ""),
    ]
}

/// Returns the targets for many routers that register.
fn judge_registrations(bench: &BenchResults) -> [PerformanceTarget; 6] {
    let many = || bench.registrations.iter().filter(|one| one.routers >= 100_000);
    let of = |value: fn(&RegistrationsFigure) -> f64| {
        many().map(|one| (value(one), one.path.name().to_owned())).collect::<Vec<_>>()
    };
    let what = |text: &str| format!("100000 routers: {text}");
    // Ratio of the home agent's memory with an IPv4 prefix for each router to its memory without, over the
    // same data path.
    let without = |one: &RegistrationsFigure| {
        many().find(|it| (it.path, it.routers, it.has_ipv4) == (one.path, one.routers, false))
    };
    let with_ipv4 = many()
        .filter(|one| one.has_ipv4)
        .filter_map(|one| Some((one.memory_mib / without(one)?.memory_mib, one.path.name().to_owned())));
    let with_ipv4: Vec<_> = with_ipv4.collect();
    let plain = many().filter(|one| !one.has_ipv4);
    let without_ipv4 = plain.map(|one| (one.octets_per_binding, one.path.name().to_owned())).collect();
    let seconds = of(|one| one.seconds);
    let wrong = of(|one| {
        (one.lost + one.wrong_acknowledgements + one.refresh.lost + one.refresh.wrong_acknowledgements) as f64
    });
    [
        judge_target(
            &what("seconds until all are registered"),
            "<= 10 s",
            seconds,
            |it| it <= 10.0,
            false,
            " s",
        ),
        judge_target(&what("lost or wrong acknowledgements"), "0", wrong, |it| it == 0.0, false, ""),
        judge_target(
            &what("memory for each binding"),
            "<= 400 octets",
            without_ipv4,
            |it| it <= 400.0,
            false,
            "",
        ),
        judge_target(
            &what("memory with an IPv4 prefix each, by memory without"),
            "<= 1.2",
            with_ipv4,
            |it| it <= 1.2,
            false,
            "",
        ),
        judge_target(
            &what("refreshes with a lifetime of 60 s"),
            "<= 0.15 of a core",
            of(|one| one.refresh.agent_core_share),
            |it| it <= 0.15,
            false,
            "",
        ),
        judge_target(
            &what("acknowledged bindings missing after kill -9"),
            "0",
            of(|one| one.missing_bindings as f64),
            |it| it == 0.0,
            false,
            "",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_reports_worst_figure_and_needs_all_to_pass() {
        let found = || vec![(1.2, "a".to_owned()), (0.9, "b".to_owned()), (1.0, "c".to_owned())];
        let judged = judge_target("x", "y", found(), |value| value >= 1.0, true, "");
        assert_eq!(
            (judged.is_met, judged.measured_value.as_str()),
            (Some(false), "2 of 3 met; worst 0.90 (b)")
        );
        let judged = judge_target("x", "y", found(), |value| value <= 5.0, false, " us");
        assert_eq!(
            (judged.is_met, judged.measured_value.as_str()),
            (Some(true), "3 of 3 met; worst 1.20 us (a)")
        );
        assert_eq!(judge_target("x", "y", Vec::new(), |_| true, true, "").is_met, None);
    }
}
