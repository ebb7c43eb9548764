//! Reads, adds and removes IPv6 addresses of interfaces, and the IPv4 addresses of mobile networks. These
//! IPv4 addresses are in IPv4-mapped form ([`carnet_base::mapped`]). Their prefix lengths are also those of
//! the mapped form.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::mapped::{self, ALL_IPV4_PREFIX};
use carnet_station::io::Address;
use ipnet::Ipv6Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{NetlinkRequests, ignore_errors};
use crate::ROUTE_PROTOCOL;
use crate::error::Result;

/// Maximum number of checks whether a new address is usable. The checks end without success if the interface
/// is down, because its addresses are then unusable.
const MAX_CHECKS_OF_NEW_ADDRESS: u32 = 50;
/// Time between two checks whether a new address is usable.
const PAUSE_BETWEEN_CHECKS: Duration = Duration::from_micros(200);

/// Origin `IFAPROT_KERNEL_RA`: the kernel made the address from a Router Advertisement.
const PROTOCOL_KERNEL_ADVERTISED: u8 = 2;

/// Number of the table of local addresses, `RT_TABLE_LOCAL`.
const TABLE_LOCAL: u32 = 255;

/// An IPv6 address on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressInfo {
    pub(crate) index: u32,
    pub(crate) address: Address,
    /// Number of the program that added the address (`IFA_PROTO`); 0 if the kernel does not store it.
    pub(crate) protocol: u8,
}

impl AddressInfo {
    /// Returns whether the address has carnet's mark; before Linux 5.18 no address has a mark.
    pub(crate) fn is_own_address(&self) -> bool {
        self.protocol == ROUTE_PROTOCOL
    }

    fn from_message(message: AddressMessage) -> Option<AddressInfo> {
        let front = match message.header.family {
            AddressFamily::Inet6 => 0,
            AddressFamily::Inet => ALL_IPV4_PREFIX.prefix_len(),
            _ => return None,
        };
        let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
        let (mut local, mut address, mut protocol) = (None, None, 0);
        for attribute in message.attributes {
            match attribute {
                AddressAttribute::Local(IpAddr::V6(a)) => local = Some(a),
                AddressAttribute::Address(IpAddr::V6(a)) => address = Some(a),
                AddressAttribute::Local(IpAddr::V4(a)) => local = Some(a.to_ipv6_mapped()),
                AddressAttribute::Address(IpAddr::V4(a)) => address = Some(a.to_ipv6_mapped()),
                AddressAttribute::Flags(f) => flags = f,
                AddressAttribute::Protocol(p) => protocol = p.into(),
                _ => {}
            }
        }
        let duplicate = flags.contains(AddressFlags::Dadfailed);
        Some(AddressInfo {
            index: message.header.index,
            protocol,
            address: Address {
                // On a point-to-point interface, IFA_ADDRESS is the peer's address and IFA_LOCAL the
                // interface's own address.
                address: local.or(address)?,
                prefix_length: message.header.prefix_len.saturating_add(front),
                tentative: flags.contains(AddressFlags::Tentative)
                    && !flags.contains(AddressFlags::Optimistic)
                    && !duplicate,
                duplicate,
                deprecated: flags.contains(AddressFlags::Deprecated),
                // For IPv6 this bit means IFA_F_TEMPORARY, for IPv4 IFA_F_SECONDARY.
                temporary: flags.contains(AddressFlags::Secondary),
                // An address from a Router Advertisement can end at any time. Since Linux 5.18 the kernel
                // marks it with this origin.
                permanent: flags.contains(AddressFlags::Permanent) && protocol != PROTOCOL_KERNEL_ADVERTISED,
            },
        })
    }
}

fn address_message(index: u32, address: Ipv6Addr, prefix_length: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    let is_ipv4 = mapped::is_ipv4(address);
    let front = if is_ipv4 { ALL_IPV4_PREFIX.prefix_len() } else { 0 };
    message.header.family = if is_ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.prefix_len = prefix_length.saturating_sub(front);
    message.header.index = index;
    let address = if is_ipv4 { address.to_canonical() } else { address.into() };
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    message
}

