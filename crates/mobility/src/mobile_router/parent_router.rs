//! The parent router of an uplink: its default router, if that is a mobile router itself (RFC 3963 7, RFC
//! 4888).
//!
//! The parent's Router Advertisements ([`NestingInformation`]) list the mobile routers between the parent and
//! the fixed network. They also say whether the parent has a working uplink, and in which prefixes routers
//! behind it may have care-of addresses (see [`crate::nesting`]). This router refuses a parent in three
//! cases:
//!
//! * The parent's list contains this router, or the parent is this router. Packets would loop, with one more
//!   encapsulation each time.
//! * The parent has no working uplink. Packets of two such routers that attach to each other would loop.
//! * The parent has [`MAX_ROUTERS_IN_PATH`] mobile routers on its path, including itself. Its advertisement
//!   would have no room for all routers on the path of this router.
//!
//! A parent with false advertisements does no more harm than one that drops packets. Either this router would
//! refuse it, or the use of the path shows the fault.

use std::net::Ipv6Addr;

use carnet_base::LinkMessage;
use carnet_wire::nd::nesting::MAX_ROUTERS_IN_PATH;
use carnet_wire::nd::{NestingInformation, RouterAdvertisement};

/// Maximum number of parents on one link. The one that advertised longest ago is removed first, the one in
/// use last.
const MAX_PARENTS: usize = 4;

/// A mobile router that is a default router of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentRouter {
    /// Link-local address of the parent.
    pub router: Ipv6Addr,
    /// Link-layer address of the parent, if the link has such addresses.
    pub link_address: Option<[u8; 6]>,
    /// Content of the parent's last advertisement.
    pub information: NestingInformation,
}

impl ParentRouter {
    /// Returns why the router cannot be this router's parent; `None` if it can.
    pub(super) fn reason_to_refuse(&self, home_address: Ipv6Addr) -> Option<&'static str> {
        let NestingInformation { grounded, path_home_addresses: path, .. } = &self.information;
        if path.contains(&home_address) {
            Some("the default router is itself behind this mobile router")
        } else if path.len() >= MAX_ROUTERS_IN_PATH {
            Some("too many mobile routers behind each other")
        } else if !grounded {
            Some("the default router is a mobile router without a working uplink")
        } else {
            None
        }
    }
}

/// Mobile routers that have advertised on one link since it came up; the one that advertised last is at the
/// end.
#[derive(Debug, Clone, Default)]
pub(super) struct ParentRouters(Vec<ParentRouter>);

impl ParentRouters {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Handles an advertisement. If it lacks the nesting information, the router is no parent any more.
    /// `in_use` is the router to which the traffic goes.
    pub fn record_advertisement(
        &mut self,
        message: &LinkMessage,
        advertisement: &RouterAdvertisement<'_>,
        in_use: Option<Ipv6Addr>,
    ) {
        self.0.retain(|parent| parent.router != message.source);
        let mut options = advertisement.options();
        let information = options.find_map(|option| NestingInformation::read(&option));
        if let Some(information) = information.filter(|_| advertisement.router_lifetime > 0) {
            if self.0.len() >= MAX_PARENTS {
                let spare = self.0.iter().position(|parent| in_use != Some(parent.router));
                self.0.remove(spare.unwrap_or(0));
            }
            let link_address = advertisement.options().source_link_address().or(message.peer);
            self.0.push(ParentRouter { router: message.source, link_address, information });
        }
    }

    /// Returns the default router with this address; `None` if it is no mobile router.
    pub fn parent_by_address(&self, router: Ipv6Addr) -> Option<&ParentRouter> {
        // A default route without gateway leads to the router that advertised last.
        self.0.iter().rev().find(|parent| parent.router == router || router.is_unspecified())
    }
}

#[cfg(test)]
mod tests {
    use carnet_wire::nd::{self, NdOption, RouterAdvertisementRepr};

    use super::*;

    fn router(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    /// Takes an advertisement of the mobile router `number`.
    fn receive_advertisement(parents: &mut ParentRouters, number: u16, in_use: Ipv6Addr) {
        let information = NestingInformation {
            grounded: true,
            path_home_addresses: vec![router(number)],
            prefixes: Vec::new(),
        };
        let data = information.emit_data();
        let message = nd::emit_router_advertisement(&RouterAdvertisementRepr {
            router_lifetime: 1800,
            options: &[NdOption::Unknown { option_type: 253, data: &data }],
            ..RouterAdvertisementRepr::default()
        });
        let message = LinkMessage {
            interface: "w0".into(),
            source: router(number),
            destination: nd::ALL_NODES,
            hop_limit: 255,
            peer: None,
            message,
        };
        let advertisement = RouterAdvertisement::parse(&message.message).expect("an advertisement");
        parents.record_advertisement(&message, &advertisement, Some(in_use));
    }

    #[test]
    fn advertisements_of_other_routers_do_not_replace_parent_in_use() {
        let mut parents = ParentRouters::default();
        for number in 1..100 {
            receive_advertisement(&mut parents, number, router(1));
        }
        assert_eq!(parents.0.len(), MAX_PARENTS);
        assert_eq!(parents.parent_by_address(router(1)).map(|parent| parent.router), Some(router(1)));
    }
}
