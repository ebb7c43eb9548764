//! The fast path of IPv6 over GeoNetworking: `bpf/geonet.bpf.c`.
//!
//! The programs are attached to the radio and to the virtual interface by index; both interfaces may come and
//! go. The router tells the programs which packets to handle ([`GeonetPath::apply`]), and reads which packets
//! they have handled ([`GeonetPath::report`]). The programs stop if the router has sent no update for
//! [`UPDATE_TIMEOUT`]. So their data, for example the position, is never older than [`UPDATE_TIMEOUT`].
//!
//! Behind the virtual interface stands a pair of virtual Ethernet devices, see `pair`. Both devices have the
//! device group `PAIR_DEVICE_GROUP`. After a crash, the next start finds them by this group and removes them
//! ([`remove_leftovers`]).

mod maps;
mod pair;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use aya::maps::{HashMap as BpfHashMap, MapData, PerCpuArray};
use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use aya::{Ebpf, EbpfLoader, Pod};
use carnet_base::Time;
use carnet_cits::geonetworking::acceleration::{
    Accelerate, FastPathReport, General, Onward, SequenceNumbers, SourceSummary, Way,
};
use carnet_wire::geonet::LongPositionVector;
use tokio::sync::oneshot;

use self::maps::{
    ForwardingPathValue, OwnPacketPathValue, SharedCounters, SharedSequence, SourceValue, StateValue, key_of,
};
use self::pair::VethPair;
use super::PAIR_DEVICE_GROUP;
use super::errors::error_with_causes;
use super::hook::{Hook, PRIORITY};
use super::programs::find_program;
use crate::clock;
use crate::error::Result;
use crate::memory::give_back_memory;
use crate::netlink::Requests;

/// Time after the router's last update at which the BPF programs stop forwarding.
pub const UPDATE_TIMEOUT: Duration = Duration::from_millis(250);
/// Time after the programs' first permission for a station in which they still leave its frames to the slow
/// path. Earlier frames of the station may wait there.
const NEW_STATION_DELAY: Duration = Duration::from_millis(50);
/// Maximum number of destinations of own packets, and of destinations of forwarded packets;
/// `MAX_DESTINATIONS` in C.
const MAX_DESTINATIONS: usize = 1024;
/// MTU of the pair in octets: the longest Ethernet payload.
const PAIR_MTU: u32 = 9216;
/// Flag `BPF_F_LOCK`: the kernel reads a value atomically.
const ATOMIC_READ_FLAG: u64 = 4;

/// Names of the values of `enum count`, without the last value, which counts lost packets.
const COUNTER_NAMES: [&str; 5] = ["sent", "delivered", "forwarded", "duplicates", "failed"];

/// An interface to which programs are attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedInterface {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
}

/// The interfaces of the fast path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastPathInterfaces {
    /// Interface of the radio.
    pub radio: AttachedInterface,
    /// Virtual interface of IPv6; `None` for a station that only forwards.
    pub virtual_interface: Option<AttachedInterface>,
    /// The station's link-layer address.
    pub address: [u8; 6],
}

/// Removes the virtual Ethernet pairs that a crash has left in this network namespace: their virtual
/// interface vanished with the crashed process. Before Linux 6.6, a filter without effect stays on the
/// radio's interface until the next fast path is attached there.
///
/// # Errors
///
/// Fails if the kernel does not list the devices, or refuses to delete one.
pub fn remove_leftovers() -> Result<()> {
    let mut requests = Requests::open()?;
    let links = requests.links().list()?;
    for left in pair::without_interface(&links) {
        requests.links().delete(left.index)?;
        tracing::info!(
            "removed the network interface {}, which an earlier run of carnet left behind",
            left.name
        );
    }
    Ok(())
}

