//! Interfaces.

use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType,
    LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Requests;
use crate::error::Result;

/// The smallest MTU with which the kernel does IPv6 on a device (RFC 8200 5).
pub(crate) const IPV6_MINIMUM_MTU: u32 = 1280;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Administratively up.
    pub(crate) up: bool,
    /// Up, and with carrier.
    pub(crate) running: bool,
    pub(crate) mtu: u32,
    /// The 48-bit address; `None` for the loopback interface, whose zeros are no address.
    pub(crate) link_address: Option<[u8; 6]>,
    pub(crate) is_loopback: bool,
}

impl LinkInfo {
    fn from_message(message: LinkMessage) -> Option<LinkInfo> {
        let (mut name, mut mtu, mut link_address) = (None, 0, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text),
                LinkAttribute::Mtu(octets) => mtu = octets,
                LinkAttribute::Address(octets) => link_address = <[u8; 6]>::try_from(octets).ok(),
                _ => {}
            }
        }
        let flags = message.header.flags;
        let is_loopback = message.header.link_layer_type == LinkLayerType::Loopback;
        if is_loopback {
            link_address = None;
        }
        Some(LinkInfo {
            index: message.header.index,
            name: name?,
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
            mtu,
            link_address,
            is_loopback,
        })
    }
}

/// What comes with every question: no statistics, which cost the kernel more than all the rest.
fn question() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

impl Requests {
    /// All interfaces.
    pub(crate) fn links(&mut self) -> Result<Vec<LinkInfo>> {
        let answers =
            self.dump(RouteNetlinkMessage::GetLink(question()), || "list the interfaces".to_owned())?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => LinkInfo::from_message(message),
            _ => None,
        });
        Ok(links.collect())
    }

    /// The interface of this name; `None` where there is none.
    pub(crate) fn link(&mut self, name: &str) -> Result<Option<LinkInfo>> {
        let mut message = question();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.get(RouteNetlinkMessage::GetLink(message), || format!("look up interface {name}")) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => LinkInfo::from_message(message),
                _ => None,
            })),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the tunnel device, which is down, such that the kernel itself sends nothing into it: without
    /// link-local address there are no Router Solicitations, without multicast no listener reports.
    ///
    /// On a machine that forwards, a new device has joined the groups of all routers at birth and would
    /// report that, or that it has left them. An MTU below IPv6's minimum makes the kernel forget the IPv6
    /// side of the device; it begins anew, without multicast, when the MTU is right.
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
            self.change(RouteNetlinkMessage::SetLink(message), 0, || {
                format!("configure the tunnel device (mtu {mtu}, queue {queue}, no multicast)")
            })?;
        }
        Ok(())
    }

    /// Brings the tunnel device up.
    pub(crate) fn bring_up_tunnel(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message), 0, || "bring the tunnel device up".to_owned())
    }

    /// Gives an interface another link-layer address. One that does not take it while it is up is taken down for
    /// a moment.
    pub(crate) fn set_link_address(&mut self, link: &LinkInfo, address: [u8; 6]) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.attributes.push(LinkAttribute::Address(address.to_vec()));
        let [a, b, c, d, e, f] = address;
        let what =
            || format!("give {} the address {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", link.name);
        match self.change(RouteNetlinkMessage::SetLink(message.clone()), 0, what) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && link.up => {
                self.set_up(link, false)?;
                let result = self.change(RouteNetlinkMessage::SetLink(message), 0, what);
                self.set_up(link, true)?;
                result
            }
            other => other,
        }
    }

    fn set_up(&mut self, link: &LinkInfo, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        let state = if up { "up" } else { "down" };
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("take {} {state}", link.name))
    }

    /// Deletes an interface; no error when it is gone already.
    pub(crate) fn delete_link(&mut self, index: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Unspec;
        message.header.index = index;
        let result =
            self.change(RouteNetlinkMessage::DelLink(message), 0, || "delete the tunnel device".to_owned());
        match result {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => other,
        }
    }
}
