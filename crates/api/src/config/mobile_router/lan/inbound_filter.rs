//! The keys of `[[mobile_router.lan]]` for the inbound filter (the door): which packets from outside reach
//! hosts on board.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::super::super::errors::ErrorSink;
use super::super::super::keys::{
    Disclosure, Key, OptionalKey, Section, ValueKind, key_with_default, optional_key, required_key,
    text_kind, value_kind, words_kind,
};
use super::super::super::reader::{List, Located, LocatedValue};
use super::super::super::table::{Table, all};
use super::super::super::{kinds, values};
use super::super::transport::{PORT_RANGES_KIND, PROTOCOL_KIND, PolicyProtocol};

/// Maximum number of exceptions of an interface, and of ports and destinations of an exception: they bound
/// the number of rules in the kernel.
const MAX_EXCEPTIONS: usize = 32;
const MAX_PARTS_PER_EXCEPTION: usize = 16;
/// Possible rates of a host in bits per second.
const POSSIBLE_HOST_RATES: RangeInclusive<u64> = 100_000..=10_000_000_000;

/// The inbound filter (the door): a stateful firewall that decides which packets from outside reach an
/// interface on board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundFilter {
    /// Packets from outside that pass the inbound filter without an entry in `allow`.
    pub inbound_policy: InboundPolicy,
    /// Packets from outside that reach hosts although `inbound` would drop them.
    pub allowed_packets: Vec<AllowedPackets>,
    /// Whether no packets pass between this interface and others on board.
    pub is_isolated: bool,
    /// Maximum rate of each host in bits per second and direction; `None` for no limit.
    pub rate_limit: Option<u64>,
}

/// `inbound`: packets from outside that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboundPolicy {
    /// All packets.
    Any,
    /// Packets of connections that hosts on board began.
    Established,
}

/// An exception from `inbound = "established"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPackets {
    /// Protocol; of ICMP and ICMPv6 only Echo Requests pass.
    pub protocol: PolicyProtocol,
    /// Destination ports; empty for all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Hosts; empty for every host of the interface.
    pub destination_hosts: Vec<IpAddr>,
}

impl Default for InboundFilter {
    /// Returns the inbound filter of an interface that the config file only names.
    fn default() -> InboundFilter {
        InboundFilter {
            inbound_policy: InboundPolicy::Any,
            allowed_packets: Vec::new(),
            is_isolated: false,
            rate_limit: None,
        }
    }
}

const EXPECTED_EXCEPTIONS: &str = "an array of tables such as { protocol = \"tcp\", ports = [443] }";
const EXPECTED_RATE: &str = "a rate from 100kbit to 10gbit such as \"20mbit\"";
const EXPECTED_HOSTS: &str = "an array of addresses";
const EXPECTED_HOST: &str = "an address of a host such as \"2001:db8:a::77\" or \"10.42.7.9\"";

const EXCEPTIONS_KIND: ValueKind<List<Exception>> =
    value_kind("array of tables", EXPECTED_EXCEPTIONS, |value| {
        List::read_array(value, EXPECTED_EXCEPTIONS, Exception::read_exception)
    })
    .with_table(&SECTION, &[])
    .with_disclosure(Disclosure::Open);
const HOSTS_KIND: ValueKind<List<IpAddr>> = value_kind("array of addresses", EXPECTED_HOSTS, |value| {
    List::read_array(value, EXPECTED_HOSTS, |item| item.parse(EXPECTED_HOST, parse_host))
});

