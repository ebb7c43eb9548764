//! The fast path of IPv6 over GeoNetworking: `bpf/geonet.bpf.c`.
//!
//! The programs are attached to the radio and to the virtual interface by index; both interfaces may come and
//! go. The router tells the programs which packets to handle ([`GeonetBpfPath::apply_update`]), and reads
//! which packets they have handled ([`GeonetBpfPath::take_report`]). The programs stop if the router has
//! sent no update for [`UPDATE_TIMEOUT`]. So their data, for example the position, is never older than
//! [`UPDATE_TIMEOUT`].
//!
//! Behind the virtual interface stands a pair of virtual Ethernet devices, see `pair`. Both devices have the
//! device group `PAIR_DEVICE_GROUP`. After a crash, the next start finds them by this group and removes them
//! ([`remove_leftovers`]).

mod maps;
mod veth_pair;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::time::Duration;

use aya::maps::{HashMap as BpfHashMap, MapData, PerCpuArray};
use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use aya::{Ebpf, EbpfLoader, Pod};
use carnet_base::Time;
use carnet_cits::geonetworking::acceleration::{
    Accelerate, FastPathReport, ForwardingPath, GeneralState, OwnPacketPath, SequenceNumbers, SourceReport,
};
use carnet_wire::geonet::LongPositionVector;
use tokio::sync::oneshot;

use self::maps::{
    ForwardingPathValue, OwnPacketPathValue, SharedCounters, SharedSequence, SourceValue, StateValue,
    map_key_of,
};
use self::veth_pair::VethPair;
use super::PAIR_DEVICE_GROUP;
use super::bpf_programs::find_program;
use super::error_text::format_error_with_causes;
use super::program_hook::{ProgramHook, TC_FILTER_PRIORITY};
use crate::clock;
use crate::error::Result;
use crate::memory::return_free_memory;
use crate::netlink::NetlinkRequests;

/// Time after the router's last update at which the BPF programs stop forwarding.
pub const UPDATE_TIMEOUT: Duration = Duration::from_millis(250);
/// Time for which the programs still leave the frames of a newly permitted station to the slow path. Earlier
/// frames of the station may still wait there.
const NEW_STATION_DELAY: Duration = Duration::from_millis(50);
/// Maximum number of destinations of own packets, and of destinations of forwarded packets; `MOST` in C.
const MAX_DESTINATIONS: usize = 1024;
/// MTU of the pair in octets: the longest Ethernet payload.
const VETH_PAIR_MTU: u32 = 9216;
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
    pub radio_interface: AttachedInterface,
    /// Virtual interface of IPv6; `None` for a station that only forwards.
    pub virtual_interface: Option<AttachedInterface>,
    /// The station's link-layer address.
    pub address: [u8; 6],
}

/// Removes the virtual Ethernet pairs that a crashed carnet has left in this network namespace. Their virtual
/// interface vanished with the crashed process. Before Linux 6.6, a filter without effect stays on the
/// radio's interface until the next fast path is attached there.
///
/// # Errors
///
/// Fails if the kernel does not list the devices, or refuses to delete one.
pub fn remove_leftovers() -> Result<()> {
    let mut requests = NetlinkRequests::open()?;
    let links = requests.link_requests().list_links()?;
    for left in veth_pair::devices_without_interface(&links) {
        requests.link_requests().delete_link(left.index)?;
        tracing::info!(
            "removed the network interface {}, which an earlier run of carnet left behind",
            left.name
        );
    }
    Ok(())
}

