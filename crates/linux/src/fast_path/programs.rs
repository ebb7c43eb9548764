//! The BPF programs of the fast path: loads them, attaches them to interfaces, writes their maps.
//!
//! Programs and maps belong to file descriptors of this process. Where the kernel knows BPF links (XDP since
//! 5.9) they go with the process, whatever the reason; tc programs see [`Hook`].
//!
//! An interface is given a program when it is there, whether up or not. Which one depends on what the
//! interface is to the station, and on whether its packets have an Ethernet header. To a home agent all
//! interfaces but the loopback and the tunnel device are alike.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use aya::maps::xdp::DevMapHash;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, MapError};
use aya::programs::tc::TcAttachType;
use aya::programs::xdp::{XdpLinkId, XdpMode};
use aya::programs::{ProgramError, SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader, Pod};
use carnet_base::SmallMap;
use carnet_station::forwarding::desired::{TUNNEL_DEVICE, Tunnel};

use super::hook::Hook;
use super::policy::Policy;
use super::receivers::Receivers;
use super::rules::RulesValue;
use super::table::{Operation, Table};
use super::values::{BindingValue, LengthsValue, PATHS, PrefixKey};
use super::{FastPathConfig, Path, Ports, TunnelEnds, TunnelTraffic};
use crate::clock;
use crate::memory::give_back_memory;
use crate::netlink::{CROWDED_MAX, LinkInfo};

// SAFETY: all of these are `repr(C)` of integers and octets, without padding, and any octets are a valid
// value.
unsafe impl Pod for BindingValue {}
// SAFETY: as above.
unsafe impl Pod for PrefixKey {}
// SAFETY: as above.
unsafe impl Pod for LengthsValue {}
// SAFETY: as above.
unsafe impl Pod for RulesValue {}

/// `struct neighbour`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct NeighbourKey {
    address: [u8; 16],
    ifindex: u32,
    zero: u32,
}

// SAFETY: as above.
unsafe impl Pod for NeighbourKey {}

/// Least number of bindings with room.
const SLOTS_MIN: u32 = 64;
/// Prefixes of a binding, the home address among them, on the average.
const PREFIXES: u32 = 4;

/// The maps of one number each that voids what the programs remember.
const GENERATION: &str = ".data.generation";
const ROUTES: &str = ".data.routes";

/// See VERSIONS in `bpf/state.h`: 64 kB. With 100,000 bindings a change of one makes the kernel be asked
/// again about six.
const VERSIONS_MAX: u32 = if cfg!(test) { 2 } else { 16_384 };

/// Places for ways on each processor, for each binding: with half of them free a way is at the first place
/// mostly.
const WAYS: u32 = 2;
/// Octets that all ways on all processors may take.
const WAYS_MEMORY: u32 = 256 << 20;

/// Times that a program is handed to the kernel, and how long to wait after the first; twice as long after
/// each further one.
const ATTEMPTS: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// With more slots than that, all paths of a slot are counted together: counters are each processor's own.
const SLOTS_BY_PATH: u32 = 4096;
/// Where the programs hook in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// tc ingress, on socket buffers.
    Tc,
    /// XDP.
    Xdp,
}

impl Kind {
    /// The way that packets take by them.
    pub(super) fn path(self) -> Path {
        match self {
            Kind::Tc => Path::Bpf,
            Kind::Xdp => Path::Xdp,
        }
    }
}

#[derive(Debug)]
enum LinkId {
    Tc(Hook),
    Xdp(XdpLinkId),
}

/// A program on an interface.
#[derive(Debug)]
struct Attached {
    name: String,
    program: &'static str,
    link_address: Option<[u8; 6]>,
    /// `None` where it could not be attached; it is tried again when the interface is another.
    link: Option<LinkId>,
}

