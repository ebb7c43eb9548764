//! Runs the radio medium in real time: moves frames between the interfaces of the nodes and the model.
//!
//! The radio interface of a node is one end of a veth pair (`veth`). If the kernel has mac80211_hwsim, the
//! interface may be a radio of that module, with the whole 802.11 stack ([`hwsim`]). A thread runs the model
//! (`crate::medium`): it passes the frames to the model, and wakes at the time of the model's next event.
//! If the thread is late, the model still computes with the exact times, and only the delivery is late. A
//! radio has the address of its interface: if a station changes that address, the radio changes it too
//! (`addresses`).
//!
//! Memory is bounded by the queue of each radio, the batch of frames, and the buffer of the socket. The
//! medium drops and counts frames beyond these bounds.

mod addresses;
pub mod hwsim;
mod netlink;
mod veth;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::clock::{self, MILLISECOND};
use crate::medium::channel::{Channel, ChannelOutput, MacAddress};
use crate::medium::stats::Counters;
use crate::packet_mark::{PacketMark, find_packet_mark};
use crate::scenario::Scenario;
use addresses::AddressFollower;

/// Kind of the nodes' radios.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RadioKind {
    /// Ethernet, with the model between the nodes.
    #[default]
    Veth,
    /// 802.11 of the kernel outside the context of a BSS, on radios of mac80211_hwsim.
    Hwsim,
}

/// Namespace of the medium's ends. No node can have this name, because names of nodes have no at sign.
pub const MEDIUM_NAMESPACE: &str = "@medium";
/// Largest number of frames that the thread receives before it runs the radio model.
const FRAMES_PER_BATCH: usize = 256;
/// Maximum length of a frame in octets.
const MAX_FRAME_LENGTH: usize = 2048;
/// Size of the socket's receive buffer in octets.
const RECEIVE_BUFFER_SIZE: usize = 8 << 20;
/// Longest wait of the thread in nanoseconds. After each wait the thread checks whether it has to end.
const MAX_WAIT_FOR_FRAMES: u64 = 50 * MILLISECOND;

/// Number of transmissions of one packet, by kind of transmission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketTransmissions {
    /// Number of frames that carried the packet; each try counts.
    pub transmissions: u64,
    /// Unicast frames among `transmissions`.
    pub unicast: u64,
    /// Radios that sent the packet.
    pub sending_radios: BTreeSet<usize>,
}

/// State of a running medium that other threads read.
#[derive(Debug)]
struct SharedState {
    state: Mutex<MediumState>,
    has_to_stop: AtomicBool,
    /// Number of frames that were delivered to a node.
    delivered_frames: AtomicU64,
    /// Number of frames that the kernel did not accept for delivery.
    refused_frames: AtomicU64,
    /// Sum of the deliveries' lateness in nanoseconds; `longest_delay` is the maximum.
    total_delay: AtomicU64,
    longest_delay: AtomicU64,
}

/// Lateness of the medium's deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MediumLateness {
    /// Frames that the kernel did not accept for delivery to a node.
    pub refused_frames: u64,
    /// Frames that were delivered.
    pub delivered_frames: u64,
    /// Mean lateness of deliveries, in milliseconds.
    pub mean_delay_ms: f64,
    /// Largest lateness of a delivery, in milliseconds.
    pub longest_delay_ms: f64,
}

#[derive(Debug)]
struct MediumState {
    channel: Channel,
    transmissions_by_mark: BTreeMap<PacketMark, PacketTransmissions>,
}

/// The running radio medium of a scenario.
#[derive(Debug)]
pub struct Medium {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    /// Names of the nodes, in the order of their radios.
    pub nodes: Vec<String>,
    _addresses: AddressFollower,
}

/// Returns the nodes that have a radio, in order.
pub fn nodes_with_radio(scenario: &Scenario) -> Vec<String> {
    scenario.tracks.keys().cloned().collect()
}

/// Returns the link-layer address that a radio has until its station changes it. It is 02:00:01:00:00:01 for
/// the first node with a radio, by name.
pub fn radio_mac(number: usize) -> MacAddress {
    let [high, low] = (number as u16 + 1).to_be_bytes();
    [2, 0, 1, 0, high, low]
}

/// Formats a link-layer address.
pub fn format_mac(mac: MacAddress) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// Returns the name of the interface in the medium's namespace that leads to a radio.
pub fn port_name(number: usize) -> String {
    format!("r{number}")
}

