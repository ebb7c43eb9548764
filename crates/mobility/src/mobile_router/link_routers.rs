//! List of the routers that have advertised on one link since it came up, with their prefixes (RFC 6275
//! 11.5.1).
//!
//! An interface can move to another link without loss of carrier. Examples are another access point of the
//! same operator, another cell, and a link behind a bridge. The kernel then keeps the old default route and
//! the old address until their lifetimes end. So the list stores each prefix with the router that advertised
//! it. An address belongs to that router (RFC 6724 5 rule 5.5, RFC 8028 3).
//!
//! A router may have been renumbered without a withdrawal (flash renumbering, RFC 8978). Then it advertises a
//! new prefix, and omits one that it advertised before. It may also split its prefixes over several
//! advertisements (RFC 4861 6.2.3). So if an advertisement brings a prefix and omits another, the mobile
//! router sends a Router Solicitation to this router. A prefix that the router still omits
//! [`MAX_TIME_BETWEEN_ADVERTISEMENT_PARTS`] after its next advertisement is *suspected*. It stays valid by
//! RFC 4861 6.3.4 ("the absence of a prefix ... is not significant"), but the mobile router prefers other
//! prefixes. If suspected prefixes come back more than [`MAX_REAPPEARANCES`] times, the mobile router
//! concludes that this router splits its prefixes. From then on it suspects a prefix only after
//! [`MAX_COUNTED_OMISSIONS`] advertisements without this prefix.
//!
//! A router may announce the interval of its advertisements (Advertisement Interval option, RFC 6275 7.3). If
//! it then misses [`MAX_MISSED_ADVERTISEMENTS`] of them, it counts as unreachable.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, NeighbourState, RateLimiter, Time};
use carnet_wire::nd::{NdOption, RouterAdvertisement};
use ipnet::Ipv6Net;

/// Maximum number of prefixes of one link. The prefix that was advertised longest ago is removed first. A
/// prefix of the router in use is removed later, and the prefix in use last, because an attacker can
/// advertise many prefixes.
const MAX_PREFIXES: usize = 16;
/// Maximum number of routers of one link. The router that advertised longest ago is removed first, a router
/// in use last.
const MAX_ADVERTISING_ROUTERS: usize = 8;
/// Time that a router has for further parts of an advertisement after a Router Solicitation. The router
/// answers within 500 ms (`MAX_RA_DELAY_TIME`, RFC 4861 10). So 1.1 s after the advertisement of another
/// prefix, an omitted one is suspected.
const MAX_TIME_BETWEEN_ADVERTISEMENT_PARTS: Duration = Duration::from_millis(600);
/// Number of suspected prefixes that a router may advertise again before it counts as one that splits its
/// prefixes.
const MAX_REAPPEARANCES: u32 = 2;
/// Number of advertisements without a prefix after which the prefix is suspected in any case.
const MAX_COUNTED_OMISSIONS: u32 = 8;
/// Limit of Router Solicitations to routers that omit a prefix: the number that may leave at once, and the
/// interval for each further one.
const SOLICITATION_LIMIT: (u32, Duration) = (3, Duration::from_secs(1));
/// Number of missed advertisements after which a router is unreachable. RFC 6275 11.5.1 permits a node to
/// tolerate some.
const MAX_MISSED_ADVERTISEMENTS: u32 = 3;
/// Shortest Advertisement Interval that is accepted (`MinDelayBetweenRAs` of RFC 6275 7.5 is 30 ms).
const MIN_ADVERTISEMENT_INTERVAL: Duration = Duration::from_millis(100);

/// How well an address matches a router, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RouterMatch {
    /// The router advertises the address's prefix.
    Advertised,
    /// Nothing shows whether they match: the operator configured the address, or the router has sent no
    /// advertisement.
    Unknown,
    /// The router advertises other prefixes, and no router advertises the address's prefix.
    Leftover,
    /// The router advertised the prefix before, and omits it now.
    Suspected,
    /// Another router advertises the prefix.
    Foreign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AdvertisedPrefix {
    prefix: Ipv6Net,
    router: Ipv6Addr,
    advertised_at: Time,
    /// End of the prefix's valid lifetime, unless the router advertises the prefix again; `None` if the
    /// lifetime is infinite.
    lifetime_ends_at: Option<Time>,
    /// Whether the valid lifetime of the prefix has ended.
    has_lifetime_ended: bool,
    /// Advertisements with other prefixes that the router has sent since the last one with this prefix.
    omission_count: u32,
    doubt_state: PrefixDoubt,
}

