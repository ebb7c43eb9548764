//! The mobile node's part of mobile prefix discovery (RFC 6275 11.4.2, 11.4.3): whether the home prefix is
//! still valid while the node is away.
//!
//! The router sends a solicitation from a registered care-of address, with the home address in a Home Address
//! option. It sends the first when a home agent has accepted a registration. It sends the next after half of
//! the time for which the last answer was valid. It accepts an answer only from that home agent, through a
//! type 2 routing header with the home address. The answer must have the random identifier of the last
//! solicitation, which only a node on the path can know.
//!
//! RFC 6275 also requires IPsec. carnet uses RFC 4285 instead, which covers Mobility Headers only. So an
//! answer only causes a warning for the operator, who has configured home address and home prefix. It does
//! not change any registration.
//!
//! Left out: new home addresses from new prefixes (11.4.3), because the home address is configured; the M and
//! O flags; IPv4 care-of addresses.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_wire::extension::emit_home_address_options_header;
use carnet_wire::icmpv6;
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::nd::{NdOption, PrefixInformation};
use carnet_wire::prefix_discovery::{MobilePrefixAdvertisement, MobilePrefixSolicitation};
use ipnet::Ipv6Net;

use crate::mobile_router::MobileRouter;
use crate::{HOP_LIMIT, MobilityDrop};

/// Time to wait for the first answer: `INITIAL_SOLICIT_TIMER` (RFC 6275 12). It doubles with each unanswered
/// solicitation.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of solicitations without an answer before the router pauses.
const MAX_UNANSWERED_SOLICITATIONS: u32 = 3;
/// Pause after the last unanswered solicitation, and maximum time from an answer to the next solicitation.
const MAX_SOLICITATION_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time from an answer, genuine or forged, to the next solicitation.
const MIN_SOLICITATION_PAUSE: Duration = Duration::from_secs(60);

/// Last known state of the prefix of the home address, and the outstanding solicitation.
#[derive(Debug, Default)]
pub(super) struct PrefixDiscovery {
    is_enabled: bool,
    /// Home agent to which the router sends solicitations; `None` without a registration.
    home_agent: Option<Ipv6Addr>,
    /// Identifier of the last solicitation; `None` when the home agent has answered it.
    identifier: Option<u16>,
    sent_solicitations: u32,
    next_solicitation_at: Option<Time>,
    /// State of the home prefix in the home agent's last answer, which the last warning to the operator
    /// named; `None` before the first answer.
    prefix_state: Option<HomePrefixState>,
}

/// State of the prefix of the home address in an advertisement of the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HomePrefixState {
    Preferred,
    /// New connections should use another prefix (RFC 4862 5.5.4).
    Deprecated,
    /// The home link no longer has the prefix.
    Gone,
}

impl PrefixDiscovery {
    /// Creates the discovery. It sends solicitations only if `wanted`.
    pub fn new(wanted: bool) -> PrefixDiscovery {
        PrefixDiscovery { is_enabled: wanted, ..PrefixDiscovery::default() }
    }

