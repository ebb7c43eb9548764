//! Refusals of the home agent (RFC 6275 11.7.3, RFC 3963 5.4), and when the router tries again.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::RateLimiter;
use carnet_wire::mobility::status::Status;

/// A Binding Update that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contradicted {
    pub(super) sequence: u16,
    /// The address that its answer is authenticated with.
    pub(super) authenticated: Ipv6Addr,
}

/// Refusals of one home agent.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Status that has stopped the service.
    pub(super) status: Option<Status>,
    /// Whether this home agent has acknowledged a registration of this router.
    pub(super) was_acknowledged: bool,
    /// The pause after the next refusal, doubled with each question; `None` since the last acknowledgement.
    pub(super) pause: Option<Duration>,
    /// The Binding Update that an acknowledgement after all would contradict the refusal of.
    pub(super) contradicted: Option<Contradicted>,
    /// Status that the home agent has refused with for the moment.
    pub(super) setback: Option<Status>,
    /// Limit of the warnings about the MAC of acknowledgements.
    pub(super) key_warnings: RateLimiter,
    /// Fault in the MAC of acknowledgements, since the last right one.
    pub(super) key_trouble: Option<String>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals {
            status: None,
            was_acknowledged: false,
            pause: None,
            contradicted: None,
            setback: None,
            key_warnings: RateLimiter::new(1, Duration::from_secs(60)),
            key_trouble: None,
        }
    }
}

impl Refusals {
    /// Why the home agent refuses to register an uplink.
    pub(super) fn words(&self) -> Option<String> {
        let refused = self.status.or(self.setback);
        let status = refused.map(|status| match status {
            Status::AUTHENTICATION_FAILED => format!("wrong key (status {})", status.0),
            status => format!("status {}, {}", status.0, status.meaning()),
        });
        let key = self.key_trouble.as_ref().map(|trouble| format!("an acknowledgement {trouble}"));
        status.or(key)
    }
}