/// The loaded programs.
#[derive(Debug)]
pub(crate) struct Programs {
    kind: Kind,
    ebpf: Ebpf,
    /// Counts by tunnel.
    traffic: traffic::TrafficMemory,
    tunnel_device: u32,
    pub(super) table: Table,
    /// Number of times that what the programs remember was made void, and how often not because of neighbours
    /// only.
    generation: u32,
    /// Last version number that a slot of a binding got.
    version: u32,
    routes: u32,
    /// Assumptions of the programs about the kernel's routing.
    policy: Policy,
    /// Halves of addresses in `CROWDED`.
    crowded: BTreeSet<u64>,
    /// Number of bindings with room.
    slots: u32,
    /// And ways of theirs, on each processor.
    ways: u32,
    /// Counters of a slot: one for each path, or one.
    counters: u32,
    /// Tunnel whose traffic each counter counts, and its count at the start.
    counting: HashMap<u32, (TunnelEnds, TunnelTraffic)>,
    /// Counts of counters that were reused for another tunnel.
    counted: HashMap<TunnelEnds, TunnelTraffic>,
    /// Whether they note where packets go.
    seeks: bool,
    pub(super) ports: Ports,
    attached: SmallMap<u32, Attached>,
    /// For [`Self::used`]: the slot to look at next, and what was seen in each counter.
    next_look: u32,
    seen: HashMap<u32, u64>,
    /// For XDP: the mode in which drivers do it, once that is known.
    mode: XdpMode,
    /// And the interfaces in `PORTS`, by which packets leave.
    exits: BTreeSet<u32>,
    /// Those that take no redirected frames.
    unable: BTreeSet<u32>,
    pub(super) receivers: Receivers,
    complaints: BTreeSet<String>,
}

/// An error with all its causes, for people.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

