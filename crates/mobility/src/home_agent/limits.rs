//! How often refusals and heartbeats are answered: what is refused may be a recording or a forgery.

use std::time::Duration;

use carnet_base::RateLimiter;

/// Refusals of authentic Binding Updates to one node per second.
const MAX_REFUSALS: u32 = 3;
/// At least this long between two answers with status 146 to one node.
const AUTHENTICATION_FAILED_INTERVAL: Duration = Duration::from_secs(10);

/// Heartbeat responses to one node per second. Nobody gains by making us send them: they are as long as the questions
/// and go to a registered care-of address only. But who could use up what a node is allowed, with questions in its name,
/// would make it believe that its paths are dead; so this is many times what a node asks.
const MAX_HEARTBEATS: u32 = 10_000;

/// How often a node is told that its Binding Updates are refused.
#[derive(Debug)]
pub(super) struct Limits {
    /// Authentic ones, which anybody may have recorded (RFC 6275 12, `MAX_UPDATE_RATE`).
    pub refused: RateLimiter,
    /// Status 146. RFC 4285 5.1.1 wants it sent, and signed; but it is a signed message that a stranger has
    /// ordered, so it is seldom and goes to the care-of address in question only.
    pub unauthentic: RateLimiter,
    /// Heartbeats: some paths of a node, each asking ten times a second, and strangers in its name.
    pub heartbeats: RateLimiter,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            refused: RateLimiter::new(MAX_REFUSALS, Duration::from_secs(1) / MAX_REFUSALS),
            unauthentic: RateLimiter::new(1, AUTHENTICATION_FAILED_INTERVAL),
            heartbeats: RateLimiter::new(MAX_HEARTBEATS, Duration::from_secs(1) / MAX_HEARTBEATS),
        }
    }
}
