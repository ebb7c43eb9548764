//! The Binding Update List entry for the home agent (RFC 6275 11.1, RFC 3963 5.1).
//!
//! An [`Exchange`] is a Binding Update on its way, with its retransmissions; a [`Registration`] is what the
//! home agent acknowledged last. The two live side by side: while a new care-of address is being registered
//! the old registration goes on carrying traffic.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::status::Status;

/// `InitialBindackTimeoutFirstReg` (RFC 6275 13): long enough for duplicate address detection.
const FIRST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(1500);
/// `INITIAL_BINDACK_TIMEOUT` (RFC 6275 12).
const INITIAL_BINDACK_TIMEOUT: Duration = Duration::from_secs(1);
/// `MAX_BINDACK_TIMEOUT` (RFC 6275 12).
pub(super) const MAX_BINDACK_TIMEOUT: Duration = Duration::from_secs(32);
/// Of a long exchange, the acknowledgements of so many transmissions are still welcome.
const MAX_SENT: usize = 8;

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To register a care-of address.
    Register,
    /// To end the registration.
    Deregister,
}

/// One Binding Update as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
}

/// A Binding Update that has not been acknowledged yet, with all its retransmissions.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub purpose: Purpose,
    /// The uplink that it goes out on.
    pub uplink: usize,
    /// The care-of address; the home address for a de-registration on the home link.
    pub care_of_address: Ipv6Addr,
    /// The last transmissions, the latest at the end.
    pub sent: Vec<Sent>,
    /// When the first was sent.
    pub started: Option<Time>,
    /// Until the next retransmission.
    pub timeout: Duration,
    /// How many transmissions since the last answer, and when the first of them was.
    pub unanswered: u32,
    pub silent_since: Option<Time>,
    /// Answers that ask for another try at once (status 135 and 144) so far.
    pub corrections: u32,
    /// The home agent refused for the moment: neither traffic nor hints hasten the next try.
    pub held: bool,
    /// Asks a home agent that has refused: sent once and not again.
    pub single: bool,
}

impl Exchange {
    pub fn new(purpose: Purpose, uplink: usize, care_of_address: Ipv6Addr, first: bool) -> Self {
        Exchange {
            purpose,
            uplink,
            care_of_address,
            sent: Vec::new(),
            started: None,
            timeout: if first { FIRST_REGISTRATION_TIMEOUT } else { INITIAL_BINDACK_TIMEOUT },
            unanswered: 0,
            silent_since: None,
            corrections: 0,
            held: false,
            single: false,
        }
    }

    /// Notes a transmission; the timeout doubles for the one after (RFC 6275 11.8). Returns how long to wait
    /// for the answer to this one.
    pub fn transmitted(&mut self, sent: Sent) -> Duration {
        if self.sent.len() == MAX_SENT {
            self.sent.remove(0);
        }
        self.started.get_or_insert(sent.at);
        self.silent_since.get_or_insert(sent.at);
        self.unanswered += 1;
        self.held = false;
        self.sent.push(sent);
        let wait = self.timeout;
        self.timeout = (self.timeout * 2).min(MAX_BINDACK_TIMEOUT);
        wait
    }

    /// The home agent has answered, whatever it said.
    pub fn answered(&mut self) {
        self.unanswered = 0;
        self.silent_since = None;
    }

    /// The transmission that an acknowledgement with this sequence number answers.
    pub fn find(&self, sequence: u16) -> Option<Sent> {
        self.sent.iter().rev().find(|sent| sent.sequence == sequence).copied()
    }

    /// When the last transmission left.
    pub fn last_sent(&self) -> Option<Time> {
        self.sent.last().map(|sent| sent.at)
    }
}

/// What the home agent acknowledged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The care-of address that it has.
    pub care_of_address: Ipv6Addr,
    /// Granted lifetime.
    pub lifetime: Duration,
    /// When it ends, counted from when the Binding Update was sent (RFC 6275 11.7.3).
    pub expires: Time,
    /// Sequence number of the acknowledged Binding Update.
    pub sequence: u16,
}

/// What to do about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Send again after this long.
    Retry(Duration),
    /// De-register and begin anew (the type of registration changed under us).
    StartOver,
    /// As if nothing had been said.
    GoOn,
    /// Stop the service, and ask again after a long while.
    Stop,
}

/// The remedy for each status (RFC 6275 11.7.3, RFC 3963 5.4, RFC 4285). With one home agent and one mode
/// configured, "every available mode" is tried once the first answer is in.
pub(super) fn remedy(status: Status) -> Remedy {
    match status {
        Status::TYPE_CHANGE_DISALLOWED => Remedy::StartOver,
        // The operator of the home agent may be changing the key right now.
        Status::AUTHENTICATION_FAILED => Remedy::Retry(Duration::from_secs(30)),
        Status::MOBILE_ROUTER_NOT_PERMITTED
        | Status::INVALID_PREFIX
        | Status::NOT_AUTHORIZED_FOR_PREFIX
        | Status::FORWARDING_SETUP_FAILED
        | Status::HOME_REGISTRATION_NOT_SUPPORTED
        | Status::NOT_HOME_SUBNET
        | Status::NOT_HOME_AGENT
        | Status::MESSAGE_ID_REQUIRED
        | Status::PROHIBITED => Remedy::Stop,
        // Among them 134: whoever has our home address on the home link may be gone soon.
        _ => Remedy::Retry(MAX_BINDACK_TIMEOUT),
    }
}

/// When to renew a registration: a quarter of the lifetime, and at least time for three retransmissions,
/// before it ends; but not before half of it.
pub(super) fn refresh_after(lifetime: Duration) -> Duration {
    let margin = (lifetime / 4).max(Duration::from_secs(8)).min(lifetime / 2);
    lifetime.saturating_sub(margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_back_off_to_thirty_two_seconds() {
        let mut exchange = Exchange::new(Purpose::Register, 0, Ipv6Addr::LOCALHOST, true);
        let waits: Vec<f64> = (0..8)
            .map(|n| Sent { sequence: n, at: Time::ZERO, timestamp: None })
            .map(|sent| exchange.transmitted(sent).as_secs_f64())
            .collect();
        assert_eq!(waits, [1.5, 3.0, 6.0, 12.0, 24.0, 32.0, 32.0, 32.0]);
        let mut refresh = Exchange::new(Purpose::Register, 0, Ipv6Addr::LOCALHOST, false);
        let sent = Sent { sequence: 0, at: Time::ZERO, timestamp: None };
        assert_eq!(refresh.transmitted(sent), Duration::from_secs(1));
    }

    #[test]
    fn renewal_leaves_time_for_retransmissions() {
        let after = |secs| refresh_after(Duration::from_secs(secs)).as_secs_f64();
        assert_eq!(after(60), 45.0);
        assert_eq!(after(20), 12.0);
        assert_eq!(after(4), 2.0);
    }
}
