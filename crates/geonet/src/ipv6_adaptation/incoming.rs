//! From GeoNetworking to the host: the interface on which the host receives a packet (EN 302 636-6-1 clause
//! 9).

use carnet_base::Time;
use carnet_wire::geonet::{GeoArea, HeaderType};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};
use carnet_wire::nd::{self, NeighborAdvertisement, NeighborSolicitation, RouterAdvertisement};

use super::addresses::{self, ALL_NODES_MAC};
use super::links::{Ipv6Link, LinkId, LinkKind};
use super::outgoing::check_addresses;
use super::{Ipv6Adaptation, Ipv6Drop, MAX_ROUTERS, numbered_interface_name};
use crate::MacAddress;
use crate::geodesy::Position;
use crate::io::Delivery;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// Virtual interface that receives a payload, and the Ethernet header of the resulting frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDelivery {
    /// Interface that receives the frame.
    pub link: LinkId,
    /// Destination MAC address.
    pub destination: MacAddress,
    /// Source MAC address of the frame: the address of the sending station.
    pub source: MacAddress,
}

impl Ipv6Adaptation {
    /// Returns where the host receives a payload of next header IPv6. The function may create an interface,
    /// which waits in [`Ipv6Adaptation::poll_output`]; the caller creates it before delivery.
    ///
    /// # Errors
    /// Reason for which the host does not receive the packet.
    pub fn handle_delivery(&mut self, now: Time, delivery: &Delivery) -> Result<HostDelivery, Ipv6Drop> {
        let result = self.delivery_to_host(now, delivery);
        match result {
            Ok(_) => self.counters.received_packets += 1,
            Err(reason) => self.count_drop(reason),
        }
        result
    }

    fn delivery_to_host(&mut self, now: Time, delivery: &Delivery) -> Result<HostDelivery, Ipv6Drop> {
        let packet = delivery.payload.as_slice();
        let (header, _) = Header::parse_packet(packet).map_err(|_| Ipv6Drop::Malformed)?;
        check_addresses(&header)?;
        let sender = delivery.source.address.mid();
        let message = packet.get(HEADER_LEN..HEADER_LEN + usize::from(header.payload_length));
        let message = message.filter(|_| header.next_header == protocol::ICMPV6).unwrap_or_default();
        self.check_source(&header, message, sender)?;
        if hides_neighbor_discovery(header.next_header, packet.get(HEADER_LEN..).unwrap_or_default()) {
            return Err(Ipv6Drop::SpoofedSource);
        }
        let advertisement = router_advertisement(&header, message);
        // Store only default routers. Stations that advertise only prefixes would push the routers out of the
        // list.
        if advertisement.as_ref().is_some_and(|it| it.router_lifetime > 0) {
            self.record_router(sender);
        }
        let at = match delivery.header_type {
            HeaderType::GeoUnicast => self.link_for_unicast(&header, delivery),
            HeaderType::GeoBroadcast(_) | HeaderType::GeoAnycast(_) => {
                let broadcast = matches!(delivery.header_type, HeaderType::GeoBroadcast(_));
                let advertisement = advertisement.as_ref().filter(|_| broadcast);
                self.deliver_to_area_link(now, &header, delivery.area.as_ref(), advertisement)
            }
            _ => 0,
        };
        let link = self.links.get(at).ok_or(Ipv6Drop::UnknownLink)?;
        let destination = match delivery.header_type {
            HeaderType::GeoUnicast | HeaderType::GeoAnycast(_) => self.address.mid(),
            _ if header.destination.is_multicast() => addresses::group_mac(header.destination),
            // The sender broadcast the packet to all stations. With a unicast destination MAC address the
            // host would forward it as if it were the addressed router.
            _ => ALL_NODES_MAC,
        };
        Ok(HostDelivery { link: link.id, destination, source: sender })
    }

