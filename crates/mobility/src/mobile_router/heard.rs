//! Prefixes heard in Router Advertisements on one link, and who advertised them (RFC 6275 11.5.1).
//!
//! A link can change under an interface without loss of carrier: another access point of the same operator,
//! another cell. Then the old default router is gone from the kernel's list, or no longer the first, while
//! the old address stays valid for a long time. So each prefix is kept with the router that advertised it,
//! and an address is worth what that router is worth.

use std::net::Ipv6Addr;

use carnet_base::Time;
use ipnet::Ipv6Net;

/// More advertised prefixes than this on one link are not remembered. The one heard longest ago goes, and one of the
/// router in use last: anybody can advertise.
const MAX_HEARD: usize = 16;

/// What Router Advertisements say about an address, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Its prefix is advertised by the default router that the kernel prefers.
    Preferred,
    /// By another router that is still there.
    Present,
    /// Nobody has advertised its prefix: the operator's own, or nothing has been heard yet.
    Unheard,
    /// Only by routers that have gone.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    prefix: Ipv6Net,
    router: Ipv6Addr,
    at: Time,
}

/// The prefixes heard since the link came up.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Vec<Entry>);

impl Heard {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `router` has advertised `prefix`, or withdrawn it; `routers` are the default routers that the kernel has now.
    pub fn note(&mut self, now: Time, router: Ipv6Addr, prefix: Ipv6Net, valid: bool, routers: &[Ipv6Addr]) {
        self.0.retain(|entry| entry.router != router || entry.prefix != prefix);
        if !valid {
            return;
        }
        if self.0.len() == MAX_HEARD
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, entry)| {
                (self.router_standing(entry.router, routers) == Standing::Preferred, entry.at)
            })
        {
            self.0.remove(oldest);
        }
        self.0.push(Entry { prefix, router, at: now });
    }

    /// What is known about an address, with the default routers that the kernel has now.
    pub fn standing(&self, address: Ipv6Addr, routers: &[Ipv6Addr]) -> Standing {
        self.0
            .iter()
            .filter(|entry| entry.prefix.contains(&address))
            .map(|entry| self.router_standing(entry.router, routers))
            .min()
            .unwrap_or(Standing::Unheard)
    }

    /// Whether a router that is still there advertises a prefix of which `wanted` holds.
    pub fn is_present(&self, routers: &[Ipv6Addr], wanted: impl Fn(&Ipv6Net) -> bool) -> bool {
        self.0.iter().any(|entry| {
            wanted(&entry.prefix) && self.router_standing(entry.router, routers) < Standing::Unheard
        })
    }

    fn router_standing(&self, router: Ipv6Addr, routers: &[Ipv6Addr]) -> Standing {
        // A default route without gateway leads to whoever spoke last: there is one at the other end.
        let latest = self.0.last().is_some_and(|entry| entry.router == router);
        let is = |of: &Ipv6Addr| *of == router || (of.is_unspecified() && latest);
        match routers.first() {
            // Routers that are not default routers do not appear there; nobody has taken their place.
            None => Standing::Present,
            Some(first) if is(first) => Standing::Preferred,
            Some(_) if routers.iter().any(is) => Standing::Present,
            Some(_) => Standing::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn heard() -> Heard {
        let mut heard = Heard::default();
        for (second, router, prefix) in
            [(1, "fe80::a", "2001:db8:f1::/64"), (2, "fe80::b", "2001:db8:f2::/64")]
        {
            heard.note(Time::from_secs(second), addr(router), prefix.parse().expect("a prefix"), true, &[]);
        }
        heard
    }

    #[test]
    fn an_address_is_worth_what_its_router_is_worth() {
        let standing = |address, routers: &[&str]| {
            heard().standing(addr(address), &routers.iter().map(|r| addr(r)).collect::<Vec<_>>())
        };
        let (a, b, other) = ("2001:db8:f1::10", "2001:db8:f2::10", "2001:db8:f3::10");
        assert_eq!(standing(a, &["fe80::a", "fe80::b"]), Standing::Preferred);
        assert_eq!(standing(b, &["fe80::a", "fe80::b"]), Standing::Present);
        assert_eq!(standing(a, &["fe80::b"]), Standing::Gone);
        assert_eq!(standing(other, &["fe80::b"]), Standing::Unheard);
        assert_eq!(standing(a, &[]), Standing::Present);
        // A default route without gateway: the one that spoke last.
        assert_eq!(standing(a, &["::"]), Standing::Gone);
        assert_eq!(standing(b, &["::"]), Standing::Preferred);
    }

    #[test]
    fn a_withdrawn_prefix_is_forgotten_and_the_oldest_makes_room() {
        let mut heard = heard();
        let first: Ipv6Net = "2001:db8:f1::/64".parse().expect("a prefix");
        heard.note(Time::from_secs(3), addr("fe80::a"), first, false, &[]);
        assert_eq!(heard.standing(addr("2001:db8:f1::10"), &[addr("fe80::a")]), Standing::Unheard);
        let routers = [addr("fe80::b"), addr("fe80::c")];
        for index in 0..100_u16 {
            let prefix =
                Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, index, 0, 0, 0, 0, 0), 64).expect("prefix");
            heard.note(Time::from_secs(4 + u64::from(index)), addr("fe80::c"), prefix, true, &routers);
        }
        assert_eq!(heard.0.len(), MAX_HEARD);
        // But not that of the router in use.
        assert_eq!(heard.standing(addr("2001:db8:f2::10"), &routers), Standing::Preferred);
        let last: Ipv6Net = "2001:db8:63::/64".parse().expect("a prefix");
        assert!(heard.is_present(&[addr("fe80::c")], |prefix| *prefix == last));
    }
}