/// Whether carnet doubts that a router still advertises a prefix, because advertisements omit it without a
/// withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrefixDoubt {
    /// The router advertises the prefix.
    None,
    /// carnet has solicited the router, because it omitted the prefix.
    Asked,
    /// The router has advertised since then without the prefix. The prefix is suspected from this time on.
    Suspected(Time),
    /// The prefix is suspected.
    Confirmed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AdvertisingRouter {
    address: Ipv6Addr,
    link_address: Option<[u8; 6]>,
    advertised_at: Time,
    /// Whether the router advertises itself as default router (its router lifetime is not 0).
    is_default: bool,
    /// End of the router lifetime in the router's last advertisement.
    lifetime_ends_at: Time,
    /// Whether the router lifetime has ended.
    has_lifetime_ended: bool,
    /// Link MTU that the router advertises, in octets; `None` if it advertises none.
    mtu: Option<u32>,
    /// Interval of the router's advertisements; `None` if it announces none.
    advertisement_interval: Option<Duration>,
    /// Whether the router has missed [`MAX_MISSED_ADVERTISEMENTS`] advertisements.
    misses_advertisements: bool,
    /// Number of times that the router has advertised a suspected prefix again.
    reappearance_count: u32,
}

/// Routers and prefixes to store longest, because the traffic uses them.
pub(super) struct RoutersAndPrefixesInUse<'a> {
    pub router: &'a dyn Fn(Ipv6Addr) -> bool,
    pub prefix: &'a dyn Fn(&Ipv6Net) -> bool,
}

/// Result of an advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AdvertisementChanges {
    /// Time of the router's last advertisement before the present one; `None` if the present one is the
    /// first.
    pub previous_advertisement_at: Option<Time>,
    /// Whether to send the router a Router Solicitation, because it omits a prefix.
    pub wants_solicitation: bool,
}

/// Routers and prefixes that were advertised since the link came up.
#[derive(Debug, Clone)]
pub(super) struct LinkRouters {
    prefixes: Vec<AdvertisedPrefix>,
    /// Routers; the one that advertised last is at the end.
    routers: Vec<AdvertisingRouter>,
    /// Routers that do not answer Neighbor Unreachability Detection.
    unreachable_routers: Vec<Ipv6Addr>,
    /// Rate limit of solicitations to routers that omit a prefix.
    solicitation_limit: RateLimiter,
}

impl Default for LinkRouters {
    fn default() -> Self {
        LinkRouters {
            prefixes: Vec::new(),
            routers: Vec::new(),
            unreachable_routers: Vec::new(),
            solicitation_limit: RateLimiter::new(SOLICITATION_LIMIT.0, SOLICITATION_LIMIT.1),
        }
    }
}

impl LinkRouters {
    pub fn clear(&mut self) {
        *self = LinkRouters::default();
    }

    pub fn is_empty(&self) -> bool {
        self.routers.is_empty()
    }

    /// Handles a Router Advertisement.
    pub fn handle_advertisement(
        &mut self,
        now: Time,
        message: &LinkMessage,
        advertisement: &RouterAdvertisement<'_>,
        in_use: &RoutersAndPrefixesInUse<'_>,
    ) -> AdvertisementChanges {
        let router = message.source;
        let (mut mtu, mut interval, mut listed) = (None, None, Vec::new());
        for option in advertisement.options() {
            match option {
                NdOption::PrefixInformation(information) => {
                    if let Ok(prefix) = Ipv6Net::new(information.prefix, information.prefix_length) {
                        listed.push((prefix.trunc(), information.valid_lifetime));
                    }
                }
                NdOption::Mtu(octets) => mtu = Some(octets),
                NdOption::AdvertisementInterval(milliseconds) => {
                    let told = Duration::from_millis(milliseconds.into());
                    interval = Some(told.max(MIN_ADVERTISEMENT_INTERVAL));
                }
                _ => {}
            }
        }
        self.unreachable_routers.retain(|other| *other != router);
        let before = self.routers.iter().position(|known| known.address == router);
        let before = before.map(|position| self.routers.remove(position));
        let mut known = AdvertisingRouter {
            address: router,
            link_address: advertisement.options().source_link_address().or(message.peer),
            advertised_at: now,
            is_default: advertisement.router_lifetime > 0,
            lifetime_ends_at: now + Duration::from_secs(advertisement.router_lifetime.into()),
            has_lifetime_ended: false,
            mtu,
            advertisement_interval: interval,
            misses_advertisements: false,
            reappearance_count: before.as_ref().map_or(0, |before| before.reappearance_count),
        };
        let asks = self.compare_prefixes(now, &mut known, &listed);
        if self.routers.len() >= MAX_ADVERTISING_ROUTERS {
            let spare = self.routers.iter().position(|other| !(in_use.router)(other.address));
            let gone = self.routers.remove(spare.unwrap_or(0));
            self.prefixes.retain(|entry| entry.router != gone.address);
        }
        self.routers.push(known);
        for (prefix, lifetime) in listed {
            self.record_prefix(now, router, prefix, lifetime, in_use);
        }
        AdvertisementChanges {
            previous_advertisement_at: before.map(|before| before.advertised_at),
            wants_solicitation: asks,
        }
    }

