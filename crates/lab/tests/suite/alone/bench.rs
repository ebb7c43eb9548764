//! Tests that the benchmark works: every data path passes packets in every measurement. The tests do not
//! judge speeds.

use std::path::Path;
use std::process::Command;

use crate::common::{
    LAB_PROGRAM, LabUser, reason_not_to_run, report_skipped, run_smoke_bench, take_machine_lock,
};

#[test]
fn every_path_passes_packets_without_loss() {
    let carnet = Path::new(LAB_PROGRAM).with_file_name("carnet");
    if !Command::new(&carnet).arg("--version").output().is_ok_and(|out| !out.stdout.is_empty()) {
        return report_skipped("bench", "the carnet program is not built: cargo build -p carnet");
    }
    if let Some(why) = reason_not_to_run(LabUser::Root) {
        return report_skipped("bench", &why);
    }
    for tool in ["ethtool", "nft"] {
        if !["/usr/sbin", "/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(tool).exists()) {
            return report_skipped("bench", &format!("{tool} is not installed"));
        }
    }
    let _alone = take_machine_lock();
    let (out, told, bench) = run_smoke_bench("bench", &[], &carnet);
    let list = |key: &str| bench[key].as_array().expect("an array").clone();
    let mut paths = Vec::new();
    for path in list("paths") {
        let name = path["path"].as_str().expect("a name").to_owned();
        match path["missing"].as_str() {
            None => paths.push(name),
            // Accept a missing `seg6` or `kernel`: these paths need features that the kernel may lack.
            Some(why) if name == "seg6" || name == "kernel" => println!("no path {name}: {why}"),
            Some(why) => println!("SKIPPED: bench: no path {name}: {why}"),
        }
    }
    for name in ["plain", "tun"] {
        assert!(paths.iter().any(|path| path == name), "{told}");
    }
    let packets = list("packets");
    for path in &paths {
        let of_path: Vec<_> = packets.iter().filter(|figure| figure["path"] == **path).collect();
        // There are six arrangements with two sizes each. With plain forwarding there is also the arrangement
        // of source and sink alone.
        assert_eq!(of_path.len(), if path == "plain" { 14 } else { 12 }, "{path}: {told}");
        for figure in of_path {
            assert!(figure["rate"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
            let (sent, lost) = (figure["sent"].as_u64(), figure["lost"].as_u64());
            assert!(lost.expect("a count") * 10 < sent.expect("a count"), "{figure}");
        }
    }
    assert_ipv4_and_tracked_packets_pass(&bench, &paths, &told);
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    let carnets: Vec<&String> =
        paths.iter().filter(|path| !["plain", "seg6"].contains(&path.as_str())).collect();
    for path in &paths {
        let of = |key: &str| list(key).into_iter().filter(|one| one["path"] == **path).collect::<Vec<_>>();
        assert!(of("rtt").len() == 1 && positive(&of("rtt")[0]["median_us"]), "{path}: {told}");
        assert_eq!((of("tcp").len(), of("cpu").len()), (8, 2), "{path}: {told}");
        // With seg6, no router sends Packet Too Big to hosts that do not know the tunnel, and no router
        // clamps the segments.
        let transfers =
            of("tcp").into_iter().filter(|one| path != "seg6" || one["hosts"] == "hosts with MTU 1460");
        for one in transfers {
            assert!(positive(&one["gbit"]["median"]) && one["error"].is_null(), "{one}");
        }
    }
    for path in carnets {
        let of = |key: &str| list(key).into_iter().filter(|one| one["path"] == **path).collect::<Vec<_>>();
        assert_eq!(
            (of("handover").len(), of("bindings").len(), of("starts").len()),
            (2, 8, 2),
            "{path}: {told}"
        );
        for one in of("handover") {
            let (sent, lost) = (one["sent"].as_u64(), one["lost"].as_u64());
            assert!(one["handovers"] == 2 && lost.expect("a count") * 10 < sent.expect("a count"), "{one}");
        }
        assert!(of("bindings").iter().all(|one| positive(&one["rate"]["median"])), "{path}: {told}");
    }
    // Every registration and every refresh is acknowledged. After `kill -9` and a restart the home agent has
    // every acknowledged binding. The two rows of a path are those without and with an IPv4 prefix.
    let registrations = list("registrations");
    assert_eq!(
        registrations.len(),
        2 * paths.iter().filter(|path| ["tun", "bpf"].contains(&path.as_str())).count()
    );
    for one in registrations {
        for (what, expected) in [("acknowledged", 300), ("lost", 0), ("wrong", 0), ("missing", 0)] {
            assert_eq!(one[what], expected, "{what}: {one}\n{told}");
        }
        for (what, expected) in [("acknowledged", 300), ("lost", 0), ("wrong", 0)] {
            assert_eq!(one["refresh"][what], expected, "{what} of refreshes: {one}\n{told}");
        }
    }
    // Check only mild limits: a short flood of any kind does hardly any harm, and the benchmark measures
    // floods of ten seconds.
    let attacks = list("attacks");
    assert_eq!(
        attacks.len(),
        6 * paths.iter().filter(|path| ["tun", "bpf"].contains(&path.as_str())).count()
    );
    for one in attacks {
        assert_eq!((&one["acknowledged"], &one["wrong"]), (&100.into(), &0.into()), "{one}\n{told}");
        assert!(one["kind"] == "nothing" || positive(&one["frames"]), "{one}\n{told}");
        assert!(positive(&one["packets"]), "{one}\n{told}");
    }
    assert_sessions_work(&bench, &told);
    let page = out.join("bench.md");
    let run = Command::new(LAB_PROGRAM).arg("bench-table").arg(out.join("bench.json")).arg(&page).output();
    assert!(run.expect("the lab starts").status.success());
    let text = std::fs::read_to_string(&page).expect("bench.md");
    assert!(text.contains("| both routers, up; octets"), "{text}");
    std::fs::remove_dir_all(out).expect("remove");
}

/// Every tunnel carries TCP. All routers have sessions and registrations, also after `kill -9` of the home
/// agent. A flood of handshakes gets no answer but cookie replies, and every router registers meanwhile.
fn assert_sessions_work(bench: &serde_json::Value, told: &str) {
    let list = |key: &str| bench[key].as_array().expect("an array").clone();
    assert_eq!(list("sessions").len(), 14, "{told}");
    for one in list("sessions") {
        assert!(one["gbit"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{one}\n{told}");
        assert!(one["error"].is_null(), "{one}\n{told}");
    }
    assert_eq!(list("handshakes").len(), 1, "{told}");
    for one in list("handshakes") {
        assert_eq!(one["routers"], 300, "{one}");
        for count in ["sessions_lost", "registrations_lost", "power_cut_lost", "wrong"] {
            assert_eq!(one[count], 0, "{count}: {one}\n{told}");
        }
        for round in ["refresh", "renewal"] {
            assert_eq!((&one[round]["acknowledged"], &one[round]["lost"]), (&300.into(), &0.into()), "{one}");
        }
    }
    assert_eq!(list("session_floods").len(), 3, "{told}");
    for one in list("session_floods") {
        assert!(one["kind"] == "nothing" || one["sent"].as_u64() > Some(0), "{one}");
        let counts = ["registered", "lost", "wrong", "answers"].map(|count| one[count].as_u64());
        assert_eq!(counts, [Some(33), Some(0), Some(0), Some(0)], "{one}\n{told}");
        assert!(one["kind"] != "without the public key" || one["cookie_replies"] == 0, "{one}");
    }
}

/// Every path passes IPv4 inside the tunnel. With a ruleset, the programs of the fast path forward tracked
/// packets.
fn assert_ipv4_and_tracked_packets_pass(bench: &serde_json::Value, paths: &[String], output: &str) {
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let name = b"\0bpf_ct_change_timeout\0";
    let has_functions = types.windows(name.len()).any(|octets| octets == name);
    for path in paths {
        let of = |key: &str| -> Vec<_> {
            let list = bench[key].as_array().expect("an array").iter();
            list.filter(|figure| figure["path"] == **path).collect()
        };
        // The paths except `seg6` have these rows. `ipv4` has two sizes in both directions, each for IPv4 and
        // for IPv6. `ipv4_tcp` has two rows, and `ruleset` has two sizes in both directions.
        let expected = if path == "seg6" { (0, 0, 0) } else { (8, 2, 4) };
        assert_eq!(
            (of("ipv4").len(), of("ipv4_tcp").len(), of("ruleset").len()),
            expected,
            "{path}: {output}"
        );
        for one in of("ipv4").into_iter().chain(of("ruleset")) {
            let count = |key: &str| one[key].as_u64().expect("a count");
            assert!(one["rate"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{one}");
            assert!(count("lost") * 10 < count("sent"), "{one}");
            if has_functions && ["bpf", "xdp"].contains(&path.as_str()) {
                assert!(count("by_tun") * 10 < count("sent"), "{one}");
            }
            assert!(path != "tun" || count("by_tun") >= count("sent") - count("lost"), "{one}");
        }
        for one in of("ipv4_tcp") {
            assert!(one["gbit"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{one}\n{output}");
        }
    }
}
