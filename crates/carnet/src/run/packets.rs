//! Passes packets between the tunnel device, the sockets of tunnels over IPv4, and the station.

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_linux::{
    DatagramSockets, DatagramWriter, DeviceQueue, IpsecMessage, IpsecSocket, PacketTooBigReport, Platform,
    TunnelReader, TunnelWriter, clock,
};
use carnet_nemo::forwarding::forwarder::ForwardingVerdict;
use carnet_station::io::Input;
use tokio::time::Instant;

use super::StationRunner;
use crate::sessions::SessionArrival;

/// Maximum number of packets that the loop handles before it checks for other inputs.
const MAX_PACKETS_PER_BATCH: usize = 256;
/// Maximum number of control messages that the loop handles in one turn: from known senders, and from unknown
/// senders. The messages of unknown senders take fractions of a millisecond, even if the station verifies
/// each. Further messages wait in a queue of their own in the tunnel device, so they delay no other queue.
const CONTROL_QUEUE_LIMITS: [(DeviceQueue, usize); 2] =
    [(DeviceQueue::Known, MAX_PACKETS_PER_BATCH), (DeviceQueue::OtherSenders, 32)];
/// Time for which the station lets control messages gather before it reads them, if they arrive close
/// together.
const GATHER_TIME: Duration = Duration::from_millis(4);
/// Interval between packets below which the station lets packets gather, see
/// [`StationRunner::read_tunnel_packets`].
const FREQUENT_PACKET_INTERVAL: Duration = Duration::from_micros(50);

/// Decides when the station reads control messages that arrive close together, as at a home agent of very
/// many routers. The station then wakes once for several messages, because each wake-up costs more than a
/// message. A message after a longer pause is read at once.
#[derive(Debug, Default)]
pub(super) struct ReadPause {
    last_read_at: Option<Instant>,
    no_reads_until: Option<Instant>,
}

impl ReadPause {
    /// Records that the station has read `count` messages. `is_all` means that the station has read all
    /// messages of the queue.
    fn record_read(&mut self, now: Instant, count: usize, is_all: bool) {
        let is_dense = count > 1 || self.last_read_at.is_some_and(|last| now < last + GATHER_TIME);
        self.no_reads_until = (is_all && count > 0 && is_dense).then(|| now + GATHER_TIME);
        if count > 0 {
            self.last_read_at = Some(now);
        }
    }

    /// Returns the time before which the station reads no control messages; `None` if it may read them now.
    pub(super) fn no_reads_until(&self) -> Option<Instant> {
        self.no_reads_until
    }
}