    /// Refuses addresses that belong to another station than the sender. The host accepts link-layer
    /// addresses from Neighbor Discovery without proof (RFC 4861 7.2.3, 7.2.5). Without this check, a station
    /// could redirect the packets of another station to itself.
    fn check_source(&self, header: &Header, message: &[u8], sender: MacAddress) -> Result<(), Ipv6Drop> {
        let named = addresses::mac_of_address(header.source);
        if named == Some(self.address.mid()) || self.links.iter().any(|link| link.has_address(header.source))
        {
            return Err(Ipv6Drop::OwnSource);
        }
        let is_another = |named: Option<MacAddress>| named.is_some_and(|named| named != sender);
        // A source address of larger scope may belong to a host behind the station, so check only a
        // link-local one.
        if header.source.is_unicast_link_local() && is_another(named) {
            return Err(Ipv6Drop::SpoofedSource);
        }
        let announced = match message.first() {
            Some(&ROUTER_SOLICITATION) => {
                nd::RouterSolicitation::parse(message).ok().and_then(|it| it.source_link_address)
            }
            Some(&ROUTER_ADVERTISEMENT) => {
                RouterAdvertisement::parse(message).ok().and_then(|it| it.options().source_link_address())
            }
            Some(&NEIGHBOR_SOLICITATION) => {
                NeighborSolicitation::parse(message).ok().and_then(|it| it.source_link_address)
            }
            Some(&NEIGHBOR_ADVERTISEMENT) => {
                let advertisement = NeighborAdvertisement::parse(message).ok();
                // Only the station to which an address belongs may advertise this address.
                if advertisement.as_ref().is_some_and(|it| is_another(addresses::mac_of_address(it.target))) {
                    return Err(Ipv6Drop::SpoofedSource);
                }
                advertisement.and_then(|it| it.target_link_address)
            }
            _ => None,
        };
        // A node announces a link-layer address only for its own source address. So the source address must
        // not name another station, whatever its scope.
        if announced.is_some() && is_another(named) {
            return Err(Ipv6Drop::SpoofedSource);
        }
        match announced {
            Some(announced) if announced != sender => Err(Ipv6Drop::SpoofedSource),
            _ => Ok(()),
        }
    }

    fn record_router(&mut self, router: MacAddress) {
        self.routers.retain(|known| *known != router);
        if self.routers.len() >= MAX_ROUTERS {
            self.routers.pop_front();
        }
        self.routers.push_back(router);
    }

    /// Returns the index of the link on which the host receives packets to areas without a link of their own.
    fn link_for_other_areas(&self) -> usize {
        self.links.iter().position(|link| link.kind == LinkKind::Dynamic).unwrap_or(0)
    }

    /// Returns the link of a GBC or GAC: the link of its area (MR_GVL_BV_01 to BV_05).
    fn deliver_to_area_link(
        &mut self,
        now: Time,
        header: &Header,
        area: Option<&GeoArea>,
        advertisement: Option<&RouterAdvertisement<'_>>,
    ) -> usize {
        if self.has_group(header.destination) {
            return 0;
        }
        let Some(area) = area else { return self.link_for_other_areas() };
        let known = self.links.iter().position(|link| link.area() == Some(area));
        let Some(advertisement) = advertisement else {
            return known.unwrap_or_else(|| self.link_for_other_areas());
        };
        let at = match known {
            Some(at) => at,
            None => match self.learn_area_link(now, *area, advertisement) {
                Some(at) => return at,
                None => return self.link_for_other_areas(),
            },
        };
        if let Some(link) = self.links.get_mut(at) {
            link.learn_prefixes(now, advertisement);
        }
        at
    }

    /// VM_NVI_BV_01: creates a link for an area without one if the advertisement has a subnet.
    fn learn_area_link(
        &mut self,
        now: Time,
        area: GeoArea,
        advertisement: &RouterAdvertisement<'_>,
    ) -> Option<usize> {
        let learnt = self.links.iter().filter(|link| link.is_learnt).count();
        if learnt >= self.learnt_links {
            return None;
        }
        let mut link = Ipv6Link::new(
            LinkId(self.next_link_id),
            self.unused_interface_name()?,
            LinkKind::Geographic(area),
        );
        link.is_learnt = true;
        link.learn_prefixes(now, advertisement);
        link.next_expiry()?;
        if !self.link_creation_limiter.try_take_token(now) {
            return None;
        }
        self.next_link_id = self.next_link_id.wrapping_add(1);
        self.links.push(link);
        let at = self.links.len() - 1;
        self.announce_link(at);
        Some(at)
    }

