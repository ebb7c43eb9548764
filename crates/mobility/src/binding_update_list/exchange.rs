//! The Binding Update List entry for the home agent (RFC 6275 11.1, RFC 3963 5.1).
//!
//! An [`Exchange`] is a Binding Update on its way, with its retransmissions; a [`Registration`] is what the
//! home agent acknowledged last. The two live side by side: while a new care-of address is being registered
//! the old registration goes on carrying traffic.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::status::Status;

/// `InitialBindackTimeoutFirstReg` (RFC 6275 13): long enough for duplicate address detection.
pub(crate) const FIRST_REGISTRATION_TIMEOUT: Duration = Duration::from_millis(1500);
/// `INITIAL_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const INITIAL_BINDACK_TIMEOUT: Duration = Duration::from_secs(1);
/// `MAX_BINDACK_TIMEOUT` (RFC 6275 12).
pub(crate) const MAX_BINDACK_TIMEOUT: Duration = Duration::from_secs(32);
/// How long the first care-of address of a race is alone (RFC 8305 5).
pub(crate) const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Transmissions of a long exchange whose acknowledgements the router still accepts.
const MAX_SENT: usize = 8;

/// Purpose of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To register a care-of address.
    Register,
    /// To end the registration.
    Deregister,
}

/// One Binding Update as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub sequence: u16,
    pub at: Time,
    pub timestamp: Option<u64>,
    /// The care-of address that it left from, and that it is about.
    pub care_of_address: IpAddr,
}

/// The Binding Update that was sent last, while no acknowledgement has answered it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outstanding {
    pub sequence: u16,
    pub at: Time,
    /// The uplink and the care-of address that it left from.
    pub via: (usize, IpAddr),
    /// The address that its acknowledgement is authenticated with.
    pub authenticated: Ipv6Addr,
}