    /// Compares the prefixes of an advertisement with those that its router has advertised before. Returns
    /// whether to send the router a Router Solicitation.
    fn compare_prefixes(
        &mut self,
        now: Time,
        router: &mut AdvertisingRouter,
        listed: &[(Ipv6Net, u32)],
    ) -> bool {
        let address = router.address;
        let is_listed = |entry: &AdvertisedPrefix| listed.iter().any(|(prefix, _)| *prefix == entry.prefix);
        let own = |entry: &&AdvertisedPrefix| entry.router == address;
        let back =
            self.prefixes.iter().filter(own).filter(|it| it.is_prefix_suspected() && is_listed(it)).count();
        router.reappearance_count =
            router.reappearance_count.saturating_add(u32::try_from(back).unwrap_or(u32::MAX));
        let is_known = |prefix: &Ipv6Net| {
            self.prefixes.iter().filter(own).any(|it| it.prefix == *prefix && !it.is_prefix_suspected())
        };
        let mut valid = listed.iter().filter(|(_, lifetime)| *lifetime > 0).peekable();
        if valid.peek().is_none() {
            return false;
        }
        let brings_news = valid.any(|(prefix, _)| !is_known(prefix));
        let splits = router.reappearance_count > MAX_REAPPEARANCES;
        let mut is_omitted = false;
        for entry in self.prefixes.iter_mut().filter(|it| it.router == address && !is_listed(it)) {
            entry.omission_count = entry.omission_count.saturating_add(1);
            if splits && entry.omission_count < MAX_COUNTED_OMISSIONS {
                entry.doubt_state = PrefixDoubt::None;
            } else if entry.doubt_state == PrefixDoubt::Asked
                || (entry.doubt_state == PrefixDoubt::None && entry.omission_count >= MAX_COUNTED_OMISSIONS)
            {
                entry.doubt_state = PrefixDoubt::Suspected(now + MAX_TIME_BETWEEN_ADVERTISEMENT_PARTS);
            }
            is_omitted |= entry.doubt_state == PrefixDoubt::None;
        }
        let asks = brings_news && is_omitted && !splits && self.solicitation_limit.try_take_token(now);
        if asks {
            let omitted = self.prefixes.iter_mut().filter(|it| it.router == address && !is_listed(it));
            omitted
                .filter(|it| it.doubt_state == PrefixDoubt::None)
                .for_each(|it| it.doubt_state = PrefixDoubt::Asked);
        }
        asks
    }

    /// Records that `router` advertises `prefix` for this many seconds, or withdraws it.
    fn record_prefix(
        &mut self,
        now: Time,
        router: Ipv6Addr,
        prefix: Ipv6Net,
        lifetime: u32,
        in_use: &RoutersAndPrefixesInUse<'_>,
    ) {
        self.prefixes.retain(|entry| entry.router != router || entry.prefix != prefix);
        if lifetime == 0 {
            return;
        }
        if self.prefixes.len() >= MAX_PREFIXES {
            let age = |entry: &AdvertisedPrefix| {
                let is_of_router = (in_use.router)(entry.router);
                (is_of_router && (in_use.prefix)(&entry.prefix), is_of_router, entry.advertised_at)
            };
            let oldest = self.prefixes.iter().enumerate().min_by_key(|(_, entry)| age(entry));
            if let Some(position) = oldest.map(|(position, _)| position) {
                self.prefixes.remove(position);
            }
        }
        // RFC 4861 4.6.2: all ones mean infinity.
        let lifetime_ends_at = (lifetime < u32::MAX).then(|| now + Duration::from_secs(lifetime.into()));
        self.prefixes.push(AdvertisedPrefix {
            prefix,
            router,
            advertised_at: now,
            lifetime_ends_at,
            has_lifetime_ended: false,
            omission_count: 0,
            doubt_state: PrefixDoubt::None,
        });
    }

