//! Loads the BPF programs of the fast path, attaches them to interfaces, and writes their maps.
//!
//! Programs and maps belong to file descriptors of this process. If the kernel supports BPF links (XDP since
//! 5.9), the kernel detaches the programs when the process ends, for any reason. [`ProgramHook`] describes
//! how tc programs are detached.
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

use super::binding_table::{BindingTable, MapOperation};
use super::error_text::format_error_with_causes;
use super::flow_rules::RuleListValue;
use super::kernel_functions::{self, KernelFunctions};
use super::map_values::{
    BindingValue, LengthsValue, MAX_PATHS_PER_BINDING, PrefixKey, RoutingPolicy, RuleScope, RulesetValue,
};
use super::program_hook::ProgramHook;
use super::redirect_targets::RedirectTargets;
use super::{DataPath, FastPathConfig, InterfaceRoles, TunnelEnds, TunnelTraffic};
use crate::clock;
use crate::memory::return_free_memory;
use crate::netlink::{LinkInfo, MAX_UPPER_HALVES_OF_LONG_PREFIXES};

// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for BindingValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for PrefixKey {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for LengthsValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for RuleListValue {}
// SAFETY: the type is `repr(C)` of integers, without padding, and any octets are a valid value.
unsafe impl Pod for RulesetValue {}

/// Copy of `struct neighbour` in C.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct NeighbourKey {
    address: [u8; 16],
    ifindex: u32,
    padding: u32,
}

// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for NeighbourKey {}

/// Minimum number of bindings for which the maps have room.
const MIN_BINDING_SLOTS: u32 = 64;
/// Average number of prefixes of a binding, by which the map of prefixes is sized. The home address counts as
/// a prefix.
const AVERAGE_PREFIXES_PER_BINDING: u32 = 4;

/// Section of the programs' data with the number of the present generation of lookups. A new number
/// invalidates cached lookups. `ROUTES_SECTION` has the number of the present generation of routes.
const GENERATION_SECTION: &str = ".data.generation";
const ROUTES_SECTION: &str = ".data.routes";

/// Section of the programs' data that contains [`RulesetValue`].
const RULESET_SECTION: &str = ".data.ruleset";

/// Number of version numbers, which take 64 kB (VERSIONS in `bpf/state.h`). With 100,000 bindings about six
/// bindings share a number, so the change of one binding invalidates the cached lookups of six.
const MAX_VERSION_NUMBERS: u32 = if cfg!(test) { 2 } else { 16_384 };

/// Number of cache entries for next hops per binding, on each processor. Half of them stay free, so that the
/// programs mostly find an entry at the first attempt.
const NEXT_HOPS_PER_BINDING: u32 = 2;
/// Maximum size in octets of all cached next hops on all processors.
const MAX_NEXT_HOPS_MEMORY: u32 = 256 << 20;

/// Number of attempts to load a program.
const MAX_LOAD_ATTEMPTS: u32 = 10;
/// Pause after the first attempt to load a program; each further pause is twice as long.
const FIRST_LOAD_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of slots (one for each binding) for which each path has its own counter. With more slots,
/// all paths of a slot share one counter, to save memory: each processor has a copy of every counter.
const MAX_SLOTS_WITH_PATH_COUNTERS: u32 = 4096;
/// Attachment point of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttachmentKind {
    /// tc ingress: programs get socket buffers.
    Tc,
    /// XDP: programs get frames before the kernel allocates socket buffers.
    Xdp,
}

impl AttachmentKind {
    /// Returns the name of the fast path that these programs implement.
    pub(super) fn data_path(self) -> DataPath {
        match self {
            AttachmentKind::Tc => DataPath::Bpf,
            AttachmentKind::Xdp => DataPath::Xdp,
        }
    }
}

/// Program at the egress of the interfaces that notes which flows the packet filter has accepted.
const CONNTRACK_NOTE_PROGRAM: &str = "note";

#[derive(Debug)]
enum AttachedLinkId {
    Tc(ProgramHook),
    Xdp(XdpLinkId),
}

/// A program on an interface.
#[derive(Debug)]
struct AttachedProgram {
    name: String,
    program_name: &'static str,
    link_address: Option<[u8; 6]>,
    /// Link that attaches the program; `None` if the kernel refused it. carnet tries again when the interface
    /// changes.
    link_id: Option<AttachedLinkId>,
}

