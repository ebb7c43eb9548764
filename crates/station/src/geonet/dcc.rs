//! Congestion control in a station: what goes to the radio goes through the gate of `carnet_geonet::dcc`.
//!
//! * *Own packets are signed when they leave*: the gate keeps them unsigned, so that a signature is as young
//!   as the packet is late. A requested certificate goes along. Their time on the air is that of the signed
//!   packet. A packet that no ticket signs has had its turn. Packets of others get their envelope back at
//!   once, while it is there.
//! * *Packets that waited* have a lifetime that is shorter by that ([`Lifetime::after_waiting`]). A packet
//!   for one hop is about now: it waits for a second at most. Only the newest own CAM waits.
//! * *CAMs* are generated no faster than the gate would let them go (EN 302 637-2 6.1.3, `T_GenCam_DCC`).
//! * *A packet to be repeated by contention* (EN 302 636-4-1 F.3) that waits here is dropped when another
//!   station sends it. The contention counts as still running.
//! * *The radio is told the profile* ([`Frame::profile`]), so that its queues (EDCA) keep the order.
//! * *With another address* own packets that wait are dropped: they bear the one before.
//!
//! A fast path would bypass the gate, so a station with a gate has no fast path.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::dcc::{Config, DccDrop, Gate, Packet, Profile};
use carnet_geonet::{MacAddress, Transmission};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, Packet as Routed, set_lifetime,
};

use super::Geonet;
use super::io::Frame;
use crate::io::{Event, Output};

/// Error for a report of the busy ratio without congestion control.
const NO_DCC: &str = "this station has no congestion control: there is no [geonet.dcc] in its config";
/// The channel is busy all the time.
const ALWAYS: u16 = 1000;
/// The longest wait of what goes one hop only.
const ONE_HOP: Duration = Duration::from_secs(1);
/// The shortest lifetime that a packet can have (EN 302 636-4-1 9.6.4): with less it does not leave.
const SHORTEST: Duration = Duration::from_millis(50);

/// A packet that goes several hops: GN address of its source, sequence number.
type Identity = (GnAddress, u16);

/// A packet as it waits.
#[derive(Debug)]
pub struct Held {
    destination: MacAddress,
    packet: Vec<u8>,
    /// It has to be signed, where that is done.
    own: bool,
    /// Which it is, where that it is sent on by others makes it worthless.
    contended: Option<Identity>,
    lifetime: Lifetime,
    since: Time,
}

/// The gate of a station.
#[derive(Debug)]
pub(super) struct Congestion {
    gate: Gate<Held>,
    /// That own packets in it bear.
    address: GnAddress,
    /// Interval that the CA service knows.
    interval: Duration,
    /// Of its counter, what operators were told.
    stale: u64,
}

impl Congestion {
    pub(super) fn new(config: Config, address: GnAddress) -> Congestion {
        Congestion { gate: Gate::new(config), address, interval: Duration::ZERO, stale: 0 }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.gate.poll_timeout()
    }

    /// Nothing waits any more.
    pub(super) fn reset(&mut self) {
        self.gate.discard(DccDrop::Reset, |_| true);
    }
}

/// Offers a packet to the gate, with the data that the gate needs: its lifetime, and how long it may wait.
fn offer(
    transmission: Transmission,
    now: Time,
    overhead: usize,
    contended: Option<Identity>,
) -> Packet<Held> {
    let Transmission { destination, traffic_class, profile, own, frame, .. } = transmission;
    // The router has made it, so it can be read; what cannot does not wait.
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
    // By a nanosecond: a packet may leave before its end, not at it.
    let wait = lifetime.duration().saturating_sub(SHORTEST) + Duration::from_nanos(1);
    Packet {
        profile: Profile::of(traffic_class, profile, own),
        lifetime: if one_hop { wait.min(ONE_HOP) } else { wait },
        octets: frame.len() + overhead,
        replaces: own && is_cam,
        content: Held { destination, packet: frame, own, contended, lifetime, since: now },
    }
}

fn identity(packet: &[u8]) -> Option<Identity> {
    let packet = Routed::parse(packet).ok()?;
    Some((packet.extended.source().address, packet.extended.sequence()?))
}

impl Geonet {
    pub(crate) fn gate(&self) -> Option<&Gate<Held>> {
        self.congestion.as_ref().map(|congestion| &congestion.gate)
    }

