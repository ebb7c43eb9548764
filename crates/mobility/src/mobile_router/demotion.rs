//! Uplinks over which the home agent does not answer.
//!
//! Carrier, address and default router say nothing about what is behind them. When a few Binding Updates over
//! an uplink have gone unanswered while another is attached, the next is tried, and the first is not chosen
//! again for a while unless it is the only one or the operator wants it. It may also be the home agent that
//! is dead: once every uplink has failed, the router goes on with the best by priority, and the back-off goes
//! on as well instead of beginning anew with every change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::status::Status;

use super::{Attachment, MobileRouter, Timer};
use crate::binding_update_list::Purpose;
use crate::{Event, Output};

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
    /// [`MobileRouter::refusal`].
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

impl MobileRouter {
    /// Why the home agent refuses to register an uplink.
    pub fn refusal(&self) -> Option<String> {
        let refused = self.refusals.status.or(self.refusals.setback);
        let status = refused.map(|status| match status {
            Status::AUTHENTICATION_FAILED => format!("wrong key (status {})", status.0),
            status => format!("status {}, {}", status.0, status.meaning()),
        });
        let key = self.refusals.key_trouble.as_ref().map(|trouble| format!("an acknowledgement {trouble}"));
        status.or(key)
    }

    /// How the home agent responds over an uplink.
    pub fn response(&self, uplink: usize) -> Response {
        if self.refusals.status.is_some() {
            return Response::Refused { again: self.timers.get(Timer::AskAgain) };
        }
        let binding = self.binding_of(uplink).filter(|_| self.is_multiple());
        if let Some(binding) = binding.and_then(|index| self.list.bindings.get(index)) {
            let attempt = binding.attempt.as_ref();
            let next = attempt.map(|attempt| attempt.next).or(binding.held_until);
            let is_refused =
                attempt.is_none() && binding.held_until.is_some() && self.refusals.setback.is_some();
            if binding.registration.is_none() && (is_refused || self.refusals.key_trouble.is_some()) {
                return Response::Refused { again: next };
            }
            let unanswered =
                attempt.is_some_and(|attempt| attempt.rounds > UNANSWERED) && !self.is_full(uplink);
            return if unanswered || self.is_silent(uplink) {
                Response::Silent { again: next }
            } else if binding.registration.is_none() && attempt.is_some() {
                Response::Asked
            } else {
                Response::Answers
            };
        }
        if self.is_silent(uplink) || self.demoted_until(uplink).is_some() {
            return Response::Silent { again: self.demoted_until(uplink) };
        }
        let exchange = self.list.exchange.as_ref();
        match exchange.filter(|e| e.uplink == uplink && e.purpose == Purpose::Register && !e.single) {
            Some(exchange)
                if self.list.registration.is_none()
                    && (exchange.held || self.refusals.key_trouble.is_some()) =>
            {
                Response::Refused { again: self.timers.get(Timer::Retransmit) }
            }
            Some(exchange) if exchange.unanswered >= UNANSWERED && !self.is_full(uplink) => {
                Response::Silent { again: self.timers.get(Timer::Retransmit) }
            }
            Some(exchange) => {
                let registered = self.list.registration.is_some_and(|registration| {
                    exchange.care_of_addresses.contains(&registration.care_of_address)
                });
                if registered { Response::Answers } else { Response::Asked }
            }
            None => Response::Answers,
        }
    }

    /// Whether the uplink of the outstanding Binding Update has had its chance, and another shall have it.
    pub(super) fn is_uplink_silent(&self, now: Time) -> bool {
        let Some(exchange) = self.list.exchange.as_ref() else { return false };
        // One that is demoted already makes room only for one that is not.
        let demoted = self.demoted_until(exchange.uplink).is_some();
        let mut others = (0..self.uplinks.len()).filter(|&index| {
            index != exchange.uplink
                && matches!(self.uplinks[index].attachment, Attachment::Foreign { .. })
                && (!demoted || self.demoted_until(index).is_none())
        });
        exchange.purpose == Purpose::Register
            && !exchange.single
            && !self.stopping
            && self.refusals.status.is_none()
            && exchange.unanswered >= UNANSWERED
            && exchange.silent_since.is_some_and(|since| now.saturating_since(since) >= SILENCE)
            && self.uplinks.forced != Some(exchange.uplink)
            && !self.is_heard(now, exchange.uplink)
            && others.next().is_some()
    }

    /// Demotes the uplink of the outstanding Binding Update and tries the next.
    pub(super) fn demote(&mut self, now: Time, wall: WallTime) {
        let Some(exchange) = self.list.exchange.as_ref() else { return };
        let (index, timeout) = (exchange.uplink, exchange.timeout);
        let sent: BTreeSet<IpAddr> = exchange.sent.iter().map(|sent| sent.care_of_address).collect();
        for address in sent {
            self.candidate_failed(now, index, address);
        }
        self.demote_uplink(now, wall, index, timeout);
    }

    /// Demotes an uplink; `timeout` is what the next Binding Update waits for its answer where the back-off
    /// goes on.
    pub(super) fn demote_uplink(&mut self, now: Time, wall: WallTime, index: usize, timeout: Duration) {
        let again = now + if self.uplinks[index].has_untried_candidate() { TRIAL } else { DEMOTION };
        self.uplinks[index].demoted_until = Some(again);
        self.timers.set(Timer::Demotion(index), again);
        let name = &self.uplinks[index].config.interface;
        let reason = format!("no answer from the home agent over {name}");
        self.outputs.push_back(Output::Event(Event::Warning { message: reason.clone() }));
        let all = (0..self.uplinks.len())
            .filter(|&index| !matches!(self.uplinks[index].attachment, Attachment::Down(_)))
            .all(|index| self.demoted_until(index).is_some());
        if all || self.list.back_off.is_some() {
            self.list.back_off = self.list.back_off.max(Some(timeout));
        }
        self.evaluate(now, wall, &reason);
        if self.list.exchange.as_ref().is_some_and(|exchange| exchange.uplink == index) {
            // The best even so.
            self.transmit(now, wall);
        } else {
            self.handovers.reason = Some((now, reason));
        }
    }

    /// The uplink may be chosen like any other again.
    pub(super) fn rehabilitate(&mut self, index: usize) {
        self.timers.stop(Timer::Demotion(index));
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.demoted_until = None;
        }
    }

    /// Every uplink may, and the back-off begins anew: something has changed.
    pub(super) fn rehabilitate_all(&mut self) {
        for index in 0..self.uplinks.len() {
            self.rehabilitate(index);
            self.uplinks[index].forgive(&self.config);
        }
        self.list.back_off = None;
        self.handovers.reason = None;
    }

    pub(super) fn demoted_until(&self, index: usize) -> Option<Time> {
        self.uplinks.get(index)?.demoted_until
    }
}