pub(super) static INBOUND_POLICY: Key<InboundPolicy> = key_with_default(
    "inbound",
    words_kind(&[("established", InboundPolicy::Established), ("any", InboundPolicy::Any)]),
    r#""established""#,
    r#"Packets from outside that reach hosts: `"established"` only those of connections that a host on board
       began, and ICMP errors about these, see [the door](on-board.md#the-door). `"any"`: all packets. An
       interface of which `lan` has only the name has `"any"`."#,
);
pub(super) static ALLOWED_PACKETS: Key<List<Exception>> = key_with_default(
    "allow",
    EXCEPTIONS_KIND,
    "[]",
    "Packets that pass nevertheless, at most 32 tables, see
     [[[mobile_router.lan.allow]]](#mobile_routerlanallow).",
);
pub(super) static IS_ISOLATED: Key<bool> = key_with_default(
    "isolated",
    kinds::BOOLEAN_KIND,
    "false",
    "No packets pass between this interface and the other interfaces of `lan`.",
);
pub(super) static RATE_LIMIT: OptionalKey<u64> = optional_key(
    "rate_limit",
    text_kind("rate", EXPECTED_RATE, parse_rate),
    r#"Maximum rate of each host, from it and to it, in `kbit`, `mbit` or `gbit` per second such as
       `"20mbit"`, from 100kbit to 10gbit. Packets above it are dropped. Packets of these hosts do not take
       the fast path. See [on-board.md](on-board.md#a-rate-for-each-host)."#,
);

static PROTOCOL_KEY: Key<PolicyProtocol> = required_key(
    "protocol",
    PROTOCOL_KIND,
    r#"The protocol. With `"icmp"`, which is that of IPv4, and `"icmpv6"` only Echo Requests (`ping`) pass."#,
);
static PORTS_KEY: Key<List<RangeInclusive<u16>>> = key_with_default(
    "ports",
    PORT_RANGES_KIND,
    "[]",
    r#"Destination ports, such as `443` or `"5000-5010"`, at most 16. An empty array matches all ports."#,
);
static DESTINATION_HOSTS: Key<List<IpAddr>> = key_with_default(
    "to",
    HOSTS_KIND,
    "[]",
    "Addresses of hosts on this interface, at most 16. An empty array matches every host of it.",
);

/// Keys of the config table `[[mobile_router.lan.allow]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.lan.allow]]",
    "mobile_router.lan.allow",
    &[&PROTOCOL_KEY, &PORTS_KEY, &DESTINATION_HOSTS],
);

/// Parses a rate in bits per second.
fn parse_rate(text: &str) -> Result<u64, String> {
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
    if !POSSIBLE_HOST_RATES.contains(&rate) {
        return Err(format!("{text:?} is out of range, expected {EXPECTED_RATE}"));
    }
    Ok(rate)
}

/// An exception, with the positions of its values.
#[derive(Clone)]
pub(in crate::config) struct Exception {
    ports: List<RangeInclusive<u16>>,
    to: List<IpAddr>,
    config: Option<AllowedPackets>,
}

impl Exception {
    fn read_exception(value: &LocatedValue<'_>) -> Option<Exception> {
        let table = Table::of_value(&SECTION, value)?;
        let (ports, to) = (
            table.read_key(&PORTS_KEY).unwrap_or_default(),
            table.read_key(&DESTINATION_HOSTS).unwrap_or_default(),
        );
        let config = all!(AllowedPackets {
            protocol: table.read_key(&PROTOCOL_KEY),
            ports: ports.complete_items(),
            destination_hosts: to.complete_items()
        });
        Some(Exception { ports, to, config })
    }

    /// Checks the values of this exception against each other.
    fn check_exception(&self, sink: &ErrorSink<'_>) {
        if let Some(first) = self.ports.valid_items.get(MAX_PARTS_PER_EXCEPTION) {
            sink.push(first.offset, format!("too many ports, expected at most {MAX_PARTS_PER_EXCEPTION}"));
        }
        if let Some(first) = self.to.valid_items.get(MAX_PARTS_PER_EXCEPTION) {
            sink.push(first.offset, format!("too many hosts, expected at most {MAX_PARTS_PER_EXCEPTION}"));
        }
        let Some(config) = &self.config else { return };
        let is_icmp = matches!(config.protocol, PolicyProtocol::Icmp | PolicyProtocol::Icmpv6);
        if let Some(port) = self.ports.valid_items.first().filter(|_| is_icmp) {
            sink.push(port.offset, "ICMP has no ports, expected none".to_owned());
        }
        let other_family = |address: &IpAddr| match config.protocol {
            PolicyProtocol::Icmp => address.is_ipv6(),
            PolicyProtocol::Icmpv6 => address.is_ipv4(),
            PolicyProtocol::Tcp | PolicyProtocol::Udp => false,
        };
        if let Some(host) = self.to.valid_items.iter().find(|host| other_family(&host.value)) {
            let family = if host.value.is_ipv4() { "IPv6" } else { "IPv4" };
            let message = format!("{} is not of the protocol's family, expected {family}", host.value);
            sink.push(host.offset, message);
        }
    }
}

/// The keys of the inbound filter, with the positions of their values.
#[derive(Clone, Default)]
pub(in crate::config) struct UncheckedInboundFilter {
    allow: List<Exception>,
    /// Position of the value of `allow`, if the table has it.
    allow_at: Option<usize>,
    pub config: Option<InboundFilter>,
}

impl UncheckedInboundFilter {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedInboundFilter {
        let allow = table.read_key(&ALLOWED_PACKETS).unwrap_or_default();
        let allow_at = table.value_of_key(&ALLOWED_PACKETS).map(|value| value.offset());
        let exceptions = allow.complete_items().and_then(|all| all.into_iter().map(|it| it.config).collect());
        let config = all!(InboundFilter {
            inbound_policy: table.read_key(&INBOUND_POLICY),
            allowed_packets: exceptions,
            is_isolated: table.read_key(&IS_ISOLATED),
            rate_limit: table.read_key(&RATE_LIMIT),
        });
        UncheckedInboundFilter { allow, allow_at, config }
    }

    /// Creates the draft of an interface that the config file only names.
    pub(super) fn from_interface_name() -> UncheckedInboundFilter {
        UncheckedInboundFilter { config: Some(InboundFilter::default()), ..UncheckedInboundFilter::default() }
    }

    /// Reports conflicts between the values. `prefixes` are those of the mobile router, of both families;
    /// empty if one of them has an error.
    pub(super) fn check_values(&self, prefixes: &[ipnet::IpNet], sink: &ErrorSink<'_>) {
        if let Some(first) = self.allow.valid_items.get(MAX_EXCEPTIONS) {
            sink.push(first.offset, format!("too many exceptions, expected at most {MAX_EXCEPTIONS}"));
        }
        let is_open = self.config.as_ref().is_some_and(|door| door.inbound_policy == InboundPolicy::Any);
        if let Some(at) = self.allow_at.filter(|_| is_open && !self.allow.valid_items.is_empty()) {
            sink.push(at, "everything passes already, expected inbound = \"established\"".to_owned());
        }
        for Located { value: exception, .. } in &self.allow.valid_items {
            exception.check_exception(sink);
            let is_on_board = |host: &IpAddr| prefixes.iter().any(|prefix| prefix.contains(host));
            for host in exception.to.valid_items.iter().filter(|host| !is_on_board(&host.value)) {
                if !prefixes.is_empty() {
                    let message = "is not on board, expected an address of the mobile network";
                    sink.push(host.offset, format!("{} {message}", host.value));
                }
            }
        }
    }
}

/// Parses the address of a host.
fn parse_host(text: &str) -> Result<IpAddr, String> {
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return values::parse_ipv4_address(text).map(IpAddr::V4);
    }
    let wrong = |_| format!("{text:?} is no address, expected {EXPECTED_HOST}");
    text.parse().map(IpAddr::V6).map_err(wrong)
}
