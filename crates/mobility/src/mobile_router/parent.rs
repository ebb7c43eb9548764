//! The router on an uplink, if it is itself a mobile router (RFC 3963 7, RFC 4888).
//!
//! The parent's Router Advertisements ([`NestingInformation`]) name the mobile routers before it, whether it
//! has an uplink that works, and the prefixes of which routers behind it may have care-of addresses (see
//! [`crate::nesting`]). This router refuses a parent that
//!
//! * has this router before it, or is this router: packets of both would circle in a ring, encapsulated once
//!   more each time;
//! * has no working uplink itself: two such routers that attach to each other would be a ring;
//! * has [`MAX_PATH`] mobile routers, itself among them: its advertisement could not name all of them to
//!   routers behind it.
//!
//! A router that lies in an advertisement could as well advertise nothing, or drop packets. So this router
//! believes only statements that make a parent worse, or that its use proves.

use std::net::Ipv6Addr;

use carnet_base::LinkMessage;
use carnet_wire::nd::nesting::MAX_PATH;
use carnet_wire::nd::{NestingInformation, RouterAdvertisement};

/// Most parents on one link; the one heard longest ago is removed first, the one in use last.
const MAX_PARENTS: usize = 4;

/// A mobile router before this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Link-local address of the parent.
    pub router: Ipv6Addr,
    /// Link-layer address of the parent, if the link has such addresses.
    pub link_address: Option<[u8; 6]>,
    /// Information in its advertisement.
    pub information: NestingInformation,
}

impl Parent {
    /// Returns why the router cannot be this router's parent, if it cannot.
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

/// Mobile routers that have advertised on one link since it came up, the latest last.
#[derive(Debug, Clone, Default)]
pub(super) struct Parents(Vec<Parent>);

impl Parents {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Takes over an advertisement: values that it lacks no longer hold. `in_use` is the router that traffic
    /// leaves by.
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

    /// Returns the parent, if a default router is a mobile router.
    pub fn of(&self, router: Ipv6Addr) -> Option<&Parent> {
        // A default route without gateway leads to the router that was heard last.
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