/// The loaded programs, their maps, and the interfaces to which they are attached.
#[derive(Debug)]
pub(crate) struct LoadedPrograms {
    kind: AttachmentKind,
    ebpf: Ebpf,
    /// Memory in which the programs count the traffic of tunnels.
    traffic_memory: traffic_counters::TrafficMemory,
    tunnel_device_index: u32,
    pub(super) binding_table: BindingTable,
    /// Number of times that carnet has invalidated cached lookups of flows, for any reason.
    lookup_generation: u32,
    /// Version number that carnet last gave to a binding's slot.
    last_version_number: u32,
    /// Number of times that carnet has invalidated all cached next hops, because routes, rules or addresses
    /// had changed.
    route_generation: u32,
    /// Content of the map `POLICY`: whether the kernel routes by interface and destination only.
    routing_policy: RoutingPolicy,
    /// Content of the map `CROWDED`: the upper 64 bits of destinations for which the kernel has routes longer
    /// than 64 bits.
    upper_halves_of_long_prefixes: BTreeSet<u64>,
    /// Number of bindings for which the maps have room.
    binding_slots: u32,
    /// Number of cache entries for next hops, on each processor.
    next_hop_cache_size: u32,
    /// Number of counters of a binding's slot: one for each path, or one in total.
    counters_per_slot: u32,
    /// For each counter in use, its tunnel, and its value when it was assigned to this tunnel.
    tunnel_by_counter: HashMap<u32, (TunnelEnds, TunnelTraffic)>,
    /// Traffic of each tunnel in counters that now count another tunnel.
    traffic_in_reused_counters: HashMap<TunnelEnds, TunnelTraffic>,
    /// Whether the programs record the destinations of new flows, for which a mobile router may open direct
    /// routes.
    records_new_flows: bool,
    pub(super) interface_roles: InterfaceRoles,
    attached_programs: BTreeMap<u32, AttachedProgram>,
    /// The next slot whose counters [`Self::used`] reads.
    next_slot_to_check: u32,
    /// Value of each counter when `used` last read it.
    counters_at_last_check: HashMap<u32, u64>,
    /// XDP mode in which programs are attached: in the drivers, or generic once a driver has refused.
    xdp_mode: XdpMode,
    /// Content of the map `PORTS`: interfaces by which redirected packets may leave.
    redirect_exit_interfaces: BTreeSet<u32>,
    /// Interfaces that accept no redirected frames.
    interfaces_without_redirect: BTreeSet<u32>,
    pub(super) redirect_targets: RedirectTargets,
    /// Content of the map `FILTERED`: interfaces whose packets the packet filter must see, and how much of
    /// these packets its rules use.
    filtered_interfaces: BTreeMap<u32, RuleScope>,
    /// Data about the packet filter's rules, as the programs get them.
    known_ruleset: RulesetValue,
    /// Why the programs cannot call the kernel's connection tracking; `None` if they can.
    conntrack_obstacle: Option<String>,
    /// The program [`CONNTRACK_NOTE_PROGRAM`] at the egress of interfaces, by index; `None` if the kernel
    /// refused it.
    note_programs: BTreeMap<u32, Option<ProgramHook>>,
    logged_errors: BTreeSet<String>,
}

impl LoadedPrograms {
    /// Loads the programs that the present interfaces and the configured interfaces need.
    ///
    /// # Errors
    /// Returns why the kernel refuses the programs, in one line.
    pub(crate) fn open_for(
        kind: AttachmentKind,
        config: &FastPathConfig,
        tunnel_device: u32,
        links: &[LinkInfo],
    ) -> Result<LoadedPrograms, String> {
        let functions = run_in_thread(KernelFunctions::find_in_kernel_btf);
        let found = functions.as_ref().err().cloned();
        let Ok(functions) = functions else {
            return LoadedPrograms::open_with_or_without_conntrack(
                kind,
                config,
                tunnel_device,
                links,
                None,
                found,
            );
        };
        LoadedPrograms::open_with_or_without_conntrack(
            kind,
            config,
            tunnel_device,
            links,
            Some(&functions),
            None,
        )
        .or_else(|why| {
            // Load the programs without calls of connection tracking: on some processors BPF programs
            // cannot call functions of the kernel.
            let programs = LoadedPrograms::open_with_or_without_conntrack(
                kind,
                config,
                tunnel_device,
                links,
                None,
                Some(why.clone()),
            );
            programs.map_err(|_| why)
        })
    }