impl Medium {
    /// Starts the radio medium of a scenario, whose interfaces must exist already. The tracks begin at
    /// `epoch`. `None` if the scenario has no radio. `radios` are those of mac80211_hwsim, if the run uses
    /// them.
    pub fn start(
        scenario: &Scenario,
        epoch: u64,
        radios: Option<hwsim::Hwsim>,
    ) -> anyhow::Result<Option<Medium>> {
        let Some(medium) = &scenario.medium else { return Ok(None) };
        let nodes = nodes_with_radio(scenario);
        let tracks = scenario.tracks.values().enumerate().map(|(n, track)| (radio_mac(n), track.clone()));
        let channel = Channel::new(medium.channel_parameters(), epoch, tracks.collect());
        let shared = Arc::new(SharedState {
            state: Mutex::new(MediumState { channel, transmissions_by_mark: BTreeMap::new() }),
            has_to_stop: AtomicBool::new(false),
            delivered_frames: AtomicU64::new(0),
            refused_frames: AtomicU64::new(0),
            total_delay: AtomicU64::new(0),
            longest_delay: AtomicU64::new(0),
        });
        let (ready, is_ready) = mpsc::channel();
        let (thread_shared, count) = (shared.clone(), nodes.len());
        let thread = std::thread::Builder::new().name("medium".into()).spawn(move || {
            let open = || -> anyhow::Result<Box<dyn FrameTransport>> {
                Ok(match radios {
                    Some(radios) => Box::new(radios),
                    None => Box::new(veth::VethRadios::open_ports(count)?),
                })
            };
            let carrier = match open() {
                Ok(carrier) => carrier,
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return Ok(());
                }
            };
            let _ = ready.send(Ok(()));
            run_until_stopped(carrier, &thread_shared)
        })?;
        is_ready.recv().context("the medium did not start")??;
        let interface = |node: &String| {
            let interface = scenario.radio_of(node).unwrap_or_default();
            (node.clone(), interface.to_owned())
        };
        let followed = shared.clone();
        let addresses =
            AddressFollower::follow_addresses(nodes.iter().map(interface).collect(), move |radio, mac| {
                let mut state = followed.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.channel.set_address(radio, mac);
            })?;
        Ok(Some(Medium { shared, thread: Some(thread), nodes, _addresses: addresses }))
    }

    fn lock_state(&self) -> MutexGuard<'_, MediumState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the radio of a node behind a wall, or removes the wall.
    pub fn set_enclosed(&self, node: &str, walled: bool) {
        if let Some(radio) = self.nodes.iter().position(|name| name == node) {
            self.lock_state().channel.set_enclosed(radio, walled);
        }
    }

    /// Returns the present link-layer address of a node's radio; `None` if the node has no radio.
    pub fn radio_address(&self, node: &str) -> Option<MacAddress> {
        let radio = self.nodes.iter().position(|name| name == node)?;
        self.lock_state().channel.address(radio)
    }

    /// Returns the present counters of each radio.
    pub fn counters(&self) -> Vec<Counters> {
        self.lock_state().channel.counters()
    }

    /// Returns the number of transmissions of each marked packet that was on the air.
    pub fn transmissions_by_mark(&self) -> BTreeMap<PacketMark, PacketTransmissions> {
        self.lock_state().transmissions_by_mark.clone()
    }

    /// Returns the lateness of the medium's deliveries.
    pub fn measured_lateness(&self) -> MediumLateness {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let shared = &self.shared;
        MediumLateness {
            refused_frames: load(&shared.refused_frames),
            delivered_frames: load(&shared.delivered_frames),
            mean_delay_ms: load(&shared.total_delay) as f64
                / load(&shared.delivered_frames).max(1) as f64
                / 1e6,
            longest_delay_ms: load(&shared.longest_delay) as f64 / 1e6,
        }
    }

    /// Fails if the medium has ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => {
                Err(error.context("the thread that simulates the radio medium has ended"))
            }
            _ => Err(anyhow!("the thread that simulates the radio medium has ended")),
        }
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        self.shared.has_to_stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves frames between the interfaces of the nodes and the model.
trait FrameTransport {
    /// Receives the frames that the nodes have sent, without waiting. Returns how many frames the kernel has
    /// dropped.
    fn receive(&mut self, channel: &mut Channel) -> anyhow::Result<u64>;

    /// Executes an output of the model. For a delivery, returns whether the kernel accepted the frame;
    /// otherwise `None`.
    fn execute_output(&mut self, output: &ChannelOutput) -> anyhow::Result<Option<bool>>;

    /// Returns a descriptor that is readable when frames are waiting.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

fn run_until_stopped(mut carrier: Box<dyn FrameTransport>, shared: &SharedState) -> anyhow::Result<()> {
    // Sets the timer slack to 1 us, in place of the usual 50 us.
    let _ = nix::sys::prctl::set_timerslack(1000);
    let mut outputs = Vec::new();
    while !shared.has_to_stop.load(Ordering::Relaxed) {
        let due = {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            let state = &mut *state;
            let refused = carrier.receive(&mut state.channel)?;
            shared.refused_frames.fetch_add(refused, Ordering::Relaxed);
            state.channel.handle_timeout(clock::monotonic_now());
            while let Some(output) = state.channel.poll_output() {
                if let ChannelOutput::Sent { radio, frame, .. } = &output
                    && let Some(mark) = find_packet_mark(frame)
                {
                    let on_air = state.transmissions_by_mark.entry(mark).or_default();
                    on_air.transmissions += 1;
                    on_air.unicast += u64::from(frame.first().is_some_and(|octet| octet & 1 == 0));
                    on_air.sending_radios.insert(*radio);
                }
                outputs.push(output);
            }
            state.channel.poll_timeout()
        };
        for output in outputs.drain(..) {
            match (carrier.execute_output(&output)?, &output) {
                (Some(true), ChannelOutput::Received { at, .. }) => {
                    let late = clock::monotonic_now().saturating_sub(*at);
                    shared.delivered_frames.fetch_add(1, Ordering::Relaxed);
                    shared.total_delay.fetch_add(late, Ordering::Relaxed);
                    shared.longest_delay.fetch_max(late, Ordering::Relaxed);
                }
                (Some(false), _) => drop(shared.refused_frames.fetch_add(1, Ordering::Relaxed)),
                _ => {}
            }
        }
        wait_for_frames(carrier.descriptor(), due)?;
    }
    Ok(())
}

/// Waits until a frame arrives, at most until the time `due`.
fn wait_for_frames(descriptor: BorrowedFd<'_>, due: Option<u64>) -> anyhow::Result<()> {
    let span = due.map_or(MAX_WAIT_FOR_FRAMES, |due| {
        due.saturating_sub(clock::monotonic_now()).min(MAX_WAIT_FOR_FRAMES)
    });
    let mut fds = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let timeout = TimeSpec::new((span / clock::SECOND) as _, (span % clock::SECOND) as _);
    match ppoll(&mut fds, Some(timeout), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("the medium cannot wait"),
    }
}
