//! Runs emulated links in real time: moves frames between the interfaces of the nodes and the model.
//!
//! Each end of an emulated link is one end of a veth pair. The other ends, the *ports*, are in a separate
//! namespace. There a single packet socket receives frames in batches with the kernel's timestamps. The
//! socket sends frames in batches when they are due in the model, and does not receive its own frames. A
//! thread runs the model of all links, and sleeps until a link has a frame to deliver or the next step of its
//! trace. The thread passes signal strengths to another thread, which writes them to the files that stations
//! read ([`signal_folder`]). If the thread is late, the model still computes with the exact times. Only the
//! delivery is late, and the module counts the delay.
//!
//! An end loses its carrier when the lab sets its port down.
//!
//! Memory is bounded by the queues of the links, the batch, and the buffer of the socket. The rate and the
//! longest delay limit the number of frames under way.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimestampns, SndBuf, SndBufForce};
use nix::sys::socket::{
    AddressFamily, ControlMessage, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType,
    recvmmsg, sendmmsg, setsockopt, socket,
};
use nix::sys::time::TimeSpec;

use super::link::{Link, LinkProperties};
use super::trace::Trace;
use super::way::Counters;
use crate::clock::{self, MILLISECOND};
use crate::isolate;
use crate::scenario_values::LinkEnd;
use crate::tools;

/// Namespace of the ports. No node can have this name, because names of nodes have no at sign.
pub const EMULATION_NAMESPACE: &str = "@links";
/// Maximum number of frames per system call.
const FRAMES_PER_BATCH: usize = 64;
/// Maximum length of a frame in octets.
const MAX_FRAME_LENGTH: usize = 9216;
/// Size of the socket's buffer in octets, for each direction.
const SOCKET_BUFFER_SIZE: usize = 16 << 20;
/// Longest wait of the thread in nanoseconds. After each wait the thread checks whether it has to end.
const MAX_WAIT_FOR_FRAMES: u64 = 50 * MILLISECOND;
/// Delays in microseconds up to this value have a counter each. All longer delays share one further counter.
const MAX_COUNTED_DELAY_MICROSECONDS: usize = 20_000;

/// Returns the name of a port: the interface in the namespace of the ports that belongs to this end of a
/// link.
pub fn port_name(link: usize, end: usize) -> String {
    format!("l{link}.{end}")
}

/// Returns the folder of a node's signal files: a file for each interface, with one value in dBm per line.
pub fn signal_folder(node: &str) -> PathBuf {
    PathBuf::from(isolate::RUN_DIRECTORY).join("signals").join(node)
}

/// Number of frames for each delay: the time from the due time of a frame to its delivery.
#[derive(Debug, Clone)]
pub struct DelayHistogram {
    delays_by_microsecond: Vec<u64>,
    frame_count: u64,
    longest_delay: u64,
}

impl Default for DelayHistogram {
    fn default() -> Self {
        Self {
            delays_by_microsecond: vec![0; MAX_COUNTED_DELAY_MICROSECONDS + 1],
            frame_count: 0,
            longest_delay: 0,
        }
    }
}

impl DelayHistogram {
    fn record_delay(&mut self, late: u64) {
        let micros = usize::try_from(late / 1000)
            .unwrap_or(MAX_COUNTED_DELAY_MICROSECONDS)
            .min(MAX_COUNTED_DELAY_MICROSECONDS);
        self.delays_by_microsecond[micros] += 1;
        self.frame_count += 1;
        self.longest_delay = self.longest_delay.max(late);
    }

    /// Returns the delay in microseconds that `percent` of the frames do not exceed. Returns `None` without
    /// frames.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let rank = (percent / 100.0 * self.frame_count as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let found = self.delays_by_microsecond.iter().position(|count| {
            sum += count;
            sum >= rank
        });
        found.filter(|_| self.frame_count > 0).map(|micros| (micros + 1) as f64)
    }

    /// Returns the longest delay, in microseconds.
    pub fn longest_delay_microseconds(&self) -> f64 {
        self.longest_delay as f64 / 1e3
    }
}

