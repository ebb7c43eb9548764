//! WireGuard sessions: a mobile router and a home agent with a hostile network between them.
//!
//! The input is a list of steps. Each has an octet for its kind, one for a path or a number, two for its
//! length, and its content. So a fuzzer can change messages of each type, and their order.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wireguard::{
    DatagramRoute, EngineSettings, Output, PathNumber, PeerId, PrivateKey, ReceivedDatagram, RemotePeer,
    SessionEngine, SessionPath, WireguardDropReason, datagram_length,
};

/// Maximum number of steps of one input.
const MAX_STEPS: usize = 64;
/// Number of paths between the mobile router and the home agent.
const ROUTER_PATHS: u8 = 4;
const HOME_AGENT_PEER: PeerId = PeerId(1);

/// A datagram on its way: whether it goes to the home agent, the uplink's number, and its octets.
struct DatagramInTransit {
    is_to_home_agent: bool,
    uplink: u8,
    octets: Vec<u8>,
}

struct TunnelNetwork {
    now: Time,
    router_engine: SessionEngine,
    home_agent_engine: SessionEngine,
    datagrams_in_transit: VecDeque<DatagramInTransit>,
    sent_payloads: BTreeSet<(bool, SessionPath, Vec<u8>)>,
    received_payloads: BTreeSet<(bool, SessionPath, Vec<u8>)>,
    next_payload_number: u64,
}

fn session_path(number: u8) -> SessionPath {
    SessionPath {
        peer_id: HOME_AGENT_PEER,
        path_number: PathNumber::new(number % ROUTER_PATHS).expect("a small number"),
    }
}

fn home_agent_socket_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

fn uplink_socket_address(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 4191))
}

impl TunnelNetwork {
    fn new() -> TunnelNetwork {
        let now = Time::from_secs(1);
        let key = |seed: u8| PrivateKey::from_random([seed; 32]);
        let engine = |own: u8, other: u8| {
            let unix = Duration::from_secs(1_795_737_600);
            let mut engine = SessionEngine::new(EngineSettings {
                private_key: key(own),
                random_seed: [own; 32],
                now,
                unix_time_at_start: unix,
            });
            let public_keys = vec![key(other).public_key()];
            assert!(
                engine
                    .set_peer(now, RemotePeer { peer_id: HOME_AGENT_PEER, public_keys, preshared_key: None })
            );
            engine
        };
        TunnelNetwork {
            now,
            router_engine: engine(1, 2),
            home_agent_engine: engine(2, 1),
            datagrams_in_transit: VecDeque::new(),
            sent_payloads: BTreeSet::new(),
            received_payloads: BTreeSet::new(),
            next_payload_number: 0,
        }
    }

    fn collect_datagrams(&mut self) {
        while let Some(output) = self.router_engine.poll_output() {
            if let Output::Send { route, datagram } = output {
                self.datagrams_in_transit.push_back(DatagramInTransit {
                    is_to_home_agent: true,
                    uplink: route.socket as u8,
                    octets: datagram.into(),
                });
            }
        }
        while let Some(output) = self.home_agent_engine.poll_output() {
            if let Output::Send { route, datagram } = output {
                let SocketAddr::V4(remote) = route.remote else { panic!("an IPv6 address out of nothing") };
                let uplink = remote.ip().octets()[3];
                self.datagrams_in_transit.push_back(DatagramInTransit {
                    is_to_home_agent: false,
                    uplink,
                    octets: datagram.into(),
                });
            }
        }
        assert!(self.datagrams_in_transit.len() < 1000, "the ends answer each other without end");
    }

