//! Memory and size of the program.

use std::path::PathBuf;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::{CARNET_PROGRAM, Station};
use crate::testbed::Testbed;

/// Seconds after which a mostly idle station returns memory (`REST` in run.rs).
const MEMORY_RETURN_SECONDS: u64 = 10;

/// Returns the path of the optimised program, if it has been built.
fn release_program() -> Option<PathBuf> {
    let named = std::env::var_os("CARNET_RELEASE_BINARY").map(PathBuf::from);
    // The path target/debug/carnet becomes target/release/carnet.
    let beside = PathBuf::from(CARNET_PROGRAM).ancestors().nth(2).map(|target| target.join("release/carnet"));
    named.or(beside).filter(|path| path.is_file())
}

/// Without symbols, the backtrace of a panic would contain no function names.
#[test]
fn optimised_program_has_symbols_and_unwind_tables() {
    let Some(path) = release_program() else { return println!("\nSKIPPED: no release binary") };
    let octets = std::fs::read(&path).expect("the program");
    for section in [".symtab", ".eh_frame_hdr"] {
        let name = format!("\0{section}\0").into_bytes();
        let found = octets.windows(name.len()).any(|window| window == name);
        assert!(found, "{} has no {section}", path.display());
    }
}

/// The ordinary program has unwind tables for backtraces; pages of these tables and of the code stay in
/// memory.
#[test]
fn program_and_its_memory_stay_within_their_limits() {
    if !can_run_or_report() {
        return;
    }
    let (program, is_release) = match release_program() {
        Some(path) => (path.display().to_string(), true),
        None => (CARNET_PROGRAM.to_owned(), false),
    };
    let bed = Testbed::new();
    let _agent = Station::start(&bed.agent, &bed.agent_config());
    let router = Station::start_wrapped(&bed.router, &bed.router_config(), &[], &program);
    router.wait_until_registered();
    let traffic = bed.start_echo(1000);
    traffic.wait_until_flowing();
    std::thread::sleep(seconds(2));
    let report = traffic.stop();
    let resident = router.resident_memory_kb();
    let octets = std::fs::metadata(&program).expect("the program").len();
    println!("RSS of a registered router: {resident} kB; size of {program}: {octets} octets");
    assert!(report.sent_packets > 100, "{report:?}");
    if is_release {
        assert!(resident < 8 * 1024, "{resident} kB");
        assert!(octets < 12_000_000, "{octets} octets");
        wait_until("it takes less when it has nothing to do", seconds(3 * MEMORY_RETURN_SECONDS), || {
            router.resident_memory_kb() < 7 * 1024
        });
        // The memory of a registered router is below this limit at most times. A registration needs more
        // until the next return of memory.
        let mut seen: Vec<i64> = (0..MEMORY_RETURN_SECONDS)
            .map(|_| {
                std::thread::sleep(seconds(1));
                router.resident_memory_kb()
            })
            .collect();
        seen.sort_unstable();
        let (middle, most) = (seen[seen.len() / 2], seen[seen.len() - 1]);
        println!("RSS of a router with nothing to do: {middle} kB, at most {most} kB");
        assert!(middle < 7 * 1024 && most < 8 * 1024, "{seen:?} kB");
    } else {
        println!("\nSKIPPED: no release binary, the one measured is the debug build and has no limit");
    }
}
