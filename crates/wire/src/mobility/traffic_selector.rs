//! Binary traffic selectors (RFC 6088), which select the packets of a flow.
//!
//! A selector describes packets *towards* the mobile node, as the home agent sees them: the source is the
//! correspondent node. For packets in the other direction, match it against [`FlowFields::reversed`]. A field
//! that the selector does not name matches any value. A field that a packet lacks (such as the ports of a
//! later fragment) matches only a selector that does not name it.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Values from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ValueRange<T> {
    /// The first value.
    pub first: T,
    /// The last value, not before `first`.
    pub last: T,
}

impl<T: Copy + PartialOrd> ValueRange<T> {
    /// Returns the range of one value.
    pub fn single(value: T) -> ValueRange<T> {
        ValueRange { first: value, last: value }
    }

    /// Returns the range from `first` to `last`, both included.
    pub fn new(first: T, last: T) -> ValueRange<T> {
        ValueRange { first, last }
    }

    /// Returns whether the value is in the range.
    pub fn contains(&self, value: T) -> bool {
        self.first <= value && value <= self.last
    }
}

/// An IPv6 binary traffic selector (RFC 6088 3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Ipv6Selector {
    /// Range of the correspondent's address; `None` matches any address.
    pub source: Option<ValueRange<Ipv6Addr>>,
    /// Range of the address on the mobile side; `None` matches any address.
    pub destination: Option<ValueRange<Ipv6Addr>>,
    /// Range of the Security Parameter Index of ESP or AH; `None` matches every packet.
    pub spi: Option<ValueRange<u32>>,
    /// Range of the flow label, 20 bits; `None` matches any label.
    pub flow_label: Option<ValueRange<u32>>,
    /// Range of the correspondent's port; `None` matches every packet.
    pub source_port: Option<ValueRange<u16>>,
    /// Range of the port on the mobile side; `None` matches every packet.
    pub destination_port: Option<ValueRange<u16>>,
    /// Range of the Traffic Class octet; `None` matches any value. Only its upper six bits, the DS field, are
    /// compared.
    pub traffic_class: Option<ValueRange<u8>>,
    /// Range of the upper-layer protocol; `None` matches any protocol.
    pub next_header: Option<ValueRange<u8>>,
}

/// An IPv4 binary traffic selector (RFC 6088 3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Ipv4Selector {
    /// Range of the correspondent's address; `None` matches any address.
    pub source: Option<ValueRange<Ipv4Addr>>,
    /// Range of the address on the mobile side; `None` matches any address.
    pub destination: Option<ValueRange<Ipv4Addr>>,
    /// Range of the Security Parameter Index of ESP or AH; `None` matches every packet.
    pub spi: Option<ValueRange<u32>>,
    /// Range of the correspondent's port; `None` matches every packet.
    pub source_port: Option<ValueRange<u16>>,
    /// Range of the port on the mobile side; `None` matches every packet.
    pub destination_port: Option<ValueRange<u16>>,
    /// Range of the octet with the DS field in its upper six bits; `None` matches any value.
    pub differentiated_services: Option<ValueRange<u8>>,
    /// Range of the upper-layer protocol; `None` matches any protocol.
    pub protocol: Option<ValueRange<u8>>,
}

/// A traffic selector of a format that RFC 6088 defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficSelector {
    /// An IPv4 binary traffic selector (format 1).
    Ipv4(Ipv4Selector),
    /// An IPv6 binary traffic selector (format 2).
    Ipv6(Ipv6Selector),
}

/// Fields of a packet that a selector compares. An IPv4 packet has addresses in IPv4-mapped form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowFields {
    /// The source address.
    pub source: Ipv6Addr,
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The Traffic Class octet.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The protocol of the upper layer, behind the extension headers.
    pub next_header: u8,
    /// Source and destination port; `None` if the packet does not contain them, as a later fragment.
    pub ports: Option<(u16, u16)>,
    /// Security Parameter Index of ESP or AH; `None` if the packet does not contain one.
    pub spi: Option<u32>,
}

