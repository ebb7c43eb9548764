//! Bounds the work that Binding Updates cause, before their MAC is computed and after it has verified.
//!
//! **Before the MAC**: a stranger can send Binding Updates in the name of a node. [`Admission`] bounds how
//! many of them are verified, for each source and in all. Below [`COMFORTABLE`] a second no source is
//! limited: after a power cut a whole fleet comes at once, many routers from one address of a carrier's NAT.
//! Beyond that each source has a share (an IPv6 network of 64 bits counts as one source), and all together
//! have [`MOST`]. A Binding Update that comes from a care-of address where its node is bound does not count,
//! so a node loses no binding by forgeries from elsewhere.
//!
//! A forged Binding Update that is verified and refused costs about 0.9 us, and one that is not verified 0.2
//! us (`benches/registration`); its way through the kernel costs several. So [`MOST`] is the number that a
//! home agent can read beside its other work, with less than a fifth of a core. A smaller number would save
//! little. It would also cost nodes at new addresses while an attacker floods with made-up sources, because
//! nothing distinguishes the two. One source can cost a fortieth of a core.
//!
//! **After the MAC**: an authentic Binding Update costs a disk write and an acknowledgement. [`Shares`]
//! bounds how many of them one node has, so that a node under an attacker's control does not keep others from
//! registering. The state of the last accepted one stays; the node repeats its update if it gets no answer
//! (RFC 6275 11.8).

use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rate, RateLimiter, Time};
use foldhash::HashMap;
use foldhash::quality::FixedState;

/// Binding Updates a second, of sources that are not bound, below which no source is limited.
pub(super) const COMFORTABLE: u32 = 20_000;
/// Binding Updates a second of all unbound sources together, beyond [`COMFORTABLE`].
pub(super) const MOST: u32 = 180_000;
/// Burst of one source, beyond [`COMFORTABLE`]: as many as a fleet has routers. [`OF_SOURCE`] is its rate a
/// second.
pub(super) const OF_SOURCE_AT_ONCE: u32 = 100_000;
pub(super) const OF_SOURCE: u32 = 5_000;
/// Entries for sources. Two sources with one entry have one share.
const PLACES: usize = 4096;

/// Burst of authentic Binding Updates of one node. [`UPDATE_INTERVAL`] is the interval between two in the
/// long run. `MAX_UPDATE_RATE` (RFC 6275 12) is three a second, and a node with several care-of addresses may
/// register each separately.
pub(super) const UPDATES_AT_ONCE: u32 = 16;
pub(super) const UPDATE_INTERVAL: Duration = Duration::from_millis(125);
/// Number of nodes above which the table is searched for nodes with a full share, to remove them.
const REMEMBERED: usize = 1024;

/// Rate of one node: [`UPDATES_AT_ONCE`] and [`UPDATE_INTERVAL`].
const SHARE: Rate = Rate { burst: UPDATES_AT_ONCE, interval: UPDATE_INTERVAL };

/// Allowances of Binding Updates from sources that are not bound.
#[derive(Debug)]
pub(super) struct Admission {
    comfortable: RateLimiter,
    all: RateLimiter,
    /// Time at which the share of the sources in each entry is full again. Empty until an entry is needed.
    places: Vec<Time>,
    hasher: FixedState,
}

impl Admission {
    /// Creates the allowances. `secret` decides which sources share an entry.
    pub fn new(secret: u64) -> Admission {
        Admission {
            comfortable: RateLimiter::new(COMFORTABLE, Duration::from_secs(1) / COMFORTABLE),
            all: RateLimiter::new(MOST, Duration::from_secs(1) / MOST),
            places: Vec::new(),
            hasher: FixedState::with_seed(secret),
        }
    }

    /// Whether the home agent verifies a Binding Update from this source: an IPv6 address, or an IPv4 address
    /// as IPv4-mapped.
    pub fn allow(&mut self, now: Time, source: Ipv6Addr) -> bool {
        if self.comfortable.allow(now) {
            return true;
        }
        if self.places.is_empty() {
            self.places = vec![Time::ZERO; PLACES];
        }
        let bits = source.to_bits();
        let network = if source.to_ipv4_mapped().is_some() { bits } else { bits >> 64 };
        let place = self.hasher.hash_one(network) as usize % PLACES;
        let of_source = Rate { burst: OF_SOURCE_AT_ONCE, interval: Duration::from_secs(1) / OF_SOURCE };
        let Some(full_at) = self.places.get_mut(place) else { return true };
        // A source without a share takes nothing from other sources.
        of_source.take(full_at, now, 1) && self.all.allow(now)
    }
}

/// Number of authentic Binding Updates that each node has sent lately.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Time at which a node's share is full again. Nodes with a full share have no entry.
    full_at: HashMap<Ipv6Addr, Time>,
    /// Number of nodes above which the table is searched next.
    looked_through_at: usize,
}

