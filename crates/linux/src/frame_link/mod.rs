//! Frames of GeoNetworking on a link.
//!
//! A [`FrameLink`] carries frames of EtherType 0x8947 (EN 302 636-4-1 annex F) over one of two media:
//!
//! * **an interface** that looks like Ethernet: 802.11p outside the context of a BSS, ad hoc Wi-Fi, a wire, a
//!   TAP device. A packet socket is bound to the EtherType, so the kernel delivers no other frames and no own
//!   ones. A filter drops frames to other stations that a promiscuous interface receives. The link follows
//!   the interface by its name: it may appear late, vanish and return.
//! * **UDP**, for radios behind an IP modem and for tests. A datagram is the destination's MAC address, the
//!   source's MAC address (six octets each) and then what follows the EtherType on Ethernet. It goes to a
//!   multicast group or to every peer of a list, because every station receives a radio's frames. A receiver
//!   drops a frame for another station.
//!
//! Both receive and send in batches of up to [`BATCH`] frames per system call. Frames that are to be sent
//! wait until [`FrameLink::flush`]; what the kernel does not take then waits for the next turn, up to a
//! bound.
//!
//! **Link-layer feedback.** A driver of 802.11 that knows whether a unicast frame was acknowledged gives it
//! back to the socket with the answer, see `feedback`; [`FrameLink::take_unacknowledged`] hands those out
//! that were not. A wire does not, nor does UDP: what a radio behind an IP modem knows is not asked for. So
//! before a driver's first report it is only looked for one when something woke the socket that was no frame,
//! and now and then.
//!
//! A frame with a DCC profile goes into the access category of EN 302 663 ([`FrameLink::send_as`]).
//!
//! Left out: frames in a VLAN other than the interface's own are not heard.

mod address;
mod batch;
mod config;
mod counters;
mod feedback;
mod follow;
mod packet;
mod queue;
mod udp;

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::Socket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use config::{FrameLinkConfig, UdpConfig};
pub use counters::{FrameCounters, FrameDrop};

use crate::error::{Error, Result};
use crate::netlink::LinkInfo;
use crate::readable::{watch, watch_urgent};
use crate::undo::UndoFile;
use batch::ReceiveBatch;
use follow::Follow;
use nix::sys::socket::{setsockopt, sockopt};
use queue::SendQueue;

/// The EtherType of GeoNetworking (EN 302 636-4-1 annex F).
pub const ETHER_TYPE: u16 = 0x8947;

/// Frames per system call.
pub const BATCH: usize = 64;

/// The longest payload of a frame, whatever the interface would take: jumbo Ethernet.
pub const MAXIMUM_MTU: u32 = 9000;

/// A 48-bit link-layer address.
pub type MacAddress = [u8; 6];

/// Batches of frames after which it is looked for a driver's first report.
const UNHEARD: u32 = 64;
/// There is nothing more to be read.
const DRAINED: io::ErrorKind = io::ErrorKind::WouldBlock;

/// How long to wait when the kernel takes no more frames for the moment.
const RETRY: Duration = Duration::from_millis(1);

/// Octets that the kernel may hold for a socket, each way, where it lets this crate say so.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 1 << 20;

/// Whether frames can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// They can.
    Up,
    /// The interface is there, but down or without carrier.
    Down,
    /// There is no such interface.
    Missing,
}

/// Events of [`FrameLink::readable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEvent {
    /// There may be frames for [`FrameLink::take_unacknowledged`] and [`FrameLink::try_receive`].
    Frames,
    /// The state, the address or the MTU has changed; ask for what is of interest.
    Changed(LinkState),
}

/// A medium on which frames of other stations are heard, and on which frames are sent to them.
#[derive(Debug)]
pub struct FrameLink {
    medium: Medium,
    /// The interface that is followed; `None` for datagrams that no interface was named for.
    follow: Option<Follow>,
    socket: Option<AsyncFd<Socket>>,
    state: LinkState,
    address: MacAddress,
    mtu: u32,
    batch: ReceiveBatch,
    queue: SendQueue,
    counters: FrameCounters,
    /// Why the interface cannot be used, as last said.
    complaint: Option<String>,
    /// Link-layer address to restore.
    undo: Option<UndoFile>,
    /// Whether the driver reports what became of frames, as far as is known.
    reports: Reports,
}

