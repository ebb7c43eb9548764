//! Rate limits of answers to refused Binding Updates, heartbeats and discovery requests. A refused update may
//! be a replay or a forgery, and any source can send discovery requests.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};

/// Maximum number of networks that have their own limit of discovery answers.
const MAX_LIMITED_NETWORKS: usize = 256;

/// Maximum number of refusals per second that the home agent sends to one node in answer to its authentic
/// Binding Updates.
const MAX_REFUSALS_IN_A_ROW: u32 = 3;
/// Minimum time between two answers with status 146 to one node.
const AUTHENTICATION_FAILED_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of heartbeat responses to one node per second. The limit is four times the maximum need of
/// a node: a request every 50 ms over each of its bindings. Responses go only to a registered care-of
/// address. But an attacker who sends requests in the node's name can direct at most 82 kB/s at the vehicle's
/// downlink. The factor of four leaves room for forged requests. Without it an attacker could use up the
/// limit, and the node would conclude that its paths have failed.
const MAX_HEARTBEATS: u32 = 4 * 20 * super::MAX_BINDINGS as u32;

/// Rate limits of answers to one node: to refused Binding Updates, heartbeats and solicitations.
#[derive(Debug)]
pub(super) struct NodeAnswerLimits {
    /// Refusals of authentic updates, which may be an attacker's replays (RFC 6275 12, `MAX_UPDATE_RATE`).
    pub refusal_limit: RateLimiter,
    /// Refusals of authentic updates whose source is another address than the care-of address that the MAC
    /// covers. They have their own limit, so that an attacker's replays from elsewhere do not use up the
    /// limit of the node.
    pub refusal_limit_to_other_addresses: RateLimiter,
    /// Answers with status 146. RFC 4285 5.1.1 requires these answers and their signature. But an attacker
    /// can cause them, so the limit is low, and they go only to the care-of address that the update names.
    pub unauthentic_update_limit: RateLimiter,
    /// Limit of heartbeat responses, see [`MAX_HEARTBEATS`].
    pub heartbeat_limit: RateLimiter,
    /// Limit of Mobile Prefix Advertisements.
    pub prefix_advertisement_limit: RateLimiter,
}

impl Default for NodeAnswerLimits {
    fn default() -> Self {
        let refusals =
            || RateLimiter::new(MAX_REFUSALS_IN_A_ROW, Duration::from_secs(1) / MAX_REFUSALS_IN_A_ROW);
        NodeAnswerLimits {
            refusal_limit: refusals(),
            refusal_limit_to_other_addresses: refusals(),
            unauthentic_update_limit: RateLimiter::new(1, AUTHENTICATION_FAILED_INTERVAL),
            heartbeat_limit: RateLimiter::new(MAX_HEARTBEATS, Duration::from_secs(1) / MAX_HEARTBEATS),
            prefix_advertisement_limit: RateLimiter::new(3, Duration::from_secs(1)),
        }
    }
}

/// Rate limits of answers to sources without a binding. One limit is for each network of 64 bits, because an
/// attacker can use every address of its network. Another limit is for all networks together.
#[derive(Debug)]
pub(super) struct UnknownSourceLimits {
    limit_by_network: BTreeMap<u64, RateLimiter>,
    limit_of_all_networks: RateLimiter,
}

impl Default for UnknownSourceLimits {
    fn default() -> Self {
        UnknownSourceLimits {
            limit_by_network: BTreeMap::new(),
            limit_of_all_networks: RateLimiter::new(50, Duration::from_millis(20)),
        }
    }
}

impl UnknownSourceLimits {
    /// Returns whether the home agent answers a message from this address. If the table of networks is full,
    /// only the common limit counts.
    pub fn allow_answer(&mut self, now: Time, source: Ipv6Addr) -> bool {
        let network = (u128::from(source) >> 64) as u64;
        if !self.limit_by_network.contains_key(&network)
            && self.limit_by_network.len() >= MAX_LIMITED_NETWORKS
        {
            self.limit_by_network.retain(|_, limiter| !limiter.is_bucket_full(now));
        }
        let has_room = self.limit_by_network.len() < MAX_LIMITED_NETWORKS
            || self.limit_by_network.contains_key(&network);
        let of_one = || RateLimiter::new(5, Duration::from_secs(1));
        if has_room && !self.limit_by_network.entry(network).or_insert_with(of_one).try_take_token(now) {
            return false;
        }
        self.limit_of_all_networks.try_take_token(now)
    }
}
