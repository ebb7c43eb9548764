//! A mobile router and a home agent with a network between them, in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PrivateKey, PublicKey, ReceivedDatagram,
    RemotePeer, SessionEngine, SessionPath, WireguardDropReason,
};

/// 2026-11-27, in seconds since the UNIX epoch.
pub const TODAY_UNIX_SECONDS: u64 = 1_795_737_600;
/// Peer number of the home agent in the router's engine, and of the router in the home agent's engine.
pub const HOME_AGENT_PEER: PeerId = PeerId(7);

pub fn router_private_key() -> PrivateKey {
    PrivateKey::from_random([1; 32])
}

pub fn home_agent_private_key() -> PrivateKey {
    PrivateKey::from_random([2; 32])
}

pub fn session_path(number: u8) -> SessionPath {
    SessionPath { peer_id: HOME_AGENT_PEER, path_number: PathNumber::new(number).expect("number") }
}

pub fn home_address() -> SocketAddr {
    "192.0.2.1:443".parse().expect("address")
}

/// Returns the address and port of the router's uplink with this number.
pub fn uplink_address(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 4191))
}

pub fn new_engine(private_key: PrivateKey, seed: u8, now: Time, unix: u64, peer: PublicKey) -> SessionEngine {
    let unix = Duration::from_secs(unix);
    let mut engine = SessionEngine::new(EngineSettings {
        private_key,
        random_seed: [seed; 32],
        now,
        unix_time_at_start: unix,
    });
    assert!(engine.set_peer(
        now,
        RemotePeer { peer_id: HOME_AGENT_PEER, public_keys: vec![peer], preshared_key: None }
    ));
    engine
}

/// A datagram that one end has sent and the other has not received yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatagramOnWire {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub octets: Vec<u8>,
}

impl DatagramOnWire {
    pub fn message_type(&self) -> u8 {
        self.octets[0]
    }
}

/// A router, a home agent, and the network between them. `datagrams_on_wire` has the datagrams that no end
/// has received yet, in the order in which they were sent.
pub struct TestNetwork {
    pub now: Time,
    pub router_engine: SessionEngine,
    pub home_agent_engine: SessionEngine,
    pub datagrams_on_wire: VecDeque<DatagramOnWire>,
    /// Outputs of the router other than datagrams.
    pub router_outputs: Vec<Output>,
    /// Outputs of the home agent other than datagrams.
    pub home_agent_outputs: Vec<Output>,
    /// Payloads that the router has decrypted.
    pub received_at_router: Vec<(SessionPath, Vec<u8>)>,
    /// Payloads that the home agent has decrypted.
    pub received_at_home_agent: Vec<(SessionPath, Vec<u8>)>,
}

impl TestNetwork {
    pub fn new() -> TestNetwork {
        let now = Time::from_secs(100);
        TestNetwork {
            now,
            router_engine: new_engine(
                router_private_key(),
                3,
                now,
                TODAY_UNIX_SECONDS,
                home_agent_private_key().public_key(),
            ),
            home_agent_engine: new_engine(
                home_agent_private_key(),
                4,
                now,
                TODAY_UNIX_SECONDS,
                router_private_key().public_key(),
            ),
            datagrams_on_wire: VecDeque::new(),
            router_outputs: Vec::new(),
            home_agent_outputs: Vec::new(),
            received_at_router: Vec::new(),
            received_at_home_agent: Vec::new(),
        }
    }

    /// Returns a network in which the sessions of these paths are established.
    pub fn with_established_paths(numbers: &[u8]) -> TestNetwork {
        let mut network = TestNetwork::new();
        for &number in numbers {
            network.open_session(number);
        }
        network.deliver_all_datagrams();
        for &number in numbers {
            assert!(network.router_engine.is_established(session_path(number)), "router, path {number}");
            assert!(
                network.home_agent_engine.is_established(session_path(number)),
                "home agent, path {number}"
            );
        }
        network
    }

    pub fn open_session(&mut self, number: u8) {
        let route = DatagramRoute { socket: u32::from(number), remote: home_address() };
        assert!(self.router_engine.open_session(self.now, session_path(number), route));
        self.collect_datagrams();
    }

    /// Opens a session of the router on a path that an earlier run had open.
    pub fn reopen_session(&mut self, number: u8) {
        let route = DatagramRoute { socket: u32::from(number), remote: home_address() };
        assert!(self.router_engine.reopen_session(self.now, session_path(number), route));
        self.collect_datagrams();
    }