    /// # Errors
    /// When that cannot be, or there is no gate.
    pub(crate) fn handle_channel_busy(&mut self, now: Time, thousandths: u16) -> Result<(), String> {
        let congestion = self.congestion.as_mut().ok_or(NO_DCC)?;
        if thousandths > ALWAYS {
            return Err(format!(
                "a channel is not busy {thousandths} thousandths of the time, expected 0 to 1000"
            ));
        }
        congestion.gate.handle_busy_ratio(now, f64::from(thousandths) / f64::from(ALWAYS));
        Ok(())
    }

    /// A packet of the router goes to the link, or waits.
    pub(super) fn transmit(&mut self, now: Time, mut transmission: Transmission) {
        if self.congestion.is_none() {
            return self.hand_over(now, transmission.destination, transmission.frame, true, None);
        }
        let contended = transmission.contended.then(|| identity(&transmission.frame)).flatten();
        let mut overhead = 0;
        if let Some(secured) = &self.secured {
            if transmission.own {
                overhead = usize::try_from(secured.overhead()).unwrap_or_default();
            } else {
                let Some(signed) = self.sign(now, transmission.frame) else { return };
                transmission.frame = signed;
            }
        }
        let packet = offer(transmission, now, overhead, contended);
        let profile = packet.profile;
        let goes = self.congestion.as_mut().and_then(|congestion| congestion.gate.offer(now, packet));
        if let Some(held) = goes {
            self.release(now, profile, held);
        }
    }

    /// Another station sends this packet: drop a waiting copy.
    pub(super) fn overhear_copy(&mut self, packet: &[u8]) {
        if let Some(congestion) = &mut self.congestion
            && congestion.gate.waiting() != [0; 4]
            && let Some(copy) = identity(packet)
        {
            congestion.gate.discard(DccDrop::Overheard, |held| held.contended == Some(copy));
        }
    }

    /// A packet that has waited, or had not to.
    fn release(&mut self, now: Time, profile: Profile, held: Held) {
        let Held { destination, mut packet, own, lifetime, since, .. } = held;
        let left = lifetime.after_waiting(now.saturating_since(since));
        // There is a Basic Header in front, signed or not.
        let _ = set_lifetime(&mut packet, left);
        self.hand_over(now, destination, packet, own, Some(profile));
    }

    fn hand_over(
        &mut self,
        now: Time,
        destination: MacAddress,
        packet: Vec<u8>,
        sign: bool,
        profile: Option<Profile>,
    ) {
        let profile = profile.map(|profile| profile as u8);
        let packet = if sign { self.sign(now, packet) } else { Some(packet) };
        let source = self.source();
        self.outputs
            .extend(packet.map(|packet| Output::Frame(Frame { source, destination, profile, packet })));
    }

    /// The link-layer address.
    fn source(&self) -> MacAddress {
        let [_, _, source @ ..] = self.router.address().0.to_be_bytes();
        source
    }

    /// A packet with its envelope; the packet itself where nothing is signed.
    fn sign(&mut self, now: Time, packet: Vec<u8>) -> Option<Vec<u8>> {
        let source = self.source();
        let Some(secured) = &mut self.secured else { return Some(packet) };
        let signed = secured.secure(now, source, &packet);
        self.outputs.extend(secured.poll_warning().map(Output::Event));
        self.router.recycle(packet);
        signed
    }

    /// Own packets bear the address that the station has.
    pub(super) fn follow_address(&mut self) {
        if let Some(congestion) = &mut self.congestion
            && std::mem::replace(&mut congestion.address, self.router.address()) != self.router.address()
        {
            congestion.gate.discard(DccDrop::AddressChanged, |held| held.own);
        }
    }

    /// How busy the channel is may have changed the gate, and with it how often CAMs may be sent.
    pub(super) fn look_at_channel(&mut self, now: Time) {
        let Some(congestion) = &mut self.congestion else { return };
        if !congestion.gate.handle_timeout(now) {
            return;
        }
        let interval = congestion.gate.interval(Profile::Dp2);
        if std::mem::replace(&mut congestion.interval, interval) != interval
            && let Some(facilities) = &mut self.facilities
        {
            facilities.handle_interval_of_dcc(now, interval);
        }
        let stale = congestion.gate.counters().stale;
        if std::mem::replace(&mut congestion.stale, stale) == 0 && stale > 0 {
            let message =
                "nobody tells any more how busy the channel is: the last that was told goes on counting";
            self.outputs.push_back(Output::Event(Event::Warning { message: message.into() }));
        }
    }

    /// Sends what may go now.
    pub(super) fn open_gate(&mut self, now: Time) {
        while let Some(congestion) = &mut self.congestion
            && let Some((profile, held)) = congestion.gate.poll_packet(now)
        {
            self.release(now, profile, held);
        }
    }
}