impl FlowFields {
    /// Returns this flow with source and destination exchanged. For a packet from the mobile node, match the
    /// selector against the reversed flow, because selectors describe packets towards the mobile node.
    pub fn reversed(self) -> FlowFields {
        FlowFields {
            source: self.destination,
            destination: self.source,
            ports: self.ports.map(|(source, destination)| (destination, source)),
            ..self
        }
    }
}

impl Ipv6Selector {
    /// Returns whether the selector selects a packet towards the mobile node.
    pub fn matches(&self, flow: &FlowFields) -> bool {
        fn matches_field<T: Copy + PartialOrd>(range: &Option<ValueRange<T>>, value: Option<T>) -> bool {
            range.is_none_or(|range| value.is_some_and(|value| range.contains(value)))
        }
        // RFC 6088 3.2: "the 2 least significant bits' values MUST be ignored in any comparison".
        let ds = self.traffic_class.map(|class| ValueRange::new(class.first >> 2, class.last >> 2));
        matches_field(&self.source, Some(flow.source))
            && matches_field(&self.destination, Some(flow.destination))
            && matches_field(&ds, Some(flow.traffic_class >> 2))
            && matches_field(&self.flow_label, Some(flow.flow_label))
            && matches_field(&self.next_header, Some(flow.next_header))
            && matches_field(&self.source_port, flow.ports.map(|(source, _)| source))
            && matches_field(&self.destination_port, flow.ports.map(|(_, destination)| destination))
            && matches_field(&self.spi, flow.spi)
    }
}

impl Ipv4Selector {
    /// Returns the selector that compares the same fields of a packet with addresses in IPv4-mapped form. It
    /// matches no IPv6 packet.
    pub fn as_ipv6(&self) -> Ipv6Selector {
        let any = ValueRange::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
        let mapped = |range: Option<ValueRange<Ipv4Addr>>| {
            let range = range.unwrap_or(any);
            Some(ValueRange::new(range.first.to_ipv6_mapped(), range.last.to_ipv6_mapped()))
        };
        Ipv6Selector {
            source: mapped(self.source),
            destination: mapped(self.destination),
            spi: self.spi,
            flow_label: None,
            source_port: self.source_port,
            destination_port: self.destination_port,
            traffic_class: self.differentiated_services,
            next_header: self.protocol,
        }
    }
}

impl TrafficSelector {
    /// Returns an IPv6 selector that selects the same packets. An IPv4 selector becomes one that compares
    /// addresses in IPv4-mapped form.
    pub fn as_ipv6(&self) -> Ipv6Selector {
        match self {
            TrafficSelector::Ipv4(selector) => selector.as_ipv6(),
            TrafficSelector::Ipv6(selector) => *selector,
        }
    }