impl Programs {
    /// Loads the programs that these interfaces and the configured ones want.
    ///
    /// # Errors
    /// Why the kernel does not want them, in one line.
    pub(crate) fn open(
        kind: Kind,
        config: &FastPathConfig,
        tunnel_device: u32,
        links: &[LinkInfo],
    ) -> Result<Programs, String> {
        let slots = slots(config);
        let prefixes = slots.saturating_mul(PREFIXES);
        let processors = aya::util::nr_cpus().map_or(1, |number| u32::try_from(number).unwrap_or(1)).max(1);
        let ways = ways(config, slots, processors);
        let counters = if slots <= SLOTS_BY_PATH { PATHS as u32 } else { 1 };
        let traffic_max = slots * counters;
        let versions = versions(slots);
        let seeks = u32::from(config.ports.direct);
        let second = clock::ticks_of_a_second();
        let object = match kind {
            Kind::Tc => carnet_bpf::TUNNEL_TC,
            Kind::Xdp => carnet_bpf::TUNNEL_XDP,
        };
        let mut ebpf = aside(|| {
            let mut loader = EbpfLoader::new();
            loader
                .override_global("TUNNEL_DEVICE", &tunnel_device, true)
                .override_global("FLOW_LABEL_KEY", &config.flow_label_key, true)
                .override_global("WAYS_MAX", &ways, true)
                .override_global("COUNTERS", &counters, true)
                .override_global("TRAFFIC_MAX", &traffic_max, true)
                .override_global("VERSIONS_MAX", &versions, true)
                .override_global("SEEKS", &seeks, true)
                .override_global("SECOND", &second, true)
                .map_max_entries("BINDINGS", slots)
                .map_max_entries("VERSIONS", versions)
                .map_max_entries("TRAFFIC", traffic_max.saturating_mul(processors))
                // Those that take the place of others are there before these go.
                .map_max_entries("RULES", slots * 2)
                .map_max_entries("WAYS", ways.saturating_mul(processors))
                .map_max_entries("PREFIXES", prefixes);
            loader.load(&object.unpack()).map_err(|error| told(&error))
        })?;
        // Load the programs that interfaces will need, so that no packet waits for the kernel's verifier
        // later. Load at least one, to notice a kernel that refuses them.
        for name in expected(kind, &config.ports, tunnel_device, links) {
            load(&mut ebpf, kind, name)?;
        }
        let traffic = traffic::TrafficMemory::of(&ebpf, traffic_max, processors)?;
        let mut programs = Programs {
            kind,
            ebpf,
            traffic,
            tunnel_device,
            table: Table::new(slots, prefixes),
            generation: 0,
            version: 0,
            routes: 0,
            policy: Policy::default(),
            crowded: BTreeSet::new(),
            slots,
            ways,
            counters,
            counting: HashMap::new(),
            counted: HashMap::new(),
            seeks: config.ports.direct,
            ports: config.ports.clone(),
            attached: SmallMap::new(),
            next_look: 0,
            seen: HashMap::new(),
            mode: XdpMode::Driver,
            exits: BTreeSet::new(),
            unable: BTreeSet::new(),
            receivers: Receivers::default(),
            complaints: BTreeSet::new(),
        };
        // Nothing that is all zeros is remembered.
        programs.forget()?;
        // The loader has read all of the kernel's types, some 20 MB, of which nothing is needed any more.
        give_back_memory();
        Ok(programs)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn has_room_for(&self, config: &FastPathConfig) -> bool {
        slots(config) <= self.slots
            && (self.ways > 1 || !config.ports.home_agent)
            && (self.seeks || !config.ports.direct)
    }

    /// A tunnel is gone.
    pub(super) fn remove(&mut self, tunnel: &Tunnel) {
        self.table.remove(tunnel);
        let ends = (tunnel.local, tunnel.remote);
        if !self.table.has(ends) {
            self.counted.remove(&ends);
        }
    }

    pub(super) fn path(&self) -> Path {
        self.kind.path()
    }

    /// Hears which interfaces take redirected frames, in a task of the runtime.
    pub(super) fn begin(&mut self) {
        if self.kind == Kind::Xdp {
            self.receivers = Receivers::open();
        }
    }

    /// Writes what has changed into the maps.
    ///
    /// # Errors
    /// The maps may be incomplete then, and the programs must go.
    pub(super) fn commit(&mut self) -> Result<(), String> {
        if !self.table.is_dirty() {
            return Ok(());
        }
        for operation in self.table.commit() {
            match operation {
                Operation::SetBinding(value) => {
                    let mut ends = value.ends();
                    for counter in self.counters_of(value.slot) {
                        self.count_for(counter, ends.next());
                    }
                }
                Operation::RemoveBinding(slot) => {
                    self.counters_of(slot).for_each(|counter| self.count_for(counter, None));
                }
                _ => {}
            }
            self.write(operation).map_err(|error| format!("cannot write a BPF map: {error}"))?;
        }
        for obstacle in self.table.obstacles() {
            if self.complaints.insert(obstacle.clone()) {
                tracing::warn!("left to the slow path: {obstacle}");
            }
        }
        Ok(())
    }

    /// Routes, rules or addresses are others now: what the programs remember of them is void.
    pub(super) fn forget(&mut self) -> Result<(), String> {
        self.write(Operation::Forget)
    }

    /// Neighbours are others now, or carnet's own routes into the tunnel device: ways stay as they are.
    pub(super) fn forget_flows(&mut self) -> Result<(), String> {
        self.bump(GENERATION)
    }

    /// Whether something longer than 64 bits is known to be inside all of these halves of addresses.
    pub(super) fn are_crowded(&self, halves: &BTreeSet<u64>) -> bool {
        halves.is_subset(&self.crowded)
    }

    fn bump(&mut self, name: &str) -> Result<(), String> {
        let number = if name == ROUTES { &mut self.routes } else { &mut self.generation };
        *number = number.wrapping_add(1).max(1);
        let number = *number;
        self.map_mut::<Array<_, u32>>(name)?.set(0, number, 0).map_err(|error| told(&error))
    }

    /// Invalidates cached lookups of this binding and of all bindings that share its version.
    fn renew(&mut self, slot: u32) -> Result<(), String> {
        self.version = self.version.wrapping_add(1).max(1);
        let (index, version) = (slot % versions(self.slots), self.version);
        self.map_mut::<Array<_, u32>>("VERSIONS")?.set(index, version, 0).map_err(|error| told(&error))
    }

    /// Sets which packet fields routes and rules use. Call [`Self::forget`] after it if they use more than
    /// before.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        // One that was full before stays incomplete.
        let networks = policy.networks && self.crowded.len() < CROWDED_MAX;
        let bits = u32::from(policy.arriving) | u32::from(policy.leaving) << 1 | u32::from(networks) << 2;
        self.map_mut::<Array<_, u32>>("POLICY")?.set(0, bits, 0).map_err(|error| told(&error))
    }

