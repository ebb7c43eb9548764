//! Carries GeoNetworking frames on a link.
//!
//! A [`FrameLink`] carries frames of EtherType 0x8947 (EN 302 636-4-1 annex F) over one of two media:
//!
//! * **an interface** with Ethernet frames: 802.11p outside the context of a BSS, ad hoc Wi-Fi, a wire, a TAP
//!   device. A packet socket is bound to the EtherType, so the kernel delivers neither frames of other
//!   EtherTypes nor frames that this station has sent. A filter drops frames to other stations that a
//!   promiscuous interface receives. The link follows the interface by its name: the interface may appear
//!   late, vanish and return.
//! * **UDP**, for radios behind an IP modem and for tests. A datagram has the destination's MAC address, the
//!   source's MAC address (six octets each) and then the octets that follow the EtherType on Ethernet. The
//!   datagram goes to a multicast group or to every peer of a list, because a radio's frames reach every
//!   station. A receiver drops a frame for another station.
//!
//! Both media receive and send in batches of up to [`MAX_FRAMES_PER_CALL`] frames per system call. Frames to
//! send wait until [`FrameLink::flush`]. Frames that the kernel does not accept then wait for the next flush,
//! up to a limit.
//!
//! **Link-layer feedback.** An 802.11 driver that knows whether a unicast frame was acknowledged returns the
//! frame to the socket with the report, see `sent_frame_reports`. [`FrameLink::take_unacknowledged_frames`]
//! passes on the frames that were not acknowledged. Wired interfaces and UDP send no reports, not even for a
//! radio behind an IP modem. So until the first report the link reads the error queue rarely: when the socket
//! woke without a frame, and after `BATCHES_BEFORE_FIRST_REPORT` batches.
//!
//! A frame with a DCC profile uses the profile's access category by EN 302 663
//! ([`FrameLink::send_with_profile`]).
//!
//! Left out: the link receives no frames of a VLAN other than the interface's own.

mod address;
mod config;
mod counters;
mod interface_monitor;
mod packet;
mod receive_batch;
mod send_queue;
mod sent_frame_reports;
mod udp;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use config::{FrameLinkConfig, UdpConfig};
pub use counters::{FrameCounters, FrameDropReason};

use crate::async_descriptor::{watch_readable, watch_readable_or_priority};
use crate::error::{Error, Result};
use crate::netlink::LinkInfo;
use crate::undo_file::UndoFile;
use interface_monitor::InterfaceMonitor;
use nix::sys::socket::{setsockopt, sockopt};
use receive_batch::ReceiveBatch;
use send_queue::SendQueue;

/// The EtherType of GeoNetworking (EN 302 636-4-1 annex F).
pub const ETHER_TYPE_GEONETWORKING: u16 = 0x8947;

/// Maximum number of frames that one system call receives or sends.
pub const MAX_FRAMES_PER_CALL: usize = 64;

/// Longest payload of a frame in octets on any interface, as with jumbo frames of Ethernet.
pub const MAX_LINK_MTU: u32 = 9000;

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Number of received batches after which carnet checks whether the driver has sent its first report.
const BATCHES_BEFORE_FIRST_REPORT: u32 = 64;
/// Error by which the kernel says that no received frame is left.
const NO_FRAME_LEFT: io::ErrorKind = io::ErrorKind::WouldBlock;

/// Pause before the next attempt to send, after the kernel has refused a frame for lack of room.
const SEND_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Size of the socket's receive buffer in octets, unless the kernel's limit is lower.
const RECEIVE_BUFFER_SIZE: usize = 8 << 20;
/// Size of the socket's send buffer in octets, unless the kernel's limit is lower.
const SEND_BUFFER_SIZE: usize = 1 << 20;

/// Whether the link can send frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The link can send frames.
    Up,
    /// The interface exists, but is down or without a carrier.
    Down,
    /// The interface does not exist.
    Missing,
}

