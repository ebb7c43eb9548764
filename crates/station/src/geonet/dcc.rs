//! Congestion control in a station: what goes to the radio goes through the gate of `carnet_geonet::dcc`.
//!
//! The gate stands behind the security entity: a packet is signed when the router sends it, and the time for which it waits
//! is short beside that for which a signature counts. Its priority and lifetime are those of its open headers.
//! Packets that wait keep the lifetime that they have.
//!
//! A fast path would go round the gate, so there is none with one.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::Transmission;
use carnet_geonet::dcc::{Gate, Packet, Profile};
use carnet_wire::geonet::{CommonNextHeader, HeaderType, Lifetime};

use super::Geonet;
use super::io::{Frame, next_header};
use crate::io::Output;

/// Why nobody has to tell how busy the channel is.
const NO_DCC: &str = "this station has no congestion control: there is no [geonet.dcc] in its config";
/// The channel is busy all the time.
const ALWAYS: u16 = 1000;

/// What the gate wants to know of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    profile: Profile,
    lifetime: Duration,
}

impl Offer {
    /// Of a packet as the router made it.
    pub(super) fn of(transmission: &Transmission) -> Offer {
        // Basic Header: LT in the third octet. Common Header: NH, HT and HST in the fifth and sixth.
        let octet = |index: usize| transmission.frame.get(index).copied().unwrap_or_default();
        let header_type = HeaderType::from_octet(octet(5));
        let next_header: CommonNextHeader = next_header(octet(4) >> 4);
        Offer {
            profile: Profile::of(transmission.traffic_class, header_type, next_header),
            lifetime: Lifetime(octet(2)).duration(),
        }
    }
}

impl Geonet {
    pub(crate) fn gate(&self) -> Option<&Gate<Frame>> {
        self.gate.as_deref()
    }

    /// # Errors
    /// When that cannot be, or there is no gate.
    pub(crate) fn handle_channel_busy(&mut self, now: Time, thousandths: u16) -> Result<(), String> {
        let gate = self.gate.as_mut().ok_or(NO_DCC)?;
        if thousandths > ALWAYS {
            return Err(format!(
                "a channel is not busy {thousandths} thousandths of the time, expected 0 to 1000"
            ));
        }
        gate.handle_busy_ratio(now, f64::from(thousandths) / f64::from(ALWAYS));
        Ok(())
    }

    /// A frame goes to the link, or waits.
    pub(super) fn transmit(&mut self, now: Time, offer: Option<Offer>, frame: Frame) {
        let goes = match (&mut self.gate, offer) {
            (Some(gate), Some(Offer { profile, lifetime })) => {
                let octets = frame.packet.len();
                gate.offer(now, Packet { profile, lifetime, octets, content: frame })
            }
            _ => Some(frame),
        };
        self.outputs.extend(goes.map(Output::Frame));
    }

    /// Sends what may go now.
    pub(super) fn open_gate(&mut self, now: Time) {
        if let Some(gate) = &mut self.gate {
            gate.handle_timeout(now);
            while let Some(frame) = gate.poll_packet(now) {
                self.outputs.push_back(Output::Frame(frame));
            }
        }
    }
}
