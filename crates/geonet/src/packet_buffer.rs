//! The forwarding packet buffers (8.5) and the Location Service packet buffers (8.4).
//!
//! A buffer is a first-in first-out list, bounded by octets. On overflow the buffer drops its oldest packets
//! (CAP_LOS_BV_01, CAP_FPB_BV_01, CAP_FPB_BV_02). It also drops a packet whose lifetime ends. When a packet
//! leaves the buffer, its lifetime is reduced by the time that it waited (10.3.8.3).

use std::collections::VecDeque;

use carnet_base::Time;

use crate::packet::{BufferedPacket, PacketProperties};

/// A bounded first-in first-out buffer.
#[derive(Debug)]
pub(crate) struct PacketBuffer {
    packets: VecDeque<BufferedPacket>,
    octets: usize,
    /// Lower bound of the times at which the lifetimes of the packets end; before it, no packet can expire.
    next_expiry: Time,
}

impl Default for PacketBuffer {
    fn default() -> Self {
        PacketBuffer { packets: VecDeque::new(), octets: 0, next_expiry: Time::MAX }
    }
}

impl PacketBuffer {
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn octets(&self) -> usize {
        self.octets
    }

    pub fn next_expiry(&self) -> Option<Time> {
        (!self.is_empty()).then_some(self.next_expiry)
    }

    /// Appends a packet. If the buffer then has more than `limit` octets, passes the oldest packets to
    /// `pushed_out`. If the new packet alone has more than `limit` octets, passes it to `pushed_out`.
    pub fn push(&mut self, packet: BufferedPacket, limit: usize, mut pushed_out: impl FnMut(BufferedPacket)) {
        if packet.frame.len() > limit {
            pushed_out(packet);
            return;
        }
        while self.octets + packet.frame.len() > limit
            && let Some(oldest) = self.packets.pop_front()
        {
            self.octets -= oldest.frame.len();
            pushed_out(oldest);
        }
        self.octets += packet.frame.len();
        self.next_expiry = self.next_expiry.min(packet.properties.expires_at());
        self.packets.push_back(packet);
    }

    /// Removes the packets for which `wanted` returns true, and returns them in their order.
    pub fn remove_matching(&mut self, wanted: impl Fn(&PacketProperties) -> bool) -> Vec<BufferedPacket> {
        let mut taken = Vec::new();
        // Usually no packet matches: return at once without moving the packets in memory.
        if !self.packets.iter().any(|packet| wanted(&packet.properties)) {
            return taken;
        }
        for _ in 0..self.packets.len() {
            let Some(packet) = self.packets.pop_front() else { break };
            if wanted(&packet.properties) {
                self.octets -= packet.frame.len();
                taken.push(packet);
            } else {
                self.packets.push_back(packet);
            }
        }
        taken
    }

    /// Removes and returns all packets whose lifetime has ended.
    pub fn remove_expired(&mut self, now: Time) -> Vec<BufferedPacket> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let expired = self.remove_matching(|meta| meta.expires_at() <= now);
        self.next_expiry = self.packets.iter().map(|p| p.properties.expires_at()).min().unwrap_or(Time::MAX);
        expired
    }
}