    /// Suspects the prefixes that their router has omitted for long enough. Returns whether there are any.
    pub fn suspect_omitted_prefixes(&mut self, now: Time) -> bool {
        let mut changed = false;
        for entry in &mut self.prefixes {
            if matches!(entry.doubt_state, PrefixDoubt::Suspected(at) if at <= now) {
                entry.doubt_state = PrefixDoubt::Confirmed;
                changed = true;
            }
        }
        changed
    }

    /// Returns the router with this gateway address; `None` if it has not advertised. A default route without
    /// gateway leads to the router that advertised last.
    fn router_by_gateway(&self, gateway: Ipv6Addr) -> Option<&AdvertisingRouter> {
        if gateway.is_unspecified() {
            return self.routers.last();
        }
        self.routers.iter().find(|router| router.address == gateway)
    }

    /// Returns how well an address matches the router with this gateway address.
    pub fn match_of_router(&self, address: Ipv6Addr, gateway: Ipv6Addr) -> RouterMatch {
        let of = |entry: &&AdvertisedPrefix| entry.prefix.contains(&address);
        let router = self.router_by_gateway(gateway).map(|router| router.address);
        let own = self.prefixes.iter().filter(of).filter(|entry| Some(entry.router) == router);
        if let Some(suspected) = own.map(AdvertisedPrefix::is_prefix_suspected).min() {
            return if suspected { RouterMatch::Suspected } else { RouterMatch::Advertised };
        }
        if self.prefixes.iter().any(|entry| of(&entry)) {
            return RouterMatch::Foreign;
        }
        let advertises = self.prefixes.iter().any(|entry| Some(entry.router) == router);
        if advertises { RouterMatch::Leftover } else { RouterMatch::Unknown }
    }

    /// Returns the default routers whose router lifetime has not ended; the router that advertised last comes
    /// first.
    pub fn default_routers(&self) -> impl Iterator<Item = Ipv6Addr> {
        let known =
            self.routers.iter().rev().filter(|router| router.is_default && !router.has_lifetime_ended);
        known.map(|router| router.address)
    }

    /// Returns the reachable routers that advertise a prefix for which `wanted` is true. The valid lifetime
    /// of the prefix has not ended. A default router must also be in the kernel's list (`gateways`) and
    /// answer. The router that advertised last comes first.
    pub fn routers_advertising(
        &self,
        gateways: &[Ipv6Addr],
        wanted: impl Fn(&Ipv6Net) -> bool,
    ) -> impl Iterator<Item = Ipv6Addr> {
        let here = |router: &AdvertisingRouter| {
            !self.is_unreachable(router.address)
                && (!router.is_default
                    || gateways.iter().all(|gateway| self.is_unreachable(*gateway))
                    || gateways.contains(&router.address)
                    || gateways.iter().any(|gateway| {
                        gateway.is_unspecified()
                            && self.routers.last().is_some_and(|last| last.address == router.address)
                    }))
        };
        let advertises = move |router: &&AdvertisingRouter| {
            let mut own = self.prefixes.iter().filter(|entry| entry.router == router.address);
            own.any(|entry| {
                !entry.is_prefix_suspected() && !entry.has_lifetime_ended && wanted(&entry.prefix)
            })
        };
        self.routers
            .iter()
            .rev()
            .filter(move |router| here(router) && advertises(router))
            .map(|router| router.address)
    }

    /// Returns the time of a router's last advertisement; `None` if the router is not in the list.
    pub fn advertised_at(&self, gateway: Ipv6Addr) -> Option<Time> {
        self.router_by_gateway(gateway).map(|router| router.advertised_at)
    }

