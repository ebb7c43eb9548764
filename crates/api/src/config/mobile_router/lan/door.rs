//! The keys of `[[mobile_router.lan]]` for the door: which packets from outside reach hosts on board.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::super::super::errors::Sink;
use super::super::super::keys::{
    Disclosure, Key, Kind, Optional, Section, optional, required, text, value, with_default, words,
};
use super::super::super::reader::{At, List, Value};
use super::super::super::table::{Table, all};
use super::super::super::{kinds, values};
use super::super::transport::{PORT_RANGES, PROTOCOLS, PolicyProtocol};

/// Maximum number of exceptions of an interface, and of ports and destinations of an exception: they bound
/// the number of rules in the kernel.
const MAX_ALLOWED: usize = 32;
const MAX_PARTS: usize = 16;
/// Possible rates of a host in bits per second.
const RATES: RangeInclusive<u64> = 100_000..=10_000_000_000;

/// The door: a stateful firewall that decides which packets from outside reach an interface on board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    /// Which packets from outside pass the door, except for those of `allow`.
    pub inbound: Inbound,
    /// Packets from outside that reach hosts although `inbound` would drop them.
    pub allow: Vec<Allowed>,
    /// Whether no packets pass between this interface and others on board.
    pub isolated: bool,
    /// Maximum rate of each host in bits per second and direction; `None` for no limit.
    pub rate_limit: Option<u64>,
}

/// `inbound`: packets from outside that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// All packets.
    Any,
    /// Packets of connections that hosts on board began.
    Established,
}

/// An exception from `inbound = "established"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Protocol; of ICMP and ICMPv6 only Echo Requests pass.
    pub protocol: PolicyProtocol,
    /// Destination ports; empty for all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Hosts; empty for every host of the interface.
    pub to: Vec<IpAddr>,
}

impl Default for Door {
    /// Returns the door of an interface of which the config only has the name.
    fn default() -> Door {
        Door { inbound: Inbound::Any, allow: Vec::new(), isolated: false, rate_limit: None }
    }
}

const EXPECTED: &str = "an array of tables such as { protocol = \"tcp\", ports = [443] }";
const EXPECTED_RATE: &str = "a rate from 100kbit to 10gbit such as \"20mbit\"";
const EXPECTED_HOSTS: &str = "an array of addresses";
const EXPECTED_HOST: &str = "an address of a host such as \"2001:db8:a::77\" or \"10.42.7.9\"";

const ALLOW_KIND: Kind<List<Exception>> =
    value("array of tables", EXPECTED, |value| List::read(value, EXPECTED, Exception::read))
        .with_table(&SECTION, &[])
        .disclosed(Disclosure::Open);
const HOSTS: Kind<List<IpAddr>> = value("array of addresses", EXPECTED_HOSTS, |value| {
    List::read(value, EXPECTED_HOSTS, |item| item.parse(EXPECTED_HOST, host))
});

pub(super) static INBOUND: Key<Inbound> = with_default(
    "inbound",
    words(&[("established", Inbound::Established), ("any", Inbound::Any)]),
    r#""established""#,
    r#"Packets from outside that reach hosts: `"established"` only those of connections that a host on board
       began, and ICMP errors about these, see [the door](on-board.md#the-door). `"any"`: all packets. An
       interface of which `lan` has only the name has `"any"`."#,
);
pub(super) static ALLOW: Key<List<Exception>> = with_default(
    "allow",
    ALLOW_KIND,
    "[]",
    "Packets that pass nevertheless, at most 32 tables, see
     [[[mobile_router.lan.allow]]](#mobile_routerlanallow).",
);
pub(super) static ISOLATED: Key<bool> = with_default(
    "isolated",
    kinds::BOOLEAN,
    "false",
    "No packets pass between this interface and the other interfaces of `lan`.",
);
pub(super) static RATE_LIMIT: Optional<u64> = optional(
    "rate_limit",
    text("rate", EXPECTED_RATE, rate),
    r#"Maximum rate of each host, from it and to it, in `kbit`, `mbit` or `gbit` per second such as
       `"20mbit"`, from 100kbit to 10gbit. Packets above it are dropped. Packets of these hosts do not take
       the fast path. See [on-board.md](on-board.md#a-rate-for-each-host)."#,
);

static PROTOCOL: Key<PolicyProtocol> = required(
    "protocol",
    PROTOCOLS,
    r#"The protocol. With `"icmp"`, which is that of IPv4, and `"icmpv6"` only Echo Requests (`ping`) pass."#,
);
static PORTS: Key<List<RangeInclusive<u16>>> = with_default(
    "ports",
    PORT_RANGES,
    "[]",
    r#"Destination ports, such as `443` or `"5000-5010"`, at most 16. An empty array matches all ports."#,
);
static TO: Key<List<IpAddr>> = with_default(
    "to",
    HOSTS,
    "[]",
    "Addresses of hosts on this interface, at most 16. An empty array matches every host of it.",
);

/// Keys of the config table `[[mobile_router.lan.allow]]`.
pub(in crate::config) static SECTION: Section =
    Section::new("[[mobile_router.lan.allow]]", "mobile_router.lan.allow", &[&PROTOCOL, &PORTS, &TO]);

/// Parses a rate in bits per second.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || Err(format!("{text:?} is no rate, expected {EXPECTED_RATE}"));
    let Some(unit) = text.find(|c: char| !c.is_ascii_digit()) else { return wrong() };
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "kbit" => 1000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return wrong(),
    };
    let Some(rate) = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) else {
        return wrong();
    };
    if !RATES.contains(&rate) {
        return Err(format!("{text:?} is out of range, expected {EXPECTED_RATE}"));
    }
    Ok(rate)
}

