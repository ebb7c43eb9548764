//! Reports to the operator Binding Updates that get no answer.
//!
//! A stranger gets no answer (RFC 4285 5, RFC 6275 10.3.1), but an operator who sets a router up has to find
//! a mistake. Strangers can send such messages, so the home agent remembers and logs little. It logs one line
//! for each home address and cause within [`AGAIN`], and a few of them in a row.

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::authentication_field;

use super::HomeAgentConfig;
use super::request::Request;
use crate::{Event, MobilityDrop, Output};

/// Time after which the same line may be logged again.
const AGAIN: Duration = Duration::from_secs(600);
/// Lines in a burst. [`INTERVAL`] is the interval between lines after that.
const BURST: u32 = 5;
const INTERVAL: Duration = Duration::from_secs(30);
/// Most entries that are remembered.
const REMEMBERED: usize = 32;

/// Lines that were logged lately.
#[derive(Debug)]
pub(super) struct Silence {
    said: VecDeque<(Ipv6Addr, MobilityDrop, Time)>,
    limiter: RateLimiter,
}

impl Default for Silence {
    fn default() -> Self {
        Silence { said: VecDeque::new(), limiter: RateLimiter::new(BURST, INTERVAL) }
    }
}

impl Silence {
    pub fn allows(&mut self, now: Time, home_address: Ipv6Addr, reason: MobilityDrop) -> bool {
        self.said.retain(|(_, _, at)| now.saturating_since(*at) < AGAIN);
        let known = self.said.iter().any(|(address, why, _)| (*address, *why) == (home_address, reason));
        if known || !self.limiter.allow(now) {
            return false;
        }
        if self.said.len() == REMEMBERED {
            self.said.pop_front();
        }
        self.said.push_back((home_address, reason, now));
        true
    }

    /// Returns the line, at a limited rate, that says why a Binding Update got no answer, or no answer that
    /// its sender understands.
    pub(super) fn warning(
        &mut self,
        now: Time,
        config: &HomeAgentConfig,
        request: &Request,
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
                format!("unknown SPI: its SPI is {}, expected {expected}", spi.unwrap_or_default())
            }
            MobilityDrop::AuthenticationMissing => {
                format!("it is not authenticated, expected SPI {expected}")
            }
            MobilityDrop::AuthenticationFailed => {
                format!(
                    "wrong MAC: expected that of the key of SPI {}, with `per_agent` of the one for {}",
                    request.spi.unwrap_or_default(),
                    config.address
                )
            }
            MobilityDrop::NotProtected => {
                "it did not come under IPsec, expected a security association of its own with the home agent"
                    .to_owned()
            }
            // The remaining reasons are faults of a program, not of a config; the counters show them.
            _ => return None,
        };
        self.allows(now, home_address, reason).then(|| {
            let from = request.came_from();
            let message = format!("a Binding Update of {home_address} from {from} is ignored: {why}");
            Output::Event(Event::Warning { message })
        })
    }
}
