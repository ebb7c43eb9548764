//! Traffic between hosts, and the capture of packets.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{RcvBuf, ReceiveTimeout};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, recvfrom, sendto,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::hosts::{Host, seconds, time_factor, wait_until};

pub const ECHO_PORT: u16 = 4242;
/// Size of receive buffers in octets. The buffers are large, so that a delayed test loses no packet.
const SOCKET_BUFFER_SIZE: usize = 1 << 20;
/// Number of unanswered packets from which an [`EchoTraffic`] waits for answers, but not for longer than
/// [`LOST_AFTER`]. Otherwise the queues between the hosts would overflow while other programs use the
/// processors.
const MAX_UNANSWERED_PACKETS: u64 = 200;
const LOST_AFTER: Duration = Duration::from_millis(250);

/// Results of the packets that an [`EchoTraffic`] has sent.
#[derive(Debug)]
pub struct TrafficReport {
    pub sent_packets: u64,
    pub lost_packets: u64,
    /// Number of answers that arrived after an answer with a higher number.
    pub reordered_packets: u64,
    /// Longest time between two answers.
    pub longest_silence: Duration,
    /// Longest delay in sending a packet that the test machine itself caused.
    pub longest_send_stall: Duration,
}

/// Sends numbered UDP packets from one host to another host, which sends each packet back.
pub struct EchoTraffic {
    has_to_stop: Arc<AtomicBool>,
    sender_has_finished: Arc<AtomicBool>,
    answered_packets: Arc<AtomicU64>,
    sender_thread: JoinHandle<(u64, Duration)>,
    receiver_thread: JoinHandle<(u64, Duration)>,
    server_thread: JoinHandle<()>,
}

fn bind_udp_socket(address: Ipv6Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).expect("a UDP socket");
    setsockopt(&socket, RcvBuf, &SOCKET_BUFFER_SIZE).expect("a buffer");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    socket
}

impl EchoTraffic {
    /// Sends `per_second` packets a second until [`Self::stop`], fewer on a slow or busy machine.
    pub fn start(client: &Host, from: Ipv6Addr, server: &Host, to: Ipv6Addr, per_second: u32) -> EchoTraffic {
        let per_second = if per_second > 100 { per_second / time_factor() } else { per_second };
        let stop = Arc::new(AtomicBool::new(false));
        let finished = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let done = finished.clone();
        let server = server.run_in_namespace(move || {
            let socket = bind_udp_socket(to, ECHO_PORT);
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while !done.load(Ordering::Relaxed) {
                    if let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&buffer[..length], peer);
                    }
                }
            })
        });
        let (stopped, done) = (stop.clone(), finished.clone());
        let (count, behind) = (answered.clone(), answered.clone());
        let (sender, receiver) = client.run_in_namespace(move || {
            let socket = bind_udp_socket(from, 0);
            let reader = socket.try_clone().expect("the socket again");
            let sender = thread::spawn(move || send_packets(&socket, to, per_second, &behind, &stopped));
            (sender, thread::spawn(move || receive_answers(&reader, &count, &done)))
        });
        EchoTraffic {
            has_to_stop: stop,
            sender_has_finished: finished,
            answered_packets: answered,
            sender_thread: sender,
            receiver_thread: receiver,
            server_thread: server,
        }
    }

    /// Returns the number of answers so far.
    pub fn answered_packets(&self) -> u64 {
        self.answered_packets.load(Ordering::Relaxed)
    }

    /// Waits until answers to further packets arrive.
    pub fn wait_for_further_answers(&self) {
        let before = self.answered_packets();
        wait_until("traffic flows", seconds(20), || self.answered_packets() > before + 2);
    }

    /// Stops sending, waits for the last answers and returns the results.
    pub fn stop(self) -> TrafficReport {
        self.has_to_stop.store(true, Ordering::Relaxed);
        let (sent, stalled) = self.sender_thread.join().expect("the sender");
        // Stop waiting when no answer has come for a second; on a busy machine wait longer.
        let (mut answered, mut quiet) = (0, 0);
        while answered < sent && quiet < 50 {
            thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut answered, self.answered_packets.load(Ordering::Relaxed));
            quiet = if answered > before { 0 } else { quiet + 1 };
        }
        self.sender_has_finished.store(true, Ordering::Relaxed);
        let (reordered, silence) = self.receiver_thread.join().expect("the receiver");
        self.server_thread.join().expect("the server");
        TrafficReport {
            sent_packets: sent,
            lost_packets: sent - self.answered_packets.load(Ordering::Relaxed),
            reordered_packets: reordered,
            longest_silence: silence,
            longest_send_stall: stalled,
        }
    }
}

/// Sends packets until the traffic is stopped. Returns the number of sent packets, and the longest delay in
/// sending that the machine caused.
fn send_packets(
    socket: &UdpSocket,
    to: Ipv6Addr,
    per_second: u32,
    answered: &AtomicU64,
    stop: &AtomicBool,
) -> (u64, Duration) {
    let interval = seconds(1) / per_second;
    let (mut number, mut due) = (0u64, Instant::now());
    let (mut written_off, mut stalled) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let unanswered = || number.saturating_sub(answered.load(Ordering::Relaxed));
        let waits = Instant::now();
        while unanswered() > written_off + MAX_UNANSWERED_PACKETS {
            if waits.elapsed() > LOST_AFTER {
                written_off = unanswered();
            }
            thread::sleep(Duration::from_millis(1));
        }
        // Without a route the kernel refuses the packet. The packet counts as sent and lost.
        let _ = socket.send_to(&number.to_be_bytes(), (to, ECHO_PORT));
        number += 1;
        // After a delay of the sender, do not send all missed packets at once.
        due = (due + interval).max(Instant::now() - 20 * interval);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stalled = stalled.max(due.elapsed());
    }
    (number, stalled)
}

