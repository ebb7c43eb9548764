//! Limits the number of Binding Updates whose MAC the home agent verifies, and the number of authentic
//! Binding Updates that it accepts.
//!
//! **Before the MAC is verified**: an attacker can send Binding Updates with the home address of any node.
//! [`UnboundSourceLimits`] limits how many Binding Updates are verified, for each source address and for all
//! sources together. If fewer than [`UNLIMITED_RATE`] arrive in a second, no source is limited. After a power
//! cut all routers of a fleet register at once, many of them from one address of an operator's NAT. At a
//! higher rate each source has its own limit, and all sources together have [`MAX_VERIFICATION_RATE`]. An
//! IPv6 network of 64 bits counts as one source. A Binding Update from a care-of address where its node is
//! bound does not count. So an attacker at another address cannot use up the limit of a bound node.
//!
//! To verify and refuse a forged Binding Update costs about 0.9 us; to drop it without verification costs 0.2
//! us (`benches/registration`). The kernel needs several microseconds to deliver it.
//! [`MAX_VERIFICATION_RATE`] is the number that a home agent can read with less than a fifth of a core. A
//! smaller limit would save little time. During an attack with forged sources, the home agent would then also
//! drop Binding Updates of nodes at new addresses. It cannot distinguish these nodes from the attacker. One
//! source can use up a fortieth of a core.
//!
//! **After the MAC is verified**: an authentic Binding Update costs a disk write and an acknowledgement.
//! [`NodeUpdateLimits`] limits their number for each node, so that a node under an attacker's control does
//! not prevent the registrations of other nodes. The home agent drops a Binding Update above the limit and
//! keeps the binding as it is. The node sends the update again, because it gets no answer (RFC 6275 11.8).

use std::hash::BuildHasher;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, TokenBucketRate};
use foldhash::HashMap;
use foldhash::quality::FixedState;

/// Binding Updates per second from unbound sources below which no source is limited.
pub(super) const UNLIMITED_RATE: u32 = 20_000;
/// Binding Updates per second from all unbound sources together, beyond [`UNLIMITED_RATE`].
pub(super) const MAX_VERIFICATION_RATE: u32 = 180_000;
/// Number of Binding Updates that one source may send at once, beyond [`UNLIMITED_RATE`]: the number of
/// routers of a large fleet. After that, [`SOURCE_RATE`] is the limit per second.
pub(super) const SOURCE_BURST: u32 = 100_000;
pub(super) const SOURCE_RATE: u32 = 5_000;
/// Number of entries in the table of sources. Sources whose hashes select the same entry share one limit.
const SOURCE_ENTRIES: usize = 4096;

/// Number of authentic Binding Updates that one node may send at once. [`NODE_UPDATE_INTERVAL`] is the
/// interval for each further update. `MAX_UPDATE_RATE` (RFC 6275 12) is three per second, and a node with
/// several care-of addresses may register each separately.
pub(super) const NODE_UPDATE_BURST: u32 = 16;
pub(super) const NODE_UPDATE_INTERVAL: Duration = Duration::from_millis(125);
/// Number of nodes above which the home agent searches the table for nodes whose limit is full again, and
/// removes them.
const FIRST_CLEANUP_SIZE: usize = 1024;

/// Rate limit of the authentic Binding Updates of one node.
const NODE_UPDATE_RATE: TokenBucketRate =
    TokenBucketRate { burst_size: NODE_UPDATE_BURST, interval: NODE_UPDATE_INTERVAL };

/// Limits of Binding Updates from sources that are no bound care-of address.
#[derive(Debug)]
pub(super) struct UnboundSourceLimits {
    below_threshold: RateLimiter,
    limit_of_all_sources: RateLimiter,
    /// Time at which the limit of each entry of the table is full again. The table is empty until the home
    /// agent needs it.
    bucket_full_at: Vec<Time>,
    hasher: FixedState,
}

