//! Binding Updates with several care-of addresses and flows, and the contents of their acknowledgements.

use std::net::{IpAddr, Ipv4Addr};

use carnet_base::Endpoint;
use carnet_wire::mobility::flow::{FlowActionOption, emit_sub_options};
use carnet_wire::mobility::selector::{Ipv6Selector, Range, TrafficSelector};
use carnet_wire::mobility::{BindingUpdateFlags, Message, MobilityHeader, MobilityOption};

use crate::agent::Agent;
use crate::craft::*;

pub const THIRD_CARE_OF: &str = "2001:db8:f3::10";
/// Flags of a mobile router that replaces all its bindings.
pub const OVERWRITE: BindingUpdateFlags = BindingUpdateFlags { overwrite: true, ..ROUTER };

/// A Binding Identifier option with BID-PRI ten times the identifier.
pub fn identifier(bid: u16, care_of: Option<&str>) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority: u8::try_from(bid * 10 % 128).expect("seven bits"),
        care_of_address: care_of.map(|text| text.parse::<IpAddr>().expect("an address")),
    }
}

impl Update {
    pub fn bid(self, bid: u16, care_of: &str) -> Update {
        self.with(identifier(bid, Some(care_of)))
    }

    pub fn known_bid(self, bid: u16) -> Update {
        self.with(identifier(bid, None))
    }

    pub fn overwriting(self) -> Update {
        self.flags(OVERWRITE)
    }

    /// Sends the update from an IPv4 network: the source of the inner packet is the home address (RFC 5555
    /// 4.4.2).
    pub fn inside(self) -> Update {
        Update { source: addr(HOME), home_address: None, ..self }
    }

    /// A Flow Identification option for UDP to a port, with these BIDs.
    pub fn flow(self, fid: u16, priority: u16, port: u16, bids: &[u16]) -> Update {
        self.flow_with(fid, priority, emit_sub_options(Some(&udp_to(port)), bids))
    }

    /// A Flow Identification option. Options in these tests live as long as the program.
    pub fn flow_with(self, fid: u16, priority: u16, sub_options: Vec<u8>) -> Update {
        let sub_options: &'static [u8] = sub_options.leak();
        self.with(MobilityOption::FlowIdentification { fid, priority, status: 0, sub_options })
    }

    pub fn summary(self, fids: &[u16]) -> Update {
        let octets: &'static [u8] = carnet_wire::mobility::flow::emit_identifiers(fids).leak();
        let fids = carnet_wire::mobility::flow::Identifiers::parse(octets, "fids").expect("fids");
        self.with(MobilityOption::FlowSummary(fids))
    }

    pub fn action(self, action: &FlowActionOption) -> Update {
        let data: &'static [u8] = action.emit().leak();
        self.with(FlowActionOption::vendor_option(data))
    }
}

pub fn udp_to(port: u16) -> TrafficSelector {
    TrafficSelector::Ipv6(Ipv6Selector {
        next_header: Some(Range::single(17)),
        destination_port: Some(Range::single(port)),
        ..Ipv6Selector::default()
    })
}

/// Contents of an acknowledgement besides those in [`SeenOptions`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// BID and status of each Binding Identifier option.
    pub bids: Vec<(u16, u8)>,
    /// F flag and refresh time of the NAT Detection option.
    pub nat: Option<(bool, u32)>,
    pub ipv4: Vec<(u8, Ipv4Addr)>,
    /// FID and status of each flow.
    pub flows: Vec<(u16, u8)>,
    pub actions: Vec<FlowActionOption>,
}

pub fn said(seen: &Seen) -> Said {
    let mut said = Said::default();
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(Message::BindingAcknowledgement(acknowledgement)) = header.message() else {
        panic!("expected an acknowledgement, found {seen:?}")
    };
    for option in acknowledgement.options.iter() {
        let option = option.expect("an option that parses");
        match option {
            MobilityOption::BindingIdentifier { bid, status, care_of_address, priority, .. } => {
                assert_eq!(care_of_address, None, "RFC 5648 4.3: only in a Binding Update");
                assert_eq!(u16::from(priority), bid * 10 % 128, "RFC 6089 5.3.5: copied");
                said.bids.push((bid, status));
            }
            MobilityOption::NatDetection { force_udp, refresh } => said.nat = Some((force_udp, refresh)),
            MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address } => {
                assert_eq!(prefix_length == 0, status >= 128, "RFC 5555 3.2.1: zero in case of failure");
                said.ipv4.push((status, address));
            }
            MobilityOption::FlowIdentification { fid, status, .. } => said.flows.push((fid, status)),
            option => said.actions.extend(FlowActionOption::read(&option).map(|read| read.expect("fine"))),
        }
    }
    said
}

/// Returns BID and care-of address of each valid binding of [`HOME`], the best first.
pub fn bindings(agent: &Agent) -> Vec<(Option<u16>, Endpoint)> {
    agent.machine.bindings().of(addr(HOME)).map(|binding| (binding.bid, binding.care_of_address)).collect()
}

/// Builds the value of [`bindings`] from text.
pub fn expected(list: &[(u16, &str)]) -> Vec<(Option<u16>, Endpoint)> {
    list.iter().map(|(bid, end)| (Some(*bid), end.parse().expect("an end"))).collect()
}