/// A Binding Update that has not been acknowledged yet, with all its retransmissions.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub purpose: Purpose,
    /// The uplink that it goes out on.
    pub uplink: usize,
    /// The care-of addresses of that uplink, at most one of each family. They race in the manner of happy
    /// eyeballs (RFC 8305 5), in this order. The home address for a de-registration on the home link.
    pub care_of_addresses: Vec<IpAddr>,
    /// Which of them is next.
    pub turn: usize,
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
    pub fn new(purpose: Purpose, uplink: usize, care_of_addresses: Vec<IpAddr>, first: bool) -> Self {
        Exchange {
            purpose,
            uplink,
            care_of_addresses,
            turn: 0,
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

    /// The care-of address that the next transmission is about.
    pub fn next_care_of_address(&self) -> Option<IpAddr> {
        self.care_of_addresses.get(self.turn).or(self.care_of_addresses.first()).copied()
    }

    /// Returns the care-of address of the last transmission; before the first one, that of the next.
    pub fn care_of_address(&self) -> Option<IpAddr> {
        self.sent.last().map(|sent| sent.care_of_address).or_else(|| self.next_care_of_address())
    }

    /// Notes a transmission; the timeout doubles for the one after (RFC 6275 11.8). Returns how long to wait
    /// for the answer to this one before the next leaves: not long when that is about another care-of
    /// address.
    pub fn transmitted(&mut self, sent: Sent) -> Duration {
        if self.sent.len() == MAX_SENT {
            self.sent.remove(0);
        }
        self.started.get_or_insert(sent.at);
        self.silent_since.get_or_insert(sent.at);
        self.held = false;
        self.sent.push(sent);
        self.turn += 1;
        if self.turn < self.care_of_addresses.len() {
            return CONNECTION_ATTEMPT_DELAY;
        }
        self.turn = 0;
        self.unanswered += 1;
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

/// Registration that the home agent acknowledged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The uplink that it is over, as an index: two behind NATs of one make may have the same address.
    pub uplink: usize,
    /// The care-of address that it has, as we see it: a NAT may have made another of it.
    pub care_of_address: IpAddr,
    /// Since when this has been the registered one.
    pub since: Time,
    /// Packets go in UDP: there is a NAT on the way, or one of the two wants it so (RFC 5555 4.2).
    pub udp: bool,
    /// Granted lifetime.
    pub lifetime: Duration,
    /// When it ends, counted from when the Binding Update was sent (RFC 6275 11.7.3).
    pub expires: Time,
    /// Sequence number of the acknowledged Binding Update.
    pub sequence: u16,
}

impl Registration {
    /// The same as `before` with another lifetime, or a new one: with the time since when it has been where
    /// it is.
    pub(crate) fn after(self, before: Option<&Registration>) -> Registration {
        let here = |other: &&Registration| {
            (other.uplink, other.care_of_address) == (self.uplink, self.care_of_address)
        };
        Registration { since: before.filter(here).map_or(self.since, |before| before.since), ..self }
    }
}

/// A care-of address as it is authenticated and compared: an IPv4 one as IPv4-mapped.
pub(crate) fn mapped(care_of_address: IpAddr) -> Ipv6Addr {
    match care_of_address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

/// Reaction to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send again after this long.
    Retry(Duration),
    /// De-register and begin anew (the type of registration changed under us).
    StartOver,
    /// As if nothing had been said.
    GoOn,
    /// Stop the service, and ask again after a pause that doubles each time.
    BackOff,
    /// Stop the service, and ask again after a long while.
    Stop,
}

/// The remedy for each status (RFC 6275 11.7.3, RFC 3963 5.4, RFC 4285). With one home agent and one mode
/// configured, "every available mode" is tried once the first answer is in.
pub(crate) fn remedy(status: Status) -> Remedy {
    match status {
        Status::TYPE_CHANGE_DISALLOWED => Remedy::StartOver,
        // The operator of the home agent may be changing the key right now.
        Status::AUTHENTICATION_FAILED => Remedy::Retry(Duration::from_secs(30)),
        // A home agent that has just started says this until it has heard the prefixes of its home link. RFC
        // 6275 11.7.3 lets the node try again; the pauses double as in 11.8.
        Status::HOME_REGISTRATION_NOT_SUPPORTED
        | Status::NOT_HOME_SUBNET
        | Status::NOT_HOME_AGENT
        | Status::PROHIBITED => Remedy::BackOff,
        // RFC 3963 5.4: the router refrains from sending Binding Updates.
        Status::MOBILE_ROUTER_NOT_PERMITTED
        | Status::INVALID_PREFIX
        | Status::NOT_AUTHORIZED_FOR_PREFIX
        | Status::FORWARDING_SETUP_FAILED
        | Status::MESSAGE_ID_REQUIRED => Remedy::Stop,
        // Among them 134: the node that has our home address on the home link may be gone soon.
        _ => Remedy::Retry(MAX_BINDACK_TIMEOUT),
    }
}

/// Returns when to renew a registration: a quarter of the lifetime before its end, but not before half of it.
/// The time that is left suffices for three retransmissions. A full uplink loses many Binding Updates and
/// delays all: the router renews over it at half of the lifetime.
pub(crate) fn refresh_after(lifetime: Duration, is_full: bool) -> Duration {
    if is_full {
        return lifetime / 2;
    }
    let margin = (lifetime / 4).max(Duration::from_secs(8)).min(lifetime / 2);
    lifetime.saturating_sub(margin)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn sent(sequence: u16) -> Sent {
        Sent { sequence, at: Time::ZERO, timestamp: None, care_of_address: IPV6 }
    }

    #[test]
    fn retransmissions_back_off_to_thirty_two_seconds() {
        let mut exchange = Exchange::new(Purpose::Register, 0, vec![IPV6], true);
        let waits: Vec<f64> = (0..8).map(sent).map(|sent| exchange.transmitted(sent).as_secs_f64()).collect();
        assert_eq!(waits, [1.5, 3.0, 6.0, 12.0, 24.0, 32.0, 32.0, 32.0]);
        let mut refresh = Exchange::new(Purpose::Register, 0, vec![IPV6], false);
        assert_eq!(refresh.transmitted(sent(0)), Duration::from_secs(1));
    }

    #[test]
    fn the_second_care_of_address_follows_a_quarter_of_a_second_behind_the_first() {
        let mut exchange = Exchange::new(Purpose::Register, 0, vec![IPV6, IPV4], true);
        let mut left = Vec::new();
        for n in 0..4 {
            left.push(exchange.next_care_of_address().expect("one"));
            let wait = exchange.transmitted(sent(n)).as_secs_f64();
            assert_eq!(wait, [0.25, 1.5, 0.25, 3.0][usize::from(n)]);
        }
        assert_eq!(left, [IPV6, IPV4, IPV6, IPV4]);
        assert_eq!(exchange.unanswered, 2, "two rounds");
    }

    #[test]
    fn renewal_leaves_time_for_retransmissions() {
        let after = |secs| refresh_after(Duration::from_secs(secs), false).as_secs_f64();
        assert_eq!(after(60), 45.0);
        assert_eq!(refresh_after(Duration::from_secs(60), true), Duration::from_secs(30));
        assert_eq!(after(20), 12.0);
        assert_eq!(after(4), 2.0);
    }
}
