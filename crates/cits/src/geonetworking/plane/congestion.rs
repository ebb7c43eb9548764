//! Congestion control in a station: frames pass the gate of `carnet_geonet::dcc` before the radio.
//!
//! * *The station signs its own packets when they leave the gate*. So the generation time is as late as
//!   possible, and the packet can contain a certificate that was requested meanwhile. The gate counts the air
//!   time of the signed packet. If no ticket can sign a packet, the gate closes as if the station had sent
//!   it. Forwarded packets get their envelope back before the gate, while the station still has it.
//! * *The lifetime of a packet* shrinks by the time that it waits ([`Lifetime::after_waiting`]). A packet
//!   over one hop describes the present, so it waits for at most a second. Of the station's own CAMs only the
//!   newest waits.
//! * *The CA service generates CAMs* no faster than the gate releases them (EN 302 637-2 6.1.3,
//!   `T_GenCam_DCC`).
//! * *Contention-based forwarding* (EN 302 636-4-1 F.3) continues at the gate: the station drops a waiting
//!   packet when another station sends it.
//! * *Each frame carries its profile* ([`Frame::profile`]), so that the radio's queues (EDCA) keep the order.
//! * *After a change of address* the station drops its own packets that wait, because they bear the previous
//!   address.
//!
//! A fast path would bypass the gate, so a station with a gate has no fast path.

use std::collections::VecDeque;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::dcc::{DccDrop, DccGate, DccProfile, GateConfig, GatePacket};
use carnet_geonet::{MacAddress, Router, Transmission};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, Packet as Routed, set_lifetime,
};

use crate::facilities::plane::Facilities;
use crate::geonetworking::input::Frame;
use crate::geonetworking::output::Output;
use crate::security::plane::SecurityPlane;

/// Error for a reported channel load if the station has no congestion control.
pub(super) const NO_CONGESTION_CONTROL_ERROR: &str =
    "this station has no congestion control: there is no [geonet.dcc] in its config";
/// Channel load in thousandths if the channel is busy all the time.
const FULL_CHANNEL_LOAD: u16 = 1000;
/// Longest time for which a packet over one hop waits at the gate.
const MAX_SINGLE_HOP_WAIT: Duration = Duration::from_secs(1);
/// Shortest lifetime that a packet can have (EN 302 636-4-1 9.6.4). The station does not send a packet whose
/// remaining lifetime is shorter.
const MIN_PACKET_LIFETIME: Duration = Duration::from_millis(50);

/// Identity of a packet over several hops: GN address of the source and sequence number.
type PacketIdentity = (GnAddress, u16);

/// A packet that waits at the gate.
#[derive(Debug)]
pub struct HeldPacket {
    destination: MacAddress,
    packet: Vec<u8>,
    /// Whether this station is the source of the packet. If so, the station signs the packet when the packet
    /// leaves the gate.
    is_own: bool,
    /// Identity of the packet if it waits under contention-based forwarding; `None` for other packets. If
    /// another station sends a copy, the station drops this packet.
    contending_identity: Option<PacketIdentity>,
    lifetime: Lifetime,
    held_since: Time,
}

/// Congestion control of a station.
#[derive(Debug)]
pub(super) struct CongestionControl {
    gate: DccGate<HeldPacket>,
    /// GN address of the station's own packets in the gate.
    address: GnAddress,
    /// Least interval between CAMs that the CA service last got from the gate.
    cam_interval: Duration,
    /// Value of the gate's `stale` counter at the last report to the operator.
    reported_stale_count: u64,
}