    pub fn link_address(&self, router: Ipv6Addr) -> Option<[u8; 6]> {
        self.router_by_gateway(router)?.link_address
    }

    /// Returns the link MTU that a router has advertised; `None` if it has advertised none.
    pub fn mtu(&self, gateway: Ipv6Addr) -> Option<u32> {
        self.router_by_gateway(gateway)?.mtu
    }

    /// Handles a change of a router's entry in the kernel's neighbour cache. Returns whether the router has
    /// become unreachable.
    pub fn handle_neighbour_state(&mut self, gateway: Ipv6Addr, state: NeighbourState) -> bool {
        match state {
            NeighbourState::Failed => self.record_failed_router(gateway),
            NeighbourState::Known => {
                self.unreachable_routers.retain(|other| *other != gateway);
                false
            }
            // After FAILED the kernel repeats address resolution, so these states show nothing new.
            NeighbourState::Incomplete | NeighbourState::Unknown => false,
        }
    }

    /// Records that a router does not answer Neighbor Solicitations. Returns whether this is new.
    pub fn record_failed_router(&mut self, router: Ipv6Addr) -> bool {
        if router.is_unspecified() || self.unreachable_routers.contains(&router) {
            return false;
        }
        if self.unreachable_routers.len() >= MAX_ADVERTISING_ROUTERS {
            self.unreachable_routers.remove(0);
        }
        self.unreachable_routers.push(router);
        true
    }

    /// Marks routers as failed that advertised last before `time`, because they are on a link that the uplink
    /// has left.
    pub fn mark_routers_failed_before(&mut self, time: Time) {
        let gone: Vec<Ipv6Addr> = self
            .routers
            .iter()
            .filter(|router| router.advertised_at < time)
            .map(|router| router.address)
            .collect();
        for router in gone {
            self.record_failed_router(router);
        }
    }

    /// Records that a router has answered. Returns whether it counted as failed before.
    pub fn record_answering_router(&mut self, router: Ipv6Addr) -> bool {
        let before = self.unreachable_routers.len();
        self.unreachable_routers.retain(|other| *other != router);
        before != self.unreachable_routers.len()
    }

    /// Returns whether a router does not answer, or misses its advertisements.
    pub fn is_unreachable(&self, gateway: Ipv6Addr) -> bool {
        self.unreachable_routers.contains(&gateway)
            || self.router_by_gateway(gateway).is_some_and(|router| router.misses_advertisements)
    }

    /// Returns the next time at which a router has missed its advertisements, a prefix becomes suspected, or
    /// the lifetime of a router or prefix ends. `None` if none of these events is due.
    pub fn next_deadline(&self) -> Option<Time> {
        let missing = self
            .routers
            .iter()
            .filter(|router| !router.misses_advertisements)
            .filter_map(AdvertisingRouter::counts_as_missing_at);
        let ends = self.routers.iter().filter(|router| router.is_default && !router.has_lifetime_ended);
        let prefixes = self
            .prefixes
            .iter()
            .filter(|entry| !entry.has_lifetime_ended)
            .filter_map(|entry| entry.lifetime_ends_at);
        let suspected = self.prefixes.iter().filter_map(|entry| match entry.doubt_state {
            PrefixDoubt::Suspected(at) => Some(at),
            _ => None,
        });
        missing.chain(ends.map(|router| router.lifetime_ends_at)).chain(prefixes).chain(suspected).min()
    }

    /// Marks default routers and prefixes whose lifetime has ended. Returns true if there are new ones.
    pub fn end_expired_lifetimes(&mut self, now: Time) -> bool {
        let mut changed = false;
        for router in self.routers.iter_mut().filter(|router| router.is_default && !router.has_lifetime_ended)
        {
            router.has_lifetime_ended = router.lifetime_ends_at <= now;
            changed |= router.has_lifetime_ended;
        }
        for entry in self.prefixes.iter_mut().filter(|entry| !entry.has_lifetime_ended) {
            entry.has_lifetime_ended = entry.lifetime_ends_at.is_some_and(|at| at <= now);
            changed |= entry.has_lifetime_ended;
        }
        changed
    }