    /// Returns when the next solicitation is due; `None` if none is planned.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.next_solicitation_at
    }

    /// Returns the packet of the solicitation that is due; `None` if none is due, or without a registered
    /// IPv6 care-of address.
    pub fn next_solicitation(&mut self, now: Time, rng: &mut Rng, router: &MobileRouter) -> Option<Vec<u8>> {
        let Some(care_of_address) = registered_care_of_address(router).filter(|_| self.is_enabled) else {
            // Without a registration forget the home agent. So the router sends a solicitation at once when
            // it is registered again.
            (self.home_agent, self.next_solicitation_at) = (None, None);
            return None;
        };
        let home_agent = router.config().home_agent;
        if self.home_agent != Some(home_agent) {
            (self.home_agent, self.sent_solicitations, self.next_solicitation_at) =
                (Some(home_agent), 0, Some(now));
        }
        self.next_solicitation_at.filter(|next| *next <= now)?;
        if self.sent_solicitations >= MAX_UNANSWERED_SOLICITATIONS {
            (self.identifier, self.sent_solicitations, self.next_solicitation_at) =
                (None, 0, Some(now + MAX_SOLICITATION_PAUSE));
            return None;
        }
        // RFC 6275 11.4.2: "MUST set the Identifier field ... to a random value".
        let identifier = rng.random_u16();
        self.identifier = Some(identifier);
        self.next_solicitation_at = Some(now + INITIAL_TIMEOUT * 2_u32.pow(self.sent_solicitations));
        self.sent_solicitations += 1;
        Some(build_solicitation(care_of_address, router.config().home_address, home_agent, identifier))
    }

    /// Handles an advertisement, whose destination is the final one, from its routing header. Returns a
    /// warning for the operator if the state has changed.
    ///
    /// # Errors
    /// Returns a reason if the advertisement does not answer the router's solicitation.
    pub fn handle_prefix_advertisement(
        &mut self,
        now: Time,
        router: &MobileRouter,
        message: &LinkMessage,
    ) -> Result<Option<String>, MobilityDrop> {
        let home_address = router.config().home_address;
        if self.home_agent != Some(message.source) || message.destination != home_address {
            return Err(MobilityDrop::WrongParty);
        }
        icmpv6::verify_checksum(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let advertisement =
            MobilePrefixAdvertisement::parse(&message.message).map_err(|_| MobilityDrop::Malformed)?;
        if self.identifier != Some(advertisement.identifier) {
            // RFC 6275 11.4.3: after an unexpected advertisement "the mobile node SHOULD send a Mobile Prefix
            // Solicitation". The pause limits how often an attacker can cause a solicitation.
            let soon = now + MIN_SOLICITATION_PAUSE;
            if self.identifier.is_none() {
                self.next_solicitation_at = self.next_solicitation_at.map(|next| next.min(soon));
            }
            return Err(MobilityDrop::Unexpected);
        }
        self.identifier = None;
        self.sent_solicitations = 0;
        let mut options = advertisement.options;
        let information = options.find_map(|option| match option {
            NdOption::PrefixInformation(information) if prefix_covers(&information, home_address) => {
                Some(information)
            }
            _ => None,
        });
        let (standing, good) = match information {
            Some(information) if information.preferred_lifetime > 0 => {
                (HomePrefixState::Preferred, information.preferred_lifetime)
            }
            Some(information) if information.valid_lifetime > 0 => {
                (HomePrefixState::Deprecated, information.valid_lifetime)
            }
            _ => (HomePrefixState::Gone, 0),
        };
        self.next_solicitation_at = Some(
            now + (Duration::from_secs(good.into()) / 2)
                .clamp(MIN_SOLICITATION_PAUSE, MAX_SOLICITATION_PAUSE),
        );
        let before = self.prefix_state.replace(standing);
        let news = before != Some(standing) && (before.is_some() || standing != HomePrefixState::Preferred);
        let agent = message.source;
        Ok(news.then(|| match standing {
            HomePrefixState::Preferred => format!(
                "the home agent {agent} advertises the prefix of {home_address} \
                                            again"
            ),
            HomePrefixState::Deprecated => format!(
                "the home agent {agent} has deprecated the prefix of {home_address}, which ends in {good} s"
            ),
            HomePrefixState::Gone => format!(
                "the home agent {agent} no longer advertises the prefix of {home_address}, the home address \
                 of the config"
            ),
        }))
    }
}

/// Returns an IPv6 care-of address that the home agent has accepted, the preferred one if there are several;
/// `None` without one.
fn registered_care_of_address(router: &MobileRouter) -> Option<Ipv6Addr> {
    let bound = router.bindings().iter().filter_map(|binding| binding.registration.as_ref());
    let mut addresses =
        router.registration().into_iter().chain(bound).map(|registration| registration.care_of_address);
    addresses.find_map(|address| match address {
        IpAddr::V6(address) if address != router.config().home_address => Some(address),
        _ => None,
    })
}

fn prefix_covers(information: &PrefixInformation, address: Ipv6Addr) -> bool {
    Ipv6Net::new(information.prefix, information.prefix_length).is_ok_and(|prefix| prefix.contains(&address))
}

/// Builds the solicitation. RFC 6275 6.7: it "MUST" have a Home Address option; the checksum covers the home
/// address as source.
fn build_solicitation(
    care_of_address: Ipv6Addr,
    home_address: Ipv6Addr,
    home_agent: Ipv6Addr,
    identifier: u16,
) -> Vec<u8> {
    let mut solicitation = MobilePrefixSolicitation { identifier }.emit();
    icmpv6::set_checksum(&mut solicitation, home_address, home_agent);
    let options = emit_home_address_options_header(protocol::ICMPV6, home_address);
    let header = Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: u16::try_from(options.len() + solicitation.len()).unwrap_or(u16::MAX),
        next_header: protocol::DESTINATION_OPTIONS,
        hop_limit: HOP_LIMIT,
        source: care_of_address,
        destination: home_agent,
    };
    [&header.emit()[..], &options[..], &solicitation[..]].concat()
}
