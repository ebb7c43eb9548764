//! Logs Binding Updates that the home agent does not answer.
//!
//! An unauthenticated source gets no answer (RFC 4285 5, RFC 6275 10.3.1). But an operator who sets up a
//! router needs to find a mistake in its config. An attacker can send very many such messages. So the log has
//! at most one line per home address and reason within [`REPEATED_LINE_INTERVAL`], and at most [`LOG_BURST`]
//! lines in a row.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::authentication_field;

use super::HomeAgentConfig;
use super::request::BindingUpdateRequest;
use crate::{Event, MobilityDrop, Output};

/// Minimum time between two log lines about the same home address and reason.
const REPEATED_LINE_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of log lines in a row. [`LOG_INTERVAL`] is the long-term interval between lines.
const LOG_BURST: u32 = 5;
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of log lines that the home agent remembers.
const MAX_LOGGED_LINES: usize = 32;

/// Log lines of the last [`REPEATED_LINE_INTERVAL`].
#[derive(Debug)]
pub(super) struct UnansweredUpdateLog {
    logged_lines: VecDeque<(Ipv6Addr, MobilityDrop, Time)>,
    limiter: RateLimiter,
}

impl Default for UnansweredUpdateLog {
    fn default() -> Self {
        UnansweredUpdateLog {
            logged_lines: VecDeque::new(),
            limiter: RateLimiter::new(LOG_BURST, LOG_INTERVAL),
        }
    }
}

impl UnansweredUpdateLog {
    pub fn may_log_line(&mut self, now: Time, home_address: Ipv6Addr, reason: MobilityDrop) -> bool {
        self.logged_lines.retain(|(_, _, at)| now.saturating_since(*at) < REPEATED_LINE_INTERVAL);
        let known =
            self.logged_lines.iter().any(|(address, why, _)| (*address, *why) == (home_address, reason));
        if known || !self.limiter.try_take_token(now) {
            return false;
        }
        if self.logged_lines.len() == MAX_LOGGED_LINES {
            self.logged_lines.pop_front();
        }
        self.logged_lines.push_back((home_address, reason, now));
        true
    }

    /// Returns the log line about a Binding Update that gets no answer, or an answer that its sender cannot
    /// understand. Returns `None` if the reason is a fault of a program, or if the limit is reached.
    pub(super) fn unanswered_update_warning(
        &mut self,
        now: Time,
        config: &HomeAgentConfig,
        request: &BindingUpdateRequest,
        octets: &[u8],
        reason: MobilityDrop,
    ) -> Option<Output> {
        let home_address = request.home_address;
        let node = config.node(home_address);
        let known = node.into_iter().flat_map(|node| node.authentication.associations());
        let spis: Vec<String> = known.map(|association| association.spi.to_string()).collect();
        let expected = spis.join(" or ");
        let why = match reason {
            MobilityDrop::Unauthorized => {
                format!("no [[home_agent.mobile_router]] of the config has the home address {home_address}")
            }
            MobilityDrop::UnknownSpi => {
                let spi = authentication_field(octets).ok().flatten().map(|field| field.spi);
                format!("its SPI is {}, expected {expected}", spi.unwrap_or_default())
            }
            MobilityDrop::AuthenticationMissing => {
                format!("it has no authentication option, expected one with SPI {expected}")
            }
            MobilityDrop::AuthenticationFailed => {
                format!(
                    "its MAC is wrong: expected a MAC made with the key of SPI {}, with `per_agent` of the \
                     one for {}",
                    request.spi.unwrap_or_default(),
                    config.address
                )
            }
            MobilityDrop::NotProtected => {
                "IPsec did not protect it, expected a security association between the home address and the \
                 home agent"
                    .to_owned()
            }
            // The other reasons are faults of a program, not of a config; only counters show them.
            _ => return None,
        };
        self.may_log_line(now, home_address, reason).then(|| {
            let from = request.sender_endpoint();
            let message = format!(
                "the home agent does not answer a Binding Update of {home_address} from {from}: {why}"
            );
            Output::Event(Event::Warning { message })
        })
    }
}