    /// Something longer than 64 bits is inside this half of addresses, which holds as long as the programs
    /// do. To be followed by [`Self::forget`].
    pub(super) fn crowd(&mut self, half: u64) -> Result<(), String> {
        if self.crowded.contains(&half) || self.crowded.len() >= CROWDED_MAX {
            return Ok(());
        }
        self.crowded.insert(half);
        let mut map: BpfHashMap<_, u64, u32> = self.map_mut("CROWDED")?;
        map.insert(half.to_be(), 1, 0).map_err(|error| told(&error))?;
        if self.crowded.len() >= CROWDED_MAX { self.set_policy(self.policy) } else { Ok(()) }
    }

    fn write(&mut self, operation: Operation) -> Result<(), String> {
        macro_rules! open {
            ($kind:ty, $name:literal) => {
                self.ebpf
                    .map_mut($name)
                    .and_then(|map| <$kind>::try_from(map).ok())
                    .ok_or(concat!("there is no map ", $name))?
            };
        }
        let result = match operation {
            Operation::SetLengths(end, value) => {
                open!(Array<&mut MapData, LengthsValue>, "LENGTHS").set(end, value, 0)
            }
            Operation::SetBinding(value) => {
                // The second write invalidates the cached lookups of the binding, all at once.
                open!(BpfHashMap<&mut MapData, u32, BindingValue>, "BINDINGS")
                    .insert(value.slot, value, 0)
                    .map_err(|error| told(&error))?;
                return self.renew(value.slot);
            }
            Operation::SetPrefix(prefix, slot) => {
                if prefix.length > 64 {
                    self.crowd(prefix.high)?;
                }
                open!(BpfHashMap<&mut MapData, PrefixKey, u32>, "PREFIXES").insert(prefix, slot, 0)
            }
            Operation::RemovePrefix(prefix) => {
                open!(BpfHashMap<&mut MapData, PrefixKey, u32>, "PREFIXES").remove(&prefix)
            }
            Operation::Forget => {
                self.bump(ROUTES)?;
                return self.bump(GENERATION);
            }
            Operation::ForgetFlows => return self.bump(GENERATION),
            Operation::SetRules(number) => match self.table.rules(number).copied() {
                Some(rules) => {
                    open!(BpfHashMap<&mut MapData, u32, RulesValue>, "RULES").insert(number, rules, 0)
                }
                // Gone again already.
                None => Ok(()),
            },
            Operation::RemoveRules(number) => {
                match open!(BpfHashMap<&mut MapData, u32, RulesValue>, "RULES").remove(&number) {
                    Err(MapError::KeyNotFound) => Ok(()),
                    result => result,
                }
            }
            Operation::RemoveBinding(slot) => {
                // This order is needed, too: otherwise a program could cache the binding under the new
                // version.
                open!(BpfHashMap<&mut MapData, u32, BindingValue>, "BINDINGS")
                    .remove(&slot)
                    .map_err(|error| told(&error))?;
                return self.renew(slot);
            }
        };
        result.map_err(|error| told(&error))
    }

