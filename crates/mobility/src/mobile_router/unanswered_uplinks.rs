//! Uplinks over which the home agent does not answer.
//!
//! An uplink with carrier, address and default router may still not reach the home agent. If
//! [`UPDATES_BEFORE_DEMOTION`] Binding Updates over an uplink have no answer and another uplink is attached,
//! the router tries the next one. For a while it does not select the failed uplink again, unless it is the
//! only one or the operator demands it. The home agent itself may also be down: when every uplink has failed,
//! the router continues with the uplink of the best priority. Then its retransmission pauses continue to
//! grow, and do not start again with every change of the uplink.

use std::time::Duration;

use carnet_base::Time;

use super::Attachment;
use super::uplinks::Uplinks;
use crate::binding_update_list::Exchange;

/// Number of Binding Updates without an answer after which the router tries another uplink, if
/// [`SILENCE_BEFORE_DEMOTION`] (1 + 2 + 4 s) has also passed.
pub(super) const UPDATES_BEFORE_DEMOTION: u32 = 3;
const SILENCE_BEFORE_DEMOTION: Duration = Duration::from_secs(7);
/// Number of Binding Updates without an answer after which the router doubts the routers of a link.
/// [`SILENCE_BEFORE_ROUTER_DOUBT`] (1 + 2 s) must also have passed.
const UPDATES_BEFORE_ROUTER_DOUBT: u32 = 2;
const SILENCE_BEFORE_ROUTER_DOUBT: Duration = Duration::from_secs(3);
/// Time for which the router avoids an uplink after a failure.
const DEMOTION_TIME: Duration = Duration::from_secs(60);
/// Time for which the router avoids a failed uplink that has another untried candidate. In this time the
/// traffic moves to another uplink.
const CANDIDATE_TRIAL_TIME: Duration = Duration::from_secs(1);

/// How the home agent responds over an uplink that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentResponse {
    /// The home agent answered the last request, or has had no request.
    Answers,
    /// The router waits for the answer to the first Binding Update.
    Asked,
    /// The home agent refuses to register the uplink, or its acknowledgements have a wrong MAC: see
    /// [`super::MobileRouter::refusal_text`].
    Refused {
        /// Time of the next request; `None` if it is unknown.
        again: Option<Time>,
    },
    /// The home agent does not answer.
    Silent {
        /// Time at which the router registers the uplink again; `None` if it is unknown. It is the end of the
        /// hold-down, or the time of the next Binding Update. Heartbeats continue in the meantime.
        again: Option<Time>,
    },
}

/// Returns whether an exchange has had no answer often and long enough to try another uplink.
pub(super) fn is_exchange_given_up(exchange: &Exchange, now: Time) -> bool {
    exchange.retransmission.unanswered_rounds() >= UPDATES_BEFORE_DEMOTION
        && exchange
            .retransmission
            .unanswered_since()
            .is_some_and(|since| now.saturating_since(since) >= SILENCE_BEFORE_DEMOTION)
}

/// Returns whether an exchange has had no answer for long enough to try another router on the same link.
pub(super) fn is_router_doubtful(exchange: &Exchange, now: Time) -> bool {
    exchange.retransmission.unanswered_rounds() >= UPDATES_BEFORE_ROUTER_DOUBT
        && exchange
            .retransmission
            .unanswered_since()
            .is_some_and(|since| now.saturating_since(since) >= SILENCE_BEFORE_ROUTER_DOUBT)
}

impl Uplinks {
    /// Makes the router avoid an uplink for a while. Returns the end of this time.
    pub(super) fn demote_uplink(&mut self, now: Time, index: usize) -> Time {
        let again =
            now + if self[index].has_untried_candidate() { CANDIDATE_TRIAL_TIME } else { DEMOTION_TIME };
        self[index].demoted_until = Some(again);
        again
    }

    /// Returns whether the router avoids all uplinks that are up.
    pub(super) fn are_all_uplinks_demoted(&self) -> bool {
        self.iter()
            .filter(|uplink| !matches!(uplink.attachment, Attachment::Down(_)))
            .all(|uplink| uplink.demoted_until.is_some())
    }

    /// Returns whether another uplink on a foreign link is up. If the router already avoids the uplink
    /// `index`, uplinks that it avoids do not count.
    pub(super) fn has_alternative(&self, index: usize) -> bool {
        let is_demoted = self.demoted_until(index).is_some();
        self.iter().enumerate().any(|(other, uplink)| {
            other != index
                && matches!(uplink.attachment, Attachment::Foreign { .. })
                && (!is_demoted || uplink.demoted_until.is_none())
        })
    }
}