impl StationRunner {
    /// Reads packets from the tunnel device until it is empty or other inputs have waited long enough.
    ///
    /// Packets may come one by one, but so fast that waking the task costs more time than handling a packet.
    /// In this case the task yields the processor once before it stops reading. The sender of the packets (a
    /// host, or the other station) can then run on this core. Its next packets arrive together. If the sender
    /// has a core of its own, or sends only a single packet, yielding changes nothing.
    pub(super) async fn read_tunnel_packets(&mut self) {
        let (now, wall) = (clock::now(), clock::wall_time());
        // Under a flood of packets the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_input(Input::Timeout);
        }
        let is_frequent = now.saturating_since(self.woken_by_packets_at) < FREQUENT_PACKET_INTERVAL;
        self.woken_by_packets_at = now;
        let (mut count, mut asked, mut has_yielded) = (0, 0, false);
        // Handle all packets that the reader has already read. A packet left in the reader would wait there
        // until the device has a further packet.
        while let Some(reader) =
            self.tunnel_reader.as_mut().filter(|r| count < MAX_PACKETS_PER_BATCH || r.is_inside_burst())
        {
            if reader.try_read_from(DeviceQueue::Forwarded, &mut self.packet_buffer).is_err() {
                self.flush_and_receive();
                if has_yielded || !is_frequent {
                    break;
                }
                // Control messages may wait, so the task reads them before it yields the core.
                asked = self.handle_control_messages(now, wall);
                if asked > 0 {
                    break;
                }
                has_yielded = true;
                std::thread::yield_now();
                continue;
            }
            has_yielded = false;
            count += 1;
            self.handle_tunnel_packet(now, wall);
        }
        let is_over = count < MAX_PACKETS_PER_BATCH;
        if asked == 0 {
            asked = self.handle_control_messages(now, wall);
        }
        if !is_over || asked > 0 {
            self.flush_and_receive();
            // Yield, so that the tasks for the kernel's events, requests and signals run. The runtime then
            // asks the kernel which sockets have packets.
            tokio::task::yield_now().await;
        }
    }

    /// Reads and handles control messages. Returns their number.
    fn handle_control_messages(&mut self, now: Time, wall: WallTime) -> usize {
        let (mut asked, mut is_all) = (0, true);
        for (queue, most) in CONTROL_QUEUE_LIMITS {
            let mut count = 0;
            while let Some(reader) =
                self.tunnel_reader.as_mut().filter(|r| count < most || r.is_inside_burst())
            {
                if reader.try_read_from(queue, &mut self.packet_buffer).is_err() {
                    break;
                }
                count += 1;
                self.handle_tunnel_packet(now, wall);
            }
            asked += count;
            is_all &= count < most;
        }
        self.read_pause.record_read(Instant::now(), asked, is_all);
        self.tunnel_reader.iter_mut().for_each(TunnelReader::move_known_senders);
        asked
    }

    /// Handles the packet from the tunnel device that is in the buffer.
    fn handle_tunnel_packet(&mut self, now: Time, wall: WallTime) {
        if let Some(sessions) = self.encrypted_sessions.get_mut() {
            match sessions.receive_ipv6_packet(now, &mut self.packet_buffer) {
                SessionArrival::Foreign => {}
                SessionArrival::Packet(from) => return self.handle_session_packet(now, wall, from),
                SessionArrival::Consumed => return,
            }
            if self.handle_packet_too_big() {
                return;
            }
        }
        if self.recorder.is_active() {
            self.recorder.record_input(now, wall, Input::Packet(self.packet_buffer.as_slice().to_vec()));
        }
        if let (Some(platform), Some(writer)) = (&mut self.platform, &mut self.tunnel_writer)
            && platform.must_return_to_kernel(self.packet_buffer.as_slice())
        {
            writer.write_in_place(&mut self.packet_buffer);
        }
        let verdict = self.station.handle_packet(now, wall, &mut self.packet_buffer);
        self.carry_out_verdict(verdict);
    }

    /// Reads tunnel packets over IPv4 or UDP until none is left or other inputs have waited long enough.
    pub(super) async fn handle_datagrams(&mut self) {
        let (now, wall) = (clock::now(), clock::wall_time());
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_input(Input::Timeout);
        }
        let mut count = 0;
        while let Some(reader) =
            self.datagram_reader.as_mut().filter(|r| count < MAX_PACKETS_PER_BATCH || r.is_inside_burst())
        {
            let Ok(received) = reader.try_read(self.packet_buffer.empty_space()) else { break };
            count += 1;
            self.packet_buffer.set_filled_length(received.length);
            let carnet_linux::ReceivedDatagram { local, remote, traffic_class, .. } = received;
            if let Some(sessions) = self.encrypted_sessions.get_mut() {
                match sessions.receive_datagram(now, (local, remote), traffic_class, &mut self.packet_buffer)
                {
                    SessionArrival::Foreign => {}
                    SessionArrival::Packet(from) => {
                        self.handle_session_packet(now, wall, from);
                        continue;
                    }
                    SessionArrival::Consumed => continue,
                }
            }
            if self.recorder.is_active() {
                let packet = self.packet_buffer.as_slice().to_vec();
                self.recorder.record_input(
                    now,
                    wall,
                    Input::Datagram { local, remote, traffic_class, packet },
                );
            }
            let verdict = self.station.handle_datagram(
                now,
                wall,
                (local, remote),
                traffic_class,
                &mut self.packet_buffer,
            );
            self.carry_out_verdict(verdict);
        }
        self.flush_and_receive();
        tokio::task::yield_now().await;
    }

    /// Reads Mobility Header messages that IPsec has verified.
    pub(super) fn read_protected_messages(&mut self, protected: &IpsecSocket) {
        for _ in 0..MAX_PACKETS_PER_BATCH {
            let Some(IpsecMessage { source, destination, flow_label: label, mobility_message: message }) =
                protected.receive()
            else {
                break;
            };
            self.handle_input(Input::Protected { source, destination, label, message });
        }
    }

    /// Executes the station's verdict on a packet.
    pub(super) fn carry_out_verdict(&mut self, verdict: ForwardingVerdict) {
        match verdict {
            ForwardingVerdict::Forward | ForwardingVerdict::Encapsulate { .. }
                if self.send_packet_in_session(verdict) => {}
            // If the packet had to wait for an output, the station would have queued it and returned another
            // verdict. So this packet may leave at once.
            ForwardingVerdict::Forward => {
                if let Some(writer) = &mut self.tunnel_writer {
                    writer.write_in_place(&mut self.packet_buffer);
                }
            }
            ForwardingVerdict::Encapsulate { local, remote, may_fragment, .. } => {
                if let Some(writer) = &mut self.datagram_writer {
                    writer.write(local, remote, may_fragment, self.packet_buffer.as_slice());
                }
            }
            ForwardingVerdict::Consumed | ForwardingVerdict::Dropped(_) => self.carry_out_in_burst(),
        }
    }

    /// Writes the waiting packets, as many as possible with one system call.
    pub(super) fn flush_packets(&mut self) {
        self.tunnel_writer.iter_mut().for_each(TunnelWriter::flush);
        self.datagram_writer.iter_mut().for_each(DatagramWriter::flush);
    }

    /// Ends a burst of packets: passes changes to the fast path, writes waiting packets, and handles finished
    /// commits.
    fn flush_and_receive(&mut self) {
        self.handle_sessions();
        self.commit_outdated_fast_path();
        self.flush_packets();
        let datagrams = self.platform.as_ref().map(Platform::datagram_sockets);
        while let Some(PacketTooBigReport { local, remote, mtu }) =
            datagrams.as_ref().and_then(DatagramSockets::poll_too_big_report)
        {
            let (local, remote) = match self.encrypted_sessions.get() {
                Some(sessions) => sessions.ends_of_too_big_report(local, remote),
                None => (local, remote),
            };
            self.handle_input(Input::DatagramTooBig { local, remote, mtu });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_reads_a_lone_packet_at_once_and_frequent_packets_in_batches() {
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        let mut gathering = ReadPause::default();
        gathering.record_read(begin, 1, true);
        assert_eq!(gathering.no_reads_until(), None, "one by itself");
        gathering.record_read(begin + ms(2), 1, true);
        assert_eq!(gathering.no_reads_until(), Some(begin + ms(6)), "soon after another");
        gathering.record_read(begin + ms(6), 4, true);
        assert_eq!(gathering.no_reads_until(), Some(begin + ms(10)), "several");
        gathering.record_read(begin + ms(10), 256, false);
        assert_eq!(gathering.no_reads_until(), None, "there are more");
        gathering.record_read(begin + ms(11), 0, true);
        gathering.record_read(begin + ms(14), 1, true);
        assert_eq!(gathering.no_reads_until(), None, "after a pause");
    }
}
