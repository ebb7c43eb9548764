//! Traffic between hosts, and capture of packets.

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

use crate::hosts::{Host, seconds, slowness, wait_until};

const PORT: u16 = 4242;
/// Size of receive buffers in octets, so that a delayed test loses nothing.
const BUFFER: usize = 1 << 20;
/// With this number of packets unanswered, an [`Echo`] waits for those on their way, but not for longer than
/// [`LOST_AFTER`]. No queue between the hosts has room for all that arrive while other programs have the
/// processors.
const UNANSWERED: u64 = 200;
const LOST_AFTER: Duration = Duration::from_millis(250);

/// Result of the packets of an [`Echo`].
#[derive(Debug)]
pub struct Report {
    pub sent: u64,
    pub lost: u64,
    /// Answers that arrived after one with a higher number.
    pub reordered: u64,
    /// Longest time between two answers.
    pub silence: Duration,
    /// Longest delay of the sender by the machine.
    pub stalled: Duration,
}

/// Numbered UDP packets from one host to another, which sends each back.
pub struct Echo {
    stop: Arc<AtomicBool>,
    finished: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    sender: JoinHandle<(u64, Duration)>,
    receiver: JoinHandle<(u64, Duration)>,
    server: JoinHandle<()>,
}

fn udp(address: Ipv6Addr, port: u16) -> UdpSocket {
    let socket = UdpSocket::bind((address, port)).expect("a UDP socket");
    setsockopt(&socket, RcvBuf, &BUFFER).expect("a buffer");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    socket
}

impl Echo {
    /// Sends `per_second` packets a second until [`Self::stop`], fewer on a slow or busy machine.
    pub fn start(client: &Host, from: Ipv6Addr, server: &Host, to: Ipv6Addr, per_second: u32) -> Echo {
        let per_second = if per_second > 100 { per_second / slowness() } else { per_second };
        let stop = Arc::new(AtomicBool::new(false));
        let finished = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicU64::new(0));
        let done = finished.clone();
        let server = server.run(move || {
            let socket = udp(to, PORT);
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
        let (sender, receiver) = client.run(move || {
            let socket = udp(from, 0);
            let reader = socket.try_clone().expect("the socket again");
            let sender = thread::spawn(move || send(&socket, to, per_second, &behind, &stopped));
            (sender, thread::spawn(move || receive(&reader, &count, &done)))
        });
        Echo { stop, finished, answered, sender, receiver, server }
    }

    /// Returns the number of answers so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for answers.
    pub fn flows(&self) {
        let before = self.answered();
        wait_until("traffic flows", seconds(20), || self.answered() > before + 2);
    }

    /// Stops sending, waits for the last answers and returns the result.
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, stalled) = self.sender.join().expect("the sender");
        // Until no answer has come for a second, more on a busy machine.
        let (mut answered, mut quiet) = (0, 0);
        while answered < sent && quiet < 50 {
            thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut answered, self.answered.load(Ordering::Relaxed));
            quiet = if answered > before { 0 } else { quiet + 1 };
        }
        self.finished.store(true, Ordering::Relaxed);
        let (reordered, silence) = self.receiver.join().expect("the receiver");
        self.server.join().expect("the server");
        Report { sent, lost: sent - self.answered.load(Ordering::Relaxed), reordered, silence, stalled }
    }
}

/// Returns the number of sent packets, and the longest delay.
fn send(
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
        while unanswered() > written_off + UNANSWERED {
            if waits.elapsed() > LOST_AFTER {
                written_off = unanswered();
            }
            thread::sleep(Duration::from_millis(1));
        }
        // Without a route the kernel refuses the packet; it counts as sent and lost.
        let _ = socket.send_to(&number.to_be_bytes(), (to, PORT));
        number += 1;
        // After a delay by the machine, missed packets are not all sent at once.
        due = (due + interval).max(Instant::now() - 20 * interval);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        stalled = stalled.max(due.elapsed());
    }
    (number, stalled)
}

fn receive(socket: &UdpSocket, answered: &AtomicU64, finished: &AtomicBool) -> (u64, Duration) {
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

/// Sends IPv6 packets unchanged, also malformed ones.
pub struct Cannon(OwnedFd);

impl Cannon {
    pub fn new(host: &Host) -> Cannon {
        Cannon(host.run(|| {
            socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)
                .expect("a raw socket")
        }))
    }

    /// Sends a packet towards `to` (for a link-local address, out of the interface with this index). Returns
    /// `false` if the kernel refuses.
    pub fn fire(&self, packet: &[u8], to: Ipv6Addr, interface: u32) -> bool {
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, interface));
        sendto(self.0.as_raw_fd(), packet, &to, MsgFlags::empty()).is_ok()
    }
}

/// Captures the IPv6 packets that a host receives.
pub struct Sniffer {
    stop: Arc<AtomicBool>,
    packets: Arc<Mutex<Vec<Vec<u8>>>>,
    thread: JoinHandle<()>,
}

impl Sniffer {
    /// Starts on the interfaces with these names.
    pub fn start(host: &Host, interfaces: &'static [&'static str]) -> Sniffer {
        Sniffer::start_for(host, interfaces, 6)
    }

    /// Starts on the interfaces with these names, for packets of one version of IP.
    pub fn start_for(host: &Host, interfaces: &'static [&'static str], version: u8) -> Sniffer {
        let stop = Arc::new(AtomicBool::new(false));
        let packets = Arc::new(Mutex::new(Vec::new()));
        let (stopped, heard) = (stop.clone(), packets.clone());
        let thread = host.run(move || {
            let indexes: Vec<usize> = interfaces.iter().map(|name| index(name) as usize).collect();
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll)
                .expect("a packet socket");
            setsockopt(&socket, ReceiveTimeout, &TimeVal::milliseconds(50)).expect("a timeout");
            setsockopt(&socket, RcvBuf, &BUFFER).expect("a buffer");
            thread::spawn(move || sniff(&socket, &indexes, version, &stopped, &heard))
        });
        Sniffer { stop, packets, thread }
    }

    /// Returns the packets so far, in order.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.packets.lock().expect("the sniffer").clone()
    }

    /// Returns the number of packets so far.
    pub fn count(&self) -> usize {
        self.packets.lock().expect("the sniffer").len()
    }

    /// Returns the packets, in order.
    pub fn stop(self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sniffer");
        self.packets.lock().expect("the sniffer").split_off(0)
    }
}

fn sniff(socket: &OwnedFd, indexes: &[usize], version: u8, stop: &AtomicBool, packets: &Mutex<Vec<Vec<u8>>>) {
    /// `PACKET_OUTGOING` of linux/if_packet.h.
    const OUTGOING: u8 = 4;
    let mut buffer = [0; 10_000];
    let mut ending: Option<Instant> = None;
    loop {
        // With continuous traffic there is no silence to wait for.
        if stop.load(Ordering::Relaxed) && ending.get_or_insert_with(Instant::now).elapsed() > seconds(1) {
            return;
        }
        match recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) {
            Ok((length, Some(from))) => {
                let incoming = from.pkttype() != OUTGOING && indexes.contains(&from.ifindex());
                if incoming && buffer[..length].first().is_some_and(|octet| octet >> 4 == version) {
                    packets.lock().expect("the test").push(buffer[..length].to_vec());
                }
            }
            _ if stop.load(Ordering::Relaxed) => return,
            _ => {}
        }
    }
}

/// Index of an interface of the calling thread's host.
pub fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("an interface")
}
