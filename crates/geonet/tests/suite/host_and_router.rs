//! A simulated host whose virtual interfaces use one router.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_geonet::ipv6_adaptation::{
    HostDelivery, HostFrame, Ipv6Adaptation, Ipv6Area, Ipv6Config, Ipv6Drop, LinkId, Output, Prefix,
    VirtualLink, addresses,
};
use carnet_geonet::{MacAddress, Mib};
use carnet_wire::geonet::GeoArea;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{self, NdOption, PrefixInformation, RouterAdvertisementRepr};
use carnet_wire::{icmpv6, ipv6};

use crate::simulated_stations::{ROUTER_MAC, RouterUnderTest, SimulatedStation, address, etsi_area_1};

pub const ALL_NODES_ADDRESS: &str = "ff02::1";
pub const IPV6_ETHERTYPE: u16 = 0x86dd;

pub fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

pub fn parse_prefix(text: &str) -> Prefix {
    Prefix { address: parse_address(text), prefix_length: 64 }
}

/// Returns an IPv6 packet with arbitrary UDP payload.
pub fn udp_packet(source: Ipv6Addr, destination: Ipv6Addr, octets: usize) -> Vec<u8> {
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(octets).expect("a length"),
        next_header: protocol::UDP,
        hop_limit: 64,
        source,
        destination,
    };
    [&header.emit()[..], &vec![7; octets]].concat()
}

pub fn neighbor_solicitation(
    source: Ipv6Addr,
    target: Ipv6Addr,
    link_address: Option<MacAddress>,
) -> Vec<u8> {
    let message = nd::NeighborSolicitation { target, source_link_address: link_address }.emit();
    icmpv6::emit_packet(source, nd::solicited_node_address(target), nd::HOP_LIMIT, message)
}

/// Returns a packet with a Router Advertisement that has one prefix.
pub fn router_advertisement(from: &SimulatedStation, prefix: Prefix, seconds: u32) -> Vec<u8> {
    let options = [
        NdOption::SourceLinkAddress(from.mac),
        NdOption::PrefixInformation(PrefixInformation {
            prefix: prefix.address,
            prefix_length: prefix.prefix_length,
            on_link: true,
            autonomous: true,
            router_address: false,
            valid_lifetime: seconds,
            preferred_lifetime: seconds,
        }),
    ];
    let repr = RouterAdvertisementRepr { options: &options, router_lifetime: 30, ..Default::default() };
    let source = addresses::link_local_address(from.mac);
    icmpv6::emit_packet(
        source,
        parse_address(ALL_NODES_ADDRESS),
        nd::HOP_LIMIT,
        nd::emit_router_advertisement(&repr),
    )
}

/// Sets the next header of a tester's frame to IPv6.
pub fn with_ipv6_next_header(mut frame: Vec<u8>) -> Vec<u8> {
    frame[4] = 0x30;
    frame
}

/// First subnet of the ETSI suite, on the link of AREA1.
pub const FIRST_SUBNET_PREFIX: &str = "3ffe:0:0:1::";

pub struct HostAndRouter {
    pub iut: RouterUnderTest,
    pub adaptation: Ipv6Adaptation,
    pub interfaces: Vec<VirtualLink>,
    /// Frames for the host from `Ipv6Adaptation::poll_output`: interface, destination, source, packet.
    pub frames_for_host: Vec<(LinkId, MacAddress, MacAddress, Vec<u8>)>,
}

pub fn config() -> Ipv6Config {
    Ipv6Config {
        interface: "tvl0".into(),
        dynamic_interface: None,
        areas: Vec::new(),
        learnt_links: 0,
        hop_limit: None,
        mtu: 1398,
        reorder_wait: Duration::ZERO,
        reorder_rule: carnet_geonet::ipv6_adaptation::in_order::ReorderRule::Shorter,
        reorder_hold: Default::default(),
        congestion_mark: None,
        fragments_large_packets: false,
    }
}

