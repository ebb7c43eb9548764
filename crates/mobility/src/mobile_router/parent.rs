//! The router on an uplink, where that is a mobile router itself (RFC 3963 7, RFC 4888).
//!
//! It says so in its Router Advertisements ([`NestingInformation`]): which mobile routers stand before it,
//! whether it has a way out, and from which prefixes those behind it may have care-of addresses (see
//! [`crate::nesting`]). A router is refused as a parent that
//!
//! * has this router before it, or is this router: packets of both would go round in a ring, wrapped once
//!   more each time;
//! * has no way out itself: two routers without one that attach to each other would be such a ring;
//! * has [`MAX_PATH`] mobile routers, itself among them: those behind could not be told of all.
//!
//! Who lies about it in an advertisement could as well advertise nothing, or drop what it is sent: believed
//! is only what makes a router worse, or what is proven by its use.

use std::net::Ipv6Addr;

use carnet_base::LinkMessage;
use carnet_wire::nd::nesting::MAX_PATH;
use carnet_wire::nd::{NestingInformation, RouterAdvertisement};

/// Routers on one link of which this is remembered; the one heard longest ago goes, that in use last.
const MAX_PARENTS: usize = 4;

/// A mobile router before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its link-local address.
    pub router: Ipv6Addr,
    /// Its link-layer address, where the link has any.
    pub link_address: Option<[u8; 6]>,
    /// What it says.
    pub information: NestingInformation,
}

impl Parent {
    /// Why it cannot be this router's parent, if it cannot.
    pub(super) fn refusal(&self, home_address: Ipv6Addr) -> Option<&'static str> {
        let NestingInformation { grounded, path, .. } = &self.information;
        if path.contains(&home_address) {
            Some("loop: the router there is behind this one")
        } else if path.len() >= MAX_PATH {
            Some("too many mobile routers behind each other")
        } else if !grounded {
            Some("the mobile router there has no way out")
        } else {
            None
        }
    }
}

/// What the routers on one link have said since it came up, the latest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Parents(Vec<Parent>);

impl Parents {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes in an advertisement: what the router does not say any more is no longer so. `in_use` is the
    /// router that traffic leaves by.
    pub fn note(
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
            self.0.push(Parent { router: message.source, link_address, information });
        }
    }

    /// The parent, where a default router is a mobile router.
    pub fn of(&self, router: Ipv6Addr) -> Option<&Parent> {
        // A default route without gateway leads to the one that was heard last.
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

    /// An advertisement of the mobile router `number`.
    fn hear(parents: &mut Parents, number: u16, in_use: Ipv6Addr) {
        let information =
            NestingInformation { grounded: true, path: vec![router(number)], prefixes: Vec::new() };
        let data = information.data();
        let message = nd::router_advertisement(&RouterAdvertisementRepr {
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
        parents.note(&message, &advertisement, Some(in_use));
    }

    #[test]
    fn others_do_not_put_out_the_parent_in_use() {
        let mut parents = Parents::default();
        for number in 1..100 {
            hear(&mut parents, number, router(1));
        }
        assert_eq!(parents.0.len(), MAX_PARENTS);
        assert_eq!(parents.of(router(1)).map(|parent| parent.router), Some(router(1)));
    }
}