    fn program_for(&self, link: &LinkInfo) -> Option<&'static str> {
        program_for(self.kind, &self.ports, self.tunnel_device, link)
    }

    /// Attaches programs to interfaces that have come, and forgets those that have gone.
    pub(super) fn follow(&mut self, links: &BTreeMap<String, LinkInfo>) -> Vec<String> {
        let wanted: BTreeMap<u32, (&LinkInfo, &'static str)> =
            links.values().filter_map(|link| Some((link.index, (link, self.program_for(link)?)))).collect();
        let stale: Vec<u32> = self
            .attached
            .iter()
            .filter(|(index, attached)| {
                wanted.get(index).is_none_or(|(link, program)| {
                    (link.name.as_str(), *program, link.link_address)
                        != (attached.name.as_str(), attached.program, attached.link_address)
                })
            })
            .map(|(index, _)| *index)
            .collect();
        let is_stale = !stale.is_empty();
        for index in stale {
            self.detach(index);
        }
        let (mode, before) = (self.mode, self.attached.len());
        let mut complaints = self.attach_all(&wanted);
        if self.mode != mode {
            // Those that had been attached before have been detached.
            complaints.extend(self.attach_all(&wanted));
        }
        if self.attached.len() != before {
            give_back_memory();
        }
        if is_stale || self.attached.len() != before {
            complaints.extend(self.follow_receivers());
        }
        complaints
    }

    /// XDP: packets leave by those interfaces with a program that take redirected frames.
    pub(super) fn follow_receivers(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.kind == Kind::Tc {
            return complaints;
        }
        // In front of the drivers all do.
        let able = if self.mode == XdpMode::Driver { self.receivers.look() } else { None };
        let with_program = self.attached.iter().filter(|(_, attached)| attached.link.is_some());
        let all: Vec<(u32, String)> = with_program.map(|(index, at)| (*index, at.name.clone())).collect();
        for (index, name) in all {
            let takes = able.as_ref().is_none_or(|able| able.contains(&index));
            if takes != self.exits.contains(&index)
                && let Err(why) = self.set_exit(index, takes)
            {
                complaints.push(format!("{name}: {why}"));
            }
            if !takes && self.unable.insert(index) {
                complaints.push(format!(
                    "{name} takes no frames that XDP redirects to it: what is to leave by it takes the slow path \
                     (virtual Ethernet takes them when its other end polls: ethtool -K PEER gro on)"
                ));
            } else if takes && self.unable.remove(&index) {
                tracing::info!("{name} takes frames that XDP redirects to it now");
            }
        }
        complaints
    }

    fn attach_all(&mut self, wanted: &BTreeMap<u32, (&LinkInfo, &'static str)>) -> Vec<String> {
        let mut complaints = Vec::new();
        for (index, (link, program)) in wanted.iter().map(|(index, value)| (*index, *value)) {
            if self.attached.contains_key(&index) {
                continue;
            }
            let (id, complaint) = match self.attach(link, program) {
                Ok(id) => (Some(id), None),
                Err(why) => (None, Some(format!("{}: {why}; its packets take the slow path", link.name))),
            };
            self.attached.insert(
                index,
                Attached { name: link.name.clone(), program, link_address: link.link_address, link: id },
            );
            complaints.extend(complaint.filter(|text| self.complaints.insert(text.clone())));
        }
        complaints
    }

    fn attach(&mut self, link: &LinkInfo, program: &'static str) -> Result<LinkId, String> {
        load(&mut self.ebpf, self.kind, program)?;
        match self.kind {
            Kind::Tc => {
                let program: &mut SchedClassifier = find(&mut self.ebpf, program)?;
                Hook::attach(program, &link.name, link.index, TcAttachType::Ingress).map(LinkId::Tc)
            }
            Kind::Xdp => {
                // Frames for this address are taken; see `ADDRESSES`.
                let [a, b, c, d, e, f] = link.link_address.unwrap_or_default();
                let address = u64::from_ne_bytes([a, b, c, d, e, f, 0, 1]);
                let mut near: Array<_, u64> = self.map_mut("ADDRESSES")?;
                if link.index < near.len() {
                    near.set(link.index, address, 0).map_err(|error| told(&error))?;
                } else {
                    let mut far: BpfHashMap<_, u32, u64> = self.map_mut("FAR_ADDRESSES")?;
                    far.insert(link.index, address, 0).map_err(|error| told(&error))?;
                }
                let id = self.attach_xdp(link.index, program)?;
                Ok(LinkId::Xdp(id))
            }
        }
    }

    /// Packets may leave by an interface, or no longer.
    fn set_exit(&mut self, index: u32, is: bool) -> Result<(), String> {
        let map = self.ebpf.map_mut("PORTS").and_then(|map| DevMapHash::try_from(map).ok());
        let mut ports = map.ok_or("there is no map PORTS")?;
        if is {
            ports.insert(index, index, None, 0).map_err(|error| told(&error))?;
            self.exits.insert(index);
        } else {
            // It goes with its interface.
            let _ = ports.remove(index);
            self.exits.remove(&index);
        }
        // Cached lookups contain the interfaces that packets may leave by.
        self.forget()
    }

    fn map_mut<'a, M: TryFrom<&'a mut aya::maps::Map>>(&'a mut self, name: &str) -> Result<M, String> {
        let map = self.ebpf.map_mut(name).and_then(|map| M::try_from(map).ok());
        map.ok_or_else(|| format!("there is no map {name}"))
    }

    /// Attaches the program in the drivers if all of them support it, else before the kernel's own receiving.
    /// A driver's frames cannot be redirected to an interface whose driver has no XDP.
    fn attach_xdp(&mut self, index: u32, program: &'static str) -> Result<XdpLinkId, String> {
        let mode = self.mode;
        let result = find::<Xdp>(&mut self.ebpf, program)?.attach_to_if_index(index, mode);
        let Err(native) = result.as_ref().map_err(|error| told(error)) else {
            return result.map_err(|error| told(&error));
        };
        if mode == XdpMode::Driver {
            tracing::info!("XDP in front of the drivers, not in them: {native}");
            self.mode = XdpMode::Skb;
            let attached: Vec<u32> = self.attached.keys().copied().collect();
            attached.into_iter().for_each(|index| self.detach(index));
        }
        let program: &mut Xdp = find(&mut self.ebpf, program)?;
        program.attach_to_if_index(index, XdpMode::Skb).map_err(|error| told(&error))
    }

    fn detach(&mut self, index: u32) {
        let Some(attached) = self.attached.remove(&index) else { return };
        // Cached lookups of the interface depend on its former role.
        let _ = self.forget();
        // The interface may be gone, and with it what was attached.
        match attached.link {
            Some(LinkId::Tc(hook)) => {
                if let Ok(program) = find::<SchedClassifier>(&mut self.ebpf, attached.program) {
                    hook.detach(program);
                }
            }
            Some(LinkId::Xdp(id)) => {
                if let Ok(mut far) = self.map_mut::<BpfHashMap<_, u32, u64>>("FAR_ADDRESSES") {
                    // Where it was not there, it needs no room.
                    let _ = far.remove(&index);
                }
                let _ = self.set_exit(index, false);
                self.unable.remove(&index);
                if let Ok(program) = find::<Xdp>(&mut self.ebpf, attached.program) {
                    let _ = program.detach(id);
                }
            }
            None => {}
        }
    }

    /// Where new flows of a mobile router went since this was asked last.
    pub(super) fn sought(&mut self) -> Vec<Ipv6Addr> {
        if !self.seeks {
            return Vec::new();
        }
        let Ok(mut map) = self.map_mut::<BpfHashMap<_, [u8; 16], u32>>("SOUGHT") else { return Vec::new() };
        let found: Vec<[u8; 16]> = map.keys().filter_map(Result::ok).collect();
        for address in &found {
            // It may have made room for another already.
            let _ = map.remove(address);
        }
        found.into_iter().map(Ipv6Addr::from).collect()
    }

    /// Next hops whose link-layer addresses were taken from the kernel within this time. tc programs let the
    /// kernel do that for each packet.
    pub(super) fn neighbours(&self, within: Duration) -> Vec<(u32, IpAddr)> {
        if self.kind == Kind::Tc {
            return Vec::new();
        }
        let map = self.ebpf.map("NEIGHBOURS");
        let Some(map) = map.and_then(|map| BpfHashMap::<_, NeighbourKey, u64>::try_from(map).ok()) else {
            return Vec::new();
        };
        let since = clock::monotonic().as_nanos().saturating_sub(within.as_nanos() as u64);
        let entries = map.iter().filter_map(|entry| entry.ok());
        entries
            .filter(|(_, asked)| *asked >= since)
            .map(|(key, _)| (key.ifindex, Ipv6Addr::from(key.address).to_canonical()))
            .collect()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let indices: Vec<u32> = self.attached.keys().copied().collect();
        for index in indices {
            self.detach(index);
        }
    }
}

/// Returns the number of bindings with room.
fn slots(config: &FastPathConfig) -> u32 {
    u32::try_from(config.bindings).unwrap_or(u32::MAX / 8).max(SLOTS_MIN).next_power_of_two()
}

/// How many slots have a version of their own, a power of two as `slots` is.
fn versions(slots: u32) -> u32 {
    slots.min(VERSIONS_MAX)
}

/// Ways that a home agent remembers on each processor, a power of two; see `bpf/ways.h`. Where there are so
/// few that networks share one, only time is lost.
fn ways(config: &FastPathConfig, slots: u32, processors: u32) -> u32 {
    let most = (WAYS_MEMORY / 64 / processors).max(1);
    let wanted = if config.ports.home_agent { slots.saturating_mul(WAYS) } else { 1 };
    // Down to a power of two.
    1 << wanted.clamp(1, most).ilog2()
}

/// The program for an interface; `None` where it has no task.
fn program_for(kind: Kind, ports: &Ports, tunnel_device: u32, link: &LinkInfo) -> Option<&'static str> {
    // The devices of GeoNetworking's fast path have no task in this one.
    let internal = link.name == TUNNEL_DEVICE || link.group == super::geonet::GROUP;
    if link.index == tunnel_device || internal || link.is_loopback {
        return None;
    }
    program_of(kind, ports, &link.name, link.link_address.is_none())
}