#[derive(Debug)]
struct SharedState {
    links: Mutex<Vec<Link>>,
    frame_delays: Mutex<DelayHistogram>,
    has_to_stop: AtomicBool,
    /// Number of frames that the kernel did not accept for delivery.
    refused_frames: AtomicU64,
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link to emulate.
#[derive(Debug)]
pub struct EmulatedLink {
    /// Index among all links of the scenario.
    pub index: usize,
    /// The two ends of the link.
    pub ends: [LinkEnd; 2],
    /// Properties of the link until its trace or an action changes them.
    pub properties: LinkProperties,
    /// Changes of the properties over time, from a trace file.
    pub trace: Trace,
    /// Seed of the link's randomness.
    pub seed: u64,
}

/// The running links of a scenario.
#[derive(Debug)]
pub struct Emulator {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    /// Write end of the socket that wakes the thread.
    wake_sender: UnixStream,
    /// The emulated links. Each has its index among all links of the scenario, both ends, and the properties
    /// that the scenario sets.
    emulated_links: Vec<(usize, [LinkEnd; 2], LinkProperties)>,
}

impl Emulator {
    /// Starts emulated links, whose interfaces must exist. `None` for an empty list.
    pub fn start(emulated: Vec<EmulatedLink>) -> anyhow::Result<Option<Self>> {
        if emulated.is_empty() {
            return Ok(None);
        }
        let numbers: Vec<usize> = emulated.iter().map(|link| link.index).collect();
        let mut models = Vec::new();
        let mut links = Vec::new();
        for EmulatedLink { index: number, ends, properties: nature, trace, seed } in emulated {
            models.push(Link::new(seed, nature.clone(), trace));
            links.push((number, ends, nature));
        }
        let shared = Arc::new(SharedState {
            links: Mutex::new(models),
            frame_delays: Mutex::new(DelayHistogram::default()),
            has_to_stop: AtomicBool::new(false),
            refused_frames: AtomicU64::new(0),
        });
        let signals = start_signal_writer(&links)?;
        let (bell, ear) = UnixStream::pair()?;
        ear.set_nonblocking(true)?;
        let (ready, is_ready) = mpsc::channel();
        let thread_shared = shared.clone();
        let thread = std::thread::Builder::new().name("links".into()).spawn(move || {
            let io = match FrameIo::open_ports(&numbers, ear, signals) {
                Ok(io) => io,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            request_realtime_priority();
            let _ = ready.send(Ok(()));
            io.run_until_stopped(&thread_shared)
        })?;
        is_ready.recv().context("the emulated links did not start")??;
        Ok(Some(Self { shared, thread: Some(thread), wake_sender: bell, emulated_links: links }))
    }

    fn wake_thread(&self) {
        // Ignore an error: if the socket is full, the thread wakes anyway.
        let _ = (&self.wake_sender).write(&[0]);
    }

    /// Starts the traces of all links, with all their times multiplied by `factor`.
    pub fn start_traces(&self, at: u64, factor: f64) {
        lock_ignoring_poison(&self.shared.links).iter_mut().for_each(|link| link.start_trace(at, factor));
        self.wake_thread();
    }

    /// Changes the properties of this end's link. `new` computes the new properties from the present ones and
    /// from those of the scenario.
    pub fn change_link(
        &self,
        end: &LinkEnd,
        new: impl FnOnce(&LinkProperties, &LinkProperties) -> LinkProperties,
    ) -> anyhow::Result<()> {
        let found = self.emulated_links.iter().position(|(_, ends, _)| ends.contains(end));
        let index = found.with_context(|| format!("{end} is on no emulated link"))?;
        if let Some(link) = lock_ignoring_poison(&self.shared.links).get_mut(index) {
            let nature = new(link.properties(), &self.emulated_links[index].2);
            link.set_properties(clock::monotonic_now(), nature);
        }
        self.wake_thread();
        Ok(())
    }

    /// Returns counters of the frames that each end sent.
    pub fn counters(&self) -> Vec<(&LinkEnd, Counters)> {
        let counters: Vec<[Counters; 2]> =
            lock_ignoring_poison(&self.shared.links).iter().map(Link::counters).collect();
        let pairs = self.emulated_links.iter().zip(counters);
        pairs.flat_map(|((_, ends, _), [there, back])| [(&ends[0], there), (&ends[1], back)]).collect()
    }

    /// Returns how late frames were delivered, and the number of frames that the kernel did not accept.
    pub fn delays_and_refused_frames(&self) -> (DelayHistogram, u64) {
        (
            lock_ignoring_poison(&self.shared.frame_delays).clone(),
            self.shared.refused_frames.load(Ordering::Relaxed),
        )
    }

    /// Fails if the emulation has ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(error.context("the thread that emulates the links has ended")),
            _ => Err(anyhow!("the thread that emulates the links has ended")),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.has_to_stop.store(true, Ordering::Relaxed);
        self.wake_thread();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives this thread a real-time priority (as root), so that programs in the nodes do not delay frames.
/// Without root, frames may be late on a busy machine; the metrics show this delay.
fn request_realtime_priority() {
    let thread = nix::unistd::gettid().to_string();
    let _ = Command::new(tools::path_of_program("chrt")).args(["--rr", "--pid", "1", &thread]).output();
}

/// Starts the thread that writes signal strengths to files. Returns a channel that takes the index of an
/// emulated link and its signal strength in dBm. When the function returns, the files exist and are empty.
fn start_signal_writer(
    links: &[(usize, [LinkEnd; 2], LinkProperties)],
) -> anyhow::Result<mpsc::Sender<(usize, f64)>> {
    let mut files: Vec<[File; 2]> = Vec::new();
    for (_, ends, _) in links {
        let make = |end: &LinkEnd| -> anyhow::Result<File> {
            let folder = signal_folder(&end.node);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let path = folder.join(&end.interface);
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))
        };
        files.push([make(&ends[0])?, make(&ends[1])?]);
    }
    let (sender, receiver) = mpsc::channel::<(usize, f64)>();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for (link, dbm) in receiver {
            // Write the line in one system call, so that no reader sees a part of it.
            let line = format!("{dbm}\n");
            for file in files.get_mut(link).into_iter().flatten() {
                let _ = file.write_all(line.as_bytes());
            }
        }
    })?;
    Ok(sender)
}