impl UnboundSourceLimits {
    /// Creates full limits. `secret` decides which sources share an entry, so that an attacker cannot choose
    /// them.
    pub fn new(secret: u64) -> UnboundSourceLimits {
        UnboundSourceLimits {
            below_threshold: RateLimiter::new(UNLIMITED_RATE, Duration::from_secs(1) / UNLIMITED_RATE),
            limit_of_all_sources: RateLimiter::new(
                MAX_VERIFICATION_RATE,
                Duration::from_secs(1) / MAX_VERIFICATION_RATE,
            ),
            bucket_full_at: Vec::new(),
            hasher: FixedState::with_seed(secret),
        }
    }

    /// Returns whether the home agent verifies a Binding Update from this source: an IPv6 address, or an IPv4
    /// address as IPv4-mapped.
    pub fn allow_verification(&mut self, now: Time, source: Ipv6Addr) -> bool {
        if self.below_threshold.try_take_token(now) {
            return true;
        }
        if self.bucket_full_at.is_empty() {
            self.bucket_full_at = vec![Time::ZERO; SOURCE_ENTRIES];
        }
        let bits = source.to_bits();
        let network = if source.to_ipv4_mapped().is_some() { bits } else { bits >> 64 };
        let place = self.hasher.hash_one(network) as usize % SOURCE_ENTRIES;
        let of_source =
            TokenBucketRate { burst_size: SOURCE_BURST, interval: Duration::from_secs(1) / SOURCE_RATE };
        let Some(full_at) = self.bucket_full_at.get_mut(place) else { return true };
        // Use the common limit only if the source's own limit allows the update.
        of_source.try_take_tokens(full_at, now, 1) && self.limit_of_all_sources.try_take_token(now)
    }
}

/// Limit of authentic Binding Updates for each node.
#[derive(Debug, Default)]
pub(super) struct NodeUpdateLimits {
    /// Time at which a node's limit is full again. A node without an entry has a full limit.
    bucket_full_at: HashMap<Ipv6Addr, Time>,
    /// Number of nodes above which [`Self::count_update`] searches the table the next time.
    next_cleanup_size: usize,
}

impl NodeUpdateLimits {
    /// Returns whether this node may send another Binding Update, without counting one.
    pub fn may_send_update(&self, now: Time, home_address: Ipv6Addr) -> bool {
        let mut full_at = self.bucket_full_at.get(&home_address).copied().unwrap_or(Time::ZERO);
        NODE_UPDATE_RATE.try_take_tokens(&mut full_at, now, 1)
    }

    /// Counts one Binding Update of this node.
    pub fn count_update(&mut self, now: Time, home_address: Ipv6Addr) {
        if self.bucket_full_at.len() > self.next_cleanup_size.max(FIRST_CLEANUP_SIZE) {
            self.bucket_full_at.retain(|_, full_at| *full_at > now);
            self.next_cleanup_size = 2 * self.bucket_full_at.len();
            if self.bucket_full_at.capacity() > 8 * self.bucket_full_at.len().max(FIRST_CLEANUP_SIZE) {
                self.bucket_full_at.shrink_to_fit();
            }
        }
        let full_at = self.bucket_full_at.entry(home_address).or_insert(Time::ZERO);
        NODE_UPDATE_RATE.try_take_tokens(full_at, now, 1);
    }

    /// Returns the number of nodes in the table.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.bucket_full_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_secs(100);

