//! Uplinks over which the home agent does not answer.
//!
//! Carrier, address and default router do not show whether an uplink leads anywhere. If a few Binding Updates
//! over an uplink are unanswered while another is attached, the router tries the next one. It does not choose
//! the first again for a while, unless it is the only one or the operator wants it. The home agent itself may
//! also be down: once every uplink has failed, the router continues with the best by priority. The back-off
//! then continues too, instead of beginning anew with every change.

use std::time::Duration;

use carnet_base::Time;

use super::Attachment;
use super::uplinks::Uplinks;
use crate::binding_update_list::Exchange;

/// Number of unanswered Binding Updates that suffice, after [`SILENCE`] (1 + 2 + 4 s).
pub(super) const UNANSWERED: u32 = 3;
const SILENCE: Duration = Duration::from_secs(7);
/// Time for which an uplink stays demoted.
const DEMOTION: Duration = Duration::from_secs(60);
/// Time for which an uplink stays demoted that has another untried candidate: traffic has moved by then.
const TRIAL: Duration = Duration::from_secs(1);

/// The home agent's response over an uplink that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// The home agent answered when it was asked last, or was not asked.
    Answers,
    /// A first Binding Update is outstanding.
    Asked,
    /// The home agent refuses to register the uplink, or its acknowledgements have a wrong MAC: see
    /// [`super::MobileRouter::refusal`].
    Refused {
        /// Time of the next request, if it is known.
        again: Option<Time>,
    },
    /// The home agent does not answer.
    Silent {
        /// Time at which the uplink is registered again, if it is known: the end of its hold-down, or the
        /// next Binding Update. Heartbeats continue all the time.
        again: Option<Time>,
    },
}

/// Whether an exchange has been unanswered often and long enough to try another uplink.
pub(super) fn is_given_up(exchange: &Exchange, now: Time) -> bool {
    exchange.retransmission.rounds() >= UNANSWERED
        && exchange.retransmission.silent_since().is_some_and(|since| now.saturating_since(since) >= SILENCE)
}

impl Uplinks {
    /// Demotes an uplink. Returns the end of the demotion.
    pub(super) fn demote(&mut self, now: Time, index: usize) -> Time {
        let again = now + if self[index].has_untried_candidate() { TRIAL } else { DEMOTION };
        self[index].demoted_until = Some(again);
        again
    }

    /// Whether all uplinks that are up are demoted.
    pub(super) fn are_demoted(&self) -> bool {
        self.iter()
            .filter(|uplink| !matches!(uplink.attachment, Attachment::Down(_)))
            .all(|uplink| uplink.demoted_until.is_some())
    }

    /// Whether another uplink on a foreign link is up, as an alternative to this one. If this one is demoted,
    /// only an uplink without demotion counts.
    pub(super) fn has_alternative(&self, index: usize) -> bool {
        let is_demoted = self.demoted_until(index).is_some();
        self.iter().enumerate().any(|(other, uplink)| {
            other != index
                && matches!(uplink.attachment, Attachment::Foreign { .. })
                && (!is_demoted || uplink.demoted_until.is_none())
        })
    }
}