    /// Marks routers that have missed their advertisements. Returns whether there are new ones.
    pub fn mark_missing_routers(&mut self, now: Time) -> bool {
        let mut changed = false;
        for router in &mut self.routers {
            let missing = router.counts_as_missing_at().is_some_and(|at| at <= now);
            changed |= missing && !router.misses_advertisements;
            router.misses_advertisements |= missing;
        }
        changed
    }
}

impl AdvertisedPrefix {
    /// Returns whether the router has ceased to advertise the prefix without a withdrawal.
    fn is_prefix_suspected(&self) -> bool {
        self.doubt_state == PrefixDoubt::Confirmed
    }
}

impl AdvertisingRouter {
    fn counts_as_missing_at(&self) -> Option<Time> {
        self.advertisement_interval.map(|interval| self.advertised_at + interval * MAX_MISSED_ADVERTISEMENTS)
    }
}

#[cfg(test)]
mod tests {
    use carnet_wire::nd::{self, PrefixInformation, RouterAdvertisementRepr};

    use super::*;

    fn parse_address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn receive_advertisement(
        heard: &mut LinkRouters,
        at: u64,
        router: &str,
        prefixes: &[&str],
        interval: Option<u32>,
    ) -> AdvertisementChanges {
        let options: Vec<NdOption<'_>> = prefixes
            .iter()
            .map(|text| {
                let net: Ipv6Net = text.parse().expect("a prefix");
                NdOption::PrefixInformation(PrefixInformation {
                    prefix: net.addr(),
                    prefix_length: net.prefix_len(),
                    on_link: true,
                    autonomous: true,
                    router_address: false,
                    valid_lifetime: 86_400,
                    preferred_lifetime: 14_400,
                })
            })
            .chain(interval.map(NdOption::AdvertisementInterval))
            .collect();
        let message = nd::emit_router_advertisement(&RouterAdvertisementRepr {
            router_lifetime: 1800,
            options: &options,
            ..RouterAdvertisementRepr::default()
        });
        let message = LinkMessage {
            interface: "w0".into(),
            source: parse_address(router),
            destination: nd::ALL_NODES,
            hop_limit: 255,
            peer: None,
            message,
        };
        let advertisement = RouterAdvertisement::parse(&message.message).expect("an advertisement");
        let in_use = RoutersAndPrefixesInUse {
            router: &|router| router == parse_address("fe80::a"),
            prefix: &|prefix| prefix.contains(&parse_address("2001:db8:f1::1")),
        };
        heard.handle_advertisement(Time::ZERO + Duration::from_millis(at), &message, &advertisement, &in_use)
    }

    /// Returns how addresses of the prefixes [`A`] and [`B`] match the router at time `at`, in milliseconds.
    fn router_matches_at(heard: &mut LinkRouters, at: u64) -> [RouterMatch; 2] {
        heard.suspect_omitted_prefixes(Time::ZERO + Duration::from_millis(at));
        [A, B].map(|net| {
            let net: Ipv6Net = net.parse().expect("a prefix");
            heard.match_of_router(net.addr(), parse_address("fe80::a"))
        })
    }

    const A: &str = "2001:db8:f1::/64";
    const B: &str = "2001:db8:f2::/64";

    #[test]
    fn address_belongs_to_the_router_that_advertises_its_prefix() {
        let mut heard = LinkRouters::default();
        assert_eq!(
            receive_advertisement(&mut heard, 1000, "fe80::a", &[A], None).previous_advertisement_at,
            None
        );
        receive_advertisement(&mut heard, 2000, "fe80::b", &[B], None);
        let fit = |address: &str, gateway: &str| {
            heard.match_of_router(parse_address(address), parse_address(gateway))
        };
        assert_eq!(fit("2001:db8:f1::1", "fe80::a"), RouterMatch::Advertised);
        assert_eq!(fit("2001:db8:f1::1", "fe80::b"), RouterMatch::Foreign);
        assert_eq!(fit("2001:db8:f1::1", "fe80::c"), RouterMatch::Foreign);
        assert_eq!(fit("2001:db8:f3::1", "fe80::a"), RouterMatch::Leftover);
        assert_eq!(fit("2001:db8:f3::1", "fe80::c"), RouterMatch::Unknown);
        // A default route without gateway leads to the router that advertised last.
        assert_eq!(fit("2001:db8:f2::1", "::"), RouterMatch::Advertised);
        assert_eq!(fit("2001:db8:f1::1", "::"), RouterMatch::Foreign);
    }

