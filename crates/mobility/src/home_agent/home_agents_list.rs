//! The Home Agents List (RFC 6275 10.1 and 10.5.1, with the R flag of RFC 3963 7.3): other home agents of the
//! home link.
//!
//! On a real home link the home agent learns the list from their Router Advertisements. On a virtual home
//! link the operator configures it ([`PeerHomeAgent`]). Every node on the home link can send Router
//! Advertisements. So the home agent uses learnt entries only in its answers. It limits the length of the
//! list, and a new entry never replaces a known one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::nd::{NdOption, RouterAdvertisement};
use carnet_wire::{icmpv6, nd};

use crate::{MobilityDrop, is_unicast_routable};

/// Maximum number of home agents in the list.
const MAX_LISTED_AGENTS: usize = 32;
/// Maximum number of global addresses of one home agent.
const MAX_ADDRESSES_PER_AGENT: usize = 8;

/// The operator's config of other home agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherAgents {
    /// Whether Dynamic Home Agent Address Discovery (RFC 6275 10.5) is on: the home agent answers requests,
    /// and advertises itself on a real home link.
    pub answers_dhaad: bool,
    /// This home agent's preference; the higher value wins.
    pub preference: u16,
    /// Other home agents that the operator has configured.
    pub peers: Vec<PeerHomeAgent>,
}

/// Another home agent of the operator, for the same home prefix and the same nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerHomeAgent {
    /// Address of the home agent.
    pub address: Ipv6Addr,
    /// Preference of the home agent; the higher value wins.
    pub preference: u16,
}

/// A home agent that this home agent may name in its answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HomeAgentCandidate {
    /// Global addresses of the home agent.
    pub addresses: Vec<Ipv6Addr>,
    /// Preference; the higher value wins.
    pub preference: u16,
    /// R flag: the home agent serves mobile routers.
    pub mobile_routers: bool,
}

#[derive(Debug)]
struct HomeAgentsListEntry {
    candidate: HomeAgentCandidate,
    expires_at: Time,
}

/// Other home agents on the link, by link-local address.
#[derive(Debug, Default)]
pub(super) struct HomeAgentsList(BTreeMap<Ipv6Addr, Box<HomeAgentsListEntry>>);