    /// Loads the programs with or without calls of the kernel's connection tracking. `conntrack_obstacle`
    /// says why they have no such calls.
    fn open_with_or_without_conntrack(
        kind: AttachmentKind,
        config: &FastPathConfig,
        tunnel_device: u32,
        links: &[LinkInfo],
        functions: Option<&KernelFunctions>,
        conntrack_obstacle: Option<String>,
    ) -> Result<LoadedPrograms, String> {
        let slots = binding_slots_needed(config);
        let prefixes = slots.saturating_mul(AVERAGE_PREFIXES_PER_BINDING);
        let processors = aya::util::nr_cpus().map_or(1, |number| u32::try_from(number).unwrap_or(1)).max(1);
        let ways = next_hop_cache_entries(config, slots, processors);
        let counters = if slots <= MAX_SLOTS_WITH_PATH_COUNTERS { MAX_PATHS_PER_BINDING as u32 } else { 1 };
        let traffic_max = slots * counters;
        let versions = version_numbers_needed(slots);
        let seeks = u32::from(config.interface_roles.direct_routes_enabled);
        let second = clock::ticks_per_second();
        let object = match kind {
            AttachmentKind::Tc => carnet_bpf::TUNNEL_TC,
            AttachmentKind::Xdp => carnet_bpf::TUNNEL_XDP,
        };
        let has_conntrack = u32::from(functions.is_some());
        let (status, tcp_state) =
            functions.map_or((0, 0), |found| (found.status_offset, found.tcp_state_offset));
        let mut ebpf = run_in_thread(|| {
            let mut object = object.unpack();
            kernel_functions::link_functions(&mut object, functions);
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
                .override_global("HAS_CONNTRACK", &has_conntrack, true)
                .override_global("STATUS_OFFSET", &status, true)
                .override_global("TCP_STATE_OFFSET", &tcp_state, true)
                .map_max_entries("BINDINGS", slots)
                .map_max_entries("VERSIONS", versions)
                .map_max_entries("TRAFFIC", traffic_max.saturating_mul(processors))
                // While carnet replaces a binding's rules, the map holds the old rules and the new rules.
                .map_max_entries("RULES", slots * 2)
                .map_max_entries("WAYS", ways.saturating_mul(processors))
                .map_max_entries("PREFIXES", prefixes);
            loader.load(&object).map_err(|error| format_error_with_causes(&error))
        })?;
        // Load now the programs that interfaces will need, so that no packet waits for the kernel's verifier
        // later. Load at least one program, to learn whether the kernel accepts BPF programs.
        for name in programs_to_attach(kind, &config.interface_roles, tunnel_device, links) {
            load_program(&mut ebpf, kind, name)?;
        }
        if functions.is_some() {
            load_program(&mut ebpf, AttachmentKind::Tc, CONNTRACK_NOTE_PROGRAM)?;
        }
        let traffic = traffic_counters::TrafficMemory::map_counters(&ebpf, traffic_max, processors)?;
        let mut programs = LoadedPrograms {
            kind,
            ebpf,
            traffic_memory: traffic,
            tunnel_device_index: tunnel_device,
            binding_table: BindingTable::new(slots, prefixes),
            lookup_generation: 0,
            last_version_number: 0,
            route_generation: 0,
            routing_policy: RoutingPolicy::default(),
            upper_halves_of_long_prefixes: BTreeSet::new(),
            binding_slots: slots,
            next_hop_cache_size: ways,
            counters_per_slot: counters,
            tunnel_by_counter: HashMap::new(),
            traffic_in_reused_counters: HashMap::new(),
            records_new_flows: config.interface_roles.direct_routes_enabled,
            interface_roles: config.interface_roles.clone(),
            attached_programs: BTreeMap::new(),
            next_slot_to_check: 0,
            counters_at_last_check: HashMap::new(),
            xdp_mode: XdpMode::Driver,
            redirect_exit_interfaces: BTreeSet::new(),
            interfaces_without_redirect: BTreeSet::new(),
            redirect_targets: RedirectTargets::default(),
            filtered_interfaces: BTreeMap::new(),
            known_ruleset: RulesetValue::default(),
            conntrack_obstacle,
            note_programs: BTreeMap::new(),
            logged_errors: BTreeSet::new(),
        };
        // Begin with generation 1, so that a cache entry of zeros only is invalid.
        programs.invalidate_lookups()?;
        // The loader has read all of the kernel's types, about 20 MB, which carnet no longer needs.
        return_free_memory();
        Ok(programs)
    }

    pub(super) fn kind(&self) -> AttachmentKind {
        self.kind
    }

    pub(super) fn has_room_for(&self, config: &FastPathConfig) -> bool {
        binding_slots_needed(config) <= self.binding_slots
            && (self.next_hop_cache_size > 1 || !config.interface_roles.is_home_agent)
            && (self.records_new_flows || !config.interface_roles.direct_routes_enabled)
    }

