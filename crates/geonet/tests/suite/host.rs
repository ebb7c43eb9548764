//! A host with virtual interfaces over one router.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_geonet::ipv6_adaptation::{
    Adaptation, HostDelivery, HostFrame, Ipv6Area, Ipv6Config, Ipv6Drop, LinkId, Output, Prefix, VirtualLink,
    addresses,
};
use carnet_geonet::{MacAddress, Mib};
use carnet_wire::geonet::GeoArea;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{self, NdOption, PrefixInformation, RouterAdvertisementRepr};
use carnet_wire::{icmpv6, ipv6};

use crate::craft::{IUT_MAC, Iut, Station, address, area1};

pub const ALL_NODES: &str = "ff02::1";
pub const IPV6: u16 = 0x86dd;

pub fn ip(text: &str) -> Ipv6Addr {
    text.parse().expect("an IPv6 address")
}

pub fn prefix(text: &str) -> Prefix {
    Prefix { address: ip(text), length: 64 }
}

/// Returns an IPv6 packet with arbitrary UDP payload.
pub fn packet(source: Ipv6Addr, destination: Ipv6Addr, octets: usize) -> Vec<u8> {
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
    icmpv6::packet(source, nd::solicited_node(target), nd::HOP_LIMIT, message)
}

/// Returns a packet with a Router Advertisement that has one prefix.
pub fn router_advertisement(from: &Station, prefix: Prefix, seconds: u32) -> Vec<u8> {
    let options = [
        NdOption::SourceLinkAddress(from.mac),
        NdOption::PrefixInformation(PrefixInformation {
            prefix: prefix.address,
            prefix_length: prefix.length,
            on_link: true,
            autonomous: true,
            router_address: false,
            valid_lifetime: seconds,
            preferred_lifetime: seconds,
        }),
    ];
    let repr = RouterAdvertisementRepr { options: &options, router_lifetime: 30, ..Default::default() };
    let source = addresses::link_local(from.mac);
    icmpv6::packet(source, ip(ALL_NODES), nd::HOP_LIMIT, nd::router_advertisement(&repr))
}

/// Sets the next header of a tester's frame to IPv6.
pub fn with_ipv6(mut frame: Vec<u8>) -> Vec<u8> {
    frame[4] = 0x30;
    frame
}

/// First subnet of the ETSI suite, on the link of AREA1.
pub const SUBNET_1: &str = "3ffe:0:0:1::";

pub struct Host {
    pub iut: Iut,
    pub adaptation: Adaptation,
    pub interfaces: Vec<VirtualLink>,
    /// Frames for the host from `Adaptation::poll_output`: interface, destination, source, packet.
    pub answers: Vec<(LinkId, MacAddress, MacAddress, Vec<u8>)>,
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
        fragments: false,
    }
}

/// Returns an area with its own link.
pub fn link(area: GeoArea, interface: &str, subnet: Option<&str>) -> Ipv6Area {
    Ipv6Area { area, group: None, prefix: subnet.map(prefix), interface: Some(interface.into()) }
}

impl Host {
    pub fn new(config: Ipv6Config) -> Host {
        let mut host = Host {
            iut: Iut::quiet(Mib::default()),
            adaptation: Adaptation::new(config, address(IUT_MAC)),
            interfaces: Vec::new(),
            answers: Vec::new(),
        };
        host.drain();
        host
    }

    /// Returns a host with the links of the ETSI suite: the topological link, one for AREA1, and the dynamic
    /// link.
    pub fn with_links() -> Host {
        let areas = vec![link(area1(), "sgvl1", Some(SUBNET_1))];
        Host::new(Ipv6Config { dynamic_interface: Some("dgvl".into()), areas, learnt_links: 2, ..config() })
    }

    pub fn drain(&mut self) {
        while let Some(output) = self.adaptation.poll_output() {
            match output {
                Output::Link(link) => {
                    self.interfaces.retain(|known| known.id != link.id);
                    self.interfaces.push(link);
                }
                Output::LinkGone(id) => self.interfaces.retain(|known| known.id != id),
                Output::Frame { link, destination, source, packet } => {
                    self.answers.push((link, destination, source, packet));
                }
            }
        }
    }

    #[track_caller]
    pub fn id(&self, name: &str) -> LinkId {
        let link = self.interfaces.iter().find(|link| link.name == name);
        link.unwrap_or_else(|| panic!("no {name} in {:?}", self.interfaces)).id
    }

    pub fn own(&self) -> Ipv6Addr {
        addresses::link_local(IUT_MAC)
    }

    /// Sends a frame of the host on an interface.
    pub fn put(&mut self, name: &str, destination: MacAddress, packet: &[u8]) -> Result<bool, Ipv6Drop> {
        let frame = HostFrame { destination, source: IUT_MAC, ether_type: IPV6, payload: packet };
        self.put_frame(name, frame)
    }

    /// Sends a frame of the host on an interface; returns whether the frame became a request.
    pub fn put_frame(&mut self, name: &str, frame: HostFrame<'_>) -> Result<bool, Ipv6Drop> {
        let result = self.adaptation.handle_host_frame(self.iut.now, self.id(name), frame);
        let requested = match result? {
            Some(request) => {
                self.iut.request(request).expect("a request that is granted");
                true
            }
            None => false,
        };
        self.drain();
        Ok(requested)
    }

    /// Sends a packet of the host to a group on an interface.
    pub fn multicast(&mut self, name: &str, packet: &[u8]) {
        let destination = ipv6::Header::parse(packet).expect("IPv6").destination;
        assert_eq!(self.put(name, addresses::group_address(destination), packet), Ok(true));
    }

    /// Passes a frame of a station to the router. Returns the virtual interface and Ethernet header with
    /// which the host gets the payload.
    pub fn hear(&mut self, from: &Station, frame: Vec<u8>) -> Result<(String, HostDelivery), Ipv6Drop> {
        // Ignore whether the router also forwards the packet.
        let _ = self.iut.hear(from, &with_ipv6(frame));
        assert_eq!(self.iut.delivered.len(), 1, "one payload");
        let delivery = self.iut.delivered.remove(0);
        let placed = self.adaptation.handle_delivery(self.iut.now, &delivery);
        self.drain();
        let placed = placed?;
        let link = self.interfaces.iter().find(|link| link.id == placed.link).expect("a known interface");
        Ok((link.name.clone(), placed))
    }
}
