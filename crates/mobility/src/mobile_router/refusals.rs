//! Refusals of the home agent (RFC 6275 11.7.3, RFC 3963 5.4), and when the router tries again.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::RateLimiter;
use carnet_wire::mobility::status::Status;

use crate::binding_update_list::{Remedy, remedy};

/// Interval of the single Binding Updates that ask again after a refusal that stops the service. It is the
/// longest pause after status 129 and 131 to 133.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(600);
/// First pause after status 129 and 131 to 133 from a home agent that has acknowledged this router before.
const KNOWN_PAUSE: Duration = Duration::from_secs(2);
/// First pause after these statuses from a home agent that has never acknowledged this router.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(32);

/// A Binding Update that was refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contradicted {
    pub(super) sequence: u16,
    /// Care-of address by which the answer to this update is authenticated.
    pub(super) authenticated: Ipv6Addr,
}

/// Refusals of one home agent.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Status that has stopped the service.
    pub(super) status: Option<Status>,
    /// Whether this home agent has acknowledged a registration of this router.
    pub(super) was_acknowledged: bool,
    /// Pause after the next refusal, doubled with each request; `None` since the last acknowledgement.
    pub(super) pause: Option<Duration>,
    /// Refused Binding Update whose later acceptance would contradict the refusal.
    pub(super) contradicted: Option<Contradicted>,
    /// Status of a temporary refusal.
    pub(super) setback: Option<Status>,
    /// Rate of warnings about the MAC of acknowledgements.
    pub(super) key_warnings: RateLimiter,
    /// Fault in the MAC of acknowledgements since the last right one.
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
    /// Returns why the home agent refuses to register an uplink.
    pub(super) fn words(&self) -> Option<String> {
        let refused = self.status.or(self.setback);
        let status = refused.map(|status| match status {
            Status::AUTHENTICATION_FAILED => format!("wrong key (status {})", status.0),
            status => format!("status {}, {}", status.0, status.meaning()),
        });
        let key = self.key_trouble.as_ref().map(|trouble| format!("an acknowledgement {trouble}"));
        status.or(key)
    }

    /// Returns the pause after a refusal, and the pause after the request that follows.
    pub(super) fn next_pause(&mut self, status: Status) -> Duration {
        if remedy(status) != Remedy::BackOff {
            return REFUSED_INTERVAL;
        }
        let first = if self.was_acknowledged { KNOWN_PAUSE } else { UNKNOWN_PAUSE };
        *self.pause.get_or_insert(first)
    }

    /// Doubles the pause after the next refusal (RFC 6275 11.8).
    pub(super) fn back_off(&mut self) {
        self.pause = self.pause.map(|pause| (pause * 2).min(REFUSED_INTERVAL));
    }

    /// Records an acknowledged registration: the next refusal is a first one.
    pub(super) fn acknowledged(&mut self) {
        self.was_acknowledged = true;
        self.key_trouble = None;
        self.pause = None;
    }
}
