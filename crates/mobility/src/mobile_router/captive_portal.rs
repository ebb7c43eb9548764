//! Captive portals (RFC 8952): an access network redirects web pages and forwards nothing else, until a user
//! has agreed to its terms.
//!
//! A Router Advertisement may name the portal (RFC 8910). The announcement alone changes no decision: where
//! somebody has agreed before, the network forwards. Where the home agent does not answer over an uplink, it
//! is the likely reason.
//!
//! Few networks announce their portal. So the router has a URL probed where the operator has configured one
//! and the home agent does not answer over an uplink that has an address and a router: one uplink at a time,
//! after pauses that double. While a portal is known the pauses stay short, and as soon as the network
//! forwards, the uplink is registered without waiting.
//!
//! Left out: the DHCP options of RFC 8910, which are for the DHCP client to read, and the API of RFC 8908,
//! which needs TLS. The probe finds these portals, too.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, WallTime};
use carnet_wire::nd::{NdOption, NdOptions};
use serde::{Deserialize, Serialize};

use super::demotion::Response;
use super::{Attachment, MobileRouter, Timer};
use crate::{Event, Output};

/// Captive-Portal option (RFC 8910 2.3).
const CAPTIVE_PORTAL: u8 = 37;
/// The network has no portal (RFC 8910 2).
const UNRESTRICTED: &str = "urn:ietf:params:capport:unrestricted";
/// Octets of the longest URI that is kept.
const LONGEST: usize = 255;

/// The portal that a router announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaptivePortal {
    /// Who announces it.
    router: Ipv6Addr,
    /// Its URI.
    pub(super) uri: String,
}

impl CaptivePortal {
    /// What is known after an advertisement of `router`, and was `known` before.
    pub(super) fn after(
        known: Option<CaptivePortal>,
        router: Ipv6Addr,
        mut options: NdOptions<'_>,
    ) -> Option<CaptivePortal> {
        let uri = options.find_map(|option| match option {
            NdOption::Unknown { option_type: CAPTIVE_PORTAL, data } => Some(uri(data)),
            _ => None,
        });
        match uri {
            Some(Some(uri)) => Some(CaptivePortal { router, uri }),
            // It has none any more; that of another router stays.
            Some(None) | None => known.filter(|known| known.router != router),
        }
    }
}

/// What a probe over an uplink has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortalProbe {
    /// The expected answer: the network forwards HTTP.
    Passed,
    /// Another answer, or a redirection, to this URL.
    Redirected(String),
    /// No answer, or one that says nothing of a portal.
    Unanswered,
}

/// Between two probes of an uplink: at first, at most while a portal is known, and at most where none was
/// found.
const PAUSE: (Duration, Duration, Duration) =
    (Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(600));
/// A probe without a result for this time is lost.
const LOST: Duration = Duration::from_secs(30);
/// Between two looks at which uplinks have no answer.
const LOOK: Duration = Duration::from_secs(1);

/// The probes over one uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PortalProbes {
    /// URL of the portal that the last probe has met.
    pub(super) found: Option<String>,
    /// When the next one is due, and the pause after it; `None` before the first in this network.
    next: Option<(Time, Duration)>,
}

/// The probes of all uplinks.
#[derive(Debug)]
pub(super) struct PortalProber {
    /// Limit of the events about portals.
    pub(super) events: RateLimiter,
    /// The uplink over which a URL is being probed, and until when the router waits for the result.
    probe: Option<(usize, Time)>,
}

impl Default for PortalProber {
    fn default() -> PortalProber {
        PortalProber { events: RateLimiter::new(5, Duration::from_secs(60)), probe: None }
    }
}