impl CongestionControl {
    pub(super) fn new(config: GateConfig, address: GnAddress) -> CongestionControl {
        CongestionControl {
            gate: DccGate::new(config),
            address,
            cam_interval: Duration::ZERO,
            reported_stale_count: 0,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.gate.poll_timeout()
    }

    /// Drops all packets that wait at the gate.
    pub(super) fn drop_held_packets(&mut self) {
        self.gate.discard_waiting_packets(DccDrop::Reset, |_| true);
    }

    /// Returns the congestion gate in front of the radio.
    pub(super) fn dcc_gate(&self) -> &DccGate<HeldPacket> {
        &self.gate
    }

    /// Handles a report of the channel load, in thousandths.
    ///
    /// # Errors
    ///
    /// Returns an error if the load is above 1000.
    pub(super) fn handle_channel_busy(&mut self, now: Time, thousandths: u16) -> Result<(), String> {
        if thousandths > FULL_CHANNEL_LOAD {
            return Err(format!(
                "the reported channel load is {thousandths} thousandths, expected 0 to 1000"
            ));
        }
        self.gate.handle_busy_ratio(now, f64::from(thousandths) / f64::from(FULL_CHANNEL_LOAD));
        Ok(())
    }

    /// Drops this station's copy of a packet that waits under contention-based forwarding, because another
    /// station has sent the packet.
    pub(super) fn drop_overheard_packet(&mut self, packet: &[u8]) {
        if self.gate.queue_lengths() != [0; 4]
            && let Some(copy) = packet_identity_of(packet)
        {
            self.gate
                .discard_waiting_packets(DccDrop::Overheard, |held| held.contending_identity == Some(copy));
        }
    }

    /// Drops waiting own packets if the station's address has changed to another `address`.
    pub(super) fn handle_address(&mut self, address: GnAddress) {
        if std::mem::replace(&mut self.address, address) != address {
            self.gate.discard_waiting_packets(DccDrop::AddressChanged, |held| held.is_own);
        }
    }

    /// Handles the gate's timers, which evaluate the channel load. Passes the resulting interval of CAMs to
    /// the facilities. Returns a warning if the reports of the channel load have stopped.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        facilities: Option<&mut Box<Facilities>>,
    ) -> Option<String> {
        if !self.gate.handle_timeout(now) {
            return None;
        }
        let interval = self.gate.min_interval_after(DccProfile::Dp2);
        if std::mem::replace(&mut self.cam_interval, interval) != interval
            && let Some(facilities) = facilities
        {
            facilities.handle_dcc_interval(now, interval);
        }
        let stale = self.gate.counters().stale_reports;
        (std::mem::replace(&mut self.reported_stale_count, stale) == 0 && stale > 0).then(|| {
            "the reports of the channel load have stopped: the station goes on with the last reported value"
                .into()
        })
    }
}

/// Converts a packet of the router to a packet for the gate, with profile, lifetime and longest wait.
fn build_gate_packet(
    transmission: Transmission,
    now: Time,
    overhead: usize,
    contended: Option<PacketIdentity>,
) -> GatePacket<HeldPacket> {
    let Transmission { destination, traffic_class, profile, is_own: own, frame, .. } = transmission;
    // The packet comes from the router, so parsing always succeeds. If it failed, the packet would not wait
    // at the gate.
    let (lifetime, one_hop, is_cam) = match Routed::parse(&frame) {
        Ok(packet) => {
            let single = matches!(packet.extended, ExtendedHeader::SingleHop { .. });
            let beacon = matches!(packet.extended, ExtendedHeader::Beacon { .. });
            let is_cam = single
                && packet.common.next_header == CommonNextHeader::BtpB
                && BtpB::parse(packet.payload).is_ok_and(|(btp, _)| btp.destination_port == port::CAM);
            (packet.basic.lifetime, single || beacon, is_cam)
        }
        Err(_) => (Lifetime::default(), false, false),
    };
    // Add one nanosecond, because the gate drops a packet at the exact end of its wait.
    let wait = lifetime.duration().saturating_sub(MIN_PACKET_LIFETIME) + Duration::from_nanos(1);
    GatePacket {
        profile: DccProfile::dcc_profile_of(traffic_class, profile, own),
        lifetime: if one_hop { wait.min(MAX_SINGLE_HOP_WAIT) } else { wait },
        octets: frame.len() + overhead,
        replaces_waiting_packet: own && is_cam,
        packet_content: HeldPacket {
            destination,
            packet: frame,
            is_own: own,
            contending_identity: contended,
            lifetime,
            held_since: now,
        },
    }
}