/// Whether there may be reports of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reports {
    /// No report has arrived yet: the link looks for them after this number of batches of frames.
    Unheard(u32),
    /// Something woke the socket, and it was no frame.
    Suspected,
    /// There have been some.
    Heard,
}

/// Medium of the frames.
#[derive(Debug)]
enum Medium {
    Packet,
    Udp(UdpConfig),
}

impl FrameLink {
    /// Opens the link. It is no error when an interface is not there yet.
    ///
    /// Works in the network namespace of the calling thread, which must be one of a tokio runtime. An
    /// interface needs `CAP_NET_RAW`.
    pub fn open(config: FrameLinkConfig) -> Result<FrameLink> {
        let (medium, name, address, mtu) = match config {
            FrameLinkConfig::Interface(name) => (Medium::Packet, Some(name), None, 0),
            FrameLinkConfig::Udp(udp) => {
                let (name, address, mtu) = (udp.interface.clone(), udp.address, udp.mtu.min(MAXIMUM_MTU));
                let address = match address {
                    Some(address) => address,
                    None => udp::random_address()?,
                };
                (Medium::Udp(udp), name, Some(address), mtu)
            }
        };
        let mut link = FrameLink {
            medium,
            follow: name.map(Follow::open).transpose()?,
            socket: None,
            state: LinkState::Missing,
            address: address.unwrap_or_default(),
            mtu,
            batch: ReceiveBatch::new(mtu as usize),
            queue: SendQueue::default(),
            counters: FrameCounters::default(),
            complaint: None,
            undo: None,
            reports: Reports::Unheard(0),
        };
        if link.follow.is_some() {
            link.look()?;
        } else {
            link.socket = Some(link.open_socket(None)?);
            link.state = LinkState::Up;
        }
        Ok(link)
    }

