//! Loads the BPF programs of the fast path, attaches them to interfaces, and writes their maps.
//!
//! Programs and maps belong to file descriptors of this process. If the kernel supports BPF links (XDP since
//! 5.9), the kernel detaches the programs when the process ends, for any reason. [`Hook`] describes how tc
//! programs are detached.
//!
//! An interface gets a program as soon as it exists, even if it is down. The program depends on the
//! interface's role, and on whether its packets have an Ethernet header. A home agent treats all interfaces
//! but the loopback and the tunnel device alike.

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
use carnet_nemo::forwarding::desired::{TUNNEL_DEVICE, Tunnel};

use super::errors::told;
use super::hook::Hook;
use super::receivers::Receivers;
use super::rules::RulesValue;
use super::table::{Operation, Table};
use super::values::{BindingValue, LengthsValue, PATHS, Policy, PrefixKey};
use super::{FastPathConfig, Path, Ports, TunnelEnds, TunnelTraffic};
use crate::clock;
use crate::memory::give_back_memory;
use crate::netlink::{CROWDED_MAX, LinkInfo};

// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for BindingValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for PrefixKey {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for LengthsValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for RulesValue {}

/// Copy of `struct neighbour` in C.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct NeighbourKey {
    address: [u8; 16],
    ifindex: u32,
    zero: u32,
}

// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for NeighbourKey {}

/// Minimum number of bindings for which the maps have room.
const SLOTS_MIN: u32 = 64;
/// Average number of prefixes of a binding, by which the map of prefixes is sized. The home address counts as
/// a prefix.
const PREFIXES: u32 = 4;

/// Sections of the programs' data that contain one number each. A new number invalidates cached entries.
const GENERATION: &str = ".data.generation";
const ROUTES: &str = ".data.routes";

/// Maximum number of version numbers, which take 64 kB (VERSIONS in `bpf/state.h`). With 100,000 bindings
/// about six share a number, so a change of one binding invalidates the cached lookups of six.
const VERSIONS_MAX: u32 = if cfg!(test) { 2 } else { 16_384 };

/// Number of places for cached next hops per binding, on each processor. Half of the places stay free, so
/// that the programs mostly find an entry at the first place that they search.
const WAYS: u32 = 2;
/// Maximum size in octets of all cached next hops on all processors.
const WAYS_MEMORY: u32 = 256 << 20;

/// Number of attempts to load a program. The pause after the first attempt is the next constant. The pause
/// doubles after each further attempt.
const ATTEMPTS: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// Maximum number of slots for which each path has its own counter. With more slots, the paths of a slot
/// share one counter, to save memory: each processor has a copy of every counter.
const SLOTS_BY_PATH: u32 = 4096;
/// Attachment point of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The ingress of tc, where programs get socket buffers.
    Tc,
    /// XDP, where programs get frames before the kernel allocates socket buffers.
    Xdp,
}

impl Kind {
    /// Returns the name of the fast path that these programs implement.
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
    /// Attachment of the program; `None` if the kernel refused it. carnet tries again when the interface
    /// changes.
    link: Option<LinkId>,
}

