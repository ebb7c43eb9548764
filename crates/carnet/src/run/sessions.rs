//! Carries packets between the station, the encrypted sessions and the wire.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};

use anyhow::Context;
use carnet_api::config::PrivateKey;
use carnet_api::model::Keys;
use carnet_base::{Endpoint, Time, WallTime};
use carnet_linux::{Platform, clock, run_with_secrets};
use carnet_mobility::mobile_router::{Attachment, Uplink};
use carnet_mobility::{SessionPeer, UDP_PORT};
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_station::io::{Event, Input};
use carnet_wire::ipv6::{HEADER_LEN, Header, MIN_MTU, protocol};

use tracing::info;

use super::StationRunner;
use crate::request::Answer;
use crate::sessions::{OutgoingDatagram, SessionDeparture, SessionPacketOrigin, Sessions};

/// Answer to a request about keys if the station has no sessions.
const ERROR_NO_SESSIONS: &str =
    "this station has no encrypted sessions: its config has no key of a remote end";

impl StationRunner {
    /// Opens the home agent's socket for sessions inside IPv4.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub(super) fn open_session_socket(&mut self) -> anyhow::Result<()> {
        let local = self.encrypted_sessions.get().and_then(Sessions::agent_socket);
        let (Some(local), Some(datagrams)) = (local, self.platform.as_ref().map(Platform::datagram_sockets))
        else {
            return Ok(());
        };
        datagrams.open_socket_at(local).with_context(|| {
            format!("cannot open UDP port {} at {} (home_agent.tunnel_port)", local.port(), local.ip())
        })
    }

    /// Logs whether the tunnels are encrypted.
    pub(super) fn log_encryption(&self) {
        let Some(encryption) = self.config.describe_encryption() else { return };
        match self.encrypted_sessions.get() {
            Some(sessions) => info!(
                "tunnels: {encryption}, by the library engine; the public key of this station is {}",
                sessions.key_status().public_keys.join(", and until the end of its change ")
            ),
            None => info!("tunnels: {encryption}"),
        }
    }

    /// Passes the newest public key of the sessions to the station. The station names this key to other
    /// mobile routers.
    pub(super) fn pass_own_key_to_station(&mut self) {
        if let Some(key) = self.encrypted_sessions.get().and_then(Sessions::newest_key) {
            self.handle_input(Input::OwnKey { public_key: key.to_vec() });
        }
    }

    /// Passes the care-of addresses of direct routes to the sessions.
    pub(super) fn prepare_direct_sessions(&mut self) {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return };
        let is_encrypted =
            self.station.nemo().direct_routes().is_some_and(|direct| direct.config().requires_sessions);
        let uplinks = self.station.mobile_router().filter(|_| is_encrypted).map(|router| router.uplinks());
        let addresses = uplinks.into_iter().flatten().flat_map(|uplink| uplink.care_of_addresses());
        let addresses: Vec<Ipv6Addr> = addresses
            .filter_map(|address| match address {
                IpAddr::V6(address) => Some(address),
                IpAddr::V4(_) => None,
            })
            .collect();
        sessions.set_care_of_addresses(&addresses);
    }

    /// Reads this station's private keys again from their files.
    pub(super) fn read_key_files(&mut self) -> Answer<()> {
        let key = self.config.station.private_key.as_ref().zip(self.encrypted_sessions.get_mut());
        let (key, sessions) = key.ok_or(ERROR_NO_SESSIONS)?;
        let mut key = run_with_secrets(|| PrivateKey::read(key.key_file.clone()))?;
        if !sessions.has_key_of(Some(&key)) {
            return Err(
                "the file of the private key has another key, expected the present or the next one: \
                        restart the station"
                    .to_owned(),
            );
        }
        sessions.set_private_keys(clock::now(), &key);
        key.wipe();
        self.pass_own_key_to_station();
        self.handle_sessions();
        Ok(())
    }

    /// Returns the answer to `GET /v1/keys`.
    pub(super) fn key_status(&self) -> Answer<Keys> {
        self.encrypted_sessions.get().map(Sessions::key_status).ok_or(ERROR_NO_SESSIONS.to_owned())
    }

    /// Returns the time of the next timer of station and sessions; `None` if no timer runs.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let sessions = self.encrypted_sessions.get().and_then(Sessions::poll_timeout);
        self.station.poll_timeout().into_iter().chain(sessions).min()
    }

    /// Returns whether a timer of the station is due.
    pub(super) fn is_station_timer_due(&self) -> bool {
        self.station.poll_timeout().is_some_and(|due| due <= clock::now())
    }

    /// Handles waiting handshakes and due timers of the sessions, and sends their datagrams.
    pub(super) fn handle_sessions(&mut self) {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return };
        sessions.handle_due_work(clock::now());
        self.store_session_changes();
        self.send_datagrams();
        while let Some(message) = self.poll_session_message() {
            self.report_event(&Event::Warning { message });
        }
        self.flush_packets();
    }

    /// Stores the changes of the sessions, if this station is a member of a fleet.
    fn store_session_changes(&mut self) {
        let (Some(sessions), Some(commit)) = (self.encrypted_sessions.get_mut(), self.state.next_commit())
        else {
            return;
        };
        let changes = sessions.take_changes();
        let has_changes = !changes.is_empty();
        let is_urgent = sessions.hold_until(clock::now(), has_changes.then_some(commit));
        changes.into_iter().for_each(|change| self.state.set_record(change));
        if has_changes {
            self.state.commit_changes(is_urgent);
        }
    }

    /// Sends the datagrams of sessions that have waited for a commit.
    pub(super) fn release_session_datagrams(&mut self, commit: u64) {
        if let Some(sessions) = self.encrypted_sessions.get_mut() {
            sessions.handle_written(clock::now(), commit);
            self.handle_sessions();
        }
    }

    /// Returns the next message of the sessions for the log; `None` if no message waits.
    fn poll_session_message(&mut self) -> Option<String> {
        let router = self.station.mobile_router();
        self.encrypted_sessions.get_mut()?.poll_message(|address| {
            router.is_some_and(|router| {
                let is_usable = |uplink: &&Uplink| !matches!(uplink.attachment, Attachment::Down(_));
                address == router.config().home_address
                    || router.uplinks().iter().filter(is_usable).any(|uplink| uplink.has_address(address))
            })
        })
    }

    /// Begins the sessions of all uplinks of the mobile router.
    pub(super) fn prepare_sessions(&mut self) {
        self.prepare_direct_sessions();
        let (Some(sessions), Some(router)) =
            (self.encrypted_sessions.get_mut(), self.station.mobile_router())
        else {
            return;
        };
        let config = router.config();
        for uplink in router.uplinks() {
            let ends = match (uplink.care_of_addresses().first(), config.home_agent_ipv4) {
                (Some(IpAddr::V6(address)), _) if !config.home_agent.is_unspecified() => {
                    (Endpoint::Ipv6(*address), Endpoint::Ipv6(config.home_agent))
                }
                (Some(IpAddr::V4(address)), Some(agent)) => {
                    let end = |address, port| Endpoint::Udp(SocketAddrV4::new(address, port));
                    (end(*address, uplink.udp_port), end(agent, UDP_PORT))
                }
                _ => continue,
            };
            sessions.prepare_session(clock::now(), ends);
        }
        self.handle_sessions();
    }

    /// Sends the datagrams of the sessions.
    fn send_datagrams(&mut self) {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return };
        while let Some(datagram) = sessions.poll_datagram() {
            match datagram {
                OutgoingDatagram::Ipv6 { may_fragment } => {
                    let Some(writer) = &mut self.tunnel_writer else { continue };
                    if may_fragment && sessions.outgoing_packet_mut().as_slice().len() > MIN_MTU {
                        sessions.outgoing_fragments().iter().for_each(|piece| writer.write(piece));
                    } else {
                        writer.write_in_place(sessions.outgoing_packet_mut());
                    }
                }
                OutgoingDatagram::Udp { local, remote, traffic_class, may_fragment } => {
                    if let Some(writer) = &mut self.datagram_writer {
                        let octets = sessions.outgoing_packet_mut().as_slice();
                        writer.write_datagram(local, remote, traffic_class, may_fragment, octets);
                    }
                }
            }
        }
    }

    /// Passes the packet in the buffer, which came out of a session, to the station.
    pub(super) fn handle_session_packet(&mut self, now: Time, wall: WallTime, origin: SessionPacketOrigin) {
        let SessionPacketOrigin { session_peer: session, tunnel_ends: ends, traffic_class } = origin;
        if self.recorder.is_active() {
            let (local, remote) = ends;
            let packet = self.packet_buffer.as_slice().to_vec();
            let input = Input::SessionPacket { session, local, remote, traffic_class, packet };
            self.recorder.record_input(now, wall, input);
        }
        let verdict = self.station.handle_session_packet(
            now,
            wall,
            session,
            ends,
            traffic_class,
            &mut self.packet_buffer,
        );
        self.carry_out_verdict(verdict);
    }

    /// Sends the packet in the buffer through a session, if the packet belongs to one. Returns whether it
    /// does.
    pub(super) fn send_packet_in_session(&mut self, verdict: ForwardingVerdict) -> bool {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return false };
        let now = clock::now();
        match verdict {
            ForwardingVerdict::Forward => {
                if sessions.send_outer_packet(now, self.packet_buffer.as_slice()) == SessionDeparture::Clear {
                    return false;
                }
            }
            ForwardingVerdict::Encapsulate { local, remote, may_fragment, session: Some(session) } => {
                sessions.send_inner_packet(
                    now,
                    session,
                    (local, remote),
                    may_fragment,
                    self.packet_buffer.as_slice(),
                );
            }
            _ => return false,
        }
        self.send_datagrams();
        true
    }

    /// Sends a packet for the tunnel device through a session, if the packet belongs to one. Returns whether
    /// it does.
    pub(super) fn send_outer_packet_in_session(&mut self, packet: &[u8]) -> bool {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return false };
        if sessions.send_outer_packet(clock::now(), packet) == SessionDeparture::Clear {
            return false;
        }
        self.handle_sessions();
        true
    }

    /// Sends a packet that the station has encapsulated through a session, if the packet belongs to one.
    /// Returns whether it does.
    pub(super) fn send_encapsulated_packet_in_session(
        &mut self,
        ends: (Endpoint, Endpoint),
        may_fragment: bool,
        session: Option<SessionPeer>,
        packet: &[u8],
    ) -> bool {
        let Some(sessions) = self.encrypted_sessions.get_mut() else { return false };
        let now = clock::now();
        match session {
            Some(session) => sessions.send_inner_packet(now, session, ends, may_fragment, packet),
            None if sessions.send_inside_ipv4(now, ends, packet) == SessionDeparture::Clear => return false,
            None => {}
        }
        self.handle_sessions();
        true
    }

    /// Converts an ICMPv6 Packet Too Big about a datagram of a session to an input for the station; `None`
    /// for any other message.
    pub(super) fn packet_too_big_input(&self, local: Ipv6Addr, message: &[u8]) -> Option<Input> {
        let ((local, remote), mtu) = self.encrypted_sessions.get()?.mtu_of_too_big(local, message)?;
        Some(Input::DatagramTooBig { local, remote, mtu })
    }

    /// Handles the packet in the buffer if it is a Packet Too Big about a datagram of a session. Returns
    /// whether it is one.
    pub(super) fn handle_packet_too_big(&mut self) -> bool {
        let packet = self.packet_buffer.as_slice();
        if packet.get(6) != Some(&protocol::ICMPV6) {
            return false;
        }
        let Ok(header) = Header::parse(packet) else { return false };
        let message = packet.get(HEADER_LEN..).unwrap_or_default();
        let Some(input) = self.packet_too_big_input(header.destination, message) else { return false };
        self.handle_input(input);
        true
    }
}
