//! WireGuard sessions: a mobile router and a home agent with a hostile network between them.
//!
//! The octets are a list of steps. Each has an octet for its kind, one for a path or a number, two for its
//! length, and its content. So a step can change the messages of each type, and their order.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wireguard::{
    Engine, Output, Path, PathNumber, Peer, PeerId, PrivateKey, Received, Route, Settings, WireguardDrop,
    datagram_length,
};

/// Maximum number of steps of one input.
const STEPS: usize = 64;
/// Paths of the router.
const PATHS: u8 = 4;
const PEER: PeerId = PeerId(1);

/// A datagram on its way: whether it goes to the home agent, the uplink's number, and its octets.
struct Datagram {
    up: bool,
    uplink: u8,
    octets: Vec<u8>,
}

struct World {
    now: Time,
    router: Engine,
    home: Engine,
    wire: VecDeque<Datagram>,
    sent: BTreeSet<(bool, Path, Vec<u8>)>,
    received: BTreeSet<(bool, Path, Vec<u8>)>,
    number: u64,
}

fn path(number: u8) -> Path {
    Path { peer: PEER, number: PathNumber::new(number % PATHS).expect("a small number") }
}

fn home_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

fn uplink(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 4191))
}

impl World {
    fn new() -> World {
        let now = Time::from_secs(1);
        let key = |seed: u8| PrivateKey::from_random([seed; 32]);
        let engine = |own: u8, other: u8| {
            let unix = Duration::from_secs(1_795_737_600);
            let mut engine = Engine::new(Settings { private_key: key(own), seed: [own; 32], now, unix });
            let public_key = key(other).public_key();
            assert!(engine.set_peer(Peer { id: PEER, public_key, preshared_key: None }));
            engine
        };
        World {
            now,
            router: engine(1, 2),
            home: engine(2, 1),
            wire: VecDeque::new(),
            sent: BTreeSet::new(),
            received: BTreeSet::new(),
            number: 0,
        }
    }

    fn collect(&mut self) {
        while let Some(output) = self.router.poll_output() {
            if let Output::Send { route, datagram } = output {
                self.wire.push_back(Datagram {
                    up: true,
                    uplink: route.socket as u8,
                    octets: datagram.into(),
                });
            }
        }
        while let Some(output) = self.home.poll_output() {
            if let Output::Send { route, datagram } = output {
                let SocketAddr::V4(remote) = route.remote else { panic!("an IPv6 address out of nothing") };
                let uplink = remote.ip().octets()[3];
                self.wire.push_back(Datagram { up: false, uplink, octets: datagram.into() });
            }
        }
        assert!(self.wire.len() < 1000, "the ends answer each other without end");
    }

    fn deliver(&mut self, datagram: &Datagram) {
        let mut buffer = vec![0; datagram.octets.len()];
        let (engine, route) = match datagram.up {
            true => (&mut self.home, Route { socket: 0, remote: uplink(datagram.uplink) }),
            false => (&mut self.router, Route { socket: u32::from(datagram.uplink), remote: home_address() }),
        };
        if let Received::Payload { path, payload } =
            engine.receive(self.now, route, &datagram.octets, &mut buffer)
        {
            let length = usize::from(u16::from_be_bytes([payload[0], payload[1]]));
            let payload = (datagram.up, path, payload[..length].to_vec());
            assert!(self.sent.contains(&payload), "a payload that was not sent");
            assert!(self.received.insert(payload), "a payload arrives twice");
        }
        engine.handle_handshakes(self.now, 8);
        assert!(self.router.sessions() <= usize::from(PATHS) && self.home.sessions() <= usize::from(PATHS));
        self.collect();
    }

    fn send(&mut self, up: bool, path: Path, content: &[u8]) {
        let length = u16::try_from(content.len() + 10).unwrap_or(u16::MAX);
        let mut payload = length.to_be_bytes().to_vec();
        payload.extend(self.number.to_be_bytes());
        payload.extend(&content[..usize::from(length) - 10]);
        self.number += 1;
        let engine = if up { &mut self.router } else { &mut self.home };
        let mut octets = vec![0; datagram_length(payload.len())];
        match engine.send(self.now, path, &payload, &mut octets) {
            Ok((route, length)) => {
                assert_eq!(length, octets.len());
                let uplink = match (up, route.remote) {
                    (false, SocketAddr::V4(remote)) => remote.ip().octets()[3],
                    _ => route.socket as u8,
                };
                self.sent.insert((up, path, payload));
                self.wire.push_back(Datagram { up, uplink, octets });
            }
            Err(reason) => assert_eq!(reason, WireguardDrop::NotEstablished),
        }
        self.collect();
    }

    fn step(&mut self, kind: u8, number: u8, content: &[u8]) {
        match kind % 10 {
            0 => {
                let route = Route { socket: u32::from(number % PATHS), remote: home_address() };
                self.router.connect(self.now, path(number), route);
                self.collect();
            }
            1 => {
                for _ in 0..=number {
                    let Some(datagram) = self.wire.pop_front() else { break };
                    self.deliver(&datagram);
                }
            }
            2 => drop(self.wire.pop_front()),
            3 => {
                if let Some(datagram) = self.wire.pop_front() {
                    self.deliver(&datagram);
                    self.deliver(&datagram);
                }
            }
            4 => {
                if let Some(datagram) = self.wire.pop_front() {
                    self.wire.push_back(datagram);
                }
            }
            5 => {
                if let Some(datagram) = self.wire.front_mut() {
                    let octets = datagram.octets.iter_mut().skip(usize::from(number));
                    octets.zip(content).for_each(|(octet, change)| *octet ^= change);
                }
            }
            6 => self.send(number & 0x80 == 0, path(number & 0x7f), content),
            7 => {
                self.now += Duration::from_millis(u64::from(number) * 1000);
                self.router.handle_timeout(self.now);
                self.home.handle_timeout(self.now);
                self.collect();
            }
            8 => {
                self.router.renew(self.now, path(number));
                self.collect();
            }
            _ => self.deliver(&Datagram {
                up: number & 0x80 == 0,
                uplink: number & 0x7f,
                octets: content.to_vec(),
            }),
        }
    }
}

/// Runs the steps of an input.
pub fn wireguard(mut octets: &[u8]) {
    let mut world = World::new();
    for _ in 0..STEPS {
        let Some(([kind, number, high, low], rest)) = octets.split_first_chunk::<4>() else { break };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (content, rest) = rest.split_at(length);
        world.step(*kind, *number, content);
        octets = rest;
    }
}