    #[test]
    fn omitted_prefix_counts_as_outdated_until_it_is_advertised_again() {
        let mut heard = LinkRouters::default();
        receive_advertisement(&mut heard, 0, "fe80::a", &[A], None);
        assert!(
            !receive_advertisement(&mut heard, 5000, "fe80::a", &[], None).wants_solicitation,
            "nothing else is advertised"
        );
        assert!(receive_advertisement(&mut heard, 10_000, "fe80::a", &[B], None).wants_solicitation);
        assert_eq!(
            router_matches_at(&mut heard, 10_400),
            [RouterMatch::Advertised; 2],
            "the router has not answered"
        );
        assert!(
            !receive_advertisement(&mut heard, 10_500, "fe80::a", &[B], None).wants_solicitation,
            "it was asked before"
        );
        assert_eq!(
            router_matches_at(&mut heard, 11_099),
            [RouterMatch::Advertised; 2],
            "the rest may follow"
        );
        assert_eq!(heard.next_deadline(), Some(Time::ZERO + Duration::from_millis(11_100)));
        assert_eq!(router_matches_at(&mut heard, 11_100), [RouterMatch::Suspected, RouterMatch::Advertised]);
        receive_advertisement(&mut heard, 12_000, "fe80::a", &[A, B], None);
        assert_eq!(router_matches_at(&mut heard, 20_000), [RouterMatch::Advertised; 2]);
    }

    #[test]
    fn repeated_renumbering_makes_each_omitted_prefix_count_as_outdated() {
        let mut heard = LinkRouters::default();
        for (second, now) in [(0, A), (10, B), (20, A), (30, B)] {
            for part in [0, 200] {
                let at = second * 1000 + part;
                assert_eq!(
                    receive_advertisement(&mut heard, at, "fe80::a", &[now], None).wants_solicitation,
                    second > 0 && part == 0
                );
            }
            let expected = match (second, now) {
                (0, _) => [RouterMatch::Advertised, RouterMatch::Leftover],
                (_, A) => [RouterMatch::Advertised, RouterMatch::Suspected],
                _ => [RouterMatch::Suspected, RouterMatch::Advertised],
            };
            assert_eq!(router_matches_at(&mut heard, second * 1000 + 800), expected, "{second}");
        }
    }

    /// RFC 4861 6.2.3: a router may split its prefixes over several advertisements. It answers a solicitation
    /// with all of them.
    #[test]
    fn prefix_split_over_several_advertisements_is_not_outdated() {
        for apart in [1, 299, 301, 2000, 60_000] {
            let mut heard = LinkRouters::default();
            receive_advertisement(&mut heard, 0, "fe80::a", &[A], None);
            let mut asked = 0;
            for turn in 1..30 {
                let (at, prefix) = (turn * apart, if turn % 2 == 0 { A } else { B });
                if receive_advertisement(&mut heard, at, "fe80::a", &[prefix], None).wants_solicitation {
                    asked += 1;
                    receive_advertisement(&mut heard, at, "fe80::a", &[B], None);
                    receive_advertisement(&mut heard, at, "fe80::a", &[A], None);
                }
                let next = at + apart.min(1000);
                assert_eq!(
                    router_matches_at(&mut heard, next),
                    [RouterMatch::Advertised; 2],
                    "{apart} {turn}"
                );
            }
            assert_eq!(asked, 1, "{apart}");
        }
    }

    /// The router answers a solicitation with one part only.
    #[test]
    fn router_that_omits_prefixes_in_answers_is_solicited_three_times_at_most() {
        let mut heard = LinkRouters::default();
        let mut suspected = 0;
        for turn in 0..60 {
            let (at, prefix) = (turn * 5000, if turn % 2 == 0 { A } else { B });
            if receive_advertisement(&mut heard, at, "fe80::a", &[prefix], None).wants_solicitation {
                receive_advertisement(&mut heard, at + 100, "fe80::a", &[prefix], None);
            }
            let fits = router_matches_at(&mut heard, at + 4000);
            suspected += u32::from(turn > 0 && fits != [RouterMatch::Advertised; 2]);
        }
        assert!((1..=3).contains(&suspected), "{suspected}");
        // The router is renumbered: it omits one prefix for good.
        for turn in 60..70 {
            receive_advertisement(&mut heard, turn * 5000, "fe80::a", &[A], None);
        }
        assert_eq!(router_matches_at(&mut heard, 400_000), [RouterMatch::Advertised, RouterMatch::Suspected]);
    }