fn receive_answers(socket: &UdpSocket, answered: &AtomicU64, finished: &AtomicBool) -> (u64, Duration) {
    let mut buffer = [0; 64];
    let (mut next, mut reordered, mut silence) = (0u64, 0, Duration::ZERO);
    let mut last: Option<Instant> = None;
    while !finished.load(Ordering::Relaxed) {
        let Ok((8, _)) = socket.recv_from(&mut buffer) else { continue };
        let number = u64::from_be_bytes(buffer[..8].try_into().expect("eight octets"));
        let now = Instant::now();
        silence = silence.max(last.map_or(Duration::ZERO, |last| now - last));
        last = Some(now);
        if number < next {
            reordered += 1;
        }
        next = next.max(number + 1);
        answered.fetch_add(1, Ordering::Relaxed);
    }
    (reordered, silence)
}

/// Sends IPv6 packets unchanged, so that they may be malformed.
pub struct RawSender(OwnedFd);

impl RawSender {
    pub fn new(host: &Host) -> RawSender {
        RawSender(host.run_in_namespace(|| {
            socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)
                .expect("a raw socket")
        }))
    }

    /// Sends a packet towards `to`. If `to` is a link-local address, the packet leaves by the interface with
    /// this index. Returns `false` if the kernel refuses the packet.
    pub fn send_packet(&self, packet: &[u8], to: Ipv6Addr, interface: u32) -> bool {
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, interface));
        sendto(self.0.as_raw_fd(), packet, &to, MsgFlags::empty()).is_ok()
    }
}

/// Captures the IP packets that a host receives.
pub struct PacketSniffer {
    has_to_stop: Arc<AtomicBool>,
    seen_packets: Arc<Mutex<Vec<Vec<u8>>>>,
    sniffer_thread: JoinHandle<()>,
}

impl PacketSniffer {
    /// Starts to capture IPv6 packets on the interfaces with these names.
    pub fn start(host: &Host, interfaces: &'static [&'static str]) -> PacketSniffer {
        PacketSniffer::start_for(host, interfaces, 6)
    }

    /// Starts to capture packets of one IP version on the interfaces with these names.
    pub fn start_for(host: &Host, interfaces: &'static [&'static str], version: u8) -> PacketSniffer {
        let stop = Arc::new(AtomicBool::new(false));
        let packets = Arc::new(Mutex::new(Vec::new()));
        let (stopped, heard) = (stop.clone(), packets.clone());
        let thread = host.run_in_namespace(move || {
            let indexes: Vec<usize> = interfaces.iter().map(|name| interface_index(name) as usize).collect();
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)
                .expect("a packet socket");
            setsockopt(&socket, ReceiveTimeout, &TimeVal::milliseconds(50)).expect("a timeout");
            setsockopt(&socket, RcvBuf, &SOCKET_BUFFER_SIZE).expect("a buffer");
            thread::spawn(move || sniff_packets(&socket, &indexes, version, &stopped, &heard))
        });
        PacketSniffer { has_to_stop: stop, seen_packets: packets, sniffer_thread: thread }
    }

    /// Returns the packets captured so far, in order.
    pub fn seen_packets(&self) -> Vec<Vec<u8>> {
        self.seen_packets.lock().expect("the sniffer").clone()
    }

    /// Returns the number of packets captured so far.
    pub fn packet_count(&self) -> usize {
        self.seen_packets.lock().expect("the sniffer").len()
    }

    /// Stops the capture, and returns the packets in order.
    pub fn stop(self) -> Vec<Vec<u8>> {
        self.has_to_stop.store(true, Ordering::Relaxed);
        self.sniffer_thread.join().expect("the sniffer");
        self.seen_packets.lock().expect("the sniffer").split_off(0)
    }
}

fn sniff_packets(
    socket: &OwnedFd,
    indexes: &[usize],
    version: u8,
    stop: &AtomicBool,
    packets: &Mutex<Vec<Vec<u8>>>,
) {
    /// Value of `PACKET_OUTGOING` in linux/if_packet.h.
    const PACKET_OUTGOING: u8 = 4;
    let mut buffer = [0; 10_000];
    let mut ending: Option<Instant> = None;
    loop {
        // Under continuous traffic the capture would never have a pause, so end it after a second.
        if stop.load(Ordering::Relaxed) && ending.get_or_insert_with(Instant::now).elapsed() > seconds(1) {
            return;
        }
        match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
            Ok((length, Some(from))) => {
                let incoming = from.pkttype() != PACKET_OUTGOING && indexes.contains(&from.ifindex());
                if incoming && buffer[..length].first().is_some_and(|octet| octet >> 4 == version) {
                    packets.lock().expect("the test").push(buffer[..length].to_vec());
                }
            }
            _ if stop.load(Ordering::Relaxed) => return,
            _ => {}
        }
    }
}

/// Returns the index of an interface in the network namespace of the calling thread.
pub fn interface_index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("an interface")
}