impl Shares {
    /// Whether this node has an update left in its share, without taking it.
    pub fn has(&self, now: Time, home_address: Ipv6Addr) -> bool {
        let mut full_at = self.full_at.get(&home_address).copied().unwrap_or(Time::ZERO);
        SHARE.take(&mut full_at, now, 1)
    }

    /// Takes one update from this node's share.
    pub fn take(&mut self, now: Time, home_address: Ipv6Addr) {
        if self.full_at.len() > self.looked_through_at.max(REMEMBERED) {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.looked_through_at = 2 * self.full_at.len();
            if self.full_at.capacity() > 8 * self.full_at.len().max(REMEMBERED) {
                self.full_at.shrink_to_fit();
            }
        }
        let full_at = self.full_at.entry(home_address).or_insert(Time::ZERO);
        SHARE.take(full_at, now, 1);
    }

    /// Number of nodes in the table.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.full_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_secs(100);

    fn source(number: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 64 | 1)
    }

    /// Returns how many of `count` updates pass that `source` sends evenly within a second.
    fn passed(admission: &mut Admission, second: u64, count: u32, source: impl Fn(u32) -> Ipv6Addr) -> u32 {
        let start = START + Duration::from_secs(second);
        let at = |number: u32| start + Duration::from_secs(1) * number / count;
        (0..count).filter(|number| admission.allow(at(*number), source(*number))).count() as u32
    }

    #[test]
    fn nobody_is_limited_as_long_as_it_is_comfortable() {
        let mut admission = Admission::new(1);
        for second in 0..10 {
            assert_eq!(passed(&mut admission, second, COMFORTABLE, |_| source(1)), COMFORTABLE);
        }
        assert!(admission.places.is_empty(), "nothing is kept of them");
    }

    /// 100,000 routers behind one address of a NAT, at once.
    #[test]
    fn a_fleet_behind_one_address_comes_at_once_after_a_power_cut() {
        let mut admission = Admission::new(1);
        let nat = "::ffff:192.0.2.1".parse().expect("an address");
        assert_eq!((0..100_000).filter(|_| admission.allow(START, nat)).count(), 100_000);
    }

    #[test]
    fn a_source_has_its_share_and_all_have_theirs_and_no_more() {
        let mut admission = Admission::new(1);
        passed(&mut admission, 0, 1_000_000, |_| source(1));
        let of_one = passed(&mut admission, 1, 1_000_000, |_| source(1));
        assert!(of_one <= COMFORTABLE + OF_SOURCE + 1, "{of_one}");
        // A source in another network passes meanwhile.
        let mut others = 0;
        for number in 0..1_000_000 {
            let now = START + Duration::from_secs(2) + Duration::from_micros(number);
            admission.allow(now, source(1));
            if number % 1000 == 0 {
                others += u32::from(admission.allow(now, source(2)));
            }
        }
        assert_eq!(others, 1000);
        // The bound of all sources holds for any number of sources.
        let of_all = passed(&mut admission, 9, 2_000_000, source);
        assert!(of_all <= 2 * (COMFORTABLE + MOST) + 2, "as many at once as in a second: {of_all}");
        let of_all = passed(&mut admission, 10, 2_000_000, source);
        assert!(of_all <= COMFORTABLE + MOST + MOST / 1000, "{of_all}");
    }

    #[test]
    fn a_network_is_one_source_and_a_secret_decides_who_shares_a_place() {
        let place = |secret, source: Ipv6Addr| {
            let mut admission = Admission::new(secret);
            while admission.places.is_empty() {
                admission.allow(START, source);
            }
            admission.places.iter().position(|full_at| *full_at > START).expect("a place")
        };
        let other = Ipv6Addr::from_bits(source(1).to_bits() + 77);
        assert_eq!(place(1, source(1)), place(1, other));
        assert_ne!(place(1, source(1)), place(1, source(2)));
        assert_ne!(place(1, source(1)), place(2, source(1)));
        let ipv4 = |text: &str| text.parse().expect("an address");
        assert_ne!(place(1, ipv4("::ffff:192.0.2.1")), place(1, ipv4("::ffff:192.0.2.2")));
    }

    #[test]
    fn nodes_that_have_their_whole_share_are_forgotten() {
        let mut shares = Shares::default();
        for number in 0..100_000 {
            let now = START + Duration::from_micros(100) * number;
            assert!(shares.has(now, source(number)));
            shares.take(now, source(number));
            assert!(shares.len() <= 3 * 1250 + REMEMBERED, "{} at {number}", shares.len());
        }
        let now = START + Duration::from_secs(100);
        for number in 0..UPDATES_AT_ONCE {
            assert!(shares.has(now, source(7)), "{number}");
            shares.take(now, source(7));
        }
        assert!(!shares.has(now, source(7)) && shares.has(now, source(8)));
        assert!(shares.has(now + UPDATE_INTERVAL, source(7)));
    }
}
