//! Registrations that the home agent has acknowledged, and the rules of their renewal (RFC 6275 11.7.3).

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;

/// Registration that the home agent acknowledged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// Index of the uplink. The care-of address does not identify the uplink, because two uplinks behind
    /// similar NATs may have the same address.
    pub uplink: usize,
    /// Care-of address on the router's own interface; a NAT may translate it to another address.
    pub care_of_address: IpAddr,
    /// Time since which this care-of address has been registered.
    pub registered_since: Time,
    /// Whether packets go inside UDP, because a NAT is on the path or one side requires UDP (RFC 5555 4.2).
    pub uses_udp: bool,
    /// Lifetime that the home agent has granted.
    pub lifetime: Duration,
    /// End of the lifetime, which starts when the Binding Update is sent (RFC 6275 11.7.3).
    pub expires_at: Time,
    /// Sequence number of the acknowledged Binding Update.
    pub sequence: u16,
}

impl Registration {
    /// Returns this registration. If `before` has the same care-of address, the result has the
    /// `registered_since` of `before`.
    pub(crate) fn with_registration_time_of(self, before: Option<&Registration>) -> Registration {
        let here = |other: &&Registration| {
            (other.uplink, other.care_of_address) == (self.uplink, self.care_of_address)
        };
        Registration {
            registered_since: before
                .filter(here)
                .map_or(self.registered_since, |before| before.registered_since),
            ..self
        }
    }

    /// Returns when the router sent the accepted Binding Update. The lifetime begins then.
    pub(crate) fn sent_at(&self) -> Time {
        self.expires_at - self.lifetime
    }

    /// Returns when to renew this registration. The time is earlier if the uplink `is_path_saturated`.
    pub(crate) fn renew_at(&self, is_path_saturated: bool) -> Time {
        RenewalRule::BeforeEnd { is_path_saturated }.renewal_time(self.sent_at(), self.lifetime)
    }
}

/// Returns a care-of address in the form that is authenticated and compared: an IPv4 address as IPv4-mapped.
pub(crate) fn to_authenticated_form(care_of_address: IpAddr) -> Ipv6Addr {
    match care_of_address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

/// Rule for the renewal of a registration or of a token before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalRule {
    /// A quarter of the lifetime before its end, at least 8 s, but not before half of the lifetime. The
    /// remaining time suffices for three retransmissions. A full uplink loses many Binding Updates and delays
    /// all of them, so the router renews over it at half of the lifetime.
    BeforeEnd {
        /// Whether the uplink carries its full capacity, so that packets wait in a queue.
        is_path_saturated: bool,
    },
    /// Renew at this age of the registration or token, whatever its lifetime is.
    AtAge(Duration),
}

impl RenewalRule {
    /// Returns when to renew. The lifetime begins at `sent_at`.
    pub(crate) fn renewal_time(self, sent_at: Time, lifetime: Duration) -> Time {
        let after = match self {
            RenewalRule::AtAge(age) => age,
            RenewalRule::BeforeEnd { is_path_saturated: true } => lifetime / 2,
            RenewalRule::BeforeEnd { is_path_saturated: false } => {
                let margin = (lifetime / 4).max(Duration::from_secs(8)).min(lifetime / 2);
                lifetime.saturating_sub(margin)
            }
        };
        sent_at + after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_leaves_time_for_retransmissions() {
        let after = |secs, is_path_saturated| {
            let due = RenewalRule::BeforeEnd { is_path_saturated }
                .renewal_time(Time::from_secs(5), Duration::from_secs(secs));
            due.saturating_since(Time::from_secs(5)).as_secs_f64()
        };
        assert_eq!(after(60, false), 45.0);
        assert_eq!(after(60, true), 30.0);
        assert_eq!(after(20, false), 12.0);
        assert_eq!(after(4, false), 2.0);
    }
}
