//! Fills the plane's queue of outputs from its parts, and applies the desired state to the slow path.

use carnet_base::{Time, WallTime};

use super::Nemo;
use crate::forwarding::desired::{Change, Entry, TunnelEnd};
use crate::forwarding::forwarder::{Caused, Verdict};
use crate::forwarding::packet::PacketBuffer;
use crate::output::Output;
use crate::persistent_state::Kept;

impl Nemo {
    /// Queues the packet in the buffer as an output.
    pub fn carry_out(&mut self, verdict: Verdict, buffer: &PacketBuffer) {
        let packet = || buffer.as_slice().to_vec();
        match verdict {
            Verdict::Forward => self.outputs.push_back(Output::Packet(packet())),
            Verdict::Encapsulate { local, remote, may_fragment } => {
                self.outputs.push_back(Output::Encapsulated {
                    local,
                    remote,
                    packet: packet(),
                    may_fragment,
                });
            }
            Verdict::Consumed | Verdict::Dropped(_) => {}
        }
    }

    /// Queues the changes of the desired state as outputs; the slow path applies them at once.
    pub(crate) fn take_changes(&mut self) {
        while let Some(change) = self.desired.poll_change() {
            match &change {
                Change::Set(entry) => match &**entry {
                    Entry::Tunnel(tunnel) => self.forwarder.set_tunnel(tunnel.clone()),
                    Entry::Distribution(distribution) => self.forwarder.set_distribution(distribution),
                    _ => {}
                },
                Change::Remove(entry) => match &**entry {
                    Entry::Tunnel(tunnel) => {
                        self.forwarder.remove_tunnel(tunnel);
                        self.path_mtus.remove((tunnel.local, tunnel.remote), tunnel.home_address);
                    }
                    Entry::Distribution(distribution) => self.forwarder.remove_distribution(distribution),
                    _ => {}
                },
            }
            self.outputs.push_back(Output::Forwarding(change));
        }
    }

    /// Collects the outputs of all parts, in their order. `geonet_mtu` is the MTU of IPv6 over GeoNetworking.
    pub fn flush(&mut self, now: Time, wall: WallTime, geonet_mtu: Option<u32>) {
        self.take_changes();
        for (output, from_router) in self.take_mobility_outputs(now, wall) {
            self.translate(now, output, from_router);
        }
        self.follow_nesting(now, wall);
        self.follow_direct(now);
        self.follow_path_mtus(now);
        if let Some(agent) = &mut self.agent {
            agent.inform_advertiser(now);
            if let Some(advertiser) = &mut agent.advertiser {
                while let Some(message) = advertiser.poll_output() {
                    self.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        if let Some(router) = &mut self.router {
            let ends = TunnelEnd::MobileRouter;
            let in_use = self.forwarder.tunnels().filter(|(tunnel, _)| tunnel.end == ends && tunnel.transmit);
            // Count the MTU of GeoNetworking from the start: otherwise hosts would have to learn a smaller
            // MTU when a neighbour appears.
            let straight = self.neighbours.as_ref().and(geonet_mtu);
            let in_use = in_use.map(|(tunnel, _)| tunnel.mtu).min();
            router.inform_advertisers(now, in_use, straight);
            for advertiser in &mut router.advertisers {
                while let Some(message) = advertiser.poll_output() {
                    self.outputs.push_back(Output::Icmpv6(message));
                }
            }
        }
        self.collect_caused();
    }

    /// Collects the further packets that the forwarder has made from a packet.
    pub(crate) fn collect_caused(&mut self) {
        while let Some(caused) = self.forwarder.poll_output() {
            self.outputs.push_back(match caused {
                Caused::Packet(packet) => Output::Packet(packet),
                Caused::Encapsulated { ends: (local, remote), packet, may_fragment } => {
                    Output::Encapsulated { local, remote, packet, may_fragment }
                }
            });
        }
    }

    /// Collects the outputs of the home agent and the mobile router. The flag is `true` for an output of the
    /// mobile router.
    pub(crate) fn take_mobility_outputs(
        &mut self,
        now: Time,
        wall: WallTime,
    ) -> Vec<(carnet_mobility::Output, bool)> {
        let mut outputs = Vec::new();
        if let Some(agent) = &mut self.agent {
            outputs.extend(std::iter::from_fn(|| agent.machine.poll_output()).map(|o| (o, false)));
        }
        if let Some(router) = &mut self.router {
            outputs.extend(std::iter::from_fn(|| router.machine.poll_output()).map(|o| (o, true)));
            router.agents.review(now, wall, &mut router.machine);
            // Handle the outputs of the state machines for other home agents last, because they depend on the
            // one in use.
            let home_agent = router.machine.config().home_agent;
            self.path_mtus.set_home_agent(TunnelEnd::MobileRouter, home_agent);
            outputs.extend(std::iter::from_fn(|| router.machine.poll_output()).map(|o| (o, true)));
            outputs.extend(std::iter::from_fn(|| router.agents.poll_output()).map(|o| (o, true)));
        }
        outputs
    }

    pub(crate) fn translate(&mut self, now: Time, output: carnet_mobility::Output, from_router: bool) {
        use carnet_mobility::Output as Mobility;
        match output {
            Mobility::Forwarding(_) if from_router => self.forward_router(now),
            Mobility::Forwarding(home_address) => self.forward_node(now, home_address),
            Mobility::Persist(_) if from_router => self.outputs.push_back(Output::Persist(Kept::Own)),
            Mobility::Persist(home_address) => {
                self.outputs.push_back(Output::Persist(Kept::Node(home_address)));
            }
            Mobility::Packet(packet) => {
                let output = self.under_ipsec(packet);
                self.outputs.push_back(output);
            }
            Mobility::Encapsulated { local, remote, packet } => {
                let may_fragment = true;
                self.outputs.push_back(Output::Encapsulated { local, remote, packet, may_fragment });
            }
            Mobility::Tunnelled { local, remote, packet } => {
                self.forwarder.send((local, remote), &packet);
                self.collect_caused();
            }
            Mobility::ProbePortal { uplink, sources } => {
                self.outputs.push_back(Output::ProbePortal { uplink, sources });
            }
            Mobility::Link(message) => self.outputs.push_back(Output::Icmpv6(message)),
            Mobility::Event(event) => self.outputs.push_back(Output::Event(event)),
        }
    }
}
