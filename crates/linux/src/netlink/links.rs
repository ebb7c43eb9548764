//! Reads, creates, configures and deletes network interfaces.

use std::net::Ipv6Addr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoIpTunnel, InfoKind, InfoVeth, Ip6TunnelFlags,
    LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo as LinkKind, LinkLayerType, LinkMessage,
};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};

use super::{NetlinkRequests, ignore_errors};
use crate::error::Result;

/// Lowest MTU in octets with which the kernel runs IPv6 on a device (RFC 8200 5).
pub(crate) const IPV6_MINIMUM_MTU: u32 = 1280;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Whether the interface is administratively up.
    pub(crate) is_up: bool,
    /// Whether the interface is up and has a carrier.
    pub(crate) is_running: bool,
    pub(crate) mtu: u32,
    /// 48-bit link-layer address; `None` for the loopback interface, where the kernel reports only zeros.
    pub(crate) link_address: Option<[u8; 6]>,
    pub(crate) is_loopback: bool,
    /// Whether the link has a single neighbour (`IFF_POINTOPOINT`).
    pub(crate) is_point_to_point: bool,
    /// Device group, a number that the creator of the device has chosen.
    pub(crate) device_group: u32,
    /// Whether the interface is a device of the ip6_tunnel module.
    pub(crate) is_ip6_tunnel: bool,
}

/// Properties of a new ip6_tunnel device, which carries IPv6 in IPv6 between two addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewIp6Tunnel<'a> {
    pub(crate) name: &'a str,
    pub(crate) device_group: u32,
    pub(crate) local: Ipv6Addr,
    pub(crate) remote: Ipv6Addr,
    pub(crate) hop_limit: u8,
}

impl LinkInfo {
    fn from_message(message: LinkMessage) -> Option<LinkInfo> {
        let (mut name, mut mtu, mut link_address, mut group) = (None, 0, None, 0);
        let mut is_ip6_tunnel = false;
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text),
                LinkAttribute::Mtu(octets) => mtu = octets,
                LinkAttribute::Group(number) => group = number,
                LinkAttribute::LinkInfo(kinds) => {
                    is_ip6_tunnel = kinds.contains(&LinkKind::Kind(InfoKind::Ip6Tnl));
                }
                LinkAttribute::Address(octets) => link_address = <[u8; 6]>::try_from(octets).ok(),
                _ => {}
            }
        }
        let flags = message.header.flags;
        let is_loopback = message.header.link_layer_type == LinkLayerType::Loopback;
        let is_point_to_point = message.header.flags.contains(LinkFlags::Pointopoint);
        if is_loopback {
            link_address = None;
        }
        Some(LinkInfo {
            index: message.header.index,
            name: name?,
            is_up: flags.contains(LinkFlags::Up),
            is_running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            mtu,
            link_address,
            is_loopback,
            is_point_to_point,
            device_group: group,
            is_ip6_tunnel,
        })
    }
}

/// Returns the message from which each request about interfaces is made. It asks the kernel to omit
/// statistics, which are most of the answer.
fn link_query() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

