//! Uplinks over which the home agent does not answer.
//!
//! Carrier, address and default router say nothing about what is behind them. When a few Binding Updates over
//! an uplink have gone unanswered while another is attached, the next is tried, and the first is not chosen
//! again for a while unless it is the only one or the operator wants it. It may also be the home agent that
//! is dead: once every uplink has failed, the router goes on with the best by priority, and the back-off goes
//! on as well instead of beginning anew with every change.

use std::time::Duration;

use carnet_base::Time;

use super::Attachment;
use super::uplinks::Uplinks;
use crate::binding_update_list::Exchange;

/// So many Binding Updates unanswered, and for so long (1 + 2 + 4 s), are enough.
pub(super) const UNANSWERED: u32 = 3;
const SILENCE: Duration = Duration::from_secs(7);
/// How long an uplink stays demoted,
const DEMOTION: Duration = Duration::from_secs(60);
/// and if it has another candidate that has not been tried yet: traffic has moved by then.
const TRIAL: Duration = Duration::from_secs(1);

/// How the home agent responds over an uplink that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// It did when it was asked last, or nothing was asked of it.
    Answers,
    /// A first Binding Update is under way.
    Asked,
    /// It refuses to register the uplink, or its acknowledgements have a wrong MAC: see
    /// [`super::MobileRouter::refusal`].
    Refused {
        /// When it is asked again, where that is known.
        again: Option<Time>,
    },
    /// It does not.
    Silent {
        /// When the uplink is registered again, where that is known: the end of its hold-down, or the next
        /// Binding Update. Heartbeats ask all the time.
        again: Option<Time>,
    },
}

/// Whether an exchange has been unanswered often and long enough for another uplink to have its chance.
pub(super) fn is_given_up(exchange: &Exchange, now: Time) -> bool {
    exchange.retransmission.rounds() >= UNANSWERED
        && exchange.retransmission.silent_since().is_some_and(|since| now.saturating_since(since) >= SILENCE)
}

impl Uplinks {
    /// Demotes an uplink. Returns until when.
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

    /// Whether an uplink on a foreign link is up beside this one. Beside a demoted one it must not be
    /// demoted.
    pub(super) fn has_alternative(&self, index: usize) -> bool {
        let is_demoted = self.demoted_until(index).is_some();
        self.iter().enumerate().any(|(other, uplink)| {
            other != index
                && matches!(uplink.attachment, Attachment::Foreign { .. })
                && (!is_demoted || uplink.demoted_until.is_none())
        })
    }
}