    fn deliver_datagram(&mut self, datagram: &DatagramInTransit) {
        let mut buffer = vec![0; datagram.octets.len()];
        let (engine, route) = match datagram.is_to_home_agent {
            true => (
                &mut self.home_agent_engine,
                DatagramRoute { socket: 0, remote: uplink_socket_address(datagram.uplink) },
            ),
            false => (
                &mut self.router_engine,
                DatagramRoute { socket: u32::from(datagram.uplink), remote: home_agent_socket_address() },
            ),
        };
        if let ReceivedDatagram::Payload { path, payload, .. } =
            engine.receive_datagram(self.now, route, &datagram.octets, &mut buffer)
        {
            let length = usize::from(u16::from_be_bytes([payload[0], payload[1]]));
            let payload = (datagram.is_to_home_agent, path, payload[..length].to_vec());
            assert!(self.sent_payloads.contains(&payload), "a payload that was not sent");
            assert!(self.received_payloads.insert(payload), "a payload arrives twice");
        }
        engine.handle_waiting_handshakes(self.now, 8);
        assert!(
            self.router_engine.session_count() <= usize::from(ROUTER_PATHS)
                && self.home_agent_engine.session_count() <= usize::from(ROUTER_PATHS)
        );
        self.collect_datagrams();
    }

    fn send_payload(&mut self, up: bool, path: SessionPath, content: &[u8]) {
        let length = u16::try_from(content.len() + 10).unwrap_or(u16::MAX);
        let mut payload = length.to_be_bytes().to_vec();
        payload.extend(self.next_payload_number.to_be_bytes());
        payload.extend(&content[..usize::from(length) - 10]);
        self.next_payload_number += 1;
        let engine = if up { &mut self.router_engine } else { &mut self.home_agent_engine };
        let mut octets = vec![0; datagram_length(payload.len())];
        match engine.send_payload(self.now, path, &payload, &mut octets) {
            Ok((route, length)) => {
                assert_eq!(length, octets.len());
                let uplink = match (up, route.remote) {
                    (false, SocketAddr::V4(remote)) => remote.ip().octets()[3],
                    _ => route.socket as u8,
                };
                self.sent_payloads.insert((up, path, payload));
                self.datagrams_in_transit.push_back(DatagramInTransit {
                    is_to_home_agent: up,
                    uplink,
                    octets,
                });
            }
            Err(reason) => assert_eq!(reason, WireguardDropReason::NotEstablished),
        }
        self.collect_datagrams();
    }

    fn run_step(&mut self, kind: u8, number: u8, content: &[u8]) {
        match kind % 10 {
            0 => {
                let route = DatagramRoute {
                    socket: u32::from(number % ROUTER_PATHS),
                    remote: home_agent_socket_address(),
                };
                self.router_engine.open_session(self.now, session_path(number), route);
                self.collect_datagrams();
            }
            1 => {
                for _ in 0..=number {
                    let Some(datagram) = self.datagrams_in_transit.pop_front() else { break };
                    self.deliver_datagram(&datagram);
                }
            }
            2 => drop(self.datagrams_in_transit.pop_front()),
            3 => {
                if let Some(datagram) = self.datagrams_in_transit.pop_front() {
                    self.deliver_datagram(&datagram);
                    self.deliver_datagram(&datagram);
                }
            }
            4 => {
                if let Some(datagram) = self.datagrams_in_transit.pop_front() {
                    self.datagrams_in_transit.push_back(datagram);
                }
            }
            5 => {
                if let Some(datagram) = self.datagrams_in_transit.front_mut() {
                    let octets = datagram.octets.iter_mut().skip(usize::from(number));
                    octets.zip(content).for_each(|(octet, change)| *octet ^= change);
                }
            }
            6 => self.send_payload(number & 0x80 == 0, session_path(number & 0x7f), content),
            7 => {
                self.now += Duration::from_millis(u64::from(number) * 1000);
                self.router_engine.handle_timeout(self.now);
                self.home_agent_engine.handle_timeout(self.now);
                self.collect_datagrams();
            }
            8 => {
                self.router_engine.renew_handshake(self.now, session_path(number));
                self.collect_datagrams();
            }
            _ => self.deliver_datagram(&DatagramInTransit {
                is_to_home_agent: number & 0x80 == 0,
                uplink: number & 0x7f,
                octets: content.to_vec(),
            }),
        }
    }
}

/// Runs the steps of an input.
pub fn fuzz_wireguard(mut octets: &[u8]) {
    let mut world = TunnelNetwork::new();
    for _ in 0..MAX_STEPS {
        let Some(([kind, number, high, low], rest)) = octets.split_first_chunk::<4>() else { break };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        world.run_step(*kind, *number, content);
        octets = rest;
    }
}
