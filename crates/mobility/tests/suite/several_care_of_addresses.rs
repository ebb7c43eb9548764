//! Binding Updates with several care-of addresses and flows, and the contents of their acknowledgements.

use std::net::{IpAddr, Ipv4Addr};

use carnet_base::Endpoint;
use carnet_wire::mobility::flow_identification::{FlowActionOption, emit_sub_options};
use carnet_wire::mobility::traffic_selector::{Ipv6Selector, TrafficSelector, ValueRange};
use carnet_wire::mobility::{BindingUpdateFlags, MobilityHeader, MobilityOption, ParsedMobilityMessage};

use crate::agent::TestAgent;
use crate::test_messages::*;

pub const THIRD_CARE_OF_ADDRESS: &str = "2001:db8:f3::10";
/// Flags of a mobile router that replaces all its bindings.
pub const OVERWRITE_FLAGS: BindingUpdateFlags = BindingUpdateFlags { overwrite: true, ..ROUTER_FLAGS };

/// Returns a Binding Identifier option with BID-PRI ten times the identifier.
pub fn identifier_option(bid: u16, care_of: Option<&str>) -> MobilityOption<'static> {
    MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority: u8::try_from(bid * 10 % 128).expect("seven bits"),
        care_of_address: care_of.map(|text| text.parse::<IpAddr>().expect("an address")),
    }
}

impl TestUpdate {
    pub fn with_bid(self, bid: u16, care_of: &str) -> TestUpdate {
        self.with_option(identifier_option(bid, Some(care_of)))
    }

    pub fn with_known_bid(self, bid: u16) -> TestUpdate {
        self.with_option(identifier_option(bid, None))
    }

    pub fn with_overwrite_flag(self) -> TestUpdate {
        self.with_flags(OVERWRITE_FLAGS)
    }

    /// Sends the update from an IPv4 network: the source of the inner packet is the home address (RFC 5555
    /// 4.4.2).
    pub fn sent_on_ipv4_network(self) -> TestUpdate {
        TestUpdate { source: addr(HOME_ADDRESS), home_address: None, ..self }
    }

    /// Adds a Flow Identification option for UDP to a port, with these BIDs.
    pub fn with_flow(self, fid: u16, priority: u16, port: u16, bids: &[u16]) -> TestUpdate {
        self.with_flow_sub_options(fid, priority, emit_sub_options(Some(&udp_selector(port)), bids))
    }

    /// Adds a Flow Identification option. The program never frees the sub-options of a test.
    pub fn with_flow_sub_options(self, fid: u16, priority: u16, sub_options: Vec<u8>) -> TestUpdate {
        let sub_options: &'static [u8] = sub_options.leak();
        self.with_option(MobilityOption::FlowIdentification { fid, priority, status: 0, sub_options })
    }

    pub fn with_flow_summary(self, fids: &[u16]) -> TestUpdate {
        let octets: &'static [u8] =
            carnet_wire::mobility::flow_identification::emit_binding_identifiers(fids).leak();
        let fids = carnet_wire::mobility::flow_identification::BindingIdentifiers::parse(octets, "fids")
            .expect("fids");
        self.with_option(MobilityOption::FlowSummary(fids))
    }

    pub fn with_flow_action(self, action: &FlowActionOption) -> TestUpdate {
        let data: &'static [u8] = action.emit().leak();
        self.with_option(FlowActionOption::vendor_specific_option(data))
    }
}

pub fn udp_selector(port: u16) -> TrafficSelector {
    TrafficSelector::Ipv6(Ipv6Selector {
        next_header: Some(ValueRange::single(17)),
        destination_port: Some(ValueRange::single(port)),
        ..Ipv6Selector::default()
    })
}

/// Contents of an acknowledgement besides those in [`ReceivedOptions`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AcknowledgementOptions {
    /// BID and status of each Binding Identifier option.
    pub bid_statuses: Vec<(u16, u8)>,
    /// F flag and refresh time of the NAT Detection option; `None` without the option.
    pub nat_detection: Option<(bool, u32)>,
    pub ipv4_answers: Vec<(u8, Ipv4Addr)>,
    /// FID and status of each flow.
    pub flow_statuses: Vec<(u16, u8)>,
    pub flow_actions: Vec<FlowActionOption>,
}

pub fn acknowledgement_options(seen: &ReceivedPacket) -> AcknowledgementOptions {
    let mut said = AcknowledgementOptions::default();
    let header = MobilityHeader::parse(&seen.mobility_header).expect("a Mobility Header");
    let Ok(ParsedMobilityMessage::BindingAcknowledgement(acknowledgement)) = header.message() else {
        panic!("expected an acknowledgement, found {seen:?}")
    };
    for option in acknowledgement.options.iter() {
        let option = option.expect("an option that parses");
        match option {
            MobilityOption::BindingIdentifier { bid, status, care_of_address, priority, .. } => {
                assert_eq!(care_of_address, None, "RFC 5648 4.3: only in a Binding Update");
                assert_eq!(u16::from(priority), bid * 10 % 128, "RFC 6089 5.3.5: copied");
                said.bid_statuses.push((bid, status));
            }
            MobilityOption::NatDetection { force_udp, refresh } => {
                said.nat_detection = Some((force_udp, refresh))
            }
            MobilityOption::Ipv4AddressAcknowledgement { status, prefix_length, address } => {
                assert_eq!(prefix_length == 0, status >= 128, "RFC 5555 3.2.1: zero in case of failure");
                said.ipv4_answers.push((status, address));
            }
            MobilityOption::FlowIdentification { fid, status, .. } => said.flow_statuses.push((fid, status)),
            option => said
                .flow_actions
                .extend(FlowActionOption::from_mobility_option(&option).map(|read| read.expect("fine"))),
        }
    }
    said
}

/// Returns BID and care-of address of each valid binding of [`HOME_ADDRESS`], the best first.
pub fn bindings_of_home(agent: &TestAgent) -> Vec<(Option<u16>, Endpoint)> {
    agent
        .home_agent
        .bindings()
        .bindings_of(addr(HOME_ADDRESS))
        .map(|binding| (binding.bid, binding.care_of_address))
        .collect()
}

/// Builds the value of [`bindings_of_home`] from text.
pub fn expected_bindings(list: &[(u16, &str)]) -> Vec<(Option<u16>, Endpoint)> {
    list.iter().map(|(bid, end)| (Some(*bid), end.parse().expect("an end"))).collect()
}