    /// Returns the name of the topological interface with a number appended, which no link has yet; `None`
    /// without a link.
    fn unused_interface_name(&self) -> Option<String> {
        let base = &self.links.first()?.name;
        let mut names = (1..=self.links.len()).map(|number| numbered_interface_name(base, number));
        names.find(|name| !self.links.iter().any(|link| link.name == *name))
    }

    /// Returns the virtual link that receives a GUC (MR_GVL_BV_06 to BV_10). The first choice is the
    /// interface with the destination address, the second the interface of its subnet. The last choice is the
    /// link of the area around the source.
    fn link_for_unicast(&self, header: &Header, delivery: &Delivery) -> usize {
        let to = header.destination;
        if self.links.len() == 1 || to == addresses::link_local_address(self.address.mid()) {
            return 0;
        }
        let subnet = |link: &Ipv6Link| !to.is_unicast_link_local() && link.is_on_link(to);
        if let Some(at) =
            self.only_link_where(|link| link.has_address(to)).or_else(|| self.only_link_where(subnet))
        {
            return at;
        }
        let source = Position::new(delivery.source.latitude, delivery.source.longitude);
        let around = |link: &Ipv6Link| link.is_around(source);
        let on_link = |link: &Ipv6Link| around(link) && link.is_on_link(header.source);
        self.only_link_where(around)
            .or_else(|| self.longest_lived_link_where(on_link))
            .unwrap_or_else(|| self.link_for_other_areas())
    }

    /// Returns the only link for which `test` holds; `None` if none or several do.
    fn only_link_where(&self, test: impl Fn(&Ipv6Link) -> bool) -> Option<usize> {
        let mut found = self.links.iter().enumerate().filter(|(_, link)| test(link)).map(|(at, _)| at);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Returns the link with the longest lifetime for which `test` holds, and the first of links with equal
    /// lifetimes. Returns `None` if `test` holds for no link.
    fn longest_lived_link_where(&self, test: impl Fn(&Ipv6Link) -> bool) -> Option<usize> {
        let found = self.links.iter().enumerate().rev().filter(|(_, link)| test(link));
        found.max_by_key(|(_, link)| link.ends_at()).map(|(at, _)| at)
    }
}

/// Returns whether the packet has Neighbor Discovery behind extension headers, or an extension header that
/// may hide it. Hosts accept such packets, although no node needs to send them and RFC 6980 5 forbids
/// fragments.
fn hides_neighbor_discovery(first: u8, payload: &[u8]) -> bool {
    let (mut next, mut rest) = (first, payload);
    // The loop ends at the end of the packet, because each header has at least eight octets.
    loop {
        let length = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                rest.get(1).map(|length| (usize::from(*length) + 1) * 8)
            }
            // Only the first fragment contains the upper-layer header (RFC 7112).
            protocol::FRAGMENT => match *rest {
                [_, _, high, low, ..] if u16::from_be_bytes([high, low]) >> 3 > 0 => return false,
                _ => Some(8),
            },
            protocol::ICMPV6 if next == first && rest.len() == payload.len() => return false,
            protocol::ICMPV6 => return rest.first().is_none_or(|kind| (133..=137).contains(kind)),
            _ => return false,
        };
        let Some((header, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
            return true;
        };
        next = header.first().copied().unwrap_or_default();
        rest = after;
    }
}

/// Returns the Router Advertisement in a packet; `None` if hosts would not accept the packet as one (RFC 4861
/// 6.1.2).
fn router_advertisement<'a>(header: &Header, message: &'a [u8]) -> Option<RouterAdvertisement<'a>> {
    if message.first() != Some(&ROUTER_ADVERTISEMENT) || !header.source.is_unicast_link_local() {
        return None;
    }
    nd::check_header(header, message).ok()?;
    RouterAdvertisement::parse(message).ok()
}
