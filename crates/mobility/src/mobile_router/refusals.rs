//! Refusals of the home agent (RFC 6275 11.7.3, RFC 3963 5.4), and when the router tries again.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::RateLimiter;
use carnet_wire::mobility::status::Status;

use crate::binding_update_list::{Remedy, remedy};

/// After a refusal that stops the service a single Binding Update asks again this often. After one of status
/// 129 and 131 to 133 it is the longest pause.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(600);
/// The first pause after status 129 and 131 to 133 from a home agent that has acknowledged this router
/// before.
const KNOWN_PAUSE: Duration = Duration::from_secs(2);
/// The first pause after these statuses from a home agent that has never acknowledged it.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(32);

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

    /// Returns how long to wait after a refusal, and after the question that follows it.
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

    /// The home agent has acknowledged a registration: the next refusal is a first one.
    pub(super) fn acknowledged(&mut self) {
        self.was_acknowledged = true;
        self.key_trouble = None;
        self.pause = None;
    }
}
