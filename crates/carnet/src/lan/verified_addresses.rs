//! IPv6 addresses of hosts on board, which the hosts form themselves (RFC 4862).
//!
//! The kernel knows the link-layer address at which each neighbour answers. An address is verified once the
//! kernel has got an answer there from the link-layer address of a lease. An unsolicited message of a host
//! does not suffice, because any host can use the link-layer address of another host in it.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_lan::LinkAddress;

/// Time for which an address stays verified after the host's answer.
const VERIFIED_LIFETIME: Duration = Duration::from_secs(600);
/// Pause until the caller reads the kernel's neighbours again. The kernel verifies an address within this
/// time (RFC 4861 10).
const VERIFICATION_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of verified addresses.
const MAX_ADDRESSES: usize = 4096;

/// The verified addresses, by interface, each with its host and the time of the host's answer.
#[derive(Debug, Default)]
pub struct VerifiedAddresses {
    hosts_by_address: BTreeMap<(String, Ipv6Addr), (LinkAddress, Time)>,
    updated_at: Option<Time>,
}

impl VerifiedAddresses {
    /// Returns whether the caller should read the kernel's neighbours again.
    pub fn needs_update(&self, now: Time) -> bool {
        self.updated_at.is_none_or(|updated| now >= updated + VERIFICATION_INTERVAL)
    }

    /// Adds addresses at which hosts have lately answered, and removes addresses whose answer is older than
    /// [`VERIFIED_LIFETIME`].
    pub fn update_verified(&mut self, now: Time, found: Vec<(String, Ipv6Addr, LinkAddress)>) {
        self.updated_at = Some(now);
        self.hosts_by_address.retain(|_, (_, since)| now < *since + VERIFIED_LIFETIME);
        for (interface, address, host) in found {
            let key = (interface, address);
            if self.hosts_by_address.len() < MAX_ADDRESSES || self.hosts_by_address.contains_key(&key) {
                self.hosts_by_address.insert(key, (host, now));
            }
        }
    }

    /// Returns the link-layer address of the host that has lately answered at an address; `None` if no host
    /// has.
    pub fn host_at_address(&self, interface: &str, address: Ipv6Addr) -> Option<LinkAddress> {
        self.hosts_by_address.get(&(interface.to_owned(), address)).map(|(host, _)| *host)
    }

    /// Returns the verified addresses of a host, the latest answer first.
    pub fn addresses_of_host(&self, interface: &str, host: LinkAddress) -> Vec<Ipv6Addr> {
        let own =
            self.hosts_by_address.iter().filter(|((name, _), (of, _))| name == interface && *of == host);
        let mut found: Vec<(Time, Ipv6Addr)> = own.map(|((_, at), (_, since))| (*since, *at)).collect();
        found.sort_by_key(|(since, address)| (std::cmp::Reverse(*since), *address));
        found.into_iter().map(|(_, address)| address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_address_belongs_to_last_answering_host_for_ten_minutes() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let at = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let lan = || "lan0".to_owned();
        let mut addresses = VerifiedAddresses::default();
        assert!(addresses.needs_update(Time::ZERO));
        addresses.update_verified(
            Time::ZERO,
            vec![(lan(), at("2001:db8::1"), one), (lan(), at("2001:db8::2"), one)],
        );
        assert!(!addresses.needs_update(Time::from_secs(4)) && addresses.needs_update(Time::from_secs(5)));
        assert_eq!(addresses.addresses_of_host("lan0", one), [at("2001:db8::1"), at("2001:db8::2")]);
        assert!(addresses.addresses_of_host("lan1", one).is_empty());
        addresses.update_verified(
            Time::from_secs(300),
            vec![(lan(), at("2001:db8::1"), two), (lan(), at("2001:db8::3"), one)],
        );
        assert_eq!(addresses.addresses_of_host("lan0", one), [at("2001:db8::3"), at("2001:db8::2")]);
        assert_eq!(addresses.addresses_of_host("lan0", two), [at("2001:db8::1")]);
        assert_eq!(addresses.host_at_address("lan0", at("2001:db8::1")), Some(two));
        assert_eq!(addresses.host_at_address("lan1", at("2001:db8::1")), None);
        addresses.update_verified(Time::from_secs(600), Vec::new());
        assert_eq!(addresses.addresses_of_host("lan0", one), [at("2001:db8::3")]);
        let many = (0..5000u128).map(|number| (lan(), Ipv6Addr::from(number), one));
        addresses.update_verified(Time::from_secs(601), many.collect());
        assert_eq!(addresses.addresses_of_host("lan0", one).len(), MAX_ADDRESSES - 1);
    }
}