    /// Removes a tunnel from the table; [`Self::commit_entries`] writes the change.
    pub(super) fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        self.binding_table.remove_tunnel(tunnel);
        let ends = (tunnel.local, tunnel.remote);
        if !self.binding_table.has_tunnel(ends) {
            self.traffic_in_reused_counters.remove(&ends);
        }
    }

    pub(super) fn data_path(&self) -> DataPath {
        self.kind.data_path()
    }

    /// Starts to watch which interfaces accept redirected frames. The caller must run in a tokio runtime.
    pub(super) fn begin_watching_redirect_targets(&mut self) {
        if self.kind == AttachmentKind::Xdp {
            self.redirect_targets = RedirectTargets::open();
        }
    }

    /// Writes changed entries into the maps.
    ///
    /// # Errors
    /// Fails if the kernel refuses a write. The maps may then be incomplete, and the caller must detach the
    /// programs.
    pub(super) fn commit_entries(&mut self) -> Result<(), String> {
        if !self.binding_table.has_changes() {
            return Ok(());
        }
        for operation in self.binding_table.commit_changes() {
            match operation {
                MapOperation::SetBinding(value) => {
                    let mut ends = value.path_ends();
                    for counter in self.counter_range_of_slot(value.traffic_slot) {
                        self.assign_counter(counter, ends.next());
                    }
                }
                MapOperation::RemoveBinding(slot) => {
                    self.counter_range_of_slot(slot).for_each(|counter| self.assign_counter(counter, None));
                }
                _ => {}
            }
            self.apply_map_operation(operation)
                .map_err(|error| format!("cannot write a BPF map: {error}"))?;
        }
        for obstacle in self.binding_table.obstacle_messages() {
            if self.logged_errors.insert(obstacle.clone()) {
                tracing::warn!(
                    "the slow path forwards the packets of some bindings, because the fast path does not \
                     support {obstacle}"
                );
            }
        }
        Ok(())
    }

    /// Invalidates all cached lookups, because routes, rules or addresses changed.
    pub(super) fn invalidate_lookups(&mut self) -> Result<(), String> {
        self.apply_map_operation(MapOperation::Forget)
    }

    /// Invalidates cached lookups of flows, because neighbours or carnet's own routes into the tunnel device
    /// changed. Cached next hops stay valid.
    pub(super) fn invalidate_flow_lookups(&mut self) -> Result<(), String> {
        self.increment_generation(GENERATION_SECTION)
    }

    /// Returns whether the map `CROWDED` contains the upper 64 bits of all these addresses.
    pub(super) fn contains_long_prefix_halves(&self, halves: &BTreeSet<u64>) -> bool {
        halves.is_subset(&self.upper_halves_of_long_prefixes)
    }

    fn increment_generation(&mut self, name: &str) -> Result<(), String> {
        let number =
            if name == ROUTES_SECTION { &mut self.route_generation } else { &mut self.lookup_generation };
        *number = number.wrapping_add(1).max(1);
        let number = *number;
        self.map_mut::<Array<_, u32>>(name)?
            .set(0, number, 0)
            .map_err(|error| format_error_with_causes(&error))
    }

    /// Invalidates cached lookups of the binding in a slot, and of all bindings that share its version
    /// number.
    fn invalidate_binding(&mut self, slot: u32) -> Result<(), String> {
        self.last_version_number = self.last_version_number.wrapping_add(1).max(1);
        let (index, version) = (slot % version_numbers_needed(self.binding_slots), self.last_version_number);
        self.map_mut::<Array<_, u32>>("VERSIONS")?
            .set(index, version, 0)
            .map_err(|error| format_error_with_causes(&error))
    }

    /// Sets which packet fields routes and rules use. The caller must call [`Self::invalidate_lookups`]
    /// afterwards if they use more fields than before.
    pub(super) fn set_policy(&mut self, policy: RoutingPolicy) -> Result<(), String> {
        self.routing_policy = policy;
        // carnet never removes entries from `CROWDED`, so once the map has been full, it stays incomplete.
        let networks = policy.knows_long_prefixes
            && self.upper_halves_of_long_prefixes.len() < MAX_UPPER_HALVES_OF_LONG_PREFIXES;
        let bits = u32::from(policy.arriving_by_destination)
            | u32::from(policy.leaving_by_destination) << 1
            | u32::from(networks) << 2;
        self.map_mut::<Array<_, u32>>("POLICY")?
            .set(0, bits, 0)
            .map_err(|error| format_error_with_causes(&error))
    }

    /// Adds the upper 64 bits of an address to the map `CROWDED`, because the kernel has a route longer than
    /// 64 bits there. The entry stays for the lifetime of the programs. The caller must call
    /// [`Self::invalidate_lookups`] afterwards.
    pub(super) fn add_long_prefix_half(&mut self, half: u64) -> Result<(), String> {
        if self.upper_halves_of_long_prefixes.contains(&half)
            || self.upper_halves_of_long_prefixes.len() >= MAX_UPPER_HALVES_OF_LONG_PREFIXES
        {
            return Ok(());
        }
        self.upper_halves_of_long_prefixes.insert(half);
        let mut map: BpfHashMap<_, u64, u32> = self.map_mut("CROWDED")?;
        map.insert(half.to_be(), 1, 0).map_err(|error| format_error_with_causes(&error))?;
        if self.upper_halves_of_long_prefixes.len() >= MAX_UPPER_HALVES_OF_LONG_PREFIXES {
            self.set_policy(self.routing_policy)
        } else {
            Ok(())
        }
    }

    /// Sets the interfaces, by index, whose packets the kernel's packet filter must see, and how much of them
    /// its rules use.
    pub(super) fn set_filter_scopes(&mut self, scopes: BTreeMap<u32, RuleScope>) -> Result<(), String> {
        if scopes == self.filtered_interfaces {
            return Ok(());
        }
        let known = std::mem::take(&mut self.filtered_interfaces);
        let mut map: BpfHashMap<_, u32, u32> = self.map_mut("FILTERED")?;
        for (index, scope) in scopes.iter().filter(|(index, scope)| known.get(index) != Some(scope)) {
            map.insert(index, *scope as u32, 0).map_err(|error| format_error_with_causes(&error))?;
        }
        for index in known.keys().filter(|index| !scopes.contains_key(index)) {
            map.remove(index).map_err(|error| format_error_with_causes(&error))?;
        }
        self.filtered_interfaces = scopes;
        // Cached lookups do not send packets to the packet filter that it must see from now on, so they are
        // invalid.
        self.invalidate_lookups()
    }

    /// Sets what the programs know about the packet filter's rules.
    pub(super) fn set_ruleset(&mut self, ruleset: RulesetValue) -> Result<(), String> {
        if ruleset == self.known_ruleset {
            return Ok(());
        }
        self.known_ruleset = ruleset;
        self.map_mut::<Array<_, RulesetValue>>(RULESET_SECTION)?
            .set(0, ruleset, 0)
            .map_err(|error| format_error_with_causes(&error))?;
        self.invalidate_lookups()
    }

    /// Returns whether rules of the packet filter use packets that the programs could forward.
    pub(super) fn has_tracked_flows(&self) -> bool {
        let scopes = [self.known_ruleset.ipv4_scope, self.known_ruleset.ipv6_scope];
        let tracked = RuleScope::Flow as u32;
        self.conntrack_obstacle.is_none()
            && (scopes.contains(&tracked)
                || self.filtered_interfaces.values().any(|scope| *scope == RuleScope::Flow))
    }

    /// Returns why the programs cannot call the kernel's connection tracking; `None` if they can.
    pub(super) fn conntrack_obstacle_message(&self) -> Option<&str> {
        self.conntrack_obstacle.as_deref()
    }

    fn apply_map_operation(&mut self, operation: MapOperation) -> Result<(), String> {
        macro_rules! open {
            ($kind:ty, $name:literal) => {
                self.ebpf
                    .map_mut($name)
                    .and_then(|map| <$kind>::try_from(map).ok())
                    .ok_or(concat!("there is no map ", $name))?
            };
        }
        let result = match operation {
            MapOperation::SetLengths(end, value) => {
                open!(Array<&mut MapData, LengthsValue>, "LENGTHS").set(end, value, 0)
            }
            MapOperation::SetBinding(value) => {
                // The write must be followed by `invalidate_binding`, which invalidates all cached lookups of
                // the binding at once.
                open!(BpfHashMap<&mut MapData, u32, BindingValue>, "BINDINGS")
                    .insert(value.traffic_slot, value, 0)
                    .map_err(|error| format_error_with_causes(&error))?;
                return self.invalidate_binding(value.traffic_slot);
            }
            MapOperation::SetPrefix(prefix, slot) => {
                if prefix.length > 64 {
                    self.add_long_prefix_half(prefix.high_bits)?;
                }
                open!(BpfHashMap<&mut MapData, PrefixKey, u32>, "PREFIXES").insert(prefix, slot, 0)
            }
            MapOperation::RemovePrefix(prefix) => {
                open!(BpfHashMap<&mut MapData, PrefixKey, u32>, "PREFIXES").remove(&prefix)
            }
            MapOperation::Forget => {
                self.increment_generation(ROUTES_SECTION)?;
                return self.increment_generation(GENERATION_SECTION);
            }
            MapOperation::ForgetFlows => return self.increment_generation(GENERATION_SECTION),
            MapOperation::SetRules(number) => match self.binding_table.added_rules(number).copied() {
                Some(rules) => {
                    open!(BpfHashMap<&mut MapData, u32, RuleListValue>, "RULES").insert(number, rules, 0)
                }
                // A later operation in this batch has already removed the rules from the table.
                None => Ok(()),
            },
            MapOperation::RemoveRules(number) => {
                match open!(BpfHashMap<&mut MapData, u32, RuleListValue>, "RULES").remove(&number) {
                    Err(MapError::KeyNotFound) => Ok(()),
                    result => result,
                }
            }
            MapOperation::RemoveBinding(slot) => {
                // Remove the binding before its version changes. Otherwise a program could cache the old
                // binding with the new version.
                open!(BpfHashMap<&mut MapData, u32, BindingValue>, "BINDINGS")
                    .remove(&slot)
                    .map_err(|error| format_error_with_causes(&error))?;
                return self.invalidate_binding(slot);
            }
        };
        result.map_err(|error| format_error_with_causes(&error))
    }

    fn program_for_interface(&self, link: &LinkInfo) -> Option<&'static str> {
        program_for_link(self.kind, &self.interface_roles, self.tunnel_device_index, link)
    }

    /// Attaches programs to new interfaces, and detaches them from interfaces that are gone or need another
    /// program. Returns the errors.
    pub(super) fn update_interfaces(&mut self, links: &BTreeMap<String, LinkInfo>) -> Vec<String> {
        let wanted: BTreeMap<u32, (&LinkInfo, &'static str)> = links
            .values()
            .filter_map(|link| Some((link.index, (link, self.program_for_interface(link)?))))
            .collect();
        let stale: Vec<u32> = self
            .attached_programs
            .iter()
            .filter(|(index, attached)| {
                wanted.get(index).is_none_or(|(link, program)| {
                    (link.name.as_str(), *program, link.link_address)
                        != (attached.name.as_str(), attached.program_name, attached.link_address)
                })
            })
            .map(|(index, _)| *index)
            .collect();
        let is_stale = !stale.is_empty();
        for index in stale {
            self.detach_program(index);
        }
        let (mode, before) = (self.xdp_mode, self.attached_programs.len());
        let mut complaints = self.attach_programs(&wanted);
        if self.xdp_mode != mode {
            // A program needed the other XDP mode, so carnet has detached the other programs: attach them
            // again in this mode.
            complaints.extend(self.attach_programs(&wanted));
        }
        if self.attached_programs.len() != before {
            return_free_memory();
        }
        if is_stale || self.attached_programs.len() != before {
            complaints.extend(self.update_redirect_targets());
        }
        complaints
    }

    /// While rules look at flows, attaches [`CONNTRACK_NOTE_PROGRAM`] to the egress of the TUN device and of
    /// the interfaces by which packets out of tunnels leave. Otherwise detaches it. Returns the errors, each
    /// reason once.
    pub(super) fn update_note_programs(&mut self, links: &BTreeMap<String, LinkInfo>) -> Vec<String> {
        let is_needed = self.has_tracked_flows();
        let has_uplink_only = |at: &AttachedProgram| matches!(at.program_name, "uplink" | "uplink_bare");
        let exits: BTreeSet<u32> = self
            .attached_programs
            .iter()
            .filter(|(_, at)| !has_uplink_only(at))
            .map(|(index, _)| *index)
            .collect();
        let is_wanted =
            |index: u32| is_needed && (index == self.tunnel_device_index || exits.contains(&index));
        let wanted: BTreeMap<u32, &str> = links
            .values()
            .filter(|link| is_wanted(link.index))
            .map(|link| (link.index, link.name.as_str()))
            .collect();
        let stale: Vec<u32> =
            self.note_programs.keys().filter(|index| !wanted.contains_key(index)).copied().collect();
        stale.into_iter().for_each(|index| self.detach_note_program(index));
        let mut complaints = Vec::new();
        for (index, name) in wanted {
            if self.note_programs.contains_key(&index) {
                continue;
            }
            let program = find_program::<SchedClassifier>(&mut self.ebpf, CONNTRACK_NOTE_PROGRAM);
            let hook = program.and_then(|it| ProgramHook::attach(it, name, index, TcAttachType::Egress));
            if let Err(why) = &hook {
                let text = format!(
                    "{name}: {why}; packets that rules of the packet filter examine take the slow path"
                );
                complaints.extend(Some(text).filter(|text| self.logged_errors.insert(text.clone())));
            }
            self.note_programs.insert(index, hook.ok());
        }
        complaints
    }

    fn detach_note_program(&mut self, index: u32) {
        if let Some(Some(hook)) = self.note_programs.remove(&index)
            && let Ok(program) = find_program::<SchedClassifier>(&mut self.ebpf, CONNTRACK_NOTE_PROGRAM)
        {
            hook.detach(program);
        }
    }

    /// For XDP, updates the interfaces by which packets may leave: those that have a program and accept
    /// redirected frames.
    pub(super) fn update_redirect_targets(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.kind == AttachmentKind::Tc {
            return complaints;
        }
        // In the generic XDP mode, all interfaces accept redirected frames.
        let able = if self.xdp_mode == XdpMode::Driver { self.redirect_targets.read_targets() } else { None };
        let with_program = self.attached_programs.iter().filter(|(_, attached)| attached.link_id.is_some());
        let all: Vec<(u32, String)> = with_program.map(|(index, at)| (*index, at.name.clone())).collect();
        for (index, name) in all {
            let takes = able.as_ref().is_none_or(|able| able.contains(&index));
            if takes != self.redirect_exit_interfaces.contains(&index)
                && let Err(why) = self.set_redirect_exit(index, takes)
            {
                complaints.push(format!("{name}: {why}"));
            }
            if !takes && self.interfaces_without_redirect.insert(index) {
                complaints.push(format!(
                    "interface {name} does not accept frames that XDP redirects to it: packets out of \
                     {name} take the slow path (for virtual Ethernet, run `ethtool -K PEER gro on` on the \
                     other end)"
                ));
            } else if takes && self.interfaces_without_redirect.remove(&index) {
                tracing::info!(
                    "the fast path now sends packets through interface {name}: it accepts frames that XDP \
                     redirects"
                );
            }
        }
        complaints
    }

    fn attach_programs(&mut self, wanted: &BTreeMap<u32, (&LinkInfo, &'static str)>) -> Vec<String> {
        let mut complaints = Vec::new();
        for (index, (link, program)) in wanted.iter().map(|(index, value)| (*index, *value)) {
            if self.attached_programs.contains_key(&index) {
                continue;
            }
            let (id, complaint) = match self.attach_program(link, program) {
                Ok(id) => (Some(id), None),
                Err(why) => (None, Some(format!("{}: {why}; its packets take the slow path", link.name))),
            };
            self.attached_programs.insert(
                index,
                AttachedProgram {
                    name: link.name.clone(),
                    program_name: program,
                    link_address: link.link_address,
                    link_id: id,
                },
            );
            complaints.extend(complaint.filter(|text| self.logged_errors.insert(text.clone())));
        }
        complaints
    }

    fn attach_program(&mut self, link: &LinkInfo, program: &'static str) -> Result<AttachedLinkId, String> {
        load_program(&mut self.ebpf, self.kind, program)?;
        match self.kind {
            AttachmentKind::Tc => {
                let program: &mut SchedClassifier = find_program(&mut self.ebpf, program)?;
                ProgramHook::attach(program, &link.name, link.index, TcAttachType::Ingress)
                    .map(AttachedLinkId::Tc)
            }
            AttachmentKind::Xdp => {
                // Destination address that frames for this machine have on the interface; see the map
                // `ADDRESSES`.
                let [a, b, c, d, e, f] = link.link_address.unwrap_or_default();
                let address = u64::from_ne_bytes([a, b, c, d, e, f, 0, 1]);
                let mut near: Array<_, u64> = self.map_mut("ADDRESSES")?;
                if link.index < near.len() {
                    near.set(link.index, address, 0).map_err(|error| format_error_with_causes(&error))?;
                } else {
                    let mut far: BpfHashMap<_, u32, u64> = self.map_mut("FAR_ADDRESSES")?;
                    far.insert(link.index, address, 0).map_err(|error| format_error_with_causes(&error))?;
                }
                let id = self.attach_xdp(link.index, program)?;
                Ok(AttachedLinkId::Xdp(id))
            }
        }
    }

    /// Permits or forbids the programs to send packets out of an interface, as `is` says.
    fn set_redirect_exit(&mut self, index: u32, is: bool) -> Result<(), String> {
        let map = self.ebpf.map_mut("PORTS").and_then(|map| DevMapHash::try_from(map).ok());
        let mut ports = map.ok_or("the BPF object has no map PORTS")?;
        if is {
            ports.insert(index, index, None, 0).map_err(|error| format_error_with_causes(&error))?;
            self.redirect_exit_interfaces.insert(index);
        } else {
            // Ignore an error: if the interface is gone, the kernel has already removed its entry.
            let _ = ports.remove(index);
            self.redirect_exit_interfaces.remove(&index);
        }
        // Cached lookups name outgoing interfaces, so they are invalid now.
        self.invalidate_lookups()
    }

    fn map_mut<'a, M: TryFrom<&'a mut aya::maps::Map>>(&'a mut self, name: &str) -> Result<M, String> {
        let map = self.ebpf.map_mut(name).and_then(|map| M::try_from(map).ok());
        map.ok_or_else(|| format!("the BPF object has no map {name}"))
    }

    /// Attaches the program inside the driver if all drivers support XDP, otherwise in the generic mode on
    /// all interfaces. A frame of a driver cannot be redirected to an interface whose driver has no XDP.
    fn attach_xdp(&mut self, index: u32, program: &'static str) -> Result<XdpLinkId, String> {
        let mode = self.xdp_mode;
        let result = find_program::<Xdp>(&mut self.ebpf, program)?.attach_to_if_index(index, mode);
        let Err(native) = result.as_ref().map_err(|error| format_error_with_causes(error)) else {
            return result.map_err(|error| format_error_with_causes(&error));
        };
        if mode == XdpMode::Driver {
            tracing::info!(
                "cannot run XDP inside the network drivers, so it runs in the kernel's generic mode, \
                 which is slower: {native}"
            );
            self.xdp_mode = XdpMode::Skb;
            let attached: Vec<u32> = self.attached_programs.keys().copied().collect();
            attached.into_iter().for_each(|index| self.detach_program(index));
        }
        let program: &mut Xdp = find_program(&mut self.ebpf, program)?;
        program.attach_to_if_index(index, XdpMode::Skb).map_err(|error| format_error_with_causes(&error))
    }

    fn detach_program(&mut self, index: u32) {
        let Some(attached) = self.attached_programs.remove(&index) else { return };
        // Cached lookups of the interface depend on its former role, so they are invalid.
        let _ = self.invalidate_lookups();
        // If the interface is gone, the kernel has already detached the program, and errors do not matter.
        match attached.link_id {
            Some(AttachedLinkId::Tc(hook)) => {
                if let Ok(program) = find_program::<SchedClassifier>(&mut self.ebpf, attached.program_name) {
                    hook.detach(program);
                }
            }
            Some(AttachedLinkId::Xdp(id)) => {
                if let Ok(mut far) = self.map_mut::<BpfHashMap<_, u32, u64>>("FAR_ADDRESSES") {
                    // Ignore an error: the map has no entry if it was full when the interface appeared.
                    let _ = far.remove(&index);
                }
                let _ = self.set_redirect_exit(index, false);
                self.interfaces_without_redirect.remove(&index);
                if let Ok(program) = find_program::<Xdp>(&mut self.ebpf, attached.program_name) {
                    let _ = program.detach(id);
                }
            }
            None => {}
        }
    }

    /// Removes and returns the destinations of a mobile router's new flows.
    pub(super) fn take_new_flow_destinations(&mut self) -> Vec<Ipv6Addr> {
        if !self.records_new_flows {
            return Vec::new();
        }
        let Ok(mut map) = self.map_mut::<BpfHashMap<_, [u8; 16], u32>>("SOUGHT") else { return Vec::new() };
        let found: Vec<[u8; 16]> = map.keys().filter_map(Result::ok).collect();
        for address in &found {
            // Ignore an error: the entry may be missing already, because the kernel removes old entries from
            // a full map.
            let _ = map.remove(address);
        }
        found.into_iter().map(Ipv6Addr::from).collect()
    }

    /// Returns the next hops whose link-layer addresses the programs looked up in the kernel within the last
    /// `within`. Empty with tc programs, for which the kernel resolves the neighbour of each packet.
    pub(super) fn neighbours_used_within(&self, within: Duration) -> Vec<(u32, IpAddr)> {
        if self.kind == AttachmentKind::Tc {
            return Vec::new();
        }
        let map = self.ebpf.map("NEIGHBOURS");
        let Some(map) = map.and_then(|map| BpfHashMap::<_, NeighbourKey, u64>::try_from(map).ok()) else {
            return Vec::new();
        };
        let since = clock::monotonic_time().as_nanos().saturating_sub(within.as_nanos() as u64);
        let entries = map.iter().filter_map(|entry| entry.ok());
        entries
            .filter(|(_, asked)| *asked >= since)
            .map(|(key, _)| (key.ifindex, Ipv6Addr::from(key.address).to_canonical()))
            .collect()
    }
}

impl Drop for LoadedPrograms {
    fn drop(&mut self) {
        let indices: Vec<u32> = self.attached_programs.keys().copied().collect();
        for index in indices {
            self.detach_program(index);
        }
        let notes: Vec<u32> = self.note_programs.keys().copied().collect();
        notes.into_iter().for_each(|index| self.detach_note_program(index));
    }
}

/// Returns the number of bindings for which the maps need room.
fn binding_slots_needed(config: &FastPathConfig) -> u32 {
    u32::try_from(config.binding_capacity).unwrap_or(u32::MAX / 8).max(MIN_BINDING_SLOTS).next_power_of_two()
}

/// Returns the number of version counters, a power of two like `slots`. Several slots share a counter.
fn version_numbers_needed(slots: u32) -> u32 {
    slots.min(MAX_VERSION_NUMBERS)
}

/// Returns the number of cached next hops that a home agent has on each processor, a power of two; see
/// `bpf/ways.h`. If networks share a cache entry, the programs only ask the kernel more often.
fn next_hop_cache_entries(config: &FastPathConfig, slots: u32, processors: u32) -> u32 {
    let most = (MAX_NEXT_HOPS_MEMORY / 64 / processors).max(1);
    let wanted =
        if config.interface_roles.is_home_agent { slots.saturating_mul(NEXT_HOPS_PER_BINDING) } else { 1 };
    // Rounds down to a power of two.
    1 << wanted.clamp(1, most).ilog2()
}

/// Returns the program for an interface; `None` if the fast path does not use the interface.
fn program_for_link(
    kind: AttachmentKind,
    ports: &InterfaceRoles,
    tunnel_device: u32,
    link: &LinkInfo,
) -> Option<&'static str> {
    // The virtual Ethernet devices of GeoNetworking's fast path get no programs of this fast path.
    let internal = link.name == TUNNEL_DEVICE || link.device_group == super::PAIR_DEVICE_GROUP;
    if link.index == tunnel_device || internal || link.is_loopback {
        return None;
    }
    program_for_role(kind, ports, &link.name, link.link_address.is_none())
}

