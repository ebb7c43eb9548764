//! Tests three machines that together serve 50 routers as home agents, with traffic. The test kills one
//! machine, and then causes twenty random faults. It does not judge times.

use std::path::Path;
use std::process::Command;

use crate::common::{
    LAB_PROGRAM, LabUser, reason_not_to_run, report_skipped, repository_root, run_smoke_bench,
    share_machine_lock,
};

#[test]
fn takeover_faults_lose_no_binding_and_leave_one_leader() {
    let carnet = Path::new(LAB_PROGRAM).with_file_name("carnet");
    if !carnet.is_file() || !carnet.with_file_name("carnet-fleet").is_file() {
        return report_skipped("takeover", "the carnet programs are not built: cargo build -p carnet");
    }
    if let Some(why) = reason_not_to_run(LabUser::Root) {
        return report_skipped("takeover", &why);
    }
    let there = repository_root().join("out/tools/etcd").is_file()
        || Command::new("etcd").arg("--version").output().is_ok();
    if !there {
        return report_skipped("takeover", "etcd is missing (tools/setup.sh test)");
    }
    let _beside = share_machine_lock();
    // If the run fails, the message has the seed and each fault.
    let (out, told, bench) = run_smoke_bench("takeover", &["--only", "takeover"], &carnet);
    let list = |key: &str| bench[key].as_array().expect("an array").clone();
    assert_eq!((list("takeovers").len(), list("faults").len()), (2, 2), "{told}");
    for one in list("takeovers") {
        for (what, expected) in [("kills", 1), ("flows", 100), ("missing", 0), ("two", 0), ("wrong", 0)] {
            assert_eq!(one[what], expected, "{what}: {one}\n{told}");
        }
    }
    for one in list("faults") {
        for (what, expected) in [("faults", 10), ("lost", 0), ("two", 0), ("wrong", 0), ("broken", 0)] {
            assert_eq!(one[what], expected, "{what}: {one}\n{told}");
        }
        let count = |key: &str| one[key].as_u64().expect("a count");
        assert!(count("acknowledged") > 100, "{one}\n{told}");
        assert!(count("changes") <= count("taken"), "{one}\n{told}");
    }
    let page = out.join("bench.md");
    let bench = out.join("bench.json");
    let run =
        Command::new(LAB_PROGRAM).arg("bench-table").args([&bench, &page]).arg("--with").arg(&bench).output();
    assert!(run.expect("the lab starts").status.success());
    let text = std::fs::read_to_string(&page).expect("bench.md");
    // The page also gets the results of a second run (`--with`), which is the same run here. They replace the
    // results of the first run, so no row is in the page twice.
    assert_eq!(text.matches("| tun 50 ").count(), 2, "{text}");
    std::fs::remove_dir_all(out).expect("remove");
}