/// The loaded programs, their maps, and the interfaces to which they are attached.
#[derive(Debug)]
pub(crate) struct Programs {
    kind: Kind,
    ebpf: Ebpf,
    /// Memory in which the programs count the traffic of tunnels.
    traffic: traffic::TrafficMemory,
    tunnel_device: u32,
    pub(super) table: Table,
    /// Number of times that all cached lookups were invalidated; `routes` counts the invalidations whose
    /// cause was more than a neighbour.
    generation: u32,
    /// Version number that carnet assigned last to the slot of a binding.
    version: u32,
    routes: u32,
    /// Packet fields by which the kernel routes, as the programs assume.
    policy: Policy,
    /// Content of the map `CROWDED`: upper halves of addresses, which contain routes longer than 64 bits.
    crowded: BTreeSet<u64>,
    /// Number of bindings for which the maps have room.
    slots: u32,
    /// Number of places for cached next hops, on each processor.
    ways: u32,
    /// Number of counters of a slot: one for each path, or one in total.
    counters: u32,
    /// For each counter in use, its tunnel, and its value when it was assigned to this tunnel.
    counting: HashMap<u32, (TunnelEnds, TunnelTraffic)>,
    /// Traffic of each tunnel in counters that now count another tunnel.
    counted: HashMap<TunnelEnds, TunnelTraffic>,
    /// Whether the programs record the destinations of new flows, for which a mobile router may open direct
    /// routes.
    seeks: bool,
    pub(super) ports: Ports,
    attached: BTreeMap<u32, Attached>,
    /// The next slot that [`Self::used`] checks. `seen` has the value of each counter at its last check.
    next_look: u32,
    seen: HashMap<u32, u64>,
    /// XDP mode in which programs are attached: in the drivers, or generic once a driver has refused.
    mode: XdpMode,
    /// Content of the map `PORTS`: interfaces by which redirected packets may leave.
    exits: BTreeSet<u32>,
    /// Interfaces that accept no redirected frames.
    unable: BTreeSet<u32>,
    pub(super) receivers: Receivers,
    complaints: BTreeSet<String>,
}