impl HomeAgentsList {
    /// Updates the list from a Router Advertisement on the home link.
    ///
    /// # Errors
    /// Returns a reason if the message is no valid Router Advertisement (RFC 4861 6.1.2).
    pub fn handle_advertisement(&mut self, now: Time, message: &LinkMessage) -> Result<(), MobilityDrop> {
        self.0.retain(|_, entry| entry.expires_at > now);
        let router = message.source;
        if message.hop_limit != nd::HOP_LIMIT || !router.is_unicast_link_local() {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify_checksum(router, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let advertisement =
            RouterAdvertisement::parse(&message.message).map_err(|_| MobilityDrop::NeighborDiscovery)?;
        // RFC 6275 10.5.1: "If the Home Agent (H) bit ... is not set, delete".
        if !advertisement.home_agent {
            self.stop_listing_agent(router);
            return Ok(());
        }
        let information = advertisement.options().find_map(|option| match option {
            NdOption::HomeAgentInformation(information) => Some(information),
            _ => None,
        });
        let lifetime = information.map_or(advertisement.router_lifetime, |it| it.lifetime);
        if lifetime == 0 {
            self.stop_listing_agent(router);
            return Ok(());
        }
        if !self.0.contains_key(&router) && self.0.len() >= MAX_LISTED_AGENTS {
            return Err(MobilityDrop::RateLimited);
        }
        let expires = now + Duration::from_secs(lifetime.into());
        let entry = self.0.entry(router).or_insert_with(|| {
            let candidate =
                HomeAgentCandidate { addresses: Vec::new(), preference: 0, mobile_routers: false };
            Box::new(HomeAgentsListEntry { candidate, expires_at: expires })
        });
        entry.expires_at = expires;
        entry.candidate.preference = information.map_or(0, |it| it.preference);
        // RFC 3963 7.3: the last advertisement counts, so it may also clear the flag.
        entry.candidate.mobile_routers = information.is_some_and(|it| it.mobile_router_support);
        let addresses = &mut entry.candidate.addresses;
        for option in advertisement.options() {
            if let NdOption::PrefixInformation(information) = option
                && information.router_address
                && is_unicast_routable(information.prefix)
            {
                addresses.retain(|address| *address != information.prefix);
                if information.valid_lifetime > 0 && addresses.len() < MAX_ADDRESSES_PER_AGENT {
                    addresses.push(information.prefix);
                }
            }
        }
        Ok(())
    }

    /// Removes a home agent from the answers. It may still defend addresses of its nodes, so the list keeps
    /// it until its last advertised lifetime ends.
    fn stop_listing_agent(&mut self, router: Ipv6Addr) {
        if let Some(entry) = self.0.get_mut(&router) {
            entry.candidate.addresses.clear();
        }
    }

    /// Returns whether the list has a home agent with this link-local or global address whose lifetime has
    /// not ended.
    pub fn is_listed_home_agent(&self, now: Time, address: Ipv6Addr) -> bool {
        let is_its = |router: &Ipv6Addr, entry: &HomeAgentsListEntry| {
            *router == address || entry.candidate.addresses.contains(&address)
        };
        self.0.iter().any(|(router, entry)| entry.expires_at > now && is_its(router, entry))
    }

    /// Returns the home agents whose lifetime has not ended.
    pub fn candidates(&self, now: Time) -> impl Iterator<Item = HomeAgentCandidate> {
        let live = self.0.values().filter(move |entry| entry.expires_at > now);
        live.map(|entry| entry.candidate.clone()).filter(|candidate| !candidate.addresses.is_empty())
    }
}

/// Returns the addresses of home agents in the order of RFC 6275 10.5.1: by decreasing preference. Home
/// agents of equal preference are in random order, and so are the addresses of each home agent. Lists each
/// address once.
pub(super) fn addresses_in_order(mut candidates: Vec<HomeAgentCandidate>, rng: &mut Rng) -> Vec<Ipv6Addr> {
    shuffle(&mut candidates, rng);
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.preference));
    let mut all = Vec::new();
    for candidate in &mut candidates {
        shuffle(&mut candidate.addresses, rng);
        for address in &candidate.addresses {
            if !all.contains(address) {
                all.push(*address);
            }
        }
    }
    all
}

