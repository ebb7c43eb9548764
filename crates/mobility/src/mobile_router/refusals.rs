//! Refusals of the home agent (RFC 6275 11.7.3, RFC 3963 5.4), and the times at which the router asks again.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::RateLimiter;
use carnet_wire::mobility::binding_status::BindingStatus;

use crate::binding_update_list::{RefusalReaction, refusal_reaction};

/// Interval of single Binding Updates after a refusal that stops the service. It is also the longest pause
/// after status 129 and 131 to 133.
pub const REFUSED_INTERVAL: Duration = Duration::from_secs(600);
/// First pause after status 129 and 131 to 133 from a home agent that has acknowledged this router before.
const KNOWN_ROUTER_REQUEST_PAUSE: Duration = Duration::from_secs(2);
/// First pause after status 129 and 131 to 133 from a home agent that has never acknowledged this router.
const UNKNOWN_ROUTER_REQUEST_PAUSE: Duration = Duration::from_secs(32);

/// A Binding Update that the home agent has refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefusedUpdate {
    pub(super) sequence: u16,
    /// Care-of address that the MAC of an acknowledgement of this update covers.
    pub(super) authenticated_address: Ipv6Addr,
}

/// State of the refusals of one home agent.
#[derive(Debug)]
pub(super) struct RefusalState {
    /// Status of the refusal after which the router stopped the service; `None` while it has not stopped.
    pub(super) stop_status: Option<BindingStatus>,
    /// Whether this home agent has acknowledged a registration of this router.
    pub(super) was_acknowledged: bool,
    /// Pause after the next refusal, which doubles with each request; `None` until a refusal.
    pub(super) current_request_pause: Option<Duration>,
    /// Last refused Binding Update; `None` without one. If the home agent still accepts it, the refusal
    /// answered another message.
    pub(super) refused_update: Option<RefusedUpdate>,
    /// Status of the last temporary refusal; `None` without one.
    pub(super) temporary_refusal: Option<BindingStatus>,
    /// Rate limit of warnings about the MAC of acknowledgements.
    pub(super) key_warning_limit: RateLimiter,
    /// Fault in the MACs of acknowledgements; `None` if the last one was right.
    pub(super) key_problem: Option<String>,
}

impl Default for RefusalState {
    fn default() -> RefusalState {
        RefusalState {
            stop_status: None,
            was_acknowledged: false,
            current_request_pause: None,
            refused_update: None,
            temporary_refusal: None,
            key_warning_limit: RateLimiter::new(1, Duration::from_secs(60)),
            key_problem: None,
        }
    }
}

impl RefusalState {
    /// Returns why the home agent refuses to register an uplink, as a text for the operator; `None` if it
    /// does not refuse.
    pub(super) fn refusal_text(&self) -> Option<String> {
        let refused = self.stop_status.or(self.temporary_refusal);
        let status = refused.map(|status| match status {
            BindingStatus::AUTHENTICATION_FAILED => format!("wrong key (status {})", status.0),
            status => format!("status {}, {}", status.0, status.meaning()),
        });
        let key = self.key_problem.as_ref().map(|trouble| format!("an acknowledgement {trouble}"));
        status.or(key)
    }

    /// Returns the pause after a refusal, and doubles the next one.
    pub(super) fn next_request_pause(&mut self, status: BindingStatus) -> Duration {
        if refusal_reaction(status) != RefusalReaction::BackOff {
            return REFUSED_INTERVAL;
        }
        let first =
            if self.was_acknowledged { KNOWN_ROUTER_REQUEST_PAUSE } else { UNKNOWN_ROUTER_REQUEST_PAUSE };
        *self.current_request_pause.get_or_insert(first)
    }

    /// Doubles the pause after the next refusal (RFC 6275 11.8).
    pub(super) fn double_request_pause(&mut self) {
        self.current_request_pause =
            self.current_request_pause.map(|pause| (pause * 2).min(REFUSED_INTERVAL));
    }

    /// Records an acknowledged registration, after which the pauses start at their minimum again.
    pub(super) fn record_acknowledgement(&mut self) {
        self.was_acknowledged = true;
        self.key_problem = None;
        self.current_request_pause = None;
    }
}