    fn source(number: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 64 | 1)
    }

    /// Returns how many of `count` updates are allowed if `source` sends them evenly within a second.
    fn count_allowed_updates(
        admission: &mut UnboundSourceLimits,
        second: u64,
        count: u32,
        source: impl Fn(u32) -> Ipv6Addr,
    ) -> u32 {
        let start = START + Duration::from_secs(second);
        let at = |number: u32| start + Duration::from_secs(1) * number / count;
        (0..count).filter(|number| admission.allow_verification(at(*number), source(*number))).count() as u32
    }

    #[test]
    fn no_source_is_limited_while_total_update_rate_is_low() {
        let mut admission = UnboundSourceLimits::new(1);
        for second in 0..10 {
            assert_eq!(
                count_allowed_updates(&mut admission, second, UNLIMITED_RATE, |_| source(1)),
                UNLIMITED_RATE
            );
        }
        assert!(admission.bucket_full_at.is_empty(), "nothing is kept of them");
    }

    /// 100,000 routers behind one NAT register at the same time.
    #[test]
    fn many_routers_behind_one_address_register_at_once_after_a_power_cut() {
        let mut admission = UnboundSourceLimits::new(1);
        let nat = "::ffff:192.0.2.1".parse().expect("an address");
        assert_eq!((0..100_000).filter(|_| admission.allow_verification(START, nat)).count(), 100_000);
    }

    #[test]
    fn each_source_may_send_its_share_of_binding_updates() {
        let mut admission = UnboundSourceLimits::new(1);
        count_allowed_updates(&mut admission, 0, 1_000_000, |_| source(1));
        let of_one = count_allowed_updates(&mut admission, 1, 1_000_000, |_| source(1));
        assert!(of_one <= UNLIMITED_RATE + SOURCE_RATE + 1, "{of_one}");
        // Updates of a source in another network are allowed meanwhile.
        let mut others = 0;
        for number in 0..1_000_000 {
            let now = START + Duration::from_secs(2) + Duration::from_micros(number);
            admission.allow_verification(now, source(1));
            if number % 1000 == 0 {
                others += u32::from(admission.allow_verification(now, source(2)));
            }
        }
        assert_eq!(others, 1000);
        // The common limit holds for any number of sources.
        let of_all = count_allowed_updates(&mut admission, 9, 2_000_000, source);
        assert!(
            of_all <= 2 * (UNLIMITED_RATE + MAX_VERIFICATION_RATE) + 2,
            "as many at once as in a second: {of_all}"
        );
        let of_all = count_allowed_updates(&mut admission, 10, 2_000_000, source);
        assert!(of_all <= UNLIMITED_RATE + MAX_VERIFICATION_RATE + MAX_VERIFICATION_RATE / 1000, "{of_all}");
    }

    #[test]
    fn addresses_of_one_64_prefix_count_as_one_source() {
        let place = |secret, source: Ipv6Addr| {
            let mut admission = UnboundSourceLimits::new(secret);
            while admission.bucket_full_at.is_empty() {
                admission.allow_verification(START, source);
            }
            admission.bucket_full_at.iter().position(|full_at| *full_at > START).expect("a place")
        };
        let other = Ipv6Addr::from_bits(source(1).to_bits() + 77);
        assert_eq!(place(1, source(1)), place(1, other));
        assert_ne!(place(1, source(1)), place(1, source(2)));
        assert_ne!(place(1, source(1)), place(2, source(1)));
        let ipv4 = |text: &str| text.parse().expect("an address");
        assert_ne!(place(1, ipv4("::ffff:192.0.2.1")), place(1, ipv4("::ffff:192.0.2.2")));
    }

    #[test]
    fn sources_with_full_share_are_forgotten() {
        let mut shares = NodeUpdateLimits::default();
        for number in 0..100_000 {
            let now = START + Duration::from_micros(100) * number;
            assert!(shares.may_send_update(now, source(number)));
            shares.count_update(now, source(number));
            assert!(shares.len() <= 3 * 1250 + FIRST_CLEANUP_SIZE, "{} at {number}", shares.len());
        }
        let now = START + Duration::from_secs(100);
        for number in 0..NODE_UPDATE_BURST {
            assert!(shares.may_send_update(now, source(7)), "{number}");
            shares.count_update(now, source(7));
        }
        assert!(!shares.may_send_update(now, source(7)) && shares.may_send_update(now, source(8)));
        assert!(shares.may_send_update(now + NODE_UPDATE_INTERVAL, source(7)));
    }
}