/// Events of [`FrameLink::readable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// Frames may be ready for [`FrameLink::take_unacknowledged_frames`] and [`FrameLink::try_receive`].
    Frames,
    /// State, address or MTU has changed. The caller reads the values that it needs.
    Changed(LinkState),
}

/// A link that sends frames to other stations and receives theirs, over an interface or UDP.
#[derive(Debug)]
pub struct FrameLink {
    link_medium: LinkMedium,
    /// The interface that the link follows; `None` for UDP without a configured interface.
    followed_interface: Option<InterfaceMonitor>,
    socket: Option<AsyncFd<Socket>>,
    state: LinkState,
    address: MacAddress,
    mtu: u32,
    receive_batch: ReceiveBatch,
    send_queue: SendQueue,
    counters: FrameCounters,
    /// Last logged reason why the interface cannot be used; `None` if carnet has logged none since the
    /// interface last worked.
    last_logged_error: Option<String>,
    /// Undo file with the interface's former link-layer address; `None` if the link must not change the
    /// address.
    undo_file: Option<UndoFile>,
    /// Whether the driver reports acknowledgements of sent frames.
    acknowledgement_reports: AcknowledgementReports,
}

/// State of the driver's reports of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcknowledgementReports {
    /// No report has arrived yet. carnet checks again after this number of batches.
    Unheard(u32),
    /// The socket became readable, but had no frame: it may have a report.
    Suspected,
    /// A report has arrived.
    Supported,
}

/// Medium that carries the frames: an interface or UDP.
#[derive(Debug)]
enum LinkMedium {
    Packet,
    Udp(UdpConfig),
}

impl FrameLink {
    /// Opens the link. A missing interface is no error.
    ///
    /// Works in the network namespace of the calling thread, which must be one of a tokio runtime. For an
    /// interface, the process needs `CAP_NET_RAW`.
    pub fn open(config: FrameLinkConfig) -> Result<FrameLink> {
        let (medium, name, address, mtu) = match config {
            FrameLinkConfig::Interface(name) => (LinkMedium::Packet, Some(name), None, 0),
            FrameLinkConfig::Udp(udp) => {
                let (name, address, mtu) = (udp.interface.clone(), udp.address, udp.mtu.min(MAX_LINK_MTU));
                let address = match address {
                    Some(address) => address,
                    None => udp::random_link_address()?,
                };
                (LinkMedium::Udp(udp), name, Some(address), mtu)
            }
        };
        let mut link = FrameLink {
            link_medium: medium,
            followed_interface: name.map(InterfaceMonitor::open).transpose()?,
            socket: None,
            state: LinkState::Missing,
            address: address.unwrap_or_default(),
            mtu,
            receive_batch: ReceiveBatch::new(mtu as usize),
            send_queue: SendQueue::default(),
            counters: FrameCounters::default(),
            last_logged_error: None,
            undo_file: None,
            acknowledgement_reports: AcknowledgementReports::Unheard(0),
        };
        if link.followed_interface.is_some() {
            link.read_interface_state()?;
        } else {
            link.socket = Some(link.open_socket(None)?);
            link.state = LinkState::Up;
        }
        Ok(link)
    }

