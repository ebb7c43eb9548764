//! The data path of the plane's roles: the desired state, the slow path, path MTU discovery, and the queue of
//! outputs.

use std::collections::VecDeque;

use carnet_base::Rng;
use carnet_mobility::MobileRouter;
use carnet_mobility::mobile_router::PathTraffic;

use super::StateOwner;
use crate::forwarding::desired::{DesiredState, EntryChange, ForwardingEntry};
use crate::forwarding::forwarder::{CausedPacket, Forwarder, ForwardingVerdict};
use crate::forwarding::fragments::Reassembler;
use crate::forwarding::packet::PacketBuffer;
use crate::forwarding::path_mtu::PathMtus;
use crate::input::TunnelTraffic;
use crate::output::Output;

/// The data path that the plane's roles share.
#[derive(Debug)]
pub(crate) struct SlowDataPath {
    pub(crate) desired_state: DesiredState<StateOwner>,
    pub(crate) forwarder: Forwarder,
    pub(crate) path_mtus: PathMtus,
    pub(super) reassembler: Reassembler,
    /// Packet counts of the tunnels in the last report of a fast path.
    pub(super) fast_path_traffic: Vec<TunnelTraffic>,
    /// Queue of the plane's outputs.
    pub(super) outputs: VecDeque<Output>,
}

impl SlowDataPath {
    /// Creates a data path without tunnels.
    pub(super) fn new(rng: &mut Rng) -> SlowDataPath {
        SlowDataPath {
            desired_state: DesiredState::new(),
            forwarder: Forwarder::new(rng),
            path_mtus: PathMtus::new(Rng::new(rng.random_u64())),
            reassembler: Reassembler::default(),
            fast_path_traffic: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Queues the packet in the buffer as an output.
    pub(super) fn queue_packet_of_verdict(&mut self, verdict: ForwardingVerdict, buffer: &PacketBuffer) {
        let packet = || buffer.as_slice().to_vec();
        match verdict {
            ForwardingVerdict::Forward => self.outputs.push_back(Output::Packet(packet())),
            ForwardingVerdict::Encapsulate { local, remote, may_fragment, session } => {
                self.outputs.push_back(Output::Encapsulated {
                    local,
                    remote,
                    packet: packet(),
                    may_fragment,
                    session,
                });
            }
            ForwardingVerdict::Consumed | ForwardingVerdict::Dropped(_) => {}
        }
    }

    /// Queues the changes of the desired state as outputs; the slow path applies them at once.
    pub(super) fn apply_changed_entries(&mut self) {
        while let Some(change) = self.desired_state.poll_change() {
            match &change {
                EntryChange::Set(entry) => match &**entry {
                    ForwardingEntry::Tunnel(tunnel) => self.forwarder.set_tunnel(tunnel.clone()),
                    ForwardingEntry::Distribution(distribution) => {
                        self.forwarder.set_distribution(distribution)
                    }
                    _ => {}
                },
                EntryChange::Remove(entry) => match &**entry {
                    ForwardingEntry::Tunnel(tunnel) => {
                        self.forwarder.remove_tunnel(tunnel);
                        self.path_mtus.remove_path_user((tunnel.local, tunnel.remote), tunnel.home_address);
                    }
                    ForwardingEntry::Distribution(distribution) => {
                        self.forwarder.remove_distribution(distribution)
                    }
                    _ => {}
                },
            }
            self.outputs.push_back(Output::Forwarding(change));
        }
    }

    /// Queues the error messages, fragments and copies that the forwarder has made from the last packet.
    pub(super) fn collect_caused_packets(&mut self) {
        while let Some(caused) = self.forwarder.poll_output() {
            self.outputs.push_back(match caused {
                CausedPacket::Packet(packet) => Output::Packet(packet),
                CausedPacket::Encapsulated { ends: (local, remote), packet, may_fragment, session } => {
                    Output::Encapsulated { local, remote, packet, may_fragment, session }
                }
            });
        }
    }

    /// Returns the packet counts of each uplink, the sum of slow path and fast path.
    pub(super) fn path_traffic(&self, router: &MobileRouter) -> Vec<(usize, PathTraffic)> {
        let mut traffic = vec![PathTraffic::default(); router.uplinks().len()];
        for path in router.paths() {
            let slow = self.forwarder.traffic_of_tunnel((path.local, path.remote));
            let fast = self
                .fast_path_traffic
                .iter()
                .filter(|fast| (fast.local, fast.remote) == (path.local, path.remote));
            let (sent, received) =
                fast.fold((0, 0), |(sent, received), it| (sent + it.sent, received + it.received));
            if let Some(sum) = traffic.get_mut(path.uplink) {
                sum.sent += slow.packets_sent + sent;
                sum.received += slow.packets_received + received;
            }
        }
        traffic.into_iter().enumerate().collect()
    }
}
