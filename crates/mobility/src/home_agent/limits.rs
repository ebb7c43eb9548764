//! Rates of answers to refused updates, heartbeats and discovery requests. A refused update may be a
//! recording or a forgery, and strangers can send discovery requests.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

/// Most networks with discovery requests that the home agent remembers.
const MAX_NETWORKS: usize = 256;

/// Refusals of authentic Binding Updates to one node per second.
const MAX_REFUSALS: u32 = 3;
/// Least time between two answers with status 146 to one node.
const AUTHENTICATION_FAILED_INTERVAL: Duration = Duration::from_secs(10);

/// Heartbeat responses to one node per second: four times what it may ask with all its bindings, every 50 ms.
/// They go to a registered care-of address only. But an attacker who can send in the node's name directs them
/// at the vehicle's downlink: 82 kB/s with this limit. The margin is for forgeries: an attacker who uses up a
/// node's allowance makes the node believe that its paths have failed.
const MAX_HEARTBEATS: u32 = 4 * 20 * super::MAX_BINDINGS as u32;

/// Rates of answers to one node's refused Binding Updates, heartbeats and solicitations.
#[derive(Debug)]
pub(super) struct Limits {
    /// Answers to authentic updates, which an attacker may have recorded (RFC 6275 12, `MAX_UPDATE_RATE`).
    pub refused: RateLimiter,
    /// Answers to authentic updates that come from another address than the signed one. An attacker who
    /// replays a recording from elsewhere takes nothing of the node's own answers.
    pub refused_elsewhere: RateLimiter,
    /// Answers with status 146. RFC 4285 5.1.1 requires them, and signed. But a stranger can cause such a
    /// signed message, so it is rare and goes to the care-of address in question only.
    pub unauthentic: RateLimiter,
    /// Heartbeat responses: several paths of a node, with ten requests a second each, and strangers in its
    /// name.
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

/// Rates of answers to strangers: for each network of 64 bits, of which a stranger there has every address,
/// and for all together.
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
    /// Whether a message from this address is answered. If more networks ask than the table holds, only the
    /// common rate counts.
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
