//! Targets of fuzzing: for each parser, and for whole stations, a function that takes any octets.
//!
//! For any octets the function returns, and its assertions hold. A panic, an assertion (debug assertions and
//! checked arithmetic are on), a hang or memory without bound is a fault of the program. `fuzz/` makes a
//! libFuzzer program of each of [`TARGETS`]. The tests of this crate put the checked in corpora
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
pub struct Target {
    /// Name of the program in `fuzz/fuzz_targets`, and of the corpus folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Function that takes the octets.
    pub run: fn(&[u8]),
}

/// All targets; the parsers of octets from unauthenticated sources stand first.
pub const TARGETS: &[Target] = &[
    Target { name: "home_agent", run: stations::home_agent },
    Target { name: "mobile_router", run: stations::mobile_router },
    Target { name: "geonet_station", run: stations::geonet_station },
    Target { name: "secured", run: secured::secured },
    Target { name: "dhcp", run: hosts::dhcp },
    Target { name: "dns", run: hosts::dns },
    Target { name: "wireguard", run: wireguard::wireguard },
    Target { name: "ipv6", run: parsers::ipv6 },
    Target { name: "icmpv6", run: parsers::icmpv6 },
    Target { name: "mobility", run: parsers::mobility },
    Target { name: "geonet", run: parsers::geonet },
    Target { name: "messages", run: parsers::messages },
    Target { name: "envelope", run: parsers::envelope },
    Target { name: "certificate", run: parsers::certificate },
    Target { name: "gpsd", run: parsers::gpsd },
    Target { name: "config", run: parsers::config },
    Target { name: "requests", run: parsers::requests },
    Target { name: "recording", run: parsers::recording },
    Target { name: "records", run: parsers::records },
    Target { name: "trace", run: parsers::trace },
];