/// Counters of the programs, by name.
pub type GeonetBpfPathCounters = [(&'static str, u64); 5];

/// The loaded programs of the fast path, attached or not.
#[derive(Debug)]
pub struct GeonetBpfPath {
    ebpf: Ebpf,
    shared_counters: SharedCounters,
    requests: NetlinkRequests,
    interfaces: Option<FastPathInterfaces>,
    attached_hooks: Vec<(&'static str, ProgramHook)>,
    veth_pair: Option<VethPair>,
    /// Whether the programs may deliver packets to the host: true if no other program or protocol receives
    /// them too.
    delivers_to_host: bool,
    own_packet_slots: DestinationSlots,
    forwarding_slots: DestinationSlots,
    /// Counters of each source at the last reading: packets, octets, and packets that came directly from the
    /// source.
    last_source_counters: BTreeMap<[u8; 6], [u32; 3]>,
    addresses: BTreeSet<Ipv6Addr>,
    /// Values of [`COUNTER_NAMES`] at the last report.
    last_reported_counters: [u64; COUNTER_NAMES.len()],
}

/// Slot of each destination in the shared memory; the slot counts the packets to this destination.
#[derive(Debug, Default)]
struct DestinationSlots {
    /// Slot of each destination, and its packet count at the last report.
    by_destination: BTreeMap<[u8; 6], (u32, u64)>,
    free_slots: Vec<u32>,
}

impl DestinationSlots {
    fn new(first: usize) -> DestinationSlots {
        DestinationSlots {
            by_destination: BTreeMap::new(),
            free_slots: (first as u32..(first + MAX_DESTINATIONS) as u32).rev().collect(),
        }
    }

    fn assign_slot(&mut self, shared: &SharedCounters, destination: [u8; 6]) -> Option<u32> {
        if let Some((slot, _)) = self.by_destination.get(&destination) {
            return Some(*slot);
        }
        let slot = self.free_slots.pop()?;
        self.by_destination.insert(destination, (slot, shared.packets_sent_in_slot(slot)));
        Some(slot)
    }

    fn remove(&mut self, destination: [u8; 6]) {
        if let Some((slot, _)) = self.by_destination.remove(&destination) {
            self.free_slots.push(slot);
        }
    }

    /// Returns the destinations to which the programs have sent packets since the last call of this function.
    fn used_destinations(&mut self, shared: &SharedCounters) -> Vec<[u8; 6]> {
        let mut used = Vec::new();
        for (destination, (slot, before)) in &mut self.by_destination {
            let now = shared.packets_sent_in_slot(*slot);
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
pub struct GeonetBpfPathLoading {
    programs: oneshot::Receiver<std::result::Result<Box<Ebpf>, String>>,
}

impl GeonetBpfPathLoading {
    /// Starts the loading thread.
    ///
    /// # Errors
    /// Fails if the kernel creates no thread, or this program was built without BPF.
    pub fn begin_loading() -> std::result::Result<GeonetBpfPathLoading, String> {
        if !cfg!(feature = "bpf") {
            return Err(super::NO_BPF_PROGRAMS.to_owned());
        }
        let (sender, programs) = oneshot::channel();
        let load = move || {
            // If the station has ended, nothing receives from the channel any more: ignore the error.
            let _ = sender.send(load_programs().map(Box::new));
        };
        std::thread::Builder::new()
            .name("bpf-loader".into())
            .spawn(load)
            .map_err(|error| format!("cannot start the thread that loads BPF programs: {error}"))?;
        Ok(GeonetBpfPathLoading { programs })
    }

    /// Waits until the thread has loaded the programs, and returns the fast path. The future may be dropped.
    /// After a result, the caller must not call it again. Works in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// Returns why the kernel refuses the programs, in one line.
    pub async fn finish_loading(&mut self) -> std::result::Result<GeonetBpfPath, String> {
        let failed = |_| Err("the thread that loads BPF programs has failed".into());
        let ebpf = (&mut self.programs).await.unwrap_or_else(failed)?;
        GeonetBpfPath::from_loaded_programs(*ebpf)
    }
}

/// Loads the programs into the kernel, which verifies them. This takes seconds on a slow processor.
fn load_programs() -> std::result::Result<Ebpf, String> {
    let mut ebpf = EbpfLoader::new()
        .load(&carnet_bpf::GEONET.unpack())
        .map_err(|error| format_error_with_causes(&error))?;
    for name in ["in", "out", "wrap"] {
        let program: &mut SchedClassifier = find_program(&mut ebpf, name)?;
        program.load().map_err(|error| format_error_with_causes(&error))?;
    }
    Ok(ebpf)
}

impl GeonetBpfPath {
    /// Loads the programs. Works in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns why the kernel refuses the programs, in one line.
    #[cfg(test)]
    fn open() -> std::result::Result<GeonetBpfPath, String> {
        GeonetBpfPath::from_loaded_programs(load_programs()?)
    }

    fn from_loaded_programs(ebpf: Ebpf) -> std::result::Result<GeonetBpfPath, String> {
        return_free_memory();
        let shared =
            SharedCounters::map_into_memory(ebpf.map("SHARED").ok_or("the BPF object has no map SHARED")?)?;
        let requests = NetlinkRequests::open().map_err(|error| error.to_string())?;
        Ok(GeonetBpfPath {
            ebpf,
            shared_counters: shared,
            requests,
            interfaces: None,
            attached_hooks: Vec::new(),
            veth_pair: None,
            delivers_to_host: true,
            own_packet_slots: DestinationSlots::new(0),
            forwarding_slots: DestinationSlots::new(MAX_DESTINATIONS),
            last_source_counters: BTreeMap::new(),
            addresses: BTreeSet::new(),
            last_reported_counters: [0; COUNTER_NAMES.len()],
        })
    }

    /// Returns the source of sequence numbers that the router has to use while these programs run, because
    /// the programs take numbers from it too. It works even after the programs are gone.
    pub fn sequence_numbers(&self) -> Box<dyn SequenceNumbers> {
        Box::new(SharedSequence::new(&self.shared_counters))
    }

    /// Attaches the programs to these interfaces; `None` detaches them. Returns whether the programs are
    /// attached.
    ///
    /// # Errors
    /// Fails if the kernel refuses to attach the programs. Then no program is attached.
    pub fn attach_to(&mut self, places: Option<FastPathInterfaces>) -> Result<()> {
        if self.interfaces == places {
            return Ok(());
        }
        let moved = match (&self.interfaces, &places) {
            (Some(before), Some(now)) => {
                (&before.radio_interface, &before.virtual_interface)
                    != (&now.radio_interface, &now.virtual_interface)
            }
            _ => true,
        };
        self.stop_forwarding_until_update();
        self.interfaces = places;
        if self.interfaces.is_none() {
            self.reset_state();
        }
        if !moved {
            return Ok(());
        }
        self.detach_programs();
        let Some(places) = self.interfaces.clone() else { return Ok(()) };
        let result = self.attach_programs(&places);
        if result.is_err() {
            self.detach_programs();
            self.interfaces = None;
        }
        result
    }

    /// Resets the state of the programs to that of the start.
    fn reset_state(&mut self) {
        for destination in self.own_packet_slots.by_destination.keys().copied().collect::<Vec<_>>() {
            self.apply_update(Time::ZERO, &Accelerate::NoWay(destination));
        }
        for destination in self.forwarding_slots.by_destination.keys().copied().collect::<Vec<_>>() {
            self.apply_update(Time::ZERO, &Accelerate::NoOnward(destination));
        }
        for station in self.last_source_counters.keys().copied().collect::<Vec<_>>() {
            self.apply_update(Time::ZERO, &Accelerate::NoSource(station));
        }
    }

    /// Returns whether the programs are attached to interfaces.
    pub fn is_attached_to_interfaces(&self) -> bool {
        self.interfaces.is_some()
    }

    fn attach_programs(&mut self, places: &FastPathInterfaces) -> Result<()> {
        // Delete a filter that a crash may have left in a qdisc. A BPF link has vanished with its process.
        self.requests.filter_requests().delete_filters(places.radio_interface.index, TC_FILTER_PRIORITY)?;
        if let Some(interface) = &places.virtual_interface {
            let pair =
                VethPair::create(&mut self.requests, &interface.name, PAIR_DEVICE_GROUP, VETH_PAIR_MTU)?;
            let far = pair.far_device.clone();
            self.veth_pair = Some(pair);
            self.attach_hook("wrap", &far, TcAttachType::Ingress)?;
            self.attach_hook("out", interface, TcAttachType::Egress)?;
        }
        self.attach_hook("in", &places.radio_interface, TcAttachType::Ingress)
    }

    fn attach_hook(
        &mut self,
        program: &'static str,
        place: &AttachedInterface,
        at: TcAttachType,
    ) -> Result<()> {
        let failed = |why: String| crate::Error::Invalid {
            what: format!("{program:?} on {}", place.name),
            expected: "an interface that accepts BPF programs".into(),
            got: why,
        };
        let hook = find_program(&mut self.ebpf, program)
            .and_then(|program| ProgramHook::attach(program, &place.name, place.index, at))
            .map_err(failed)?;
        self.attached_hooks.push((program, hook));
        Ok(())
    }

    fn detach_programs(&mut self) {
        for (program, hook) in std::mem::take(&mut self.attached_hooks) {
            if let Ok(program) = find_program(&mut self.ebpf, program) {
                hook.detach(program);
            }
        }
        if let Some(pair) = self.veth_pair.take() {
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
            self.delivers_to_host = false;
        }
    }

    /// Sets whether the programs may deliver packets to the host: true if no other program or protocol
    /// receives them too.
    pub fn set_delivers_to_host(&mut self, delivers: bool) {
        if std::mem::replace(&mut self.delivers_to_host, delivers) != delivers {
            self.stop_forwarding_until_update();
        }
    }

    /// Applies an update of the router. `now` is the time of the update.
    pub fn apply_update(&mut self, now: Time, told: &Accelerate) {
        let monotonic = |until: Time| (clock::monotonic_time() + until.saturating_since(now)).as_nanos();
        let done = match told {
            Accelerate::General(general) => self.update_general_state(general),
            Accelerate::Way(way) => self.set_own_packet_path(way, monotonic(way.until)),
            Accelerate::NoWay(destination) => {
                self.own_packet_slots.remove(*destination);
                self.remove_map_value::<OwnPacketPathValue>("WAYS", *destination)
            }
            Accelerate::Onward(onward) => self.set_forwarding_path(onward, monotonic(onward.until)),
            Accelerate::NoOnward(destination) => {
                self.forwarding_slots.remove(*destination);
                self.remove_map_value::<ForwardingPathValue>("ONWARDS", *destination)
            }
            Accelerate::Source { station, sequences } => {
                let since = (clock::monotonic_time() + NEW_STATION_DELAY).as_nanos();
                self.last_source_counters.insert(*station, [0; 3]);
                self.insert_map_value("SOURCES", *station, SourceValue::new(since, sequences))
            }
            Accelerate::NoSource(station) => {
                self.last_source_counters.remove(station);
                self.remove_map_value::<SourceValue>("SOURCES", *station)
            }
        };
        if done.is_none() {
            // A map could not be written, so stop the programs. The slow path handles all packets, and no
            // outdated entry stays.
            self.stop_forwarding_until_update();
        }
    }

    /// Stops the programs until the router's next update.
    pub fn stop_forwarding_until_update(&mut self) {
        if let Some(mut map) = self.map_mut::<u32, StateValue>("STATE") {
            let _ = map.remove(&0);
        }
    }

    fn update_general_state(&mut self, general: &GeneralState) -> Option<()> {
        let places = self.interfaces.as_ref()?;
        let mut flags = 0;
        if places.virtual_interface.is_some() {
            flags |= StateValue::STATE_FLAG_SENDS;
            if general.delivers && self.delivers_to_host {
                flags |= StateValue::STATE_FLAG_DELIVERS;
            }
        }
        let value = StateValue {
            valid_until: (clock::monotonic_time() + UPDATE_TIMEOUT).as_nanos(),
            radio_interface: places.radio_interface.index,
            virtual_interface: places.virtual_interface.as_ref().map_or(0, |place| place.index),
            veth_interface: self.veth_pair.as_ref().map_or(0, |pair| pair.near_device.index),
            flags,
            mtu: general.mtu,
            duplicate_list_length: general.duplicate_packet_list_length.clamp(1, 16),
            mac: places.address,
            padding: [0; 2],
            interface_identifier: maps::interface_identifier_of(places.address),
            position_vector: *general.vector.first_chunk()?,
        };
        self.map_mut::<u32, StateValue>("STATE")?.insert(0, value, 0).ok()
    }

    fn set_own_packet_path(&mut self, way: &OwnPacketPath, until: u64) -> Option<()> {
        let slot = self.own_packet_slots.assign_slot(&self.shared_counters, way.destination)?;
        let headers = *way.headers.first_chunk()?;
        let value = OwnPacketPathValue {
            valid_until: until,
            counter_slot: slot,
            next_hop: way.next_hop,
            padding: [0; 2],
            frame_headers: headers,
        };
        self.insert_map_value("WAYS", way.destination, value)
    }

    fn set_forwarding_path(&mut self, onward: &ForwardingPath, until: u64) -> Option<()> {
        let slot = self.forwarding_slots.assign_slot(&self.shared_counters, onward.destination)?;
        let value = ForwardingPathValue::new(onward, slot, until);
        self.insert_map_value("ONWARDS", onward.destination, value)
    }

    fn insert_map_value<V: Pod>(&mut self, map: &str, station: [u8; 6], value: V) -> Option<()> {
        self.map_mut::<u64, V>(map)?.insert(map_key_of(station), value, 0).ok()
    }

    fn remove_map_value<V: Pod>(&mut self, map: &str, station: [u8; 6]) -> Option<()> {
        // Ignore an error: if the map was full, carnet could not add the entry, and now has nothing to
        // remove.
        let _ = self.map_mut::<u64, V>(map)?.remove(&map_key_of(station));
        Some(())
    }

    fn map_mut<K: Pod, V: Pod>(&mut self, name: &str) -> Option<BpfHashMap<&mut MapData, K, V>> {
        self.ebpf.map_mut(name).and_then(|map| BpfHashMap::try_from(map).ok())
    }

    /// Returns the work of the programs since the last report.
    pub fn take_report(&mut self) -> FastPathReport {
        let counts = self.counter_values();
        let before = std::mem::replace(&mut self.last_reported_counters, counts);
        let [sent, delivered, forwarded, duplicates, _] =
            std::array::from_fn(|at| counts[at].saturating_sub(before[at]));
        FastPathReport {
            next_sequence: self.shared_counters.next_sequence_number(),
            sent,
            delivered,
            forwarded,
            duplicates,
            samples: self.source_summaries(),
            own_packet_destinations: self.own_packet_slots.used_destinations(&self.shared_counters),
            forwarding_destinations: self.forwarding_slots.used_destinations(&self.shared_counters),
        }
    }

    fn source_summaries(&mut self) -> Vec<SourceReport> {
        let mut sources = std::mem::take(&mut self.last_source_counters);
        let mut samples = Vec::new();
        if let Some(map) = self.map_mut::<u64, SourceValue>("SOURCES") {
            for (station, before) in &mut sources {
                let Ok(value) = map.get(&map_key_of(*station), ATOMIC_READ_FLAG) else { continue };
                let [packets, octets, direct] = *before;
                if value.packet_count == packets {
                    continue;
                }
                samples.push(SourceReport {
                    vector: LongPositionVector::from_octets(&value.position_vector),
                    direct: value.direct_packet_count != direct,
                    octets: value.octet_count.wrapping_sub(octets) as usize,
                    sequences: value.recorded_sequence_numbers(),
                });
                *before = [value.packet_count, value.octet_count, value.direct_packet_count];
            }
        }
        self.last_source_counters = sources;
        samples
    }

    fn counter_values(&self) -> [u64; COUNTER_NAMES.len()] {
        let map = self.ebpf.map("COUNTS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        std::array::from_fn(|what| {
            let values = map.as_ref().and_then(|map| map.get(&(what as u32), 0).ok());
            values.map_or(0, |values| values.iter().sum())
        })
    }

    /// Returns the programs' counters since the start.
    pub fn counters(&self) -> GeonetBpfPathCounters {
        let counts = self.counter_values();
        std::array::from_fn(|at| (COUNTER_NAMES[at], counts[at]))
    }

    /// Returns whether the programs have any destination or source.
    pub fn has_destinations_or_sources(&self) -> bool {
        let slots = [&self.own_packet_slots, &self.forwarding_slots];
        !self.last_source_counters.is_empty() || slots.iter().any(|slots| !slots.by_destination.is_empty())
    }
}

#[cfg(test)]
mod tests;

impl Drop for GeonetBpfPath {
    fn drop(&mut self) {
        self.detach_programs();
    }
}