/// Shuffles items, with every order equally likely.
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for end in (1..items.len()).rev() {
        let chosen = usize::try_from(rng.number_below(end as u64 + 1)).unwrap_or(0);
        items.swap(end, chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_wire::nd::{
        HomeAgentInformation, PrefixInformation, RouterAdvertisementRepr, emit_router_advertisement,
    };

    fn parse_address(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    /// Builds a Router Advertisement, with a Home Agent Information option if it has values.
    fn received_advertisement(
        router: &str,
        home_agent: bool,
        information: Option<(bool, u16, u16)>,
    ) -> LinkMessage {
        let prefix = |last: &str| {
            NdOption::PrefixInformation(PrefixInformation {
                prefix: parse_address(last),
                prefix_length: 64,
                on_link: true,
                autonomous: false,
                router_address: true,
                valid_lifetime: 600,
                preferred_lifetime: 600,
            })
        };
        let mut options = vec![prefix(&router.replace("fe80::", "2001:db8:1::"))];
        options.extend(information.map(|(mobile_router_support, preference, lifetime)| {
            NdOption::HomeAgentInformation(HomeAgentInformation {
                mobile_router_support,
                preference,
                lifetime,
            })
        }));
        let mut message = emit_router_advertisement(&RouterAdvertisementRepr {
            home_agent,
            router_lifetime: 30,
            options: &options,
            ..RouterAdvertisementRepr::default()
        });
        icmpv6::set_checksum(&mut message, parse_address(router), nd::ALL_NODES);
        LinkMessage {
            interface: "h0".into(),
            source: parse_address(router),
            destination: nd::ALL_NODES,
            hop_limit: 255,
            peer: None,
            message,
        }
    }

    fn listed_addresses(list: &HomeAgentsList, now: Time) -> Vec<Ipv6Addr> {
        addresses_in_order(list.candidates(now).collect(), &mut Rng::new(1))
    }

    #[test]
    fn home_agents_list_takes_preference_and_lifetime_of_last_advertisement() {
        let mut list = HomeAgentsList::default();
        let at = Time::from_secs;
        list.handle_advertisement(at(0), &received_advertisement("fe80::2", true, Some((true, 5, 100))))
            .expect("valid");
        list.handle_advertisement(at(0), &received_advertisement("fe80::3", true, Some((false, 9, 100))))
            .expect("valid");
        // Without the option the preference is 0, and the lifetime is the router lifetime of the
        // advertisement.
        list.handle_advertisement(at(0), &received_advertisement("fe80::4", true, None)).expect("valid");
        let (two, three, four) =
            (parse_address("2001:db8:1::2"), parse_address("2001:db8:1::3"), parse_address("2001:db8:1::4"));
        assert_eq!(listed_addresses(&list, at(1)), [three, two, four]);
        assert_eq!(listed_addresses(&list, at(31)), [three, two]);
        // The values of the last advertisement replace the earlier R flag and preference.
        list.handle_advertisement(at(32), &received_advertisement("fe80::3", true, Some((true, 1, 100))))
            .expect("valid");
        assert_eq!(listed_addresses(&list, at(32)), [two, three]);
        assert!(list.candidates(at(32)).all(|candidate| candidate.mobile_routers));
        // Without the H bit, or with lifetime 0, the router is no longer a home agent.
        list.handle_advertisement(at(33), &received_advertisement("fe80::3", false, None)).expect("valid");
        list.handle_advertisement(at(33), &received_advertisement("fe80::2", true, Some((true, 5, 0))))
            .expect("valid");
        assert!(listed_addresses(&list, at(33)).is_empty());
        // A former home agent may still defend addresses of its nodes, so it stays in the list until its
        // lifetime ends.
        let three_link = parse_address("fe80::3");
        assert!(
            list.is_listed_home_agent(at(33), three_link) && list.is_listed_home_agent(at(131), three_link)
        );
        assert!(!list.is_listed_home_agent(at(132), three_link));
        list.handle_advertisement(at(34), &received_advertisement("fe80::3", true, Some((true, 1, 100))))
            .expect("valid");
        assert_eq!(listed_addresses(&list, at(34)), [three]);
        // The list also finds a home agent by its global address. A home agent whose link-local address is
        // still tentative sends its Neighbor Advertisements from the global address.
        assert!(list.is_listed_home_agent(at(34), three) && !list.is_listed_home_agent(at(34), two));
    }

    #[test]
    fn home_agents_list_accepts_only_link_messages_and_is_bounded() {
        let mut list = HomeAgentsList::default();
        let far = LinkMessage { hop_limit: 64, ..received_advertisement("fe80::2", true, None) };
        assert_eq!(list.handle_advertisement(Time::ZERO, &far), Err(MobilityDrop::NeighborDiscovery));
        for n in 1..1000_u32 {
            let _ = list.handle_advertisement(
                Time::ZERO,
                &received_advertisement(&format!("fe80::{n:x}"), true, Some((true, 1, 9000))),
            );
        }
        assert_eq!(list.0.len(), MAX_LISTED_AGENTS);
        assert!(list.is_listed_home_agent(Time::ZERO, parse_address("fe80::1")), "the first stay");
    }

    #[test]
    fn home_agents_of_equal_preference_are_shuffled() {
        let candidates = |n: u16| -> Vec<HomeAgentCandidate> {
            (0..n)
                .map(|n| HomeAgentCandidate {
                    addresses: vec![Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n)],
                    preference: u16::from(n == 3),
                    mobile_routers: true,
                })
                .collect()
        };
        let mut rng = Rng::new(7);
        let mut firsts = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let order = addresses_in_order(candidates(4), &mut rng);
            assert_eq!(order[0].segments()[7], 3, "the highest preference is first");
            firsts.insert(order[1]);
        }
        assert_eq!(firsts.len(), 3);
    }
}
