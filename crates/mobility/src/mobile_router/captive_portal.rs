//! Captive portals (RFC 8952): an access network redirects web pages and forwards nothing else, until a user
//! has accepted its terms.
//!
//! A Router Advertisement may name the portal (RFC 8910). The announcement alone changes no decision, because
//! the network forwards after a user has accepted the terms. But if the home agent does not answer over this
//! uplink, the portal is the likely reason.
//!
//! Few networks announce their portal. So the operator can configure a URL. The router requests it over
//! uplinks that have an address and a router but no answer of the home agent. It tests one uplink at a time,
//! with pauses that double. While a portal is known the pauses stay short. When the network forwards again,
//! the router registers the uplink at once.
//!
//! Left out: the DHCP options of RFC 8910, which the DHCP client reads, and the API of RFC 8908, which needs
//! TLS. The request of the URL finds these portals, too.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::nd::host_configuration::RecursiveDnsServers;
use carnet_wire::nd::nd_option::option_type;
use carnet_wire::nd::{self, NdOption, NdOptions};
use serde::{Deserialize, Serialize};

use super::{Attachment, Uplink};
use crate::{Event, Output};

/// Maximum length of a stored URI, in octets.
const MAX_URI_OCTETS: usize = 255;

/// A captive portal that a router announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaptivePortal {
    /// Router that announces the portal.
    router: Ipv6Addr,
    /// URI of the portal.
    pub(super) uri: String,
}

impl CaptivePortal {
    /// Returns the portal that is known after an advertisement of `router`; `None` without a portal. `known`
    /// is the portal that was known before.
    pub(super) fn portal_after_advertisement(
        known: Option<CaptivePortal>,
        router: Ipv6Addr,
        mut options: NdOptions<'_>,
    ) -> Option<CaptivePortal> {
        let uri = options.find_map(|option| match option {
            NdOption::Unknown { option_type: option_type::CAPTIVE_PORTAL, data } => Some(parse_uri(data)),
            _ => None,
        });
        match uri {
            Some(Some(uri)) => Some(CaptivePortal { router, uri }),
            // This router no longer announces a portal. A portal that another router has announced stays
            // known.
            Some(None) | None => known.filter(|known| known.router != router),
        }
    }
}

/// Maximum number of stored DNS servers of a link.
const MAX_DNS_SERVERS: usize = 3;

/// DNS servers that a router of a link announces (RFC 8106 5.1). Only a host with access to a captive portal
/// uses them, because the portal's network may answer no other queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LinkDns {
    servers: Vec<Ipv6Addr>,
    /// End of the servers' lifetime.
    valid_until: Time,
}

impl LinkDns {
    /// Takes the servers of an advertisement. An advertisement without servers changes nothing; a lifetime of
    /// zero ends those that it names.
    pub(super) fn update_servers(&mut self, now: Time, options: NdOptions<'_>) {
        for option in options.filter_map(|option| RecursiveDnsServers::read(&option)) {
            if option.lifetime == 0 {
                self.servers.retain(|server| !option.servers.contains(server));
                continue;
            }
            // The router forwards no packets to link-local addresses.
            let servers = option.servers.into_iter().filter(|server| crate::is_unicast_routable(*server));
            self.servers = servers.take(MAX_DNS_SERVERS).collect();
            self.valid_until = now + Duration::from_secs(option.lifetime.into());
        }
    }

    /// Returns the servers that are valid now.
    pub(super) fn valid_servers(&self, now: Time) -> &[Ipv6Addr] {
        if now < self.valid_until { &self.servers } else { &[] }
    }
}

/// Result of a probe over an uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortalProbe {
    /// The expected answer arrived: the network forwards HTTP.
    Passed,
    /// The network answered in place of the server. The string is the URL to which it redirected the probe,
    /// or the probed URL if the answer names none.
    Redirected(String),
    /// No answer arrived, or one that shows nothing about a portal.
    Unanswered,
}

/// Pauses between two probes of an uplink: the first one, the longest one while a portal is known, and the
/// longest one otherwise.
const PROBE_PAUSE: (Duration, Duration, Duration) =
    (Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(600));
/// Time after which the router no longer waits for the result of a probe.
const PROBE_RESULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the router looks for uplinks without answers of the home agent.
pub(super) const PORTAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The probes over one uplink.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PortalProbes {
    /// URL of the portal to which a probe was redirected; `None` while no portal is known.
    pub(super) found_portal_url: Option<String>,
    /// Time of the next probe, and the pause after it; `None` if this network has not been probed yet.
    next_probe_and_pause: Option<(Time, Duration)>,
}