impl Programs {
    /// Loads the programs that the present interfaces and the configured interfaces need.
    ///
    /// # Errors
    /// Returns why the kernel refuses the programs, in one line.
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
                // While a rule set is replaced, the old and the new entries exist at the same time.
                .map_max_entries("RULES", slots * 2)
                .map_max_entries("WAYS", ways.saturating_mul(processors))
                .map_max_entries("PREFIXES", prefixes);
            loader.load(&object.unpack()).map_err(|error| told(&error))
        })?;
        // Load the programs that interfaces will need, so that no packet waits for the kernel's verifier
        // later. Load at least one program, to notice whether the kernel refuses BPF programs.
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
            attached: BTreeMap::new(),
            next_look: 0,
            seen: HashMap::new(),
            mode: XdpMode::Driver,
            exits: BTreeSet::new(),
            unable: BTreeSet::new(),
            receivers: Receivers::default(),
            complaints: BTreeSet::new(),
        };
        // Increment the generation from 0 to 1, so that an entry of zeros is never valid.
        programs.forget()?;
        // The loader has read all of the kernel's types, about 20 MB, which carnet no longer needs.
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

    /// Removes a tunnel from the table; [`Self::commit`] writes the change.
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

    /// Starts to watch which interfaces accept redirected frames. The caller must run in a tokio runtime.
    pub(super) fn begin(&mut self) {
        if self.kind == Kind::Xdp {
            self.receivers = Receivers::open();
        }
    }

    /// Writes changed entries into the maps.
    ///
    /// # Errors
    /// Fails if the kernel refuses a write. The maps may then be incomplete, and the caller must detach the
    /// programs.
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

    /// Invalidates all cached lookups, because routes, rules or addresses changed.
    pub(super) fn forget(&mut self) -> Result<(), String> {
        self.write(Operation::Forget)
    }

    /// Invalidates cached lookups of flows, because neighbours or carnet's own routes into the tunnel device
    /// changed. Cached next hops stay valid.
    pub(super) fn forget_flows(&mut self) -> Result<(), String> {
        self.bump(GENERATION)
    }

    /// Returns whether the map `CROWDED` contains all these upper halves of addresses.
    pub(super) fn are_crowded(&self, halves: &BTreeSet<u64>) -> bool {
        halves.is_subset(&self.crowded)
    }

    fn bump(&mut self, name: &str) -> Result<(), String> {
        let number = if name == ROUTES { &mut self.routes } else { &mut self.generation };
        *number = number.wrapping_add(1).max(1);
        let number = *number;
        self.map_mut::<Array<_, u32>>(name)?.set(0, number, 0).map_err(|error| told(&error))
    }

    /// Invalidates cached lookups of the binding in a slot, and of all bindings that share its version
    /// number.
    fn renew(&mut self, slot: u32) -> Result<(), String> {
        self.version = self.version.wrapping_add(1).max(1);
        let (index, version) = (slot % versions(self.slots), self.version);
        self.map_mut::<Array<_, u32>>("VERSIONS")?.set(index, version, 0).map_err(|error| told(&error))
    }

    /// Sets which packet fields routes and rules use. The caller must call [`Self::forget`] afterwards if
    /// they use more fields than before.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result<(), String> {
        self.policy = policy;
        // Entries are never removed from `CROWDED`, so a full map stays incomplete.
        let networks = policy.networks && self.crowded.len() < CROWDED_MAX;
        let bits = u32::from(policy.arriving) | u32::from(policy.leaving) << 1 | u32::from(networks) << 2;
        self.map_mut::<Array<_, u32>>("POLICY")?.set(0, bits, 0).map_err(|error| told(&error))
    }

    /// Adds an upper half of addresses, which contains a route longer than 64 bits, to the map `CROWDED` for
    /// the lifetime of the programs. The caller must call [`Self::forget`] afterwards.
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
                // `renew` then invalidates all cached lookups of the binding at once.
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
                // A later change has already removed these rules from the table.
                None => Ok(()),
            },
            Operation::RemoveRules(number) => {
                match open!(BpfHashMap<&mut MapData, u32, RulesValue>, "RULES").remove(&number) {
                    Err(MapError::KeyNotFound) => Ok(()),
                    result => result,
                }
            }
            Operation::RemoveBinding(slot) => {
                // Remove the binding before its version changes. Otherwise a program could cache the old
                // binding under the new version.
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

    /// Attaches programs to new interfaces, and forgets removed interfaces.
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
            // A program could only be attached in another XDP mode, which detached all other programs: attach
            // them again.
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

    /// For XDP, updates the interfaces by which packets may leave: those that have a program and accept
    /// redirected frames.
    pub(super) fn follow_receivers(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.kind == Kind::Tc {
            return complaints;
        }
        // In the generic XDP mode, all interfaces accept redirected frames.
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
                    "{name} takes no frames that XDP redirects to it: what is to leave by it takes the slow \
                     path (virtual Ethernet takes them when its other end polls: ethtool -K PEER gro on)"
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
                // The interface accepts frames for this address; see `ADDRESSES`.
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

    /// Lets packets leave by an interface, or forbids it, as `is` says.
    fn set_exit(&mut self, index: u32, is: bool) -> Result<(), String> {
        let map = self.ebpf.map_mut("PORTS").and_then(|map| DevMapHash::try_from(map).ok());
        let mut ports = map.ok_or("there is no map PORTS")?;
        if is {
            ports.insert(index, index, None, 0).map_err(|error| told(&error))?;
            self.exits.insert(index);
        } else {
            // The removal fails if the interface is gone, because the kernel then removes its entry itself.
            let _ = ports.remove(index);
            self.exits.remove(&index);
        }
        // Cached lookups contain interfaces by which packets leave, so they are invalid now.
        self.forget()
    }

    fn map_mut<'a, M: TryFrom<&'a mut aya::maps::Map>>(&'a mut self, name: &str) -> Result<M, String> {
        let map = self.ebpf.map_mut(name).and_then(|map| M::try_from(map).ok());
        map.ok_or_else(|| format!("there is no map {name}"))
    }

    /// Attaches the program in the drivers if all of them support it, otherwise in the generic mode for all
    /// interfaces. A driver's frames cannot be redirected to an interface whose driver has no XDP.
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
        // If the interface is gone, the kernel has already detached the program, and errors do not matter.
        match attached.link {
            Some(LinkId::Tc(hook)) => {
                if let Ok(program) = find::<SchedClassifier>(&mut self.ebpf, attached.program) {
                    hook.detach(program);
                }
            }
            Some(LinkId::Xdp(id)) => {
                if let Ok(mut far) = self.map_mut::<BpfHashMap<_, u32, u64>>("FAR_ADDRESSES") {
                    // The entry is missing if the map was full when the interface appeared.
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

    /// Returns the destinations of new flows of a mobile router since the last call.
    pub(super) fn sought(&mut self) -> Vec<Ipv6Addr> {
        if !self.seeks {
            return Vec::new();
        }
        let Ok(mut map) = self.map_mut::<BpfHashMap<_, [u8; 16], u32>>("SOUGHT") else { return Vec::new() };
        let found: Vec<[u8; 16]> = map.keys().filter_map(Result::ok).collect();
        for address in &found {
            // The map may have evicted the entry already.
            let _ = map.remove(address);
        }
        found.into_iter().map(Ipv6Addr::from).collect()
    }

    /// Returns next hops whose link-layer addresses the programs took from the kernel within this time. With
    /// tc programs the list is empty, because the kernel resolves the neighbour of each packet.
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

/// Returns the number of bindings for which the maps get room.
fn slots(config: &FastPathConfig) -> u32 {
    u32::try_from(config.bindings).unwrap_or(u32::MAX / 8).max(SLOTS_MIN).next_power_of_two()
}

/// Returns the number of version numbers that the slots share, a power of two like `slots`.
fn versions(slots: u32) -> u32 {
    slots.min(VERSIONS_MAX)
}

/// Returns the number of cached next hops of a home agent on each processor, a power of two; see
/// `bpf/ways.h`. If networks share a place because there are too few, the programs only ask the kernel more
/// often.
fn ways(config: &FastPathConfig, slots: u32, processors: u32) -> u32 {
    let most = (WAYS_MEMORY / 64 / processors).max(1);
    let wanted = if config.ports.home_agent { slots.saturating_mul(WAYS) } else { 1 };
    // Rounds down to a power of two.
    1 << wanted.clamp(1, most).ilog2()
}

/// Returns the program for an interface; `None` if the fast path does not use the interface.
fn program_for(kind: Kind, ports: &Ports, tunnel_device: u32, link: &LinkInfo) -> Option<&'static str> {
    // The devices of GeoNetworking's fast path get no program of this path.
    let internal = link.name == TUNNEL_DEVICE || link.group == super::geonet::GROUP;
    if link.index == tunnel_device || internal || link.is_loopback {
        return None;
    }
    program_of(kind, ports, &link.name, link.link_address.is_none())
}

/// Returns the program for an interface of this name. `bare` says that the interface has no link-layer
/// address.
fn program_of(kind: Kind, ports: &Ports, name: &str, bare: bool) -> Option<&'static str> {
    let is_among = |names: &[String]| names.iter().any(|known| known == name);
    let (lan, uplink) = (is_among(&ports.lan), is_among(&ports.uplinks));
    let by_destination = ports.home_agent || (ports.direct && (lan || uplink));
    Some(match (kind, by_destination, lan, uplink, bare) {
        // XDP programs write the neighbour's address into an Ethernet header, which such interfaces lack.
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

/// Returns the programs of all present interfaces and of interfaces that may appear. At a mobile router these
/// are the configured interfaces, at a home agent any. The set contains both programs for a future interface,
/// because it may lack a link-layer address, as a modem's does. The set is never empty.
fn expected(kind: Kind, ports: &Ports, tunnel_device: u32, links: &[LinkInfo]) -> BTreeSet<&'static str> {
    let present = links.iter().filter_map(|link| program_for(kind, ports, tunnel_device, link));
    let configured = ports.lan.iter().chain(&ports.uplinks);
    let absent = configured.filter(|name| !links.iter().any(|link| link.name == **name));
    let possible = absent.flat_map(|name| [false, true].map(|bare| program_of(kind, ports, name, bare)));
    let any = [false, true].map(|bare| program_of(kind, ports, "", bare).filter(|_| ports.home_agent));
    let never_empty = if ports.home_agent { "agent" } else { "lan" };
    present.chain(possible.flatten()).chain(any.into_iter().flatten()).chain([never_empty]).collect()
}

/// Does work in a separate thread, so that the allocator returns the work's freed memory at the end of the
/// thread. In the main thread the allocator would keep freed small allocations and their pages.
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
            // EAGAIN: a signal has interrupted the kernel's verification of the program.
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