/// Returns the program that an interface of this name needs. `bare` says that its packets have no Ethernet
/// header.
fn program_for_role(
    kind: AttachmentKind,
    ports: &InterfaceRoles,
    name: &str,
    bare: bool,
) -> Option<&'static str> {
    let is_among = |names: &[String]| names.iter().any(|known| known == name);
    let (lan, uplink) = (is_among(&ports.lan_interfaces), is_among(&ports.uplinks));
    let by_destination = ports.is_home_agent || (ports.direct_routes_enabled && (lan || uplink));
    Some(match (kind, by_destination, lan, uplink, bare) {
        // Interfaces whose packets have no Ethernet header get no XDP program, because XDP programs write the
        // neighbour's address into the Ethernet header.
        (AttachmentKind::Xdp, _, _, _, true) => return None,
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
/// are the configured interfaces, at a home agent any. An interface that may appear has two programs in the
/// set, for frames with and without an Ethernet header. It may lack a link-layer address, as a modem's
/// interface does. The set is never empty.
fn programs_to_attach(
    kind: AttachmentKind,
    ports: &InterfaceRoles,
    tunnel_device: u32,
    links: &[LinkInfo],
) -> BTreeSet<&'static str> {
    let present = links.iter().filter_map(|link| program_for_link(kind, ports, tunnel_device, link));
    let configured = ports.lan_interfaces.iter().chain(&ports.uplinks);
    let absent = configured.filter(|name| !links.iter().any(|link| link.name == **name));
    let possible =
        absent.flat_map(|name| [false, true].map(|bare| program_for_role(kind, ports, name, bare)));
    let any =
        [false, true].map(|bare| program_for_role(kind, ports, "", bare).filter(|_| ports.is_home_agent));
    let never_empty = if ports.is_home_agent { "agent" } else { "lan" };
    present.chain(possible.flatten()).chain(any.into_iter().flatten()).chain([never_empty]).collect()
}

/// Runs `work` in a thread of its own. At the end of the thread the allocator returns the memory that `work`
/// has used; in the main thread it would keep the pages.
pub(super) fn run_in_thread<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err("the thread that loads BPF programs has failed".into()))
}