/// Returns an area with its own link.
pub fn area_with_link(area: GeoArea, interface: &str, subnet: Option<&str>) -> Ipv6Area {
    Ipv6Area { area, group: None, prefix: subnet.map(parse_prefix), interface: Some(interface.into()) }
}

impl HostAndRouter {
    pub fn new(config: Ipv6Config) -> HostAndRouter {
        let mut host = HostAndRouter {
            iut: RouterUnderTest::with_rare_beacons(Mib::default()),
            adaptation: Ipv6Adaptation::new(config, address(ROUTER_MAC)),
            interfaces: Vec::new(),
            frames_for_host: Vec::new(),
        };
        host.collect_outputs();
        host
    }

    /// Returns a host with the links of the ETSI suite: the topological link, one for AREA1, and the dynamic
    /// link.
    pub fn with_links() -> HostAndRouter {
        let areas = vec![area_with_link(etsi_area_1(), "sgvl1", Some(FIRST_SUBNET_PREFIX))];
        HostAndRouter::new(Ipv6Config {
            dynamic_interface: Some("dgvl".into()),
            areas,
            learnt_links: 2,
            ..config()
        })
    }

    pub fn collect_outputs(&mut self) {
        while let Some(output) = self.adaptation.poll_output() {
            match output {
                Output::Link(link) => {
                    self.interfaces.retain(|known| known.id != link.id);
                    self.interfaces.push(link);
                }
                Output::LinkGone(id) => self.interfaces.retain(|known| known.id != id),
                Output::Frame { link, destination, source, packet } => {
                    self.frames_for_host.push((link, destination, source, packet));
                }
            }
        }
    }

    #[track_caller]
    pub fn link_id(&self, name: &str) -> LinkId {
        let link = self.interfaces.iter().find(|link| link.name == name);
        link.unwrap_or_else(|| panic!("no {name} in {:?}", self.interfaces)).id
    }

    pub fn own_link_local(&self) -> Ipv6Addr {
        addresses::link_local_address(ROUTER_MAC)
    }

    /// Sends a frame of the host on an interface.
    pub fn send_packet(
        &mut self,
        name: &str,
        destination: MacAddress,
        packet: &[u8],
    ) -> Result<bool, Ipv6Drop> {
        let frame =
            HostFrame { destination, source: ROUTER_MAC, ether_type: IPV6_ETHERTYPE, payload: packet };
        self.send_frame(name, frame)
    }

    /// Sends a frame of the host on an interface; returns whether the frame became a request.
    pub fn send_frame(&mut self, name: &str, frame: HostFrame<'_>) -> Result<bool, Ipv6Drop> {
        let result = self.adaptation.handle_host_frame(self.iut.now, self.link_id(name), frame);
        let requested = match result? {
            Some(request) => {
                self.iut.request(request).expect("a request that is granted");
                true
            }
            None => false,
        };
        self.collect_outputs();
        Ok(requested)
    }

    /// Sends a packet of the host to a group on an interface.
    pub fn send_multicast(&mut self, name: &str, packet: &[u8]) {
        let destination = ipv6::Header::parse(packet).expect("IPv6").destination;
        assert_eq!(self.send_packet(name, addresses::group_mac(destination), packet), Ok(true));
    }

    /// Passes a frame of a station to the router. Returns the virtual interface and Ethernet header with
    /// which the host gets the payload.
    pub fn receive_frame(
        &mut self,
        from: &SimulatedStation,
        frame: Vec<u8>,
    ) -> Result<(String, HostDelivery), Ipv6Drop> {
        // Ignore whether the router also forwards the packet.
        let _ = self.iut.receive_broadcast(from, &with_ipv6_next_header(frame));
        assert_eq!(self.iut.delivered_payloads.len(), 1, "one payload");
        let delivery = self.iut.delivered_payloads.remove(0);
        let placed = self.adaptation.handle_delivery(self.iut.now, &delivery);
        self.collect_outputs();
        let placed = placed?;
        let link = self.interfaces.iter().find(|link| link.id == placed.link).expect("a known interface");
        Ok((link.name.clone(), placed))
    }
}