/// The program for an interface of this name, which is bare where it has no link-layer address.
fn program_of(kind: Kind, ports: &Ports, name: &str, bare: bool) -> Option<&'static str> {
    let is_among = |names: &[String]| names.iter().any(|known| known == name);
    let (lan, uplink) = (is_among(&ports.lan), is_among(&ports.uplinks));
    let by_destination = ports.home_agent || (ports.direct && (lan || uplink));
    Some(match (kind, by_destination, lan, uplink, bare) {
        // XDP programs want an Ethernet header to write the neighbour's address into.
        (Kind::Xdp, _, _, _, true) => return None,
        (_, false, false, false, _) => return None,
        (_, false, true, _, false) => "lan",
        (_, false, true, _, true) => "lan_bare",
        (_, false, false, true, false) => "uplink",
        (_, false, false, true, true) => "uplink_bare",
        (_, true, true, _, false) => "agent_lan",
        (_, true, true, _, true) => "agent_lan_bare",
        (_, true, false, true, false) => "agent_uplink",
        (_, true, false, true, true) => "agent_uplink_bare",
        (_, true, false, false, false) => "agent",
        (_, true, false, false, true) => "agent_bare",
    })
}

/// Returns the programs of all present interfaces, and of interfaces that may appear: the configured ones, and
/// at a home agent any. Whether these have a link-layer address is unknown before (a modem's has none), so both
/// programs are included. The set is never empty.
fn expected(kind: Kind, ports: &Ports, tunnel_device: u32, links: &[LinkInfo]) -> BTreeSet<&'static str> {
    let present = links.iter().filter_map(|link| program_for(kind, ports, tunnel_device, link));
    let configured = ports.lan.iter().chain(&ports.uplinks);
    let absent = configured.filter(|name| !links.iter().any(|link| link.name == **name));
    let possible = absent.flat_map(|name| [false, true].map(|bare| program_of(kind, ports, name, bare)));
    let any = [false, true].map(|bare| program_of(kind, ports, "", bare).filter(|_| ports.home_agent));
    let never_empty = if ports.home_agent { "agent" } else { "lan" };
    present.chain(possible.flatten()).chain(any.into_iter().flatten()).chain([never_empty]).collect()
}

