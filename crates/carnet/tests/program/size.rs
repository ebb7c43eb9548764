//! Memory and size of the program.

use std::path::PathBuf;

use crate::hosts::{can_run_or_report, seconds, wait_until};
use crate::station::{CARNET_PROGRAM, Station};
use crate::testbed::Testbed;

/// Interval in seconds at which a mostly idle station returns memory (`IDLE_CHECK_INTERVAL` in run.rs).
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

/// The limit applies to the memory that a registered router allocates, because the kernel cannot reclaim it.
/// The other resident memory is pages of the program's file. With each used page the kernel also maps the
/// pages next to it, if the page cache has them. So their number depends on the machine. carnet returns them
/// from time to time.
#[test]
fn program_and_its_memory_stay_within_their_limits() {
    const LIMIT_KB: i64 = 3 * 1024;
    const AFTER_RETURN_KB: i64 = 6 * 1024;
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
    traffic.wait_for_further_answers();
    std::thread::sleep(seconds(2));
    let report = traffic.stop();
    let resident = router.resident_memory_kb();
    let allocated = router.allocated_memory_kb();
    let octets = std::fs::metadata(&program).expect("the program").len();
    println!(
        "RSS of a registered router: {resident} kB, of which {allocated} kB allocated; size of {program}: \
         {octets} octets"
    );
    assert!(report.sent_packets > 100, "{report:?}");
    if is_release {
        assert!(allocated < LIMIT_KB, "{allocated} kB");
        assert!(octets < 12_000_000, "{octets} octets");
        let (mut least, mut most) = (resident, resident);
        wait_until("it returns the pages of the program", seconds(3 * MEMORY_RETURN_SECONDS), || {
            let now = router.resident_memory_kb();
            (least, most) = (least.min(now), most.max(now));
            now < AFTER_RETURN_KB
        });
        println!("RSS of a router with nothing to do: {least} to {most} kB");
        let allocated = router.allocated_memory_kb();
        assert!(allocated < LIMIT_KB, "{allocated} kB");
    } else {
        println!("\nSKIPPED: no release binary, the one measured is the debug build and has no limit");
    }
}
