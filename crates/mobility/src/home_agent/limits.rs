//! How often refusals, heartbeats and questions for home agents are answered: what is refused may be a
//! recording or a forgery, and home agents are asked for by anybody.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

/// Networks that have asked for home agents and are remembered.
const MAX_NETWORKS: usize = 256;

/// Refusals of authentic Binding Updates to one node per second.
const MAX_REFUSALS: u32 = 3;
/// At least this long between two answers with status 146 to one node.
const AUTHENTICATION_FAILED_INTERVAL: Duration = Duration::from_secs(10);

/// Heartbeat responses to one node per second: four times what it may ask with all its bindings, every 50 ms.
/// They go to a registered care-of address only, but whoever can send in its name directs them at the
/// vehicle's downlink: 82 kB/s with this. The rest is room for forgeries: who uses up what a node is allowed
/// makes it believe that its paths are dead.
const MAX_HEARTBEATS: u32 = 4 * 20 * super::MAX_BINDINGS as u32;

/// How often a node is told that its Binding Updates are refused.
#[derive(Debug)]
pub(super) struct Limits {
    /// Authentic ones, which anybody may have recorded (RFC 6275 12, `MAX_UPDATE_RATE`).
    pub refused: RateLimiter,
    /// The same of those that come from elsewhere than from the address that was signed: whoever plays a
    /// recording from where he is takes nothing of what its node is told.
    pub refused_elsewhere: RateLimiter,
    /// Status 146. RFC 4285 5.1.1 wants it sent, and signed; but it is a signed message that a stranger has
    /// ordered, so it is seldom and goes to the care-of address in question only.
    pub unauthentic: RateLimiter,
    /// Heartbeats: some paths of a node, each asking ten times a second, and strangers in its name.
    pub heartbeats: RateLimiter,
    /// Mobile Prefix Advertisements.
    pub prefixes: RateLimiter,
}

impl Default for Limits {
    fn default() -> Self {
        let refusals = || RateLimiter::new(MAX_REFUSALS, Duration::from_secs(1) / MAX_REFUSALS);
        Limits {
            refused: refusals(),
            refused_elsewhere: refusals(),
            unauthentic: RateLimiter::new(1, AUTHENTICATION_FAILED_INTERVAL),
            heartbeats: RateLimiter::new(MAX_HEARTBEATS, Duration::from_secs(1) / MAX_HEARTBEATS),
            prefixes: RateLimiter::new(3, Duration::from_secs(1)),
        }
    }
}

/// How often strangers are answered: each network of 64 bits, of which whoever is there has every address,
/// and all together.
#[derive(Debug)]
pub(super) struct Strangers {
    networks: BTreeMap<u64, RateLimiter>,
    all: RateLimiter,
}

impl Default for Strangers {
    fn default() -> Self {
        Strangers { networks: BTreeMap::new(), all: RateLimiter::new(50, Duration::from_millis(20)) }
    }
}

impl Strangers {
    /// Whether what comes from this address is answered. With more networks than are remembered it is a
    /// matter of all.
    pub fn allow(&mut self, now: Time, source: Ipv6Addr) -> bool {
        let network = (u128::from(source) >> 64) as u64;
        if !self.networks.contains_key(&network) && self.networks.len() >= MAX_NETWORKS {
            self.networks.retain(|_, limiter| !limiter.is_full(now));
        }
        let has_room = self.networks.len() < MAX_NETWORKS || self.networks.contains_key(&network);
        let of_one = || RateLimiter::new(5, Duration::from_secs(1));
        if has_room && !self.networks.entry(network).or_insert_with(of_one).allow(now) {
            return false;
        }
        self.all.allow(now)
    }
}