/// Does work in a thread of its own, whose free small pieces of memory end with it. Otherwise the allocator
/// keeps them for later use, and they hold the pages that they are in.
pub(super) fn aside<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err("the loader has failed".into()))
}

pub(super) fn find<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, String>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| format!("there is no program {name}"))?;
    program.try_into().map_err(|_| format!("{name} is a program of another kind"))
}

/// Loads a program unless it is loaded already.
fn load(ebpf: &mut Ebpf, kind: Kind, name: &str) -> Result<(), String> {
    let mut once = || -> Result<Result<(), ProgramError>, String> {
        match kind {
            Kind::Tc => {
                let program: &mut SchedClassifier = find(ebpf, name)?;
                Ok(if program.fd().is_ok() { Ok(()) } else { program.load() })
            }
            Kind::Xdp => {
                let program: &mut Xdp = find(ebpf, name)?;
                Ok(if program.fd().is_ok() { Ok(()) } else { program.load() })
            }
        }
    };
    for attempt in 1..ATTEMPTS {
        match once()? {
            // A signal came while the kernel looked at it, or the kernel wants this thread for something
            // else.
            Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(FIRST_WAIT * 2u32.pow(attempt - 1));
            }
            result => return result.map_err(|error| told(&error)),
        }
    }
    once()?.map_err(|error| told(&error))
}

mod traffic;

#[cfg(test)]
mod tests;