/// Requests about network interfaces.
pub(crate) struct LinkRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl LinkRequests<'_> {
    /// Returns all interfaces.
    pub(crate) fn list_links(&mut self) -> Result<Vec<LinkInfo>> {
        let answers = self
            .0
            .dump_objects(RouteNetlinkMessage::GetLink(link_query()), || "list the interfaces".to_owned())?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => LinkInfo::from_message(message),
            _ => None,
        });
        Ok(links.collect())
    }

    /// Returns the interface of this name; `None` if the interface does not exist.
    pub(crate) fn find_link(&mut self, name: &str) -> Result<Option<LinkInfo>> {
        let mut message = link_query();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self
            .0
            .request_object(RouteNetlinkMessage::GetLink(message), || format!("look up interface {name}"))
        {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => LinkInfo::from_message(message),
                _ => None,
            })),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Configures the TUN device, which is down, so that the kernel itself sends no packets into it. Without
    /// a link-local address the kernel sends no Router Solicitations, and without multicast no MLD reports.
    ///
    /// On a machine that forwards, a new device has already joined the groups of all routers, and the kernel
    /// would send MLD reports about them. So the function first sets an MTU below IPv6's minimum, which
    /// removes IPv6 from the device. With the right MTU, IPv6 starts again on the device, now without
    /// multicast.
    pub(crate) fn configure_tunnel(&mut self, index: u32, mtu: u32, queue: u32) -> Result<()> {
        let too_small = vec![LinkAttribute::Mtu(IPV6_MINIMUM_MTU - 1)];
        let size = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)];
        let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let mode = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)])];
        for attributes in [too_small, size, mode] {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.change_mask = LinkFlags::Multicast;
            message.attributes = attributes;
            self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
                format!("configure the tunnel device (mtu {mtu}, queue {queue}, no multicast)")
            })?;
        }
        Ok(())
    }

    /// Creates a tunnel device, which is down. Fails with `EOPNOTSUPP` if the kernel has no such devices.
    /// Fails with `EEXIST` if the name is in use or a tunnel with these ends exists.
    ///
    /// The outer header has the inner packet's traffic class and a flow label that the kernel computes from
    /// the inner flow. It has no Tunnel Encapsulation Limit option.
    pub(crate) fn add_ip6_tunnel(&mut self, tunnel: &NewIp6Tunnel<'_>) -> Result<()> {
        let NewIp6Tunnel { name, device_group: group, local, remote, hop_limit } = *tunnel;
        let data = vec![
            InfoIpTunnel::Local(local.into()),
            InfoIpTunnel::Remote(remote.into()),
            InfoIpTunnel::Ttl(hop_limit),
            InfoIpTunnel::Protocol(IpProtocol::Ipv6),
            InfoIpTunnel::Ipv6Flags(Ip6TunnelFlags::IgnEncapLimit | Ip6TunnelFlags::UseOrigTclass),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Group(group),
            LinkAttribute::LinkInfo(vec![
                LinkKind::Kind(InfoKind::Ip6Tnl),
                LinkKind::Data(InfoData::IpTunnel(data)),
            ]),
        ];
        self.0.request_change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("create tunnel device {name} from {local} to {remote}")
        })
    }

    /// Creates a pair of virtual Ethernet devices, which are still down. The kernel cuts super packets (GSO)
    /// before it passes them to these devices.
    pub(crate) fn add_veth_pair(&mut self, names: [&str; 2], group: u32, mtu: u32) -> Result<()> {
        let end = |name: &str| {
            let mut end = LinkMessage::default();
            end.attributes = vec![
                LinkAttribute::IfName(name.to_owned()),
                LinkAttribute::Group(group),
                LinkAttribute::Mtu(mtu),
            ];
            end
        };
        let [near, far] = names;
        let mut message = end(near);
        message.attributes.extend([
            LinkAttribute::GsoMaxSegs(1),
            LinkAttribute::LinkInfo(vec![
                LinkKind::Kind(InfoKind::Veth),
                LinkKind::Data(InfoData::Veth(InfoVeth::Peer(end(far)))),
            ]),
        ]);
        self.0.request_change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("create the devices {near} and {far}")
        })
    }

    /// Sets the MTU of a tunnel device, disables its link-local address, and brings it up.
    pub(crate) fn configure_ip6_tunnel(&mut self, index: u32, name: &str, mtu: u32) -> Result<()> {
        let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let mode = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)]);
        // Brings the device up only after its link-local address is disabled.
        for (attribute, flags) in [(mode, LinkFlags::empty()), (LinkAttribute::Mtu(mtu), LinkFlags::Up)] {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.flags = flags;
            message.header.change_mask = flags;
            message.attributes = vec![attribute];
            self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
                format!("configure tunnel device {name} (mtu {mtu})")
            })?;
        }
        Ok(())
    }

    /// Brings the TUN device up.
    pub(crate) fn bring_up_tunnel(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
            "bring the tunnel device up".to_owned()
        })
    }

    /// Sets MTU, queue and link-layer address of a virtual Ethernet device, which is down. Also stops the
    /// kernel from giving it a link-local address.
    pub(crate) fn configure_virtual_device(
        &mut self,
        link: &LinkInfo,
        mtu: u32,
        queue: u32,
        address: [u8; 6],
    ) -> Result<()> {
        let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        let mode = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)])];
        let size = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)];
        for attributes in [size, mode] {
            let mut message = LinkMessage::default();
            message.header.index = link.index;
            message.attributes = attributes;
            self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
                format!("configure {} (mtu {mtu}, queue {queue})", link.name)
            })?;
        }
        self.set_address(link, address)
    }

    /// Sets the MTU of an interface.
    pub(crate) fn set_mtu(&mut self, link: &LinkInfo, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("give {} the MTU {mtu}", link.name)
        })
    }

    /// Sets the link-layer address of an interface. If the driver refuses a change while the interface is up,
    /// the function takes it down and up again.
    pub(crate) fn set_address(&mut self, link: &LinkInfo, address: [u8; 6]) -> Result<()> {
        let request = || {
            let mut message = LinkMessage::default();
            message.header.index = link.index;
            message.attributes.push(LinkAttribute::Address(address.to_vec()));
            RouteNetlinkMessage::SetLink(message)
        };
        let [a, b, c, d, e, f] = address;
        let what =
            || format!("give {} the address {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", link.name);
        match self.0.request_change(request(), 0, what) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && link.is_up => {
                self.set_up(link, false)?;
                let result = self.0.request_change(request(), 0, what);
                self.set_up(link, true)?;
                result
            }
            other => other,
        }
    }

    /// Brings an interface up or down.
    pub(crate) fn set_up(&mut self, link: &LinkInfo, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        let state = if up { "up" } else { "down" };
        self.0.request_change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("take {} {state}", link.name)
        })
    }

    /// Deletes an interface. A missing interface is no error.
    pub(crate) fn delete_link(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Unspec;
        message.header.index = index;
        let result = self.0.request_change(RouteNetlinkMessage::DelLink(message), 0, || {
            "delete the tunnel device".to_owned()
        });
        ignore_errors(result, &[libc::ENODEV])
    }
}
