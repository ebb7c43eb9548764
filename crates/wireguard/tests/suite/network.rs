//! A mobile router and a home agent with a network between them, in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wireguard::{
    Engine, Output, Path, PathNumber, Peer, PeerId, PrivateKey, PublicKey, Received, Route, Settings,
    WireguardDrop,
};

/// 2026-11-27, in seconds since the UNIX epoch.
pub const TODAY: u64 = 1_795_737_600;
/// The home agent as a peer of the router, and the router as a peer of the home agent.
pub const PEER: PeerId = PeerId(7);

pub fn router_key() -> PrivateKey {
    PrivateKey::from_random([1; 32])
}

pub fn home_key() -> PrivateKey {
    PrivateKey::from_random([2; 32])
}

pub fn path(number: u8) -> Path {
    Path { peer: PEER, number: PathNumber::new(number).expect("number") }
}

pub fn home_address() -> SocketAddr {
    "192.0.2.1:443".parse().expect("address")
}

/// The address of the router's uplink.
pub fn uplink(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 4191))
}

pub fn engine(private_key: PrivateKey, seed: u8, now: Time, unix: u64, peer: PublicKey) -> Engine {
    let unix = Duration::from_secs(unix);
    let mut engine = Engine::new(Settings { private_key, seed: [seed; 32], now, unix });
    assert!(engine.set_peer(Peer { id: PEER, public_key: peer, preshared_key: None }));
    engine
}

/// A datagram on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub octets: Vec<u8>,
}

impl Datagram {
    pub fn kind(&self) -> u8 {
        self.octets[0]
    }
}

/// The two ends. `wire` holds the datagrams that no end has received yet, in the order of their sending.
pub struct Network {
    pub now: Time,
    pub router: Engine,
    pub home: Engine,
    pub wire: VecDeque<Datagram>,
    /// Outputs of both ends, without datagrams.
    pub router_outputs: Vec<Output>,
    pub home_outputs: Vec<Output>,
    /// Payloads that came out.
    pub at_router: Vec<(Path, Vec<u8>)>,
    pub at_home: Vec<(Path, Vec<u8>)>,
}

impl Network {
    pub fn new() -> Network {
        let now = Time::from_secs(100);
        Network {
            now,
            router: engine(router_key(), 3, now, TODAY, home_key().public_key()),
            home: engine(home_key(), 4, now, TODAY, router_key().public_key()),
            wire: VecDeque::new(),
            router_outputs: Vec::new(),
            home_outputs: Vec::new(),
            at_router: Vec::new(),
            at_home: Vec::new(),
        }
    }

    /// A network in which these paths are established.
    pub fn established(numbers: &[u8]) -> Network {
        let mut network = Network::new();
        for &number in numbers {
            network.connect(number);
        }
        network.deliver_all();
        for &number in numbers {
            assert!(network.router.is_established(path(number)), "router, path {number}");
            assert!(network.home.is_established(path(number)), "home agent, path {number}");
        }
        network
    }

    pub fn connect(&mut self, number: u8) {
        let route = Route { socket: u32::from(number), remote: home_address() };
        assert!(self.router.connect(self.now, path(number), route));
        self.collect();
    }

    /// Puts the datagrams of both ends on the wire.
    pub fn collect(&mut self) {
        while let Some(output) = self.router.poll_output() {
            match output {
                Output::Send { route, datagram } => self.wire.push_back(Datagram {
                    source: uplink(route.socket as u8),
                    destination: route.remote,
                    octets: datagram.into(),
                }),
                other => self.router_outputs.push(other),
            }
        }
        while let Some(output) = self.home.poll_output() {
            match output {
                Output::Send { route, datagram } => self.wire.push_back(Datagram {
                    source: home_address(),
                    destination: route.remote,
                    octets: datagram.into(),
                }),
                other => self.home_outputs.push(other),
            }
        }
    }

    /// Gives a datagram to its destination.
    pub fn deliver(&mut self, datagram: &Datagram) -> Option<WireguardDrop> {
        let mut buffer = vec![0; datagram.octets.len()];
        let to_home = datagram.destination == home_address();
        let (engine, payloads) = match to_home {
            true => (&mut self.home, &mut self.at_home),
            false => (&mut self.router, &mut self.at_router),
        };
        let socket = match datagram.destination {
            SocketAddr::V4(address) if !to_home => u32::from(address.ip().octets()[3]),
            _ => 0,
        };
        let route = Route { socket, remote: datagram.source };
        let before: u64 = WireguardDrop::ALL.iter().map(|&reason| engine.drops(reason)).sum();
        let mut reason = None;
        match engine.receive(self.now, route, &datagram.octets, &mut buffer) {
            Received::Payload { path, payload } => payloads.push((path, payload.to_vec())),
            Received::Dropped(dropped) => reason = Some(dropped),
            Received::Queued => {
                let drops =
                    |engine: &Engine| WireguardDrop::ALL.iter().map(|&r| engine.drops(r)).collect::<Vec<_>>();
                let before = drops(engine);
                engine.handle_handshakes(self.now, 16);
                let after = drops(engine);
                let at = before.iter().zip(&after).position(|(before, after)| before != after);
                reason = at.map(|at| WireguardDrop::ALL[at]);
            }
            Received::Handled => {}
        }
        let after: u64 = WireguardDrop::ALL.iter().map(|&reason| engine.drops(reason)).sum();
        assert_eq!(after - before, u64::from(reason.is_some()), "each drop is counted once");
        self.collect();
        reason
    }

    /// Delivers the datagrams on the wire, and those that they cause.
    pub fn deliver_all(&mut self) {
        while let Some(datagram) = self.wire.pop_front() {
            self.deliver(&datagram);
        }
    }

    /// Runs the timers of both ends up to `until`, with a working network.
    pub fn run_until(&mut self, until: Time) {
        loop {
            let next = [self.router.poll_timeout(), self.home.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|&next| next <= until) else { break };
            self.tick(next);
            self.deliver_all();
        }
        self.now = until;
    }

    /// Moves the time to `now` and runs the timers that are due.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.router.handle_timeout(self.now);
        self.home.handle_timeout(self.now);
        self.collect();
    }

    /// Sends a payload from the router.
    pub fn send(&mut self, number: u8, payload: &[u8]) -> Result<(), WireguardDrop> {
        let mut octets = vec![0; carnet_wireguard::datagram_length(payload.len())];
        let (route, length) = self.router.send(self.now, path(number), payload, &mut octets)?;
        octets.truncate(length);
        let source = uplink(route.socket as u8);
        self.wire.push_back(Datagram { source, destination: route.remote, octets });
        Ok(())
    }

    /// Sends a payload from the home agent.
    pub fn send_down(&mut self, number: u8, payload: &[u8]) -> Result<(), WireguardDrop> {
        let mut octets = vec![0; carnet_wireguard::datagram_length(payload.len())];
        let (route, length) = self.home.send(self.now, path(number), payload, &mut octets)?;
        octets.truncate(length);
        self.wire.push_back(Datagram { source: home_address(), destination: route.remote, octets });
        Ok(())
    }

    /// Returns the payloads at the home agent, without their padding.
    pub fn texts_at_home(&self) -> Vec<(u8, String)> {
        self.at_home
            .iter()
            .map(|(path, payload)| {
                let text = String::from_utf8_lossy(payload);
                (path.number.get(), text.trim_end_matches('\0').to_string())
            })
            .collect()
    }
}