/// An exception, with the positions of its values.
#[derive(Clone)]
pub(in crate::config) struct Exception {
    ports: List<RangeInclusive<u16>>,
    to: List<IpAddr>,
    config: Option<Allowed>,
}

impl Exception {
    fn read(value: &Value<'_>) -> Option<Exception> {
        let table = Table::of(&SECTION, value)?;
        let (ports, to) = (table.take(&PORTS).unwrap_or_default(), table.take(&TO).unwrap_or_default());
        let config =
            all!(Allowed { protocol: table.take(&PROTOCOL), ports: ports.complete(), to: to.complete() });
        Some(Exception { ports, to, config })
    }

    /// Checks the exception by itself.
    fn check(&self, sink: &Sink<'_>) {
        if let Some(first) = self.ports.items.get(MAX_PARTS) {
            sink.push(first.at, format!("too many ports, expected at most {MAX_PARTS}"));
        }
        if let Some(first) = self.to.items.get(MAX_PARTS) {
            sink.push(first.at, format!("too many hosts, expected at most {MAX_PARTS}"));
        }
        let Some(config) = &self.config else { return };
        let is_icmp = matches!(config.protocol, PolicyProtocol::Icmp | PolicyProtocol::Icmpv6);
        if let Some(port) = self.ports.items.first().filter(|_| is_icmp) {
            sink.push(port.at, "ICMP has no ports, expected none".to_owned());
        }
        let other_family = |address: &IpAddr| match config.protocol {
            PolicyProtocol::Icmp => address.is_ipv6(),
            PolicyProtocol::Icmpv6 => address.is_ipv4(),
            PolicyProtocol::Tcp | PolicyProtocol::Udp => false,
        };
        if let Some(host) = self.to.items.iter().find(|host| other_family(&host.value)) {
            let family = if host.value.is_ipv4() { "IPv6" } else { "IPv4" };
            let message = format!("{} is not of the protocol's family, expected {family}", host.value);
            sink.push(host.at, message);
        }
    }
}

/// The keys of the door, with the positions of their values.
#[derive(Clone, Default)]
pub(in crate::config) struct Draft {
    allow: List<Exception>,
    /// Position of the value of `allow`, if the table has it.
    allow_at: Option<usize>,
    pub config: Option<Door>,
}

impl Draft {
    pub(super) fn read(table: &Table<'_>) -> Draft {
        let allow = table.take(&ALLOW).unwrap_or_default();
        let allow_at = table.value(&ALLOW).map(|value| value.at());
        let exceptions = allow.complete().and_then(|all| all.into_iter().map(|it| it.config).collect());
        let config = all!(Door {
            inbound: table.take(&INBOUND),
            allow: exceptions,
            isolated: table.take(&ISOLATED),
            rate_limit: table.take(&RATE_LIMIT),
        });
        Draft { allow, allow_at, config }
    }

    /// Creates the draft of an interface of which the config only has the name.
    pub(super) fn named() -> Draft {
        Draft { config: Some(Door::default()), ..Draft::default() }
    }

    /// Reports conflicts between the values. `prefixes` are those of the mobile router, of both families;
    /// empty if one of them has an error.
    pub(super) fn check(&self, prefixes: &[ipnet::IpNet], sink: &Sink<'_>) {
        if let Some(first) = self.allow.items.get(MAX_ALLOWED) {
            sink.push(first.at, format!("too many exceptions, expected at most {MAX_ALLOWED}"));
        }
        let is_open = self.config.as_ref().is_some_and(|door| door.inbound == Inbound::Any);
        if let Some(at) = self.allow_at.filter(|_| is_open && !self.allow.items.is_empty()) {
            sink.push(at, "everything passes already, expected inbound = \"established\"".to_owned());
        }
        for At { value: exception, .. } in &self.allow.items {
            exception.check(sink);
            let is_on_board = |host: &IpAddr| prefixes.iter().any(|prefix| prefix.contains(host));
            for host in exception.to.items.iter().filter(|host| !is_on_board(&host.value)) {
                if !prefixes.is_empty() {
                    let message = "is not on board, expected an address of the mobile network";
                    sink.push(host.at, format!("{} {message}", host.value));
                }
            }
        }
    }
}

/// Parses the address of a host.
fn host(text: &str) -> Result<IpAddr, String> {
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return values::ipv4_address(text).map(IpAddr::V4);
    }
    let wrong = |_| format!("{text:?} is no address, expected {EXPECTED_HOST}");
    text.parse().map(IpAddr::V6).map_err(wrong)
}