/// A frame to deliver: the time at which it is due, and the address of its port.
type FrameToDeliver = (u64, LinkAddr, Vec<u8>);

/// The socket in the namespace of the ports, with the addresses of the ports and the links to which they
/// belong.
struct FrameIo {
    socket: OwnedFd,
    wake_receiver: UnixStream,
    signal_sender: mpsc::Sender<(usize, f64)>,
    /// Addresses of both ports of each emulated link.
    port_addresses: Vec<[LinkAddr; 2]>,
    /// Link and end of each port, by the port's interface index.
    link_ends_by_index: HashMap<usize, (usize, usize)>,
}

impl FrameIo {
    /// Moves this thread into the namespace of the ports, and opens the socket there.
    fn open_ports(
        links: &[usize],
        ear: UnixStream,
        signals: mpsc::Sender<(usize, f64)>,
    ) -> anyhow::Result<Self> {
        let path = format!("/run/netns/{EMULATION_NAMESPACE}");
        let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
        setns(&namespace, CloneFlags::CLONE_NEWNET).context("cannot enter the namespace of the links")?;
        let mut found = HashMap::new();
        for interface in nix::ifaddrs::getifaddrs()? {
            if let Some(address) = interface.address.as_ref().and_then(|a| a.as_link_addr()) {
                found.insert(interface.interface_name.clone(), *address);
            }
        }
        let address = |link: usize, end: usize| {
            found
                .get(&port_name(link, end))
                .copied()
                .with_context(|| format!("link {link} has no port {end}"))
        };
        let mut ports = Vec::new();
        let mut ends = HashMap::new();
        for (index, link) in links.iter().enumerate() {
            let both = [address(*link, 0)?, address(*link, 1)?];
            for (end, port) in both.iter().enumerate() {
                ends.insert(port.ifindex(), (index, end));
            }
            ports.push(both);
        }
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .context("cannot open a packet socket for the links")?;
        setsockopt(&socket, ReceiveTimestampns, &true)?;
        // In a user namespace the kernel refuses to exceed its limit for socket buffers (`SO_RCVBUFFORCE`).
        // Then ask for the size within the limit.
        if setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_SIZE).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &SOCKET_BUFFER_SIZE);
        }
        if setsockopt(&socket, SndBufForce, &SOCKET_BUFFER_SIZE).is_err() {
            let _ = setsockopt(&socket, SndBuf, &SOCKET_BUFFER_SIZE);
        }
        // Set the timer slack to 1 us, in place of the usual 50 us.
        let _ = nix::sys::prctl::set_timerslack(1000);
        Ok(Self {
            socket,
            wake_receiver: ear,
            signal_sender: signals,
            port_addresses: ports,
            link_ends_by_index: ends,
        })
    }

    fn run_until_stopped(mut self, shared: &SharedState) -> anyhow::Result<()> {
        let mut arrived: Vec<FrameToDeliver> = Vec::new();
        let mut buffers = vec![vec![0_u8; MAX_FRAME_LENGTH]; FRAMES_PER_BATCH];
        while !shared.has_to_stop.load(Ordering::Relaxed) {
            let due = {
                let mut links = lock_ignoring_poison(&shared.links);
                self.receive_frames(&mut buffers, &mut links)?;
                let now = clock::monotonic_now();
                for (l, link) in links.iter_mut().enumerate() {
                    link.handle_timeout(now);
                    while let Some((at, end, frame)) = link.poll_output(now) {
                        arrived.push((at, self.port_addresses[l][end], frame));
                    }
                    if let Some(dbm) = link.poll_signal() {
                        let _ = self.signal_sender.send((l, dbm));
                    }
                }
                links.iter().filter_map(Link::poll_timeout).min()
            };
            self.send_frames(&mut arrived, shared)?;
            self.wait_for_frames(due)?;
        }
        Ok(())
    }

    /// Receives the frames that the nodes have sent.
    fn receive_frames(&self, buffers: &mut [Vec<u8>], links: &mut [Link]) -> anyhow::Result<()> {
        // Difference from the kernel's wall clock to the monotonic clock.
        let shift = clock::wall_to_monotonic_offset();
        // Receive at most four batches, so that frames that are due leave in time even under a flood of
        // received frames.
        for _ in 0..4 {
            let mut headers =
                MultiHeaders::<LinkAddr>::preallocate(FRAMES_PER_BATCH, Some(nix::cmsg_space!(TimeSpec)));
            let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                buffers.iter_mut().map(|b| [IoSliceMut::new(b)]).collect();
            let socket = self.socket.as_raw_fd();
            let messages = match recvmmsg(socket, &mut headers, slices.iter_mut(), MsgFlags::empty(), None) {
                Ok(messages) => messages,
                Err(Errno::EAGAIN) => return Ok(()),
                // The port is down or gone, or a signal interrupted the call.
                Err(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV | Errno::EINTR) => continue,
                Err(error) => return Err(error).context("the emulated links cannot receive"),
            };
            let mut count = 0;
            for message in messages {
                count += 1;
                let at = clock::arrival_time(&message, shift);
                let end =
                    message.address.and_then(|from| self.link_ends_by_index.get(&from.ifindex()).copied());
                let frame = message.iovs().next().unwrap_or_default();
                if let (Some((link, end)), true) = (end, frame.len() >= 14)
                    && let Some(link) = links.get_mut(link)
                {
                    link.enqueue(at, end, frame.to_vec());
                }
            }
            if count < FRAMES_PER_BATCH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Delivers the frames that are due.
    fn send_frames(&self, arrived: &mut Vec<FrameToDeliver>, shared: &SharedState) -> anyhow::Result<()> {
        let mut rest = arrived.as_slice();
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(FRAMES_PER_BATCH)];
            let slices: Vec<[IoSlice<'_>; 1]> =
                batch.iter().map(|(_, _, frame)| [IoSlice::new(frame)]).collect();
            let addresses: Vec<Option<LinkAddr>> = batch.iter().map(|(_, port, _)| Some(*port)).collect();
            let mut headers = MultiHeaders::<LinkAddr>::preallocate(batch.len(), None);
            let none: [ControlMessage<'_>; 0] = [];
            let socket = self.socket.as_raw_fd();
            let sent =
                match sendmmsg(socket, &mut headers, slices.iter(), &addresses, none, MsgFlags::empty()) {
                    Ok(sent) => sent.count(),
                    Err(error) => {
                        check_send_error(error)?;
                        0
                    }
                };
            let now = clock::monotonic_now();
            let mut late = lock_ignoring_poison(&shared.frame_delays);
            batch[..sent].iter().for_each(|(at, _, _)| late.record_delay(now.saturating_sub(*at)));
            // The system call stops at a frame that the kernel refuses. It returns an error only if that
            // frame is the first, so drop the first one.
            if sent == 0 {
                shared.refused_frames.fetch_add(1, Ordering::Relaxed);
            }
            rest = &rest[sent.max(1)..];
        }
        arrived.clear();
        Ok(())
    }

    /// Waits until a frame arrives, a link has work due, or another thread wakes this one.
    fn wait_for_frames(&mut self, due: Option<u64>) -> anyhow::Result<()> {
        let span = due.map_or(MAX_WAIT_FOR_FRAMES, |due| {
            due.saturating_sub(clock::monotonic_now()).min(MAX_WAIT_FOR_FRAMES)
        });
        let timeout = TimeSpec::new((span / clock::SECOND) as _, (span % clock::SECOND) as _);
        let mut fds = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake_receiver.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("the emulated links cannot wait for events"),
        }
        while self.wake_receiver.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        Ok(())
    }
}

/// Returns `Ok` if the emulation can continue after this error. It can if the interface is down or removed,
/// its send queue is full, or a signal interrupted the call. It can also continue if the frame is too long
/// for the interface.
fn check_send_error(error: Errno) -> anyhow::Result<()> {
    match error {
        Errno::ENETDOWN
        | Errno::ENXIO
        | Errno::ENODEV
        | Errno::ENOBUFS
        | Errno::EAGAIN
        | Errno::EINTR
        | Errno::EMSGSIZE => Ok(()),
        error => Err(error).context("the emulated links cannot deliver a frame"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulator_reports_lateness_in_percentiles() {
        let mut late = DelayHistogram::default();
        assert_eq!(late.percentile(50.0), None);
        (0..100).for_each(|n| late.record_delay(n * 1000));
        assert_eq!((late.percentile(50.0), late.percentile(99.0)), (Some(50.0), Some(99.0)));
        late.record_delay(10 * clock::SECOND);
        assert_eq!(late.longest_delay_microseconds(), 1e7);
    }
}