pub(super) fn find_program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, String>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| format!("the BPF object has no program {name}"))?;
    program.try_into().map_err(|_| format!("the BPF program {name} has an unexpected type"))
}

/// Loads a program unless it is loaded already.
fn load_program(ebpf: &mut Ebpf, kind: AttachmentKind, name: &str) -> Result<(), String> {
    let mut once = || -> Result<Result<(), ProgramError>, String> {
        match kind {
            AttachmentKind::Tc => {
                let program: &mut SchedClassifier = find_program(ebpf, name)?;
                Ok(if program.fd().is_ok() { Ok(()) } else { program.load() })
            }
            AttachmentKind::Xdp => {
                let program: &mut Xdp = find_program(ebpf, name)?;
                Ok(if program.fd().is_ok() { Ok(()) } else { program.load() })
            }
        }
    };
    for attempt in 1..MAX_LOAD_ATTEMPTS {
        match once()? {
            // EAGAIN: a signal has interrupted the kernel's verification of the program.
            Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(FIRST_LOAD_PAUSE * 2u32.pow(attempt - 1));
            }
            result => return result.map_err(|error| format_error_with_causes(&error)),
        }
    }
    once()?.map_err(|error| format_error_with_causes(&error))
}

mod traffic_counters;

#[cfg(test)]
mod tests;