    /// Puts the datagrams of both ends on the wire.
    pub fn collect_datagrams(&mut self) {
        while let Some(output) = self.router_engine.poll_output() {
            match output {
                Output::Send { route, datagram } => self.datagrams_on_wire.push_back(DatagramOnWire {
                    source: uplink_address(route.socket as u8),
                    destination: route.remote,
                    octets: datagram.into(),
                }),
                other => self.router_outputs.push(other),
            }
        }
        while let Some(output) = self.home_agent_engine.poll_output() {
            match output {
                Output::Send { route, datagram } => self.datagrams_on_wire.push_back(DatagramOnWire {
                    source: home_address(),
                    destination: route.remote,
                    octets: datagram.into(),
                }),
                other => self.home_agent_outputs.push(other),
            }
        }
    }

    /// Delivers a datagram to its destination. Returns the reason if the receiver drops it.
    pub fn deliver_datagram(&mut self, datagram: &DatagramOnWire) -> Option<WireguardDropReason> {
        let mut buffer = vec![0; datagram.octets.len()];
        let to_home = datagram.destination == home_address();
        let (engine, payloads) = match to_home {
            true => (&mut self.home_agent_engine, &mut self.received_at_home_agent),
            false => (&mut self.router_engine, &mut self.received_at_router),
        };
        let socket = match datagram.destination {
            SocketAddr::V4(address) if !to_home => u32::from(address.ip().octets()[3]),
            _ => 0,
        };
        let route = DatagramRoute { socket, remote: datagram.source };
        let before: u64 = WireguardDropReason::ALL.iter().map(|&reason| engine.drop_count(reason)).sum();
        let mut reason = None;
        match engine.receive_datagram(self.now, route, &datagram.octets, &mut buffer) {
            ReceivedDatagram::Payload { path, payload, .. } => payloads.push((path, payload.to_vec())),
            ReceivedDatagram::Dropped(dropped) => reason = Some(dropped),
            ReceivedDatagram::Queued => {
                let drops = |engine: &SessionEngine| {
                    WireguardDropReason::ALL.iter().map(|&r| engine.drop_count(r)).collect::<Vec<_>>()
                };
                let before = drops(engine);
                engine.handle_waiting_handshakes(self.now, 16);
                let after = drops(engine);
                let at = before.iter().zip(&after).position(|(before, after)| before != after);
                reason = at.map(|at| WireguardDropReason::ALL[at]);
            }
            ReceivedDatagram::Handled => {}
        }
        let after: u64 = WireguardDropReason::ALL.iter().map(|&reason| engine.drop_count(reason)).sum();
        assert_eq!(after - before, u64::from(reason.is_some()), "each drop is counted once");
        self.collect_datagrams();
        reason
    }

    /// Delivers the datagrams on the wire, and the datagrams that the receivers send because of them.
    pub fn deliver_all_datagrams(&mut self) {
        while let Some(datagram) = self.datagrams_on_wire.pop_front() {
            self.deliver_datagram(&datagram);
        }
    }

    /// Runs the timers of both ends up to `until`, and delivers all datagrams.
    pub fn run_until_time(&mut self, until: Time) {
        loop {
            let next = [self.router_engine.poll_timeout(), self.home_agent_engine.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.run_due_timers(next);
            self.deliver_all_datagrams();
        }
        self.now = until;
    }

    /// Moves the time to `now` and runs the timers that are due.
    pub fn run_due_timers(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.router_engine.handle_timeout(self.now);
        self.home_agent_engine.handle_timeout(self.now);
        self.collect_datagrams();
    }

    /// Sends a payload from the router on path `number`.
    pub fn send_to_home_agent(&mut self, number: u8, payload: &[u8]) -> Result<(), WireguardDropReason> {
        let mut octets = vec![0; carnet_wireguard::datagram_length(payload.len())];
        let (route, length) =
            self.router_engine.send_payload(self.now, session_path(number), payload, &mut octets)?;
        octets.truncate(length);
        let source = uplink_address(route.socket as u8);
        self.datagrams_on_wire.push_back(DatagramOnWire { source, destination: route.remote, octets });
        Ok(())
    }

    /// Sends a payload from the home agent on path `number`.
    pub fn send_to_router(&mut self, number: u8, payload: &[u8]) -> Result<(), WireguardDropReason> {
        let mut octets = vec![0; carnet_wireguard::datagram_length(payload.len())];
        let (route, length) =
            self.home_agent_engine.send_payload(self.now, session_path(number), payload, &mut octets)?;
        octets.truncate(length);
        self.datagrams_on_wire.push_back(DatagramOnWire {
            source: home_address(),
            destination: route.remote,
            octets,
        });
        Ok(())
    }

    /// Returns the payloads that the home agent has received, each with its path number and without padding.
    pub fn texts_received_at_home_agent(&self) -> Vec<(u8, String)> {
        self.received_at_home_agent
            .iter()
            .map(|(path, payload)| {
                let text = String::from_utf8_lossy(payload);
                (path.path_number.get(), text.trim_end_matches('\0').to_string())
            })
            .collect()
    }
}
