//! Targets of fuzzing: for each parser, and for whole stations, a function that takes any octets.
//!
//! For any octets the function returns, and its assertions hold. A panic, an assertion (debug assertions and
//! checked arithmetic are on), a hang or memory without bound is a fault of the program. `fuzz/` makes a
//! libFuzzer program of each of [`FUZZ_TARGETS`]. The tests of this crate put the checked in corpora
//! (`fuzz/corpus/NAME`) through the same functions, on any toolchain, with a few thousand mutations.
//!
//! * [`hosts`]: the services for hosts on board, fed with messages of hosts and DNS servers.
//! * [`parsers`]: octets as they come from the network, a file, a socket or another program.
//! * [`secured`]: a station that verifies signatures, fed with signed and with unsigned packets.
//! * [`story`], [`stations`]: a station's inputs with their times, as octets. Any change of the octets gives
//!   another valid story.
//! * [`wireguard`]: sessions of mobile router and home agent over a hostile network.
//!
//! Left out: answers of the kernel (netlink, `/proc`). The crates that read them have tests of their own.
#![forbid(unsafe_code)]

pub mod hosts;
pub mod parsers;
pub mod secured;
pub mod stations;
pub mod story;
pub mod wireguard;

/// A function to fuzz.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Name of the program in `fuzz/fuzz_targets`, and of the corpus folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Function that takes the octets.
    pub run_with_input: fn(&[u8]),
}

/// All targets; the parsers of octets from unauthenticated sources stand first.
pub const FUZZ_TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "home_agent", run_with_input: stations::fuzz_home_agent },
    FuzzTarget { name: "mobile_router", run_with_input: stations::fuzz_mobile_router },
    FuzzTarget { name: "geonet_station", run_with_input: stations::fuzz_geonet_station },
    FuzzTarget { name: "secured", run_with_input: secured::fuzz_secured },
    FuzzTarget { name: "dhcp", run_with_input: hosts::fuzz_dhcp },
    FuzzTarget { name: "dns", run_with_input: hosts::fuzz_dns },
    FuzzTarget { name: "wireguard", run_with_input: wireguard::fuzz_wireguard },
    FuzzTarget { name: "ipv6", run_with_input: parsers::ipv6 },
    FuzzTarget { name: "icmpv6", run_with_input: parsers::icmpv6 },
    FuzzTarget { name: "mobility", run_with_input: parsers::mobility },
    FuzzTarget { name: "geonet", run_with_input: parsers::fuzz_geonet },
    FuzzTarget { name: "messages", run_with_input: parsers::fuzz_messages },
    FuzzTarget { name: "envelope", run_with_input: parsers::fuzz_envelope },
    FuzzTarget { name: "certificate", run_with_input: parsers::fuzz_certificate },
    FuzzTarget { name: "gpsd", run_with_input: parsers::fuzz_gpsd },
    FuzzTarget { name: "config", run_with_input: parsers::fuzz_config },
    FuzzTarget { name: "requests", run_with_input: parsers::fuzz_requests },
    FuzzTarget { name: "recording", run_with_input: parsers::fuzz_recording },
    FuzzTarget { name: "records", run_with_input: parsers::fuzz_records },
    FuzzTarget { name: "trace", run_with_input: parsers::fuzz_trace },
];
