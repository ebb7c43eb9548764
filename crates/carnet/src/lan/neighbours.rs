//! IPv6 addresses of hosts on board, which the hosts make themselves (RFC 4862).
//!
//! The kernel knows at which link-layer address each neighbour answers. An address counts once the host with
//! the link-layer address of a lease has answered the kernel there. A claim of a host does not count,
//! because any host can claim another one's link-layer address.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_lan::LinkAddress;

/// Time for which an answer of a host counts.
const VALID: Duration = Duration::from_secs(600);
/// Time until the kernel is asked again: it verifies an address in that time (RFC 4861 10).
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of addresses.
const MAX_ADDRESSES: usize = 4096;

/// The addresses, by interface, each with its host and the time of the answer.
#[derive(Debug, Default)]
pub struct VerifiedAddresses {
    of: BTreeMap<(String, Ipv6Addr), (LinkAddress, Time)>,
    updated: Option<Time>,
}

impl VerifiedAddresses {
    /// Returns whether the caller should ask the kernel.
    pub fn are_due(&self, now: Time) -> bool {
        self.updated.is_none_or(|updated| now >= updated + INTERVAL)
    }

    /// Adds addresses at which hosts have lately answered, and removes those of old answers.
    pub fn update(&mut self, now: Time, found: Vec<(String, Ipv6Addr, LinkAddress)>) {
        self.updated = Some(now);
        self.of.retain(|_, (_, since)| now < *since + VALID);
        for (interface, address, host) in found {
            let key = (interface, address);
            if self.of.len() < MAX_ADDRESSES || self.of.contains_key(&key) {
                self.of.insert(key, (host, now));
            }
        }
    }

    /// Returns the link-layer address of the host that has lately answered at an address; `None` without one.
    pub fn host_at(&self, interface: &str, address: Ipv6Addr) -> Option<LinkAddress> {
        self.of.get(&(interface.to_owned(), address)).map(|(host, _)| *host)
    }

    /// Returns the addresses of a host, those of the last answers first.
    pub fn of(&self, interface: &str, host: LinkAddress) -> Vec<Ipv6Addr> {
        let own = self.of.iter().filter(|((name, _), (of, _))| name == interface && *of == host);
        let mut found: Vec<(Time, Ipv6Addr)> = own.map(|((_, at), (_, since))| (*since, *at)).collect();
        found.sort_by_key(|(since, address)| (std::cmp::Reverse(*since), *address));
        found.into_iter().map(|(_, address)| address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_belongs_to_the_host_that_answered_last_and_for_ten_minutes() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let at = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let lan = || "lan0".to_owned();
        let mut addresses = VerifiedAddresses::default();
        assert!(addresses.are_due(Time::ZERO));
        addresses.update(Time::ZERO, vec![(lan(), at("2001:db8::1"), one), (lan(), at("2001:db8::2"), one)]);
        assert!(!addresses.are_due(Time::from_secs(4)) && addresses.are_due(Time::from_secs(5)));
        assert_eq!(addresses.of("lan0", one), [at("2001:db8::1"), at("2001:db8::2")]);
        assert!(addresses.of("lan1", one).is_empty());
        addresses.update(
            Time::from_secs(300),
            vec![(lan(), at("2001:db8::1"), two), (lan(), at("2001:db8::3"), one)],
        );
        assert_eq!(addresses.of("lan0", one), [at("2001:db8::3"), at("2001:db8::2")]);
        assert_eq!(addresses.of("lan0", two), [at("2001:db8::1")]);
        assert_eq!(addresses.host_at("lan0", at("2001:db8::1")), Some(two));
        assert_eq!(addresses.host_at("lan1", at("2001:db8::1")), None);
        addresses.update(Time::from_secs(600), Vec::new());
        assert_eq!(addresses.of("lan0", one), [at("2001:db8::3")]);
        let many = (0..5000u128).map(|number| (lan(), Ipv6Addr::from(number), one));
        addresses.update(Time::from_secs(601), many.collect());
        assert_eq!(addresses.of("lan0", one).len(), MAX_ADDRESSES - 1);
    }
}
