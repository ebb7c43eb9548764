//! Receives the frames of a station at the other end of its link, and sends frames to it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind, recvmsg,
    sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::hosts::{Host, time_factor};

/// The position vector of the source of a received frame (EN 302 636-4-1 V1.4.1 9.5.2), and the type and
/// reception time of the frame.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedPositionVector {
    /// Link-layer source address of the frame.
    pub source_mac: [u8; 6],
    /// MID of the source's GN address.
    pub sender_mid: [u8; 6],
    /// Header type and subtype.
    pub header_type: u8,
    /// Time stamp of the position vector (TST), in milliseconds.
    pub timestamp: u32,
    /// Latitude in degrees.
    pub latitude: f64,
    /// Longitude in degrees.
    pub longitude: f64,
    /// Position accuracy indicator (PAI).
    pub is_accurate: bool,
    /// Speed in metres per second.
    pub speed: f64,
    /// Time of reception in milliseconds since 1970.
    pub received_at_unix_ms: i64,
}

impl ReceivedPositionVector {
    /// Returns the age of the position at the time of reception, milliseconds.
    pub fn age_ms(&self) -> i64 {
        // The time stamp is TAI since 2004, which is five leap seconds ahead of UTC.
        let now = (self.received_at_unix_ms - 1_072_915_200_000 + 5000) as u32;
        i64::from(now.wrapping_sub(self.timestamp) as i32)
    }
}

/// Receives every GeoNetworking frame that arrives at a host.
pub struct FrameReceiver {
    socket: OwnedFd,
}

impl FrameReceiver {
    /// Opens a receiver on a host.
    pub fn new(host: &Host) -> FrameReceiver {
        let socket = host.run_in_namespace(|| {
            let (domain, kind) = (AddressFamily::Packet, SockType::Raw);
            socket(domain, kind, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll).expect("a packet socket")
        });
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).expect("a timeout");
        FrameReceiver { socket }
    }

    /// Returns the beacons that arrive during the next `span`.
    pub fn receive_beacons(&self, span: Duration) -> Vec<ReceivedPositionVector> {
        let end = Instant::now() + span;
        let mut heard = Vec::new();
        while Instant::now() < end {
            heard.extend(self.next_beacon().filter(|frame| frame.header_type == 0x10));
        }
        heard
    }

    /// Returns the next beacon for which `wanted` returns true. Fails after twenty seconds, or later on a
    /// slow machine.
    pub fn wait_for_beacon(
        &self,
        what: &str,
        mut wanted: impl FnMut(&ReceivedPositionVector) -> bool,
    ) -> ReceivedPositionVector {
        let end = Instant::now() + Duration::from_secs(20) * time_factor();
        let mut last = None;
        while Instant::now() < end {
            match self.next_beacon() {
                Some(frame) if frame.header_type == 0x10 && wanted(&frame) => return frame,
                Some(frame) => last = Some(frame),
                None => {}
            }
        }
        panic!("not heard: {what}; the last was {last:?}");
    }

    /// Returns the next GeoNetworking frame; `None` if no frame arrives within the receiver's timeout.
    pub fn receive_frame(&self) -> Option<Vec<u8>> {
        let mut octets = vec![0; 2048];
        let length = {
            let mut slice = [IoSliceMut::new(&mut octets)];
            recvmsg::<()>(self.socket.as_raw_fd(), &mut slice, None, MsgFlags::empty()).ok()?.bytes
        };
        octets.truncate(length);
        (octets.get(12..14)? == [0x89, 0x47]).then_some(octets)
    }

    fn next_beacon(&self) -> Option<ReceivedPositionVector> {
        let frame = self.receive_frame()?;
        let kind = *frame.get(14 + 5)?;
        // The source's position vector follows the Basic and Common Header, and the sequence number if the
        // packet has one.
        let start = 14 + 12 + if matches!(kind, 0x10 | 0x50) { 0 } else { 4 };
        let vector = frame.get(start..start + 24)?;
        let word = |at: usize| <[u8; 4]>::try_from(&vector[at..at + 4]).expect("four octets");
        let unix = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis();
        let speed = u16::from_be_bytes([vector[20], vector[21]]);
        Some(ReceivedPositionVector {
            source_mac: frame.get(6..12)?.try_into().ok()?,
            sender_mid: vector[2..8].try_into().ok()?,
            header_type: kind,
            timestamp: u32::from_be_bytes(word(8)),
            latitude: f64::from(i32::from_be_bytes(word(12))) / 1e7,
            longitude: f64::from(i32::from_be_bytes(word(16))) / 1e7,
            is_accurate: speed & 0x8000 != 0,
            speed: f64::from(speed & 0x7fff) / 100.0,
            received_at_unix_ms: i64::try_from(unix).ok()?,
        })
    }
}

/// Sends frames on an interface of a host.
pub struct FrameSender {
    socket: OwnedFd,
}

impl FrameSender {
    /// Opens a sender on an interface of a host.
    pub fn new(host: &Host, interface: &'static str) -> FrameSender {
        let socket = host.run_in_namespace(move || {
            let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
                .expect("a packet socket");
            let mut all = nix::ifaddrs::getifaddrs().expect("interfaces");
            let found = all
                .find_map(|found| {
                    let link = found.address.as_ref().and_then(|address| address.as_link_addr().copied());
                    link.filter(|_| found.interface_name == interface)
                })
                .expect("the interface");
            bind(socket.as_raw_fd(), &found).expect("a bound socket");
            socket
        });
        FrameSender { socket }
    }

    /// Sends these frames.
    pub fn send_frames(&self, frames: &[Vec<u8>]) {
        let none: [ControlMessage<'_>; 0] = [];
        let mut headers = MultiHeaders::<()>::preallocate(64, None);
        for batch in frames.chunks(64) {
            let slices: Vec<[IoSlice<'_>; 1]> = batch.iter().map(|frame| [IoSlice::new(frame)]).collect();
            let mut rest = &slices[..];
            while !rest.is_empty() {
                let to = [None::<()>; 64];
                let sent = sendmmsg(self.socket.as_raw_fd(), &mut headers, rest, to, none, MsgFlags::empty());
                rest = &rest[sent.map_or(0, Iterator::count)..];
            }
        }
    }
}

/// Returns a beacon frame: link-layer source address, MID of the GN address, and the position in degrees.
pub fn beacon_frame(mac: [u8; 6], mid: [u8; 6], latitude: f64, longitude: f64) -> Vec<u8> {
    let unix = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis();
    let timestamp = (unix - 1_072_915_200_000 + 5000) as u32;
    let tenths = |degrees: f64| ((degrees * 1e7).round() as i32).to_be_bytes();
    [
        &[0xff; 6][..],
        &mac,
        &[0x89, 0x47, 0x11, 0, 0x1a, 1, 0, 0x10, 0, 0x80, 0, 0, 1, 0, 5 << 2, 0],
        &mid,
        &timestamp.to_be_bytes(),
        &tenths(latitude),
        &tenths(longitude),
        // The position is accurate and the station at rest; the padding of the Ethernet frame follows.
        &[0x80, 0, 0, 0],
        &[0; 10],
    ]
    .concat()
}