/// The probes of all uplinks.
#[derive(Debug)]
pub(super) struct PortalProber {
    /// Rate limit of the events about portals.
    pub(super) event_limit: RateLimiter,
    /// Uplink that is being probed, and the time until which the router waits for the result. `None` while no
    /// probe runs.
    running_probe: Option<(usize, Time)>,
}

impl Default for PortalProber {
    fn default() -> PortalProber {
        PortalProber { event_limit: RateLimiter::new(5, Duration::from_secs(60)), running_probe: None }
    }
}

/// Returns the URI of an option, without the padding zeros. Returns `None` for an invalid option, and for the
/// URI that means that there is no portal.
fn parse_uri(data: &[u8]) -> Option<String> {
    let end = data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&data[..end]).ok()?;
    (is_printable_uri(text) && text != nd::CaptivePortal::UNRESTRICTED).then(|| text.to_owned())
}

fn is_printable_uri(text: &str) -> bool {
    (1..=MAX_URI_OCTETS).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_graphic())
}

impl PortalProber {
    /// Removes a probe whose result is overdue.
    pub(super) fn expire_probe(&mut self, now: Time) {
        self.running_probe = self.running_probe.filter(|(_, until)| *until > now);
    }

    /// Returns the uplink to probe now and its addresses; `None` if no probe is due.
    pub(super) fn next_probe(
        &mut self,
        now: Time,
        index: usize,
        uplink: &mut Uplink,
        (is_silent, answers): (bool, bool),
    ) -> Option<Output> {
        let is_foreign = matches!(uplink.attachment, Attachment::Foreign { .. });
        let probes = &mut uplink.portal_probes;
        if !is_foreign || answers {
            *probes = PortalProbes::default();
            return None;
        }
        if !(is_silent || probes.found_portal_url.is_some()) || self.running_probe.is_some() {
            return None;
        }
        let (due, pause) = probes.next_probe_and_pause.unwrap_or((now, PROBE_PAUSE.0));
        if due > now {
            return None;
        }
        let longest = if probes.found_portal_url.is_some() { PROBE_PAUSE.1 } else { PROBE_PAUSE.2 };
        let pause = pause.min(longest);
        probes.next_probe_and_pause = Some((now + pause, (pause * 2).min(longest)));
        self.running_probe = Some((index, now + PROBE_RESULT_TIMEOUT));
        let sources = uplink.care_of_addresses();
        Some(Output::ProbePortal { uplink: uplink.config.interface.clone(), sources })
    }

    /// Records that the probe over an uplink has ended.
    pub(super) fn schedule_next_probe(&mut self, index: usize) {
        self.running_probe = self.running_probe.filter(|(probed, _)| *probed != index);
    }

    /// Handles the result of a probe over an uplink on a foreign link. Returns the event to report, and
    /// whether a known portal now lets packets pass.
    pub(super) fn handle_probe_result(
        &mut self,
        now: Time,
        uplink: &mut Uplink,
        probe: &PortalProbe,
    ) -> (Option<Event>, bool) {
        let probes = &mut uplink.portal_probes;
        // Ignore the result of a probe that began in another network.
        if probes.next_probe_and_pause.is_none() {
            return (None, false);
        }
        match probe {
            PortalProbe::Redirected(url) if is_printable_uri(url) => {
                let is_new = probes.found_portal_url.as_ref() != Some(url);
                if probes.found_portal_url.is_none() {
                    probes.next_probe_and_pause = Some((now + PROBE_PAUSE.0, PROBE_PAUSE.0 * 2));
                }
                probes.found_portal_url = Some(url.clone());
                let is_told = is_new && self.event_limit.try_take_token(now);
                let portal = || Event::CaptivePortal {
                    uplink: uplink.config.interface.clone(),
                    uri: url.clone(),
                    redirects: true,
                };
                (is_told.then(portal), false)
            }
            PortalProbe::Passed => (None, probes.found_portal_url.take().is_some()),
            // A single probe without an answer does not show that a known portal has gone.
            PortalProbe::Redirected(_) | PortalProbe::Unanswered => (None, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captive_portal_uri_parser_strips_padding_and_refuses_other_octets() {
        assert_eq!(parse_uri(b"https://portal.example/\0\0\0").as_deref(), Some("https://portal.example/"));
        for none in [
            &b"\0\0\0\0\0\0"[..],
            b"",
            b"urn:ietf:params:capport:unrestricted\0\0",
            b"a\0b",
            b"a b",
            b"\x1b[2J",
            b"\xff",
        ] {
            assert_eq!(parse_uri(none), None, "{none:?}");
        }
        assert_eq!(parse_uri(&[b'x'; 256]), None);
    }
}