/// Counters of the programs, by name.
pub type GeonetPathCounters = [(&'static str, u64); 5];

/// The loaded programs of the fast path, attached or not.
#[derive(Debug)]
pub struct GeonetPath {
    ebpf: Ebpf,
    shared: SharedCounters,
    requests: Requests,
    interfaces: Option<FastPathInterfaces>,
    hooks: Vec<(&'static str, Hook)>,
    pair: Option<VethPair>,
    /// Whether the programs may deliver packets to the host: true if no other program or protocol receives
    /// them too.
    delivers: bool,
    own_packet_slots: Slots,
    forwarding_slots: Slots,
    /// Counters of each source at the last reading: packets, octets, and packets that came directly from the
    /// source.
    sources: BTreeMap<[u8; 6], [u32; 3]>,
    addresses: BTreeSet<Ipv6Addr>,
    /// Values of [`COUNTER_NAMES`] at the last report.
    reported: [u64; COUNTER_NAMES.len()],
}

/// Slot of each destination in the shared memory; the slot counts the packets to this destination.
#[derive(Debug, Default)]
struct Slots {
    /// Slot of each destination, and its packet count at the last report.
    by_destination: BTreeMap<[u8; 6], (u32, u64)>,
    free: Vec<u32>,
}

impl Slots {
    fn new(first: usize) -> Slots {
        Slots {
            by_destination: BTreeMap::new(),
            free: (first as u32..(first + MAX_DESTINATIONS) as u32).rev().collect(),
        }
    }

    fn slot(&mut self, shared: &SharedCounters, destination: [u8; 6]) -> Option<u32> {
        if let Some((slot, _)) = self.by_destination.get(&destination) {
            return Some(*slot);
        }
        let slot = self.free.pop()?;
        self.by_destination.insert(destination, (slot, shared.used(slot)));
        Some(slot)
    }

    fn remove(&mut self, destination: [u8; 6]) {
        if let Some((slot, _)) = self.by_destination.remove(&destination) {
            self.free.push(slot);
        }
    }

    /// Returns the destinations to which the programs have sent packets since the last call of this function.
    fn used(&mut self, shared: &SharedCounters) -> Vec<[u8; 6]> {
        let mut used = Vec::new();
        for (destination, (slot, before)) in &mut self.by_destination {
            let now = shared.used(*slot);
            if std::mem::replace(before, now) != now {
                used.push(*destination);
            }
        }
        used
    }
}

/// Programs that a thread loads while the station still runs on the slow path. The thread has the rights of
/// its creator ([`crate::sandbox`]).
#[derive(Debug)]
pub struct GeonetPathLoading {
    programs: oneshot::Receiver<std::result::Result<Box<Ebpf>, String>>,
}

impl GeonetPathLoading {
    /// Starts the loading thread.
    ///
    /// # Errors
    /// Fails if the kernel creates no thread, or this program was built without BPF.
    pub fn begin() -> std::result::Result<GeonetPathLoading, String> {
        if !cfg!(feature = "bpf") {
            return Err(super::WITHOUT_BPF.to_owned());
        }
        let (sender, programs) = oneshot::channel();
        let load = move || {
            // If the station has ended, nothing receives from the channel any more: ignore the error.
            let _ = sender.send(load().map(Box::new));
        };
        std::thread::Builder::new()
            .name("bpf-loader".into())
            .spawn(load)
            .map_err(|error| format!("cannot start the thread that loads BPF programs: {error}"))?;
        Ok(GeonetPathLoading { programs })
    }

    /// Waits until the thread has loaded the programs, and returns the fast path. The future may be dropped.
    /// After a result, the caller must not call it again. Works in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// Returns why the kernel refuses the programs, in one line.
    pub async fn finish(&mut self) -> std::result::Result<GeonetPath, String> {
        let failed = |_| Err("the thread that loads BPF programs has failed".into());
        let ebpf = (&mut self.programs).await.unwrap_or_else(failed)?;
        GeonetPath::of(*ebpf)
    }
}

/// Loads the programs into the kernel, which verifies them. This takes seconds on a slow processor.
fn load() -> std::result::Result<Ebpf, String> {
    let mut ebpf =
        EbpfLoader::new().load(&carnet_bpf::GEONET.unpack()).map_err(|error| error_with_causes(&error))?;
    for name in ["in", "out", "wrap"] {
        let program: &mut SchedClassifier = find_program(&mut ebpf, name)?;
        program.load().map_err(|error| error_with_causes(&error))?;
    }
    Ok(ebpf)
}

impl GeonetPath {
    /// Loads the programs. Works in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns why the kernel refuses the programs, in one line.
    #[cfg(test)]
    fn open() -> std::result::Result<GeonetPath, String> {
        GeonetPath::of(load()?)
    }

    fn of(ebpf: Ebpf) -> std::result::Result<GeonetPath, String> {
        give_back_memory();
        let shared = SharedCounters::map(ebpf.map("SHARED").ok_or("the BPF object has no map SHARED")?)?;
        let requests = Requests::open().map_err(|error| error.to_string())?;
        Ok(GeonetPath {
            ebpf,
            shared,
            requests,
            interfaces: None,
            hooks: Vec::new(),
            pair: None,
            delivers: true,
            own_packet_slots: Slots::new(0),
            forwarding_slots: Slots::new(MAX_DESTINATIONS),
            sources: BTreeMap::new(),
            addresses: BTreeSet::new(),
            reported: [0; COUNTER_NAMES.len()],
        })
    }

    /// Returns the sequence numbers that the router has to use while these programs run. The router can use
    /// them even after the programs are gone.
    pub fn sequence_numbers(&self) -> Box<dyn SequenceNumbers> {
        Box::new(SharedSequence::new(&self.shared))
    }

    /// Attaches the programs to these interfaces; `None` detaches them. Returns whether the programs are
    /// attached.
    ///
    /// # Errors
    /// Fails if the kernel refuses to attach the programs. Then no program is attached.
    pub fn attach(&mut self, places: Option<FastPathInterfaces>) -> Result<()> {
        if self.interfaces == places {
            return Ok(());
        }
        let moved = match (&self.interfaces, &places) {
            (Some(before), Some(now)) => {
                (&before.radio, &before.virtual_interface) != (&now.radio, &now.virtual_interface)
            }
            _ => true,
        };
        self.stop_until_update();
        self.interfaces = places;
        if self.interfaces.is_none() {
            self.forget();
        }
        if !moved {
            return Ok(());
        }
        self.take_off();
        let Some(places) = self.interfaces.clone() else { return Ok(()) };
        let result = self.put_on(&places);
        if result.is_err() {
            self.take_off();
            self.interfaces = None;
        }
        result
    }

    /// Resets the state of the programs to that of the start.
    fn forget(&mut self) {
        for destination in self.own_packet_slots.by_destination.keys().copied().collect::<Vec<_>>() {
            self.apply(Time::ZERO, &Accelerate::NoWay(destination));
        }
        for destination in self.forwarding_slots.by_destination.keys().copied().collect::<Vec<_>>() {
            self.apply(Time::ZERO, &Accelerate::NoOnward(destination));
        }
        for station in self.sources.keys().copied().collect::<Vec<_>>() {
            self.apply(Time::ZERO, &Accelerate::NoSource(station));
        }
    }

    /// Returns whether the programs are attached to interfaces.
    pub fn is_attached(&self) -> bool {
        self.interfaces.is_some()
    }

    fn put_on(&mut self, places: &FastPathInterfaces) -> Result<()> {
        // A filter that a crash has left is in a qdisc; a BPF link has vanished with its process.
        self.requests.filters().delete(places.radio.index, PRIORITY)?;
        if let Some(interface) = &places.virtual_interface {
            let pair = VethPair::create(&mut self.requests, &interface.name, PAIR_DEVICE_GROUP, PAIR_MTU)?;
            let far = pair.far_device.clone();
            self.pair = Some(pair);
            self.hook("wrap", &far, TcAttachType::Ingress)?;
            self.hook("out", interface, TcAttachType::Egress)?;
        }
        self.hook("in", &places.radio, TcAttachType::Ingress)
    }

    fn hook(&mut self, program: &'static str, place: &AttachedInterface, at: TcAttachType) -> Result<()> {
        let failed = |why: String| crate::Error::Invalid {
            what: format!("{program:?} on {}", place.name),
            expected: "an interface that accepts BPF programs".into(),
            got: why,
        };
        let hook = find_program(&mut self.ebpf, program)
            .and_then(|program| Hook::attach(program, &place.name, place.index, at))
            .map_err(failed)?;
        self.hooks.push((program, hook));
        Ok(())
    }

    fn take_off(&mut self) {
        for (program, hook) in std::mem::take(&mut self.hooks) {
            if let Ok(program) = find_program(&mut self.ebpf, program) {
                hook.detach(program);
            }
        }
        if let Some(pair) = self.pair.take() {
            pair.remove(&mut self.requests);
        }
    }

    /// Sets the addresses of the virtual interface.
    pub fn set_addresses(&mut self, addresses: impl IntoIterator<Item = Ipv6Addr>) {
        let addresses: BTreeSet<Ipv6Addr> = addresses.into_iter().collect();
        let before = std::mem::replace(&mut self.addresses, addresses.clone());
        let Some(mut map) = self.map_mut::<[u8; 16], u32>("ADDRESSES") else { return };
        for gone in before.difference(&addresses) {
            let _ = map.remove(&gone.octets());
        }
        let mut full = false;
        for new in addresses.difference(&before) {
            full |= map.insert(new.octets(), 1, 0).is_err();
        }
        if full {
            tracing::warn!(
                "the GeoNetworking interface has more IPv6 addresses than the fast path supports: packets \
                 for this machine take the slow path"
            );
            self.delivers = false;
        }
    }

    /// Sets whether the programs may deliver packets to the host: true if no other program or protocol
    /// receives them too.
    pub fn set_delivers(&mut self, delivers: bool) {
        if std::mem::replace(&mut self.delivers, delivers) != delivers {
            self.stop_until_update();
        }
    }

    /// Applies an update of the router. `now` is the time of the update.
    pub fn apply(&mut self, now: Time, told: &Accelerate) {
        let monotonic = |until: Time| (clock::monotonic() + until.saturating_since(now)).as_nanos();
        let done = match told {
            Accelerate::General(general) => self.refresh(general),
            Accelerate::Way(way) => self.set_way(way, monotonic(way.until)),
            Accelerate::NoWay(destination) => {
                self.own_packet_slots.remove(*destination);
                self.remove::<OwnPacketPathValue>("WAYS", *destination)
            }
            Accelerate::Onward(onward) => self.set_onward(onward, monotonic(onward.until)),
            Accelerate::NoOnward(destination) => {
                self.forwarding_slots.remove(*destination);
                self.remove::<ForwardingPathValue>("ONWARDS", *destination)
            }
            Accelerate::Source { station, sequences } => {
                let since = (clock::monotonic() + NEW_STATION_DELAY).as_nanos();
                self.sources.insert(*station, [0; 3]);
                self.insert("SOURCES", *station, SourceValue::new(since, sequences))
            }
            Accelerate::NoSource(station) => {
                self.sources.remove(station);
                self.remove::<SourceValue>("SOURCES", *station)
            }
        };
        if done.is_none() {
            // A map could not be written, so stop the programs. The slow path handles all packets, and no
            // outdated entry stays.
            self.stop_until_update();
        }
    }

    /// Stops the programs until the router's next update.
    pub fn stop_until_update(&mut self) {
        if let Some(mut map) = self.map_mut::<u32, StateValue>("STATE") {
            let _ = map.remove(&0);
        }
    }

    fn refresh(&mut self, general: &General) -> Option<()> {
        let places = self.interfaces.as_ref()?;
        let mut flags = 0;
        if places.virtual_interface.is_some() {
            flags |= StateValue::SENDS;
            if general.delivers && self.delivers {
                flags |= StateValue::DELIVERS;
            }
        }
        let value = StateValue {
            until: (clock::monotonic() + UPDATE_TIMEOUT).as_nanos(),
            radio: places.radio.index,
            virtual_interface: places.virtual_interface.as_ref().map_or(0, |place| place.index),
            helper: self.pair.as_ref().map_or(0, |pair| pair.near_device.index),
            flags,
            mtu: general.mtu,
            list: general.duplicate_packet_list_length.clamp(1, 16),
            mac: places.address,
            zero: [0; 2],
            identifier: maps::identifier(places.address),
            vector: *general.vector.first_chunk()?,
        };
        self.map_mut::<u32, StateValue>("STATE")?.insert(0, value, 0).ok()
    }

    fn set_way(&mut self, way: &Way, until: u64) -> Option<()> {
        let slot = self.own_packet_slots.slot(&self.shared, way.destination)?;
        let headers = *way.headers.first_chunk()?;
        let value = OwnPacketPathValue { until, slot, next_hop: way.next_hop, zero: [0; 2], headers };
        self.insert("WAYS", way.destination, value)
    }

    fn set_onward(&mut self, onward: &Onward, until: u64) -> Option<()> {
        let slot = self.forwarding_slots.slot(&self.shared, onward.destination)?;
        let value = ForwardingPathValue::new(onward, slot, until);
        self.insert("ONWARDS", onward.destination, value)
    }

    fn insert<V: Pod>(&mut self, map: &str, station: [u8; 6], value: V) -> Option<()> {
        self.map_mut::<u64, V>(map)?.insert(key_of(station), value, 0).ok()
    }

    fn remove<V: Pod>(&mut self, map: &str, station: [u8; 6]) -> Option<()> {
        // The map may not contain the entry, because it was full when the entry was added.
        let _ = self.map_mut::<u64, V>(map)?.remove(&key_of(station));
        Some(())
    }

    fn map_mut<K: Pod, V: Pod>(&mut self, name: &str) -> Option<BpfHashMap<&mut MapData, K, V>> {
        self.ebpf.map_mut(name).and_then(|map| BpfHashMap::try_from(map).ok())
    }

    /// Returns the work of the programs since the last report.
    pub fn report(&mut self) -> FastPathReport {
        let counts = self.counts();
        let before = std::mem::replace(&mut self.reported, counts);
        let [sent, delivered, forwarded, duplicates, _] =
            std::array::from_fn(|at| counts[at].saturating_sub(before[at]));
        FastPathReport {
            next_sequence: self.shared.sequence(),
            sent,
            delivered,
            forwarded,
            duplicates,
            samples: self.samples(),
            own_packet_destinations: self.own_packet_slots.used(&self.shared),
            forwarding_destinations: self.forwarding_slots.used(&self.shared),
        }
    }

    fn samples(&mut self) -> Vec<SourceSummary> {
        let mut sources = std::mem::take(&mut self.sources);
        let mut samples = Vec::new();
        if let Some(map) = self.map_mut::<u64, SourceValue>("SOURCES") {
            for (station, before) in &mut sources {
                let Ok(value) = map.get(&key_of(*station), ATOMIC_READ_FLAG) else { continue };
                let [packets, octets, direct] = *before;
                if value.packets == packets {
                    continue;
                }
                samples.push(SourceSummary {
                    vector: LongPositionVector::from_octets(&value.vector),
                    direct: value.direct != direct,
                    octets: value.octets.wrapping_sub(octets) as usize,
                    sequences: value.taken_sequences(),
                });
                *before = [value.packets, value.octets, value.direct];
            }
        }
        self.sources = sources;
        samples
    }

    fn counts(&self) -> [u64; COUNTER_NAMES.len()] {
        let map = self.ebpf.map("COUNTS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        std::array::from_fn(|what| {
            let values = map.as_ref().and_then(|map| map.get(&(what as u32), 0).ok());
            values.map_or(0, |values| values.iter().sum())
        })
    }

    /// Returns the programs' counters since the start.
    pub fn counters(&self) -> GeonetPathCounters {
        let counts = self.counts();
        std::array::from_fn(|at| (COUNTER_NAMES[at], counts[at]))
    }

    /// Returns whether the programs have any destination or source.
    pub fn is_busy(&self) -> bool {
        let slots = [&self.own_packet_slots, &self.forwarding_slots];
        !self.sources.is_empty() || slots.iter().any(|slots| !slots.by_destination.is_empty())
    }
}

#[cfg(test)]
mod tests;

impl Drop for GeonetPath {
    fn drop(&mut self) {
        self.take_off();
    }
}