impl MobileRouter {
    /// Has an uplink without answers probed, where the operator wants that.
    pub(super) fn probe_portals(&mut self, now: Time) {
        if !self.config.probes_portals || self.stopping {
            return self.timers.stop(Timer::Portal);
        }
        self.timers.set(Timer::Portal, now + LOOK);
        self.portals.probe = self.portals.probe.filter(|(_, until)| *until > now);
        for index in 0..self.uplinks.len() {
            let is_foreign = matches!(self.uplinks[index].attachment, Attachment::Foreign { .. });
            let is_silent = matches!(self.response(index), Response::Silent { .. });
            let answers = !is_silent && self.heartbeat_path(index).is_some();
            let probes = &mut self.uplinks[index].portal_probes;
            if !is_foreign || answers {
                *probes = PortalProbes::default();
            } else if (is_silent || probes.found.is_some()) && self.portals.probe.is_none() {
                let (due, pause) = probes.next.unwrap_or((now, PAUSE.0));
                if due <= now {
                    let longest = if probes.found.is_some() { PAUSE.1 } else { PAUSE.2 };
                    let pause = pause.min(longest);
                    probes.next = Some((now + pause, (pause * 2).min(longest)));
                    self.portals.probe = Some((index, now + LOST));
                    let uplink = self.uplinks[index].config.interface.clone();
                    let sources = self.uplinks[index].care_of_addresses();
                    self.outputs.push_back(Output::ProbePortal { uplink, sources });
                }
            }
        }
    }

    /// What a probe over an uplink has found.
    pub fn handle_portal_probe(&mut self, now: Time, wall: WallTime, interface: &str, probe: &PortalProbe) {
        self.assert_drained();
        let Ok(index) = self.uplink_called(interface) else { return };
        self.portals.probe = self.portals.probe.filter(|(probed, _)| *probed != index);
        let is_foreign = matches!(self.uplinks[index].attachment, Attachment::Foreign { .. });
        if !self.config.probes_portals || !is_foreign {
            return;
        }
        let probes = &mut self.uplinks[index].portal_probes;
        // The result of a probe that began in the network before says nothing of this one.
        if probes.next.is_none() {
            return;
        }
        match probe {
            PortalProbe::Redirected(url) if is_uri(url) => {
                let is_new = probes.found.as_ref() != Some(url);
                if probes.found.is_none() {
                    probes.next = Some((now + PAUSE.0, PAUSE.0 * 2));
                }
                probes.found = Some(url.clone());
                if is_new && self.portals.events.allow(now) {
                    let uplink = self.uplinks[index].config.interface.clone();
                    let portal = Event::CaptivePortal { uplink, uri: url.clone(), redirects: true };
                    self.outputs.push_back(Output::Event(portal));
                }
            }
            PortalProbe::Passed if probes.found.take().is_some() => self.portal_passed(now, wall, index),
            // A portal that does not answer for once is still there.
            PortalProbe::Passed | PortalProbe::Redirected(_) | PortalProbe::Unanswered => {}
        }
    }

    /// A user has agreed to the terms: ends the back-off that the uplink has got without answers.
    fn portal_passed(&mut self, now: Time, wall: WallTime, index: usize) {
        if let Some(binding) = self.binding_of(index).filter(|_| self.is_multiple()) {
            let binding = &mut self.list.bindings[binding];
            binding.held_until = None;
            if let Some(attempt) = &mut binding.attempt {
                attempt.next = attempt.next.min(now);
            }
            return self.reconcile(now, wall);
        }
        self.rehabilitate(index);
        if self.list.exchange.as_ref().is_some_and(|exchange| exchange.uplink == index && !exchange.single) {
            self.timers.set(Timer::Retransmit, now);
        }
        self.evaluate(now, wall, "a captive portal lets packets pass");
    }
}

/// The URI of an option, padded with zeros; `None` for what is none or says that there is no portal.
fn uri(data: &[u8]) -> Option<String> {
    let end = data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&data[..end]).ok()?;
    (is_uri(text) && text != UNRESTRICTED).then(|| text.to_owned())
}

fn is_uri(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_padded_and_printable() {
        assert_eq!(uri(b"https://portal.example/\0\0\0").as_deref(), Some("https://portal.example/"));
        for none in [
            &b"\0\0\0\0\0\0"[..],
            b"",
            b"urn:ietf:params:capport:unrestricted\0\0",
            b"a\0b",
            b"a b",
            b"\x1b[2J",
            b"\xff",
        ] {
            assert_eq!(uri(none), None, "{none:?}");
        }
        assert_eq!(uri(&[b'x'; 256]), None);
    }
}