    #[test]
    fn router_is_unreachable_after_three_missed_advertisements() {
        let mut heard = LinkRouters::default();
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        receive_advertisement(&mut heard, 0, "fe80::a", &[A], Some(1000));
        assert_eq!(heard.next_deadline(), Some(at(3000)));
        assert!(!heard.mark_missing_routers(at(2999)) && !heard.is_unreachable(parse_address("fe80::a")));
        assert!(heard.mark_missing_routers(at(3000)) && heard.is_unreachable(parse_address("fe80::a")));
        assert_eq!(heard.next_deadline(), Some(at(1_800_000)), "the router lifetime");
        receive_advertisement(&mut heard, 4000, "fe80::a", &[A], Some(1));
        assert!(!heard.is_unreachable(parse_address("fe80::a")));
        assert_eq!(heard.next_deadline(), Some(at(4300)), "no shorter than is believed");
    }

    #[test]
    fn router_is_a_default_router_until_its_lifetime_ends() {
        let mut heard = LinkRouters::default();
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        receive_advertisement(&mut heard, 0, "fe80::a", &[A], None);
        receive_advertisement(&mut heard, 1000, "fe80::b", &[B], None);
        let known = |heard: &LinkRouters| heard.default_routers().collect::<Vec<_>>();
        assert_eq!(known(&heard), [parse_address("fe80::b"), parse_address("fe80::a")], "the latest first");
        assert!(!heard.end_expired_lifetimes(at(1_799_999)));
        assert!(heard.end_expired_lifetimes(at(1_800_000)) && !heard.end_expired_lifetimes(at(1_800_000)));
        assert_eq!(known(&heard), [parse_address("fe80::b")]);
        assert_eq!(heard.next_deadline(), Some(at(1_801_000)));
    }

    #[test]
    fn advertisements_of_other_routers_do_not_replace_router_in_use() {
        let mut heard = LinkRouters::default();
        receive_advertisement(&mut heard, 0, "fe80::a", &[A], None);
        for index in 0..100_u16 {
            let prefix = format!("2001:db8:{index:x}::/64");
            receive_advertisement(
                &mut heard,
                1000 + u64::from(index),
                &format!("fe80::c:{index:x}"),
                &[&prefix],
                None,
            );
            heard.record_failed_router(parse_address(&format!("fe80::d:{index:x}")));
        }
        assert!(heard.prefixes.len() <= MAX_PREFIXES && heard.routers.len() <= MAX_ADVERTISING_ROUTERS);
        assert!(heard.unreachable_routers.len() <= MAX_ADVERTISING_ROUTERS);
        assert_eq!(
            heard.match_of_router(parse_address("2001:db8:f1::1"), parse_address("fe80::a")),
            RouterMatch::Advertised
        );
    }

    /// An attacker forges advertisements in the name of the router in use.
    #[test]
    fn prefix_in_use_is_stored_when_its_router_advertises_many_others() {
        let mut heard = LinkRouters::default();
        receive_advertisement(&mut heard, 0, "fe80::a", &[A], None);
        for index in 0..100_u16 {
            let prefix = format!("2001:db8:{index:x}::/64");
            receive_advertisement(&mut heard, 1000 + u64::from(index), "fe80::a", &[&prefix], None);
        }
        assert!(heard.prefixes.len() <= MAX_PREFIXES);
        assert_eq!(
            heard.match_of_router(parse_address("2001:db8:f1::1"), parse_address("fe80::a")),
            RouterMatch::Advertised
        );
    }

    #[test]
    fn kernels_neighbour_entry_shows_whether_a_router_is_reachable() {
        let mut heard = LinkRouters::default();
        let router = parse_address("fe80::a");
        assert!(heard.handle_neighbour_state(router, NeighbourState::Failed));
        assert!(!heard.handle_neighbour_state(router, NeighbourState::Failed), "it is known");
        assert!(!heard.handle_neighbour_state(router, NeighbourState::Incomplete));
        assert!(heard.is_unreachable(router), "the kernel tries again");
        heard.handle_neighbour_state(router, NeighbourState::Known);
        assert!(!heard.is_unreachable(router));
    }
}