fn packet_identity_of(packet: &[u8]) -> Option<PacketIdentity> {
    let packet = Routed::parse(packet).ok()?;
    Some((packet.extended.source().address, packet.extended.sequence()?))
}

/// The parts of the plane that pass packets to the link.
pub(super) struct LinkSender<'a> {
    pub(super) congestion: Option<&'a mut CongestionControl>,
    pub(super) secured: Option<&'a mut SecurityPlane>,
    pub(super) router: &'a mut Router,
    pub(super) outputs: &'a mut VecDeque<Output>,
}

impl LinkSender<'_> {
    /// Passes a packet of the router to the link, or queues it at the gate.
    pub(super) fn transmit_or_queue(&mut self, now: Time, mut transmission: Transmission) {
        if self.congestion.is_none() {
            return self.output_packet(now, transmission.destination, transmission.frame, true, None);
        }
        let contended =
            transmission.is_after_contention.then(|| packet_identity_of(&transmission.frame)).flatten();
        let mut overhead = 0;
        if let Some(secured) = &self.secured {
            if transmission.is_own {
                overhead = usize::try_from(secured.envelope_overhead()).unwrap_or_default();
            } else {
                let Some(signed) = self.sign_packet(now, transmission.frame) else { return };
                transmission.frame = signed;
            }
        }
        let packet = build_gate_packet(transmission, now, overhead, contended);
        let profile = packet.profile;
        let goes = self
            .congestion
            .as_mut()
            .and_then(|congestion| congestion.gate.transmit_or_hold_packet(now, packet));
        if let Some(held) = goes {
            self.transmit_held_packet(now, profile, held);
        }
    }

    /// Passes a packet that has waited at the gate to the link.
    fn transmit_held_packet(&mut self, now: Time, profile: DccProfile, held: HeldPacket) {
        let HeldPacket { destination, mut packet, is_own: own, lifetime, held_since: since, .. } = held;
        let left = lifetime.after_waiting(now.saturating_since(since));
        // The packet begins with a Basic Header, whether it is signed or not.
        let _ = set_lifetime(&mut packet, left);
        self.output_packet(now, destination, packet, own, Some(profile));
    }

    fn output_packet(
        &mut self,
        now: Time,
        destination: MacAddress,
        packet: Vec<u8>,
        sign: bool,
        profile: Option<DccProfile>,
    ) {
        let profile = profile.map(|profile| profile as u8);
        let packet = if sign { self.sign_packet(now, packet) } else { Some(packet) };
        let source = self.source();
        self.outputs
            .extend(packet.map(|packet| Output::Frame(Frame { source, destination, profile, packet })));
    }

    /// Returns the station's link-layer address.
    fn source(&self) -> MacAddress {
        let [_, _, source @ ..] = self.router.address().0.to_be_bytes();
        source
    }

    /// Returns the packet in its signed envelope, or unchanged if the station does not sign; `None` if no
    /// ticket can sign it.
    fn sign_packet(&mut self, now: Time, packet: Vec<u8>) -> Option<Vec<u8>> {
        let source = self.source();
        let Some(secured) = &mut self.secured else { return Some(packet) };
        let signed = secured.secure_packet(now, source, &packet);
        self.outputs.extend(secured.poll_warning().map(Output::Warning));
        self.router.recycle_buffer(packet);
        signed
    }

    /// Sends the packets that the gate releases.
    pub(super) fn send_released_packets(&mut self, now: Time) {
        while let Some(congestion) = &mut self.congestion
            && let Some((profile, held)) = congestion.gate.poll_packet(now)
        {
            self.transmit_held_packet(now, profile, held);
        }
    }
}
