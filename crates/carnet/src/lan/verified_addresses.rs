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
/// Maximum number of addresses of one host, so that a host leaves room for others.
const MAX_ADDRESSES_OF_HOST: usize = 64;

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

    /// Records the addresses at which hosts have lately answered, as the kernel's neighbour table has them.
    pub fn update_verified(&mut self, now: Time, found: Vec<(String, Ipv6Addr, LinkAddress)>) {
        self.updated_at = Some(now);
        for (interface, address, host) in found {
            self.record_answer(now, interface, address, host);
        }
        self.remove_expired(now);
    }

    /// Records that a host has answered at an address. Returns whether this changes the host's addresses. If
    /// the host has too many addresses, removes the one whose answer is the oldest.
    pub fn record_answer(
        &mut self,
        now: Time,
        interface: String,
        address: Ipv6Addr,
        host: LinkAddress,
    ) -> bool {
        let key = (interface, address);
        let known = self.hosts_by_address.get(&key).map(|(host, _)| *host);
        if known != Some(host) {
            let own_answers = || {
                let answers = self.hosts_by_address.iter();
                answers.filter(|((name, _), (of, _))| *of == host && *name == key.0)
            };
            if own_answers().count() >= MAX_ADDRESSES_OF_HOST {
                let oldest = own_answers().min_by_key(|(_, (_, since))| *since).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| self.hosts_by_address.remove(&oldest));
            }
            if known.is_none() && self.hosts_by_address.len() >= MAX_ADDRESSES {
                self.remove_expired(now);
                if self.hosts_by_address.len() >= MAX_ADDRESSES {
                    return false;
                }
            }
        }
        self.hosts_by_address.insert(key, (host, now));
        known != Some(host)
    }

    fn remove_expired(&mut self, now: Time) {
        self.hosts_by_address.retain(|_, (_, since)| now < *since + VERIFIED_LIFETIME);
    }

    /// Returns the link-layer address of the host that has lately answered at an address; `None` if no host
    /// has.
    pub fn host_at_address(&self, interface: &str, address: Ipv6Addr) -> Option<LinkAddress> {
        self.hosts_by_address.get(&(interface.to_owned(), address)).map(|(host, _)| *host)
    }

    /// Returns the addresses of each host, by interface and link-layer address, those of the last answers
    /// first.
    pub fn addresses_by_host(&self) -> BTreeMap<(&str, LinkAddress), Vec<Ipv6Addr>> {
        let mut answers: Vec<_> = self.hosts_by_address.iter().collect();
        answers.sort_by_key(|((_, address), (_, since))| (std::cmp::Reverse(*since), *address));
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((interface, address), (host, _)) in answers {
            found.entry((interface.as_str(), *host)).or_default().push(*address);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl VerifiedAddresses {
        fn addresses_of_host(&self, interface: &str, host: LinkAddress) -> Vec<Ipv6Addr> {
            self.addresses_by_host().remove(&(interface, host)).unwrap_or_default()
        }
    }

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
    }

    #[test]
    fn answer_between_two_updates_counts_for_ten_minutes() {
        let host = [2, 0, 0, 0, 0, 1];
        let [first, second] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().expect("an address"));
        let mut addresses = VerifiedAddresses::default();
        addresses.update_verified(Time::ZERO, Vec::new());
        assert!(addresses.record_answer(Time::from_secs(1), "lan0".to_owned(), first, host));
        assert!(addresses.record_answer(Time::from_secs(2), "lan0".to_owned(), second, host));
        assert!(!addresses.record_answer(Time::from_secs(300), "lan0".to_owned(), second, host));
        // The neighbours are no longer reachable when the table is read.
        addresses.update_verified(Time::from_secs(600), Vec::new());
        assert_eq!(addresses.addresses_of_host("lan0", host), [second, first]);
        addresses.update_verified(Time::from_secs(601), Vec::new());
        assert_eq!(addresses.addresses_of_host("lan0", host), [second]);
        addresses.update_verified(Time::from_secs(900), Vec::new());
        assert!(addresses.addresses_of_host("lan0", host).is_empty());
    }

    #[test]
    fn host_with_many_addresses_keeps_the_last_ones_and_leaves_room_for_others() {
        let host = |number: u16| [2, 0, 0, 0, (number >> 8) as u8, number as u8];
        let address = |number: u32| Ipv6Addr::from(u128::from(number));
        let mut addresses = VerifiedAddresses::default();
        for number in 0..200 {
            let time = Time::from_secs(u64::from(number) / 10);
            assert!(addresses.record_answer(time, "lan0".to_owned(), address(number), host(0)));
        }
        let of_first = addresses.addresses_of_host("lan0", host(0));
        assert_eq!(of_first.len(), MAX_ADDRESSES_OF_HOST);
        assert!(of_first.contains(&address(199)) && !of_first.contains(&address(135)));
        let now = Time::from_secs(60);
        let recorded = (1..4100).filter(|number| {
            addresses.record_answer(now, "lan0".to_owned(), address(5000 + u32::from(*number)), host(*number))
        });
        assert_eq!(recorded.count(), MAX_ADDRESSES - MAX_ADDRESSES_OF_HOST);
        // After ten minutes the earlier answers have expired, so there is room for the addresses of another
        // host.
        let (later, newcomer) = (Time::from_secs(700), address(20_000));
        assert!(addresses.record_answer(later, "lan0".to_owned(), newcomer, host(6000)));
    }
}