    /// Returns whether the selector selects a packet towards the mobile node. `flow` has the fields of the
    /// packet.
    pub fn matches(&self, flow: &FlowFields) -> bool {
        match self {
            TrafficSelector::Ipv4(selector) => selector.as_ipv6().matches(flow),
            TrafficSelector::Ipv6(selector) => selector.matches(flow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_flow() -> FlowFields {
        FlowFields {
            source: "2001:db8:c::9".parse().expect("address"),
            destination: "2001:db8:a::10".parse().expect("address"),
            traffic_class: 0xb8 | 2,
            flow_label: 7,
            next_header: 17,
            ports: Some((40_000, 5000)),
            spi: None,
        }
    }

    #[test]
    fn selector_without_fields_matches_every_packet() {
        assert!(Ipv6Selector::default().matches(&example_flow()));
        let any = Ipv6Selector::default();
        for (fits, other) in [
            (
                Ipv6Selector { source: Some(ValueRange::single(example_flow().source)), ..any },
                Ipv6Selector { source: Some(ValueRange::single(example_flow().destination)), ..any },
            ),
            (
                Ipv6Selector { destination: Some(ValueRange::single(example_flow().destination)), ..any },
                Ipv6Selector { destination: Some(ValueRange::single(example_flow().source)), ..any },
            ),
            (
                Ipv6Selector { destination_port: Some(ValueRange::new(4999, 5000)), ..any },
                Ipv6Selector { destination_port: Some(ValueRange::new(5001, 6000)), ..any },
            ),
            (
                Ipv6Selector { source_port: Some(ValueRange::single(40_000)), ..any },
                Ipv6Selector { source_port: Some(ValueRange::single(5000)), ..any },
            ),
            (
                // A comparison ignores the ECN bits of the selector and of the packet.
                Ipv6Selector { traffic_class: Some(ValueRange::single(0xb8 | 1)), ..any },
                Ipv6Selector { traffic_class: Some(ValueRange::single(0xbc)), ..any },
            ),
            (
                Ipv6Selector { next_header: Some(ValueRange::single(17)), ..any },
                Ipv6Selector { next_header: Some(ValueRange::single(6)), ..any },
            ),
            (
                Ipv6Selector { flow_label: Some(ValueRange::new(7, 8)), ..any },
                Ipv6Selector { flow_label: Some(ValueRange::new(8, 9)), ..any },
            ),
        ] {
            assert!(fits.matches(&example_flow()), "{fits:?}");
            assert!(!other.matches(&example_flow()), "{other:?}");
        }
        let spi = Ipv6Selector { spi: Some(ValueRange::new(0, u32::MAX)), ..any };
        assert!(!spi.matches(&example_flow()), "a packet without an index has none in any range");
    }

    #[test]
    fn reversed_selector_matches_packets_of_reverse_direction() {
        let selector = TrafficSelector::Ipv6(Ipv6Selector {
            source: Some(ValueRange::single(example_flow().source)),
            destination_port: Some(ValueRange::single(5000)),
            ..Ipv6Selector::default()
        });
        let back = example_flow().reversed();
        assert_eq!(back.ports, Some((5000, 40_000)));
        assert!(!selector.matches(&back));
        assert!(selector.matches(&back.reversed()));
        let later_fragment = FlowFields { ports: None, ..example_flow() };
        assert!(!selector.matches(&later_fragment));
        assert!(!TrafficSelector::Ipv4(Ipv4Selector::default()).matches(&example_flow()));
    }

    #[test]
    fn ipv4_selector_matches_ipv4_packets_alone() {
        let ipv4 = |text: &str| text.parse::<Ipv4Addr>().expect("address");
        let packet = FlowFields {
            source: ipv4("203.0.113.9").to_ipv6_mapped(),
            destination: ipv4("10.42.7.9").to_ipv6_mapped(),
            next_header: 1,
            ..example_flow()
        };
        let any = Ipv4Selector::default();
        let network = ValueRange::new(ipv4("203.0.113.0"), ipv4("203.0.113.255"));
        let other = ValueRange::single(ipv4("198.51.100.1"));
        for (selector, expected) in [
            (any, true),
            (Ipv4Selector { source: Some(network), ..any }, true),
            (Ipv4Selector { destination: Some(network), ..any }, false),
            (Ipv4Selector { source: Some(other), ..any }, false),
            (Ipv4Selector { protocol: Some(ValueRange::single(1)), ..any }, true),
            (Ipv4Selector { protocol: Some(ValueRange::single(17)), ..any }, false),
            (Ipv4Selector { differentiated_services: Some(ValueRange::single(0xb8)), ..any }, true),
            (Ipv4Selector { differentiated_services: Some(ValueRange::single(0xbc)), ..any }, false),
        ] {
            let selector = TrafficSelector::Ipv4(selector);
            assert_eq!(selector.matches(&packet), expected, "{selector:?}");
            assert!(!selector.matches(&example_flow()), "{selector:?}");
        }
    }
}