/// Requests about IPv6 addresses of interfaces.
pub(crate) struct AddressRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl AddressRequests<'_> {
    /// Returns all IPv6 addresses.
    pub(crate) fn list_ipv6(&mut self) -> Result<Vec<AddressInfo>> {
        self.list_family(AddressFamily::Inet6)
    }

    /// Returns all IPv4 addresses, in IPv4-mapped form.
    pub(crate) fn list_ipv4(&mut self) -> Result<Vec<AddressInfo>> {
        self.list_family(AddressFamily::Inet)
    }

    /// Returns all addresses of the family of `address`.
    pub(crate) fn list_family_of(&mut self, address: Ipv6Addr) -> Result<Vec<AddressInfo>> {
        if mapped::is_ipv4(address) { self.list_ipv4() } else { self.list_ipv6() }
    }

    fn list_family(&mut self, family: AddressFamily) -> Result<Vec<AddressInfo>> {
        let mut question = AddressMessage::default();
        question.header.family = family;
        let answers = self
            .0
            .dump_objects(RouteNetlinkMessage::GetAddress(question), || "list the addresses".to_owned())?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) if message.header.family == family => {
                AddressInfo::from_message(message)
            }
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Adds an address without duplicate address detection and waits until it is usable. The kernel adds the
    /// address to its local table a moment after it has accepted the request. Until then it would forward
    /// packets for the address. Neighbours can resolve the address at once when this function returns. Fails
    /// with `EEXIST` if the interface has the address already.
    pub(crate) fn add_address(
        &mut self,
        index: u32,
        interface: &str,
        address: Ipv6Addr,
        prefix_length: u8,
    ) -> Result<()> {
        self.put_address(index, interface, address_message(index, address, prefix_length))
    }

    /// Adds an address with a prefix length of 128, as [`Self::add_address`] does. The kernel does not select
    /// it as a source, because it is deprecated (RFC 6724 5, rule 3).
    pub(crate) fn add_deprecated_address(
        &mut self,
        index: u32,
        interface: &str,
        address: Ipv6Addr,
    ) -> Result<()> {
        let mut message = address_message(index, address, 128);
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_valid = u32::MAX;
        message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
        self.put_address(index, interface, message)
    }

    fn put_address(&mut self, index: u32, interface: &str, mut message: AddressMessage) -> Result<()> {
        let prefix_length = message.header.prefix_len;
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        let address = address.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        message.attributes.push(AddressAttribute::Protocol(AddressProtocol::Other(ROUTE_PROTOCOL)));
        self.0.request_change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add address {address}/{prefix_length} to {interface}")
        })?;
        // An IPv4 address is usable at once, so do not wait.
        let IpAddr::V6(address) = address else { return Ok(()) };
        self.0.netlink_channel.join_solicited_node_group(index, address);
        for _ in 0..MAX_CHECKS_OF_NEW_ADDRESS {
            // If this check fails, assume that the address is usable, because the kernel has accepted it.
            if self.is_address_usable(index, address).unwrap_or(true) {
                break;
            }
            std::thread::sleep(PAUSE_BETWEEN_CHECKS);
        }
        Ok(())
    }

    /// Returns whether the kernel delivers packets to an address. The flags of the address do not say so:
    /// without duplicate address detection the address is never tentative. The kernel adds it to the table of
    /// local addresses later, in a work queue.
    fn is_address_usable(&mut self, index: u32, address: Ipv6Addr) -> Result<bool> {
        let own = Ipv6Net::from(address);
        let local = self.0.route_requests().list_routes(Some(TABLE_LOCAL), None)?;
        Ok(local.iter().any(|it| it.destination == own && it.next_hops.iter().any(|hop| hop.index == index)))
    }

    /// Removes an address. A missing address or interface is no error.
    pub(crate) fn delete_address(
        &mut self,
        index: u32,
        interface: &str,
        address: Ipv6Addr,
        prefix_length: u8,
    ) -> Result<()> {
        if !mapped::is_ipv4(address) {
            self.0.netlink_channel.leave_solicited_node_group(index, address);
        }
        let message = address_message(index, address, prefix_length);
        let result = self.0.request_change(RouteNetlinkMessage::DelAddress(message), 0, || {
            format!("remove address {address}/{prefix_length} from {interface}")
        });
        ignore_errors(result, &[libc::EADDRNOTAVAIL, libc::ENODEV, libc::ENXIO])
    }
}