    /// Waits until there may be frames, or the link has changed. Safe to cancel.
    ///
    /// While frames wait because the kernel takes none, it also tries to send them. So await it all the time,
    /// if only in a `select!`. After [`LinkEvent::Frames`] call [`FrameLink::take_unacknowledged`], then
    /// [`FrameLink::try_receive`], or it returns the same at once.
    pub async fn readable(&mut self) -> Result<LinkEvent> {
        loop {
            if self.queue.is_empty() {
                return poll_fn(|cx| self.poll(cx)).await;
            }
            match tokio::time::timeout(RETRY, poll_fn(|cx| self.poll(cx))).await {
                Ok(event) => return event,
                Err(_) => self.flush(),
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<LinkEvent>> {
        if let Some(follow) = &mut self.follow
            && follow.poll(cx)?
            && self.look()?
        {
            return Poll::Ready(Ok(LinkEvent::Changed(self.state)));
        }
        let Some(socket) = &self.socket else { return Poll::Pending };
        if self.reports == Reports::Suspected {
            self.reports = Reports::Unheard(0);
            return Poll::Ready(Ok(LinkEvent::Frames));
        }
        match socket.poll_read_ready(cx) {
            Poll::Ready(guard) => {
                guard.map_err(|e| Error::kernel("wait for frames", e))?.retain_ready();
                Poll::Ready(Ok(LinkEvent::Frames))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Hands each unicast frame of this station that was reported as not acknowledged to `take`: its
    /// destination, and what follows the EtherType. Returns their number.
    pub fn take_unacknowledged(&mut self, mut take: impl FnMut(MacAddress, &[u8])) -> Result<usize> {
        let FrameLink { medium: Medium::Packet, socket: Some(socket), counters, reports, .. } = self else {
            return Ok(0);
        };
        match reports {
            Reports::Unheard(batches) if *batches > 0 => {
                *batches -= 1;
                return Ok(0);
            }
            Reports::Unheard(_) | Reports::Suspected => *reports = Reports::Unheard(UNHEARD),
            Reports::Heard => {}
        }
        let before = counters.unacknowledged;
        // All of them: it is no more than was sent since the last time.
        while let Some(status) = feedback::next(socket.get_ref(), &mut self.batch)? {
            *reports = Reports::Heard;
            let Ok((_, destination, payload)) = packet::parse(status.frame) else { continue };
            if destination[0] & 1 != 0 {
                continue;
            }
            if status.acknowledged {
                counters.acknowledged += 1;
            } else if counters.acknowledged > 0 {
                // A driver that has never seen an acknowledgement does not know of any.
                counters.unacknowledged += 1;
                take(destination, payload);
            }
        }
        Ok((counters.unacknowledged - before) as usize)
    }

    /// Receives up to [`BATCH`] frames without waiting, and hands each to `take`: source, destination (this
    /// station's address or a group's), and what follows the EtherType. Ethernet pads short frames, so octets
    /// may follow the packet. Returns the number of frames.
    pub fn try_receive(&mut self, mut take: impl FnMut(MacAddress, MacAddress, &[u8])) -> Result<usize> {
        let FrameLink { medium, socket, batch, counters, address, reports, .. } = self;
        let Some(socket) = socket else { return Ok(0) };
        let before = counters.received;
        let is_udp = matches!(medium, Medium::Udp(_));
        let mut is_vain = false;
        let received = socket.try_io(Interest::READABLE, |socket| {
            let result = batch.receive(socket, is_udp, |frame, from, cut| {
                let parsed = match medium {
                    _ if cut => Err(FrameDrop::Malformed),
                    Medium::Packet => packet::parse(frame),
                    Medium::Udp(config) => udp::parse(config, *address, frame, from),
                };
                match parsed {
                    Ok((source, destination, payload)) => {
                        counters.received += 1;
                        take(source, destination, payload);
                    }
                    Err(reason) => counters.count(reason, 1),
                }
            });
            // The kernel has said that there are no more: it need not be asked once more.
            is_vain = result.is_err();
            result.and_then(|count| if count < BATCH { Err(DRAINED.into()) } else { Ok(()) })
        });
        match received {
            Ok(()) => {}
            Err(error) if error.kind() == DRAINED => {}
            // The interface went down: the socket hears again once it is up.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO | libc::EINTR)
                ) => {}
            Err(error) => return Err(Error::kernel("receive frames", error)),
        }
        if is_vain && !is_udp && *reports != Reports::Heard {
            *reports = Reports::Suspected;
        }
        Ok((self.counters.received - before) as usize)
    }

    /// Queues a frame; [`FrameLink::flush`] sends it. Flushes by itself when a batch is full.
    ///
    /// A refused frame is counted as well, so a caller may ignore the error.
    pub fn send(&mut self, destination: MacAddress, payload: &[u8]) -> std::result::Result<(), FrameDrop> {
        self.send_as(destination, None, payload)
    }

    /// Sends a frame of a DCC profile, 0 to 3, by which the radio sorts frames (EDCA).
    pub fn send_as(
        &mut self,
        destination: MacAddress,
        profile: Option<u8>,
        payload: &[u8],
    ) -> std::result::Result<(), FrameDrop> {
        let refused = match self.state {
            LinkState::Down | LinkState::Missing => Some(FrameDrop::Down),
            LinkState::Up if payload.len() > self.mtu as usize => Some(FrameDrop::TooLong),
            LinkState::Up if self.queue.is_full() => Some(FrameDrop::QueueFull),
            LinkState::Up => None,
        };
        if let Some(reason) = refused {
            self.counters.count(reason, 1);
            return Err(reason);
        }
        let ether_type = ETHER_TYPE.to_be_bytes();
        let ether_type = if matches!(self.medium, Medium::Packet) { &ether_type[..] } else { &[] };
        let priority = match self.medium {
            Medium::Packet => profile.map_or(0, packet::priority),
            Medium::Udp(_) => 0,
        };
        self.queue.push(priority, &[&destination, &self.address, ether_type, payload]);
        if self.queue.len() >= BATCH && !self.queue.blocked {
            self.flush();
        }
        Ok(())
    }

    /// Hands the queued frames to the kernel. Frames that it does not take stay queued.
    pub fn flush(&mut self) {
        let peers = match &self.medium {
            Medium::Packet => &[][..],
            Medium::Udp(config) if config.peers.is_empty() => std::slice::from_ref(&config.local),
            Medium::Udp(config) => &config.peers,
        };
        match &self.socket {
            Some(socket) => self.queue.flush(socket.get_ref(), peers, &mut self.counters),
            None => self.queue.abandon(&mut self.counters),
        }
    }

    /// Whether frames can go.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The interface that frames go out of and come in by, name and index, while it is there; `None` for
    /// datagrams.
    pub fn interface(&self) -> Option<(&str, u32)> {
        let follow = self.follow.as_ref().filter(|_| matches!(self.medium, Medium::Packet))?;
        follow.index.filter(|_| self.state != LinkState::Missing).map(|index| (follow.name.as_str(), index))
    }

    /// Whether the interface tells which frames were acknowledged, as far as is known.
    pub fn has_feedback(&self) -> bool {
        self.counters.acknowledged > 0
    }

    /// The own MAC address; all zeros as long as the interface has never been there.
    pub fn address(&self) -> MacAddress {
        self.address
    }

    /// The longest payload in octets, at most [`MAXIMUM_MTU`]; 0 as long as the interface has never been
    /// there.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Octets of frames that wait to be sent, as far as is known: here, in the kernel and in the interface.
    /// Of datagrams only what waits here is.
    pub fn backlog(&self) -> u32 {
        let kernel = match (&self.medium, &self.socket) {
            (Medium::Packet, Some(socket)) => packet::unsent(socket.get_ref()),
            _ => 0,
        };
        kernel.saturating_add(self.queue.octets())
    }

    /// Returns the counters.
    pub fn counters(&mut self) -> FrameCounters {
        self.count_overruns();
        self.counters
    }

    /// Adds what the kernel dropped since it was last asked.
    fn count_overruns(&mut self) {
        if let (Medium::Packet, Some(socket)) = (&self.medium, &self.socket) {
            self.counters.count(FrameDrop::Overrun, packet::take_overruns(socket.get_ref()));
        }
    }

    /// Looks at the followed interface; whether anything has changed.
    fn look(&mut self) -> Result<bool> {
        let Some(follow) = &mut self.follow else { return Ok(false) };
        let before = (self.state, self.address, self.mtu, follow.index);
        let found = follow.look()?;
        let index = found.as_ref().map(|link| link.index);
        if index != follow.index {
            follow.index = index;
            self.count_overruns();
            self.socket = None;
        }
        self.state = LinkState::Missing;
        if let Some(link) = found {
            if let (Medium::Packet, Some(address)) = (&self.medium, link.link_address) {
                self.address = address;
                self.mtu = link.mtu.min(MAXIMUM_MTU);
                self.batch.grow(self.mtu as usize);
            }
            if self.socket.is_none() {
                match self.open_socket(Some(&link)) {
                    Ok(socket) => self.socket = Some(socket),
                    Err(error) => self.complain(&error),
                }
            }
            if self.socket.is_some() {
                self.state = if link.running { LinkState::Up } else { LinkState::Down };
                self.complaint = None;
            }
        }
        if self.state != LinkState::Up {
            self.queue.abandon(&mut self.counters);
        }
        Ok(before != (self.state, self.address, self.mtu, index))
    }

    /// A socket for the medium; `link` is the interface, where one is named.
    fn open_socket(&self, link: Option<&LinkInfo>) -> Result<AsyncFd<Socket>> {
        let name = link.map_or("UDP", |link| &link.name);
        let socket = match (&self.medium, link) {
            (Medium::Packet, Some(link)) if link.link_address.is_some() => packet::open(link.index),
            (Medium::Packet, _) => {
                return Err(Error::Invalid {
                    what: format!("interface {name}"),
                    expected: "one like Ethernet, with a 48-bit address".into(),
                    got: "another".into(),
                });
            }
            (Medium::Udp(config), link) => udp::open(config, link.map(|link| link.index)),
        };
        let failed = |e: io::Error| Error::kernel(format!("open a link for frames on {name}"), e);
        let socket = socket.map_err(failed)?;
        // Without CAP_NET_ADMIN the kernel's own limits hold, which will do at moderate rates.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        }
        if setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
            let _ = socket.set_send_buffer_size(SEND_BUFFER);
        }
        match self.medium {
            Medium::Packet => {
                feedback::ask(&socket);
                watch_urgent(socket).map_err(failed)
            }
            Medium::Udp(_) => watch(socket).map_err(failed),
        }
    }

    /// Says why an interface cannot be used, once.
    fn complain(&mut self, error: &Error) {
        let text = error.to_string();
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.complaint = Some(text);
        }
    }
}