    /// Waits until frames may be ready, or the state of the link has changed. The future may be dropped.
    ///
    /// This function also sends frames that wait because the kernel was full. So the caller has to await it
    /// all the time, for example in a `select!`. After [`LinkEvent::Frames`] the caller calls
    /// [`FrameLink::take_unacknowledged_frames`] and then [`FrameLink::try_receive`]; otherwise the next call
    /// returns the same event at once.
    pub async fn readable(&mut self) -> Result<LinkEvent> {
        loop {
            if self.send_queue.is_empty() {
                return poll_fn(|cx| self.poll(cx)).await;
            }
            match tokio::time::timeout(SEND_RETRY_PAUSE, poll_fn(|cx| self.poll(cx))).await {
                Ok(event) => return event,
                Err(_) => self.flush(),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<LinkEvent>> {
        if let Some(follow) = &mut self.followed_interface
            && follow.poll_changes(cx)?
            && self.read_interface_state()?
        {
            return Poll::Ready(Ok(LinkEvent::Changed(self.state)));
        }
        let Some(socket) = &self.socket else { return Poll::Pending };
        if self.acknowledgement_reports == AcknowledgementReports::Suspected {
            self.acknowledgement_reports = AcknowledgementReports::Unheard(0);
            return Poll::Ready(Ok(LinkEvent::Frames));
        }
        match socket.poll_read_ready(cx) {
            Poll::Ready(guard) => {
                guard.map_err(|e| Error::from_kernel_refusal("wait for frames", e))?.retain_ready();
                Poll::Ready(Ok(LinkEvent::Frames))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Passes each unicast frame of this station that was not acknowledged to `take`: its destination, and
    /// the octets after the EtherType. Returns the number of frames.
    pub fn take_unacknowledged_frames(&mut self, mut take: impl FnMut(MacAddress, &[u8])) -> Result<usize> {
        let FrameLink {
            link_medium: LinkMedium::Packet,
            socket: Some(socket),
            counters,
            acknowledgement_reports: reports,
            ..
        } = self
        else {
            return Ok(0);
        };
        match reports {
            AcknowledgementReports::Unheard(batches) if *batches > 0 => {
                *batches -= 1;
                return Ok(0);
            }
            AcknowledgementReports::Unheard(_) | AcknowledgementReports::Suspected => {
                *reports = AcknowledgementReports::Unheard(BATCHES_BEFORE_FIRST_REPORT)
            }
            AcknowledgementReports::Supported => {}
        }
        let before = counters.unacknowledged_frames;
        // The loop ends, because the kernel has at most one report for each frame sent since the last call.
        while let Some(status) =
            sent_frame_reports::receive_report(socket.get_ref(), &mut self.receive_batch)?
        {
            *reports = AcknowledgementReports::Supported;
            let Ok((_, destination, payload)) = packet::parse(status.sent_frame) else { continue };
            if destination[0] & 1 != 0 {
                continue;
            }
            if status.acknowledged {
                counters.acknowledged_frames += 1;
            } else if counters.acknowledged_frames > 0 {
                // A driver that never reported an acknowledgement probably cannot detect them, so do not
                // trust its negative report.
                counters.unacknowledged_frames += 1;
                take(destination, payload);
            }
        }
        Ok((counters.unacknowledged_frames - before) as usize)
    }

    /// Receives up to [`MAX_FRAMES_PER_CALL`] frames without waiting, and passes each to `take`: source,
    /// destination (this station or a group), and the octets after the EtherType. These may have padding at
    /// the end, because Ethernet pads short frames. Returns the number of frames.
    pub fn try_receive(&mut self, mut take: impl FnMut(MacAddress, MacAddress, &[u8])) -> Result<usize> {
        let FrameLink {
            link_medium: medium,
            socket,
            receive_batch: batch,
            counters,
            address,
            acknowledgement_reports: reports,
            ..
        } = self;
        let Some(socket) = socket else { return Ok(0) };
        let before = counters.received_frames;
        let is_udp = matches!(medium, LinkMedium::Udp(_));
        let mut is_vain = false;
        let received = socket.try_io(Interest::READABLE, |socket| {
            let result = batch.receive_messages(socket, is_udp, |frame, from, cut| {
                let parsed = match medium {
                    _ if cut => Err(FrameDropReason::Malformed),
                    LinkMedium::Packet => packet::parse(frame),
                    LinkMedium::Udp(config) => udp::parse(config, *address, frame, from),
                };
                match parsed {
                    Ok((source, destination, payload)) => {
                        counters.received_frames += 1;
                        take(source, destination, payload);
                    }
                    Err(reason) => counters.count_drop(reason, 1),
                }
            });
            // An incomplete batch means that no frame is left, so return without another system call.
            is_vain = result.is_err();
            result.and_then(
                |count| if count < MAX_FRAMES_PER_CALL { Err(NO_FRAME_LEFT.into()) } else { Ok(()) },
            )
        });
        match received {
            Ok(()) => {}
            Err(error) if error.kind() == NO_FRAME_LEFT => {}
            // The interface is down. The socket receives again when it is up.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO | libc::EINTR)
                ) => {}
            Err(error) => return Err(Error::from_kernel_refusal("receive frames", error)),
        }
        if is_vain && !is_udp && *reports != AcknowledgementReports::Supported {
            *reports = AcknowledgementReports::Suspected;
        }
        Ok((self.counters.received_frames - before) as usize)
    }

    /// Queues a frame until [`FrameLink::flush`]; sends at once when a batch is full.
    ///
    /// Fails with the reason if the link drops the frame. The drop is counted, so the caller may ignore the
    /// error.
    pub fn send(
        &mut self,
        destination: MacAddress,
        payload: &[u8],
    ) -> std::result::Result<(), FrameDropReason> {
        self.send_with_profile(destination, None, payload)
    }

    /// Sends a frame of a DCC profile, 0 to 3, which determines the radio's access category (EDCA).
    pub fn send_with_profile(
        &mut self,
        destination: MacAddress,
        profile: Option<u8>,
        payload: &[u8],
    ) -> std::result::Result<(), FrameDropReason> {
        let refused = match self.state {
            LinkState::Down | LinkState::Missing => Some(FrameDropReason::Down),
            LinkState::Up if payload.len() > self.mtu as usize => Some(FrameDropReason::TooLong),
            LinkState::Up if self.send_queue.is_full() => Some(FrameDropReason::QueueFull),
            LinkState::Up => None,
        };
        if let Some(reason) = refused {
            self.counters.count_drop(reason, 1);
            return Err(reason);
        }
        let ether_type = ETHER_TYPE_GEONETWORKING.to_be_bytes();
        let ether_type = if matches!(self.link_medium, LinkMedium::Packet) { &ether_type[..] } else { &[] };
        let priority = match self.link_medium {
            LinkMedium::Packet => profile.map_or(0, packet::socket_priority),
            LinkMedium::Udp(_) => 0,
        };
        self.send_queue.push_frame(priority, &[&destination, &self.address, ether_type, payload]);
        if self.send_queue.len() >= MAX_FRAMES_PER_CALL && !self.send_queue.is_blocked {
            self.flush();
        }
        Ok(())
    }

    /// Gives the queued frames to the kernel. Frames that the kernel does not accept stay queued.
    pub fn flush(&mut self) {
        let peers = match &self.link_medium {
            LinkMedium::Packet => &[][..],
            LinkMedium::Udp(config) if config.peer_addresses.is_empty() => {
                std::slice::from_ref(&config.local)
            }
            LinkMedium::Udp(config) => &config.peer_addresses,
        };
        match &self.socket {
            Some(socket) => self.send_queue.flush_frames(socket.get_ref(), peers, &mut self.counters),
            None => self.send_queue.drop_all_frames(&mut self.counters),
        }
    }

    /// Returns whether the link can send frames.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// Returns name and index of the interface, while it exists; `None` for UDP.
    pub fn interface(&self) -> Option<(&str, u32)> {
        let follow =
            self.followed_interface.as_ref().filter(|_| matches!(self.link_medium, LinkMedium::Packet))?;
        follow.index.filter(|_| self.state != LinkState::Missing).map(|index| (follow.name.as_str(), index))
    }

    /// Returns whether the driver has reported an acknowledgement so far.
    pub fn has_acknowledgement_reports(&self) -> bool {
        self.counters.acknowledged_frames > 0
    }

    /// Returns the own MAC address; all zeros until the interface has appeared once.
    pub fn address(&self) -> MacAddress {
        self.address
    }

    /// Returns the longest payload in octets, at most [`MAX_LINK_MTU`]; 0 until the interface has appeared
    /// once.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Returns the octets of the frames that wait in this link, in the kernel and in the interface. With UDP,
    /// or if the kernel does not report its waiting frames, returns only the octets that wait in this link.
    pub fn backlog_octets(&self) -> u32 {
        let kernel = match (&self.link_medium, &self.socket) {
            (LinkMedium::Packet, Some(socket)) => packet::unsent_octets(socket.get_ref()),
            _ => 0,
        };
        kernel.saturating_add(self.send_queue.waiting_octets())
    }

    /// Returns the counters.
    pub fn counters(&mut self) -> FrameCounters {
        self.count_overruns();
        self.counters
    }

    /// Counts the frames that the kernel dropped since the last call, because the socket's buffer was full.
    fn count_overruns(&mut self) {
        if let (LinkMedium::Packet, Some(socket)) = (&self.link_medium, &self.socket) {
            self.counters.count_drop(FrameDropReason::Overrun, packet::take_overruns(socket.get_ref()));
        }
    }

    /// Reads the state of the followed interface. Returns whether it has changed.
    fn read_interface_state(&mut self) -> Result<bool> {
        let Some(follow) = &mut self.followed_interface else { return Ok(false) };
        let before = (self.state, self.address, self.mtu, follow.index);
        let found = follow.read_state()?;
        let index = found.as_ref().map(|link| link.index);
        if index != follow.index {
            follow.index = index;
            self.count_overruns();
            self.socket = None;
        }
        self.state = LinkState::Missing;
        if let Some(link) = found {
            if let (LinkMedium::Packet, Some(address)) = (&self.link_medium, link.link_address) {
                self.address = address;
                self.mtu = link.mtu.min(MAX_LINK_MTU);
                self.receive_batch.grow_buffers(self.mtu as usize);
            }
            if self.socket.is_none() {
                match self.open_socket(Some(&link)) {
                    Ok(socket) => self.socket = Some(socket),
                    Err(error) => self.log_new_error(&error),
                }
            }
            if self.socket.is_some() {
                self.state = if link.is_running { LinkState::Up } else { LinkState::Down };
                self.last_logged_error = None;
            }
        }
        if self.state != LinkState::Up {
            self.send_queue.drop_all_frames(&mut self.counters);
        }
        Ok(before != (self.state, self.address, self.mtu, index))
    }

    /// Opens a socket for the medium. `link` is the configured interface, if any.
    fn open_socket(&self, link: Option<&LinkInfo>) -> Result<AsyncFd<Socket>> {
        let name = link.map_or("UDP", |link| &link.name);
        let socket = match (&self.link_medium, link) {
            (LinkMedium::Packet, Some(link)) if link.link_address.is_some() => {
                packet::open_packet_socket(link.index)
            }
            (LinkMedium::Packet, _) => {
                return Err(Error::Invalid {
                    what: format!("interface {name}"),
                    expected: "an Ethernet-like interface with a 48-bit address".into(),
                    got: "another".into(),
                });
            }
            (LinkMedium::Udp(config), link) => udp::open_udp_socket(config, link.map(|link| link.index)),
        };
        let failed =
            |e: io::Error| Error::from_kernel_refusal(format!("open a socket for frames on {name}"), e);
        let socket = socket.map_err(failed)?;
        // Without CAP_NET_ADMIN the kernel's own limits apply, which suffice for moderate rates.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_SIZE).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_SIZE);
        }
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER_SIZE).is_err() {
            let _ = socket.set_send_buffer_size(SEND_BUFFER_SIZE);
        }
        match self.link_medium {
            LinkMedium::Packet => {
                sent_frame_reports::request_reports(&socket);
                watch_readable_or_priority(socket).map_err(failed)
            }
            LinkMedium::Udp(_) => watch_readable(socket).map_err(failed),
        }
    }

    /// Logs why the interface cannot be used, once for each reason.
    fn log_new_error(&mut self, error: &Error) {
        let text = error.to_string();
        if self.last_logged_error.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.last_logged_error = Some(text);
        }
    }
}
