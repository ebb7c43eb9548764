//! Tests with random tunnels that come and go. A model of the maps applies the operations one by one, and
//! after each write the test looks up what a program would find.
//!
//! During a commit a lookup must give the result from before the commit, the result from after it, or none. A
//! lookup without a result is right, because it leads to the slow path. This also holds for a program with
//! cached flows or next hops. After the commit only the new result is right, unless the table reports that it
//! has no room.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A model of the maps, with writes as in `LoadedPrograms::apply_map_operation` and lookups as in
/// `bpf/tunnel.h`.
#[derive(Debug, Default, Clone)]
struct ModelMaps {
    lengths: [LengthsValue; 2],
    prefixes: HashMap<PrefixKey, u32>,
    bindings: HashMap<u32, BindingValue>,
    /// Version numbers; several slots share one.
    version_numbers: [u32; VERSION_COUNT],
    lookup_generation: u32,
    route_generation: u32,
}

/// Number of version numbers; it is so small that several slots share one.
const VERSION_COUNT: usize = 2;

/// A write to the maps in one system call, so that a program sees either none or all of it.
type MapWrite = Box<dyn Fn(&mut ModelMaps)>;

impl ModelMaps {
    /// Returns the writes of one operation.
    fn writes_of_operation(operation: MapOperation) -> Vec<MapWrite> {
        match operation {
            MapOperation::SetLengths(end, value) => vec![Box::new(move |m| m.lengths[end as usize] = value)],
            MapOperation::SetBinding(value) => vec![
                Box::new(move |m| {
                    m.bindings.insert(value.traffic_slot, value);
                }),
                Box::new(move |m| m.version_numbers[value.traffic_slot as usize % VERSION_COUNT] += 1),
            ],
            MapOperation::SetPrefix(prefix, slot) => vec![Box::new(move |m| {
                m.prefixes.insert(prefix, slot);
            })],
            MapOperation::RemovePrefix(prefix) => vec![Box::new(move |m| {
                m.prefixes.remove(&prefix).expect("a prefix that is removed is there");
            })],
            MapOperation::RemoveBinding(slot) => vec![
                Box::new(move |m| {
                    m.bindings.remove(&slot).expect("a binding that is removed is there");
                }),
                Box::new(move |m| m.version_numbers[slot as usize % VERSION_COUNT] += 1),
            ],
            MapOperation::Forget => {
                vec![Box::new(|m| m.route_generation += 1), Box::new(|m| m.lookup_generation += 1)]
            }
            MapOperation::ForgetFlows => vec![Box::new(|m| m.lookup_generation += 1)],
            // Rules are not part of this model. `fast_path_flow_rules_change_with_their_binding` tests them.
            MapOperation::SetRules(_) | MapOperation::RemoveRules(_) => Vec::new(),
        }
    }

    /// Returns the binding of an address, by the same steps as `find_slot` and `binding_of` in C; `None` if
    /// no binding has it.
    fn lookup_binding(&self, end: u32, address: Ipv6Addr) -> Option<BindingValue> {
        let lengths = &self.lengths[end as usize];
        for length in lengths.used_lengths() {
            let prefix = Ipv6Net::new(address, u8::try_from(length).unwrap()).unwrap().trunc();
            if let Some(slot) = self.prefixes.get(&prefix_key(end, prefix)) {
                return self.bindings.get(slot).copied();
            }
        }
        None
    }

    fn is_empty(&self) -> bool {
        self.lengths == <[LengthsValue; 2]>::default() && self.prefixes.is_empty() && self.bindings.is_empty()
    }
}

/// Cache of a program, for flows or for next hops.
#[derive(Debug)]
struct LookupCache {
    cached_bindings: HashMap<(u32, Ipv6Addr), CachedBinding>,
    version_of: fn(&ModelMaps) -> u32,
}

/// A cached binding with the generation and version numbers of its lookup. The cached binding is valid while
/// the maps have the same two numbers.
#[derive(Debug)]
struct CachedBinding {
    value: BindingValue,
    version_number: u32,
    version: u32,
}

impl LookupCache {
    /// Looks up an address like a program that runs during a write. It reads the generation and version
    /// numbers before the write (`began`), and the binding after it (`maps`).
    fn lookup_during_write(
        &mut self,
        began: &ModelMaps,
        maps: &ModelMaps,
        end: u32,
        address: Ipv6Addr,
    ) -> Option<BindingValue> {
        let version =
            |value: &BindingValue| began.version_numbers[value.traffic_slot as usize % VERSION_COUNT];
        let number = (self.version_of)(began);
        if let Some(known) = self.cached_bindings.get(&(end, address))
            && known.version_number == number
            && known.version == version(&known.value)
        {
            return Some(known.value);
        }
        let value = maps.lookup_binding(end, address)?;
        let version = version(&value);
        self.cached_bindings.insert((end, address), CachedBinding { value, version_number: number, version });
        Some(value)
    }
}

/// Result of a lookup: tunnel and MTU for packets to an address, and the tunnels from which its packets are
/// accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LookupResult {
    sends_into: Option<(TunnelEnds, u32)>,
    accepts_from: BTreeSet<TunnelEnds>,
}

impl From<BindingValue> for LookupResult {
    fn from(value: BindingValue) -> LookupResult {
        LookupResult {
            sends_into: (value.transmitting_paths != 0)
                .then(|| (value.paths[0].tunnel_ends(), value.path_mtus[0])),
            accepts_from: value.path_ends().collect(),
        }
    }
}

/// Desired tunnels. [`NumberedBindingKey`] is the end of this station and the home address; the inner key is
/// the pair of outer addresses.
#[derive(Debug, Default, Clone)]
struct DesiredTunnels(BTreeMap<NumberedBindingKey, BTreeMap<TunnelEnds, Tunnel>>);

impl DesiredTunnels {
    fn set_tunnel(&mut self, tunnel: &Tunnel) {
        let name = (tunnel_end_number(tunnel.end), tunnel.home_address);
        self.0.entry(name).or_default().insert((tunnel.local, tunnel.remote), tunnel.clone());
    }

    fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        let name = (tunnel_end_number(tunnel.end), tunnel.home_address);
        if let Some(tunnels) = self.0.get_mut(&name) {
            tunnels.remove(&(tunnel.local, tunnel.remote));
            if tunnels.is_empty() {
                self.0.remove(&name);
            }
        }
    }

    fn prefixes(&self, end: u32) -> BTreeMap<Ipv6Net, NumberedBindingKey> {
        let of = self.0.iter().filter(|(name, _)| name.0 == end);
        of.flat_map(|(name, tunnels)| {
            tunnels.values().flat_map(|tunnel| &tunnel.inner).map(|prefix| (*prefix, *name))
        })
        .collect()
    }

    /// Returns whether `found` is a right result of a lookup for the address, if these tunnels exist. `None`
    /// is right only if no binding owns the address.
    fn allows_result(&self, end: u32, address: Ipv6Addr, found: Option<&LookupResult>) -> bool {
        let prefixes = self.prefixes(end);
        let owner = prefixes.iter().filter(|(prefix, _)| prefix.contains(&address));
        let owner = owner.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, name)| name);
        let (Some(tunnels), Some(found)) = (owner.and_then(|name| self.0.get(name)), found) else {
            return owner.is_none() && found.is_none();
        };
        let transmits = tunnels.values().any(|tunnel| tunnel.transmit);
        let sends = match found.sends_into {
            None => !transmits,
            // Accept any tunnel that may transmit. Another test checks that packets go into the tunnel that
            // carnet last allowed to transmit.
            Some((ends, mtu)) => tunnels.get(&ends).is_some_and(|t| t.transmit && t.mtu == mtu),
        };
        // A value has room for [`MAX_PATHS_PER_BINDING`] tunnels; the slow path handles further tunnels.
        sends
            && found.accepts_from.len() == tunnels.len().min(MAX_PATHS_PER_BINDING)
            && found.accepts_from.iter().all(|ends| tunnels.contains_key(ends))
    }
}

/// Table, maps and desired tunnels during the steps of a test.
struct RandomTest {
    table: BindingTable,
    maps: ModelMaps,
    /// Two caches of flows and two of next hops. The second cache of each kind is of a program that began
    /// before the last write and reads the maps after it.
    lookup_caches: [LookupCache; 4],
    desired_tunnels: DesiredTunnels,
    committed_tunnels: DesiredTunnels,
    slots_and_prefixes: (u32, u32),
}

impl RandomTest {
    fn new(slots: u32, prefixes: u32) -> RandomTest {
        RandomTest {
            table: BindingTable::new(slots, prefixes),
            maps: ModelMaps::default(),
            lookup_caches: [
                LookupCache { cached_bindings: HashMap::new(), version_of: |maps| maps.lookup_generation },
                LookupCache { cached_bindings: HashMap::new(), version_of: |maps| maps.route_generation },
                LookupCache { cached_bindings: HashMap::new(), version_of: |maps| maps.lookup_generation },
                LookupCache { cached_bindings: HashMap::new(), version_of: |maps| maps.route_generation },
            ],
            desired_tunnels: DesiredTunnels::default(),
            committed_tunnels: DesiredTunnels::default(),
            slots_and_prefixes: (slots, prefixes),
        }
    }

    fn set_tunnel(&mut self, tunnel: &Tunnel) {
        self.table.set_tunnel(&tunnel.clone().into());
        self.desired_tunnels.set_tunnel(tunnel);
    }

    fn remove_tunnel(&mut self, tunnel: &Tunnel) {
        self.table.remove_tunnel(tunnel);
        self.desired_tunnels.remove_tunnel(tunnel);
    }

    /// Returns whether an address belongs to a binding without room.
    fn lacks_room(&self, end: u32, address: Ipv6Addr) -> bool {
        let prefixes = self.desired_tunnels.prefixes(end);
        let owner = prefixes.iter().filter(|(prefix, _)| prefix.contains(&address));
        let owner = owner.max_by_key(|(prefix, _)| prefix.prefix_len());
        owner.is_some_and(|(_, name)| self.table.bindings_without_room.contains_key(name))
    }

    /// Checks the lookups of all addresses, by a program without a cache and by programs with caches. One of
    /// the programs has begun before the last write.
    fn check_lookups(&mut self, began: &ModelMaps, what: &str, meanwhile: bool) {
        let also_before = meanwhile;
        for end in 0..2 {
            for address in probed_addresses() {
                let may_be_nothing = meanwhile || self.lacks_room(end, address);
                let fresh = self.maps.lookup_binding(end, address).map(LookupResult::from);
                let begins = [&self.maps, &self.maps, began, began];
                let remembered = self.lookup_caches.iter_mut().zip(begins).map(|(flows, began)| {
                    flows.lookup_during_write(began, &self.maps, end, address).map(LookupResult::from)
                });
                for found in [fresh].into_iter().chain(remembered) {
                    let right = (found.is_none() && may_be_nothing)
                        || self.desired_tunnels.allows_result(end, address, found.as_ref())
                        || (also_before
                            && self.committed_tunnels.allows_result(end, address, found.as_ref()));
                    assert!(
                        right,
                        "{what}: end {end}, {address} finds {found:?}\n{:?}\n{:?}",
                        self.committed_tunnels, self.desired_tunnels
                    );
                }
            }
        }
    }

    fn commit_and_check(&mut self) {
        let operations = self.table.commit_changes();
        assert!(!self.table.has_changes());
        for operation in &operations {
            for write in ModelMaps::writes_of_operation(*operation) {
                let began = self.maps.clone();
                write(&mut self.maps);
                // Between two writes, too, no map has more entries than its size.
                assert!(self.maps.bindings.len() <= self.slots_and_prefixes.0 as usize, "{operations:?}");
                assert!(self.maps.prefixes.len() <= self.slots_and_prefixes.1 as usize, "{operations:?}");
                self.check_lookups(&began, &format!("after {operation:?} of {operations:#?}"), true);
            }
            if let MapOperation::SetBinding(value) = operation {
                assert!(value.traffic_slot < self.slots_and_prefixes.0, "{value:?}");
            }
        }
        let obstacle = self.table.obstacle_messages().next();
        self.check_lookups(&self.maps.clone(), &format!("after all of {operations:#?}, {obstacle:?}"), false);
        let prefixes = [0, 1].map(|end| self.desired_tunnels.prefixes(end));
        let lengths = prefixes
            .iter()
            .map(|prefixes| prefixes.keys().map(|prefix| prefix.prefix_len()).collect::<BTreeSet<_>>().len());
        let fits = self.desired_tunnels.0.len() <= self.slots_and_prefixes.0 as usize
            && prefixes[0].len() + prefixes[1].len() <= self.slots_and_prefixes.1 as usize;
        let simple = lengths.max() <= Some(MAX_PREFIX_LENGTHS);
        let modest = |tunnels: &BTreeMap<_, Tunnel>| {
            let prefixes: BTreeSet<Ipv6Net> =
                tunnels.values().flat_map(|tunnel| tunnel.inner.clone()).collect();
            let lengths: BTreeSet<u8> = prefixes.iter().map(Ipv6Net::prefix_len).collect();
            prefixes.len() <= MAX_PREFIXES_PER_BINDING && lengths.len() <= MAX_LENGTHS_PER_BINDING
        };
        if fits && simple && self.desired_tunnels.0.values().all(modest) {
            assert_eq!(obstacle, None, "{operations:?}");
        }
        self.committed_tunnels = self.desired_tunnels.clone();
    }
}

fn parse_address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Prefixes of which some contain others, and some are disjoint.
const TEST_PREFIXES: [&str; 8] = [
    "2001:db8:a::/48",
    "2001:db8:a::/56",
    "2001:db8:a::/64",
    "2001:db8:a::/72",
    "2001:db8:a:0:1::/80",
    "2001:db8:a:100::/56",
    "2001:db8::/32",
    "::/0",
];

/// Returns addresses: one for each set of prefixes that can contain an address, the home addresses, and
/// addresses of no binding.
fn probed_addresses() -> Vec<Ipv6Addr> {
    let mut probes: Vec<Ipv6Addr> = [
        "2001:db8:a::1",
        "2001:db8:a:0:1::1",
        "2001:db8:a:0:100::1",
        "2001:db8:a:1::1",
        "2001:db8:a:100::1",
        "2001:db8:a:200::1",
        "2001:db8:b::1",
        "2001:db9::1",
        "::",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ]
    .map(parse_address)
    .into();
    probes.extend((0..5).map(numbered_home_address));
    probes
}

fn numbered_home_address(number: u8) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(parse_address("2001:db8:1::1000")) + u128::from(number))
}

/// Returns tunnel number `way` of home address number `node`. The first two home addresses have the same
/// care-of addresses.
fn numbered_tunnel(
    end: TunnelEnd,
    node: u8,
    way: u8,
    inner: Vec<Ipv6Net>,
    transmit: bool,
    mtu: u32,
) -> Tunnel {
    let agent = parse_address("2001:db8:1::1");
    let care_of = Ipv6Addr::from(
        u128::from(parse_address("2001:db8:f1::10")) + (u128::from(node.max(1)) << 8) + u128::from(way),
    );
    let (local, remote) = match end {
        TunnelEnd::MobileRouter => (care_of, agent),
        TunnelEnd::HomeAgent | TunnelEnd::Direct => (agent, care_of),
    };
    let inner = [Ipv6Net::from(numbered_home_address(node))].into_iter().chain(inner).collect();
    let (local, remote) = (local.into(), remote.into());
    Tunnel {
        end,
        home_address: numbered_home_address(node),
        bid: None,
        local,
        remote,
        inner,
        transmit,
        mtu,
        session: None,
    }
}

/// Next action of a station.
#[derive(Debug, Clone)]
enum StationStep {
    Set { end: bool, node: u8, way: u8, prefixes: u8, transmit: bool, mtu: u32 },
    Remove { end: bool, node: u8, way: u8 },
    Commit,
}

fn random_step() -> impl Strategy<Value = StationStep> {
    let mtu = prop_oneof![Just(1280u32), Just(1460)];
    prop_oneof![
    4 => (any::<bool>(), 0..5u8, 0..6u8, any::<u8>(), any::<u8>(), any::<bool>(), mtu).prop_map(
    |(end, node, way, one, other, transmit, mtu)| {
    StationStep::Set { end, node, way, prefixes: one & other, transmit, mtu }
    }
    ),
    2 => (any::<bool>(), 0..5u8, 0..6u8)
    .prop_map(|(end, node, way)| StationStep::Remove { end, node, way }),
    3 => Just(StationStep::Commit),
    ]
}

fn tunnel_end(flag: bool) -> TunnelEnd {
    if flag { TunnelEnd::HomeAgent } else { TunnelEnd::MobileRouter }
}

proptest! {
#![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

#[test]
fn lookup_between_two_writes_finds_old_new_or_no_binding(
steps in vec(random_step(), 1..60),
slots in prop_oneof![Just(3u32), Just(64)],
room in prop_oneof![Just(9u32), Just(256)],
) {
let mut trial = RandomTest::new(slots, room);
for step in steps {
match step {
StationStep::Set { end, node, way, prefixes, transmit, mtu } => {
let number = u32::from(end);
let inner: Vec<Ipv6Net> = TEST_PREFIXES
.iter()
.enumerate()
.filter(|(index, _)| prefixes & (1 << index) != 0)
.map(|(_, prefix)| prefix.parse().unwrap())
.collect();
// All tunnels of a home address carry the same prefixes, and each prefix belongs to one
// home address. A home address may lose its prefix before or after another home address
// gets it.
let wanted = numbered_tunnel(tunnel_end(end), node, way, inner.clone(), transmit, mtu);
let before = trial.desired_tunnels.clone();
if way % 2 == 0 {
trial.set_tunnel(&wanted);
}
for (name, tunnels) in before.0 {
for other in tunnels.values().filter(|_| name.0 == number) {
if name.1 == wanted.home_address && other.local == wanted.local
&& other.remote == wanted.remote {
continue;
}
let mut other = other.clone();
if name.1 == wanted.home_address {
other.inner = wanted.inner.clone();
} else {
other.inner.retain(|prefix| !inner.contains(prefix));
}
trial.set_tunnel(&other);
}
}
trial.set_tunnel(&wanted);
}
StationStep::Remove { end, node, way } => {
trial.remove_tunnel(&numbered_tunnel(tunnel_end(end), node, way, Vec::new(), false, 0));
}
StationStep::Commit => trial.commit_and_check(),
}
}
trial.commit_and_check();
// After all tunnels have been removed, the maps have no entries.
let wanted = trial.desired_tunnels.0.values();
let all: Vec<Tunnel> = wanted.flat_map(|tunnels| tunnels.values().cloned()).collect();
all.iter().for_each(|tunnel| trial.remove_tunnel(tunnel));
trial.commit_and_check();
prop_assert!(trial.maps.is_empty(), "{:?}", trial.maps);
prop_assert!(trial.table.slot_by_prefix.is_empty() && trial.table.bindings.is_empty());
prop_assert!(trial.table.prefixes_by_length.iter().all(BTreeMap::is_empty)
&& trial.table.bindings_without_room.is_empty());
}
}

fn parse_prefix(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

/// RFC 6275 9.5.1: after a Binding Update with another care-of address, one write of one value redirects the
/// packets.
#[test]
fn handover_is_one_write_to_the_same_slot() {
    let mut trial = RandomTest::new(64, 256);
    let inner = vec![parse_prefix("2001:db8:a::/64")];
    let old = numbered_tunnel(TunnelEnd::HomeAgent, 1, 0, inner.clone(), true, 1460);
    trial.set_tunnel(&old);
    trial.commit_and_check();
    trial.set_tunnel(&numbered_tunnel(TunnelEnd::HomeAgent, 1, 1, inner.clone(), true, 1400));
    trial.set_tunnel(&Tunnel { transmit: false, ..old.clone() });
    let operations = trial.table.commit_changes();
    let [MapOperation::SetBinding(value)] = operations[..] else { panic!("{operations:?}") };
    assert_eq!(
        (value.traffic_slot, value.accepting_paths, value.transmitting_paths, value.path_mtus[0]),
        (0, 2, 1, 1400)
    );
    assert_eq!(
        value.paths[0].tunnel_ends().1,
        numbered_tunnel(TunnelEnd::HomeAgent, 1, 1, inner, true, 0).remote
    );
    assert_eq!(value.paths[1].tunnel_ends().1, old.remote);
    // Setting an unchanged tunnel again causes no write.
    trial.set_tunnel(&Tunnel { transmit: false, ..old });
    assert_eq!(trial.table.commit_changes(), []);
}

/// carnet adds a tunnel before it removes the old one, so for a moment two tunnels may transmit. Only the
/// tunnel that was set last then transmits.
#[test]
fn only_the_most_recently_set_tunnel_transmits() {
    for (first, second) in [(0, 1), (1, 0)] {
        let mut trial = RandomTest::new(64, 256);
        let way =
            |way, transmit| numbered_tunnel(TunnelEnd::MobileRouter, 1, way, Vec::new(), transmit, 1460);
        trial.set_tunnel(&way(first, true));
        trial.set_tunnel(&way(second, true));
        trial.commit_and_check();
        let value = trial.maps.lookup_binding(0, numbered_home_address(1)).unwrap();
        assert_eq!(value.paths[0].tunnel_ends().0, way(second, true).local);
        // After the removal of the tunnel that was set last, the earlier one transmits again. A binding
        // without a transmitting tunnel sends nothing, and receives from all its tunnels.
        trial.remove_tunnel(&way(second, true));
        trial.commit_and_check();
        let value = trial.maps.lookup_binding(0, numbered_home_address(1)).unwrap();
        assert_eq!((value.transmitting_paths, value.paths[0].tunnel_ends().0), (1, way(first, true).local));
        trial.set_tunnel(&way(first, false));
        trial.commit_and_check();
        let value = trial.maps.lookup_binding(0, numbered_home_address(1)).unwrap();
        assert_eq!((value.transmitting_paths, value.path_mtus[0], value.accepting_paths), (0, 0, 1));
    }
}

fn home_agent_tunnel(node: u8, inner: Vec<Ipv6Net>) -> Tunnel {
    numbered_tunnel(TunnelEnd::HomeAgent, node, 0, inner, true, 1460)
}

fn prefixes_of_lengths(from: u8, count: u8) -> Vec<Ipv6Net> {
    (from..from + count)
        .map(|length| Ipv6Net::new(parse_address("2001:dba::"), length).unwrap().trunc())
        .collect()
}

impl RandomTest {
    fn finds_binding_of(&self, end: u32, node: u8) -> bool {
        self.maps.lookup_binding(end, numbered_home_address(node)).is_some()
    }

    fn obstacle_messages(&self) -> Vec<String> {
        self.table.obstacle_messages().collect()
    }
}

/// A router with too many prefixes or prefix lengths does not take the room of other routers.
#[test]
fn binding_with_too_many_prefixes_takes_slow_path_alone() {
    let mut trial = RandomTest::new(64, 256);
    trial.set_tunnel(&numbered_tunnel(TunnelEnd::MobileRouter, 2, 0, Vec::new(), true, 1460));
    trial.set_tunnel(&home_agent_tunnel(3, vec![parse_prefix("2001:db8:a::/64")]));
    let many: Vec<Ipv6Net> = (0..64).map(|n| parse_prefix(&format!("2001:db8:b:{n:x}::/64"))).collect();
    // The home address counts as a prefix, too.
    for greedy in [prefixes_of_lengths(40, 8), many] {
        trial.set_tunnel(&home_agent_tunnel(1, greedy[1..].to_vec()));
        trial.commit_and_check();
        assert!(
            trial.finds_binding_of(1, 1)
                && trial.finds_binding_of(1, 3)
                && trial.obstacle_messages().is_empty()
        );
        trial.set_tunnel(&home_agent_tunnel(1, greedy));
        trial.commit_and_check();
        assert!(
            !trial.finds_binding_of(1, 1) && trial.finds_binding_of(1, 3) && trial.finds_binding_of(0, 2),
            "{:?}",
            trial.obstacle_messages()
        );
        assert_eq!(
            trial.obstacle_messages(),
            ["a binding with more than 64 prefixes, or prefixes of more than 8 different lengths"]
        );
    }
    // The binding with too many prefixes occupies no entry, so the new binding fits.
    trial.set_tunnel(&home_agent_tunnel(4, vec![parse_prefix("2001:db8:c::/60")]));
    trial.commit_and_check();
    assert!(trial.finds_binding_of(1, 4));
    trial.set_tunnel(&home_agent_tunnel(1, Vec::new()));
    trial.commit_and_check();
    assert!(trial.finds_binding_of(1, 1) && trial.obstacle_messages().is_empty());
}

#[test]
fn binding_with_new_prefix_length_takes_slow_path_if_list_is_full() {
    let mut trial = RandomTest::new(64, 256);
    // Two bindings have seven prefix lengths each, and all home addresses have the length 128.
    trial.set_tunnel(&home_agent_tunnel(1, prefixes_of_lengths(40, 7)));
    trial.set_tunnel(&home_agent_tunnel(2, prefixes_of_lengths(50, 7)));
    trial.set_tunnel(&home_agent_tunnel(3, vec![parse_prefix("2001:db8:a::/60")]));
    trial.commit_and_check();
    assert!(trial.obstacle_messages().is_empty());
    trial.set_tunnel(&home_agent_tunnel(4, vec![parse_prefix("2001:db8:b::/62")]));
    trial.commit_and_check();
    assert_eq!(trial.obstacle_messages(), ["prefixes of more than 16 different lengths"]);
    assert!((1..4).all(|node| trial.finds_binding_of(1, node)) && !trial.finds_binding_of(1, 4));
    trial.remove_tunnel(&home_agent_tunnel(2, Vec::new()));
    trial.commit_and_check();
    assert!(trial.finds_binding_of(1, 4) && trial.obstacle_messages().is_empty());
}

/// A router's prefix may lie inside another router's prefix (RFC 3963 leaves that to the operator who assigns
/// them).
#[test]
fn prefixes_around_slow_path_binding_do_not_match_its_packets() {
    let mut trial = RandomTest::new(64, 256);
    let inside = vec![parse_prefix("2001:db8:a:100::/56")];
    let greedy = [inside.clone(), prefixes_of_lengths(40, 8)].concat();
    trial.set_tunnel(&home_agent_tunnel(1, vec![parse_prefix("2001:db8:a::/48")]));
    trial.set_tunnel(&home_agent_tunnel(2, inside.clone()));
    trial.set_tunnel(&home_agent_tunnel(3, vec![parse_prefix("2001:db8:b::/48")]));
    trial.commit_and_check();
    trial.set_tunnel(&home_agent_tunnel(2, greedy));
    trial.commit_and_check();
    assert!(!trial.finds_binding_of(1, 1) && !trial.finds_binding_of(1, 2) && trial.finds_binding_of(1, 3));
    assert_eq!(trial.obstacle_messages().len(), 2, "{:?}", trial.obstacle_messages());
    trial.set_tunnel(&home_agent_tunnel(2, inside));
    trial.commit_and_check();
    assert!((1..4).all(|node| trial.finds_binding_of(1, node)) && trial.obstacle_messages().is_empty());
}

/// A removed binding makes room only at the end of the commit. Until then the new binding's packets must not
/// go to a binding whose prefix contains the new binding's prefix.
#[test]
fn packets_of_waiting_binding_do_not_match_prefix_of_another_binding() {
    let mut trial = RandomTest::new(3, 9);
    let router = |node, inner| numbered_tunnel(TunnelEnd::MobileRouter, node, 0, inner, true, 1460);
    let prefixes = |names: &[&str]| names.iter().map(|name| parse_prefix(name)).collect::<Vec<_>>();
    trial.set_tunnel(&router(0, prefixes(&["2001:db8:a::/64"])));
    trial.set_tunnel(&home_agent_tunnel(
        0,
        prefixes(&["2001:db8:a::/48", "2001:db8:a::/64", "2001:db8:a::/72"]),
    ));
    trial.commit_and_check();
    trial.set_tunnel(&router(2, Vec::new()));
    trial.set_tunnel(&home_agent_tunnel(0, Vec::new()));
    trial.set_tunnel(&router(0, prefixes(&["2001:db8:a::/48", "2001:db8:a::/72", "::/0"])));
    trial.commit_and_check();
    assert!(trial.finds_binding_of(0, 0) && trial.finds_binding_of(0, 2));
}

#[test]
fn waiting_binding_gets_the_slot_of_a_removed_binding() {
    let mut trial = RandomTest::new(2, 256);
    for node in 0..3 {
        trial.set_tunnel(&home_agent_tunnel(node, Vec::new()));
    }
    trial.commit_and_check();
    assert_eq!(trial.obstacle_messages(), ["more than 2 bindings or 256 prefixes"]);
    assert_eq!((0..3).filter(|node| trial.finds_binding_of(1, *node)).count(), 2);
    // The new binding gets the freed slot in the same commit, whatever the order of the changes.
    trial.remove_tunnel(&home_agent_tunnel(0, Vec::new()));
    trial.commit_and_check();
    assert!((1..3).all(|node| trial.finds_binding_of(1, node)));
    trial.set_tunnel(&home_agent_tunnel(0, Vec::new()));
    trial.commit_and_check();
    trial.remove_tunnel(&home_agent_tunnel(2, Vec::new()));
    trial.commit_and_check();
    assert!((0..2).all(|node| trial.finds_binding_of(1, node)));
}

/// Each structure has the same size in C and in Rust.
#[test]
fn table_values_have_layout_of_bpf_structs() {
    assert_eq!(size_of::<PathValue>(), 40);
    assert_eq!(size_of::<BindingValue>(), 4 * 40 + 4 * 4 + 4 * 4);
    assert_eq!(size_of::<PrefixKey>(), 24);
    assert_eq!(size_of::<LengthsValue>(), 4 + 16 * 4);
    assert_eq!(prefix_key(1, parse_prefix("2001:db8:a::/64")).high_bits, 0x2001_0db8_000a_0000);
}

#[test]
fn tunnel_ends_of_each_kind_are_encoded_and_decoded() {
    let ends = [
        ("2001:db8::1", "2001:db8::2"),
        ("192.0.2.1", "198.51.100.2"),
        ("udp:192.0.2.1:4191", "udp:198.51.100.2:40001"),
    ];
    for (local, remote) in ends {
        let ends = (local.parse().unwrap(), remote.parse().unwrap());
        assert_eq!(PathValue::new(ends, 7).tunnel_ends(), ends);
    }
}

/// The fast path sends through a tunnel inside IPv4 only while its socket exists. Without the socket it
/// leaves packets to the slow path, which cannot send them either.
#[test]
fn fast_path_tunnel_inside_ipv4_follows_its_socket() {
    let mut trial = RandomTest::new(64, 256);
    let local: Endpoint = "udp:192.0.2.10:4191".parse().unwrap();
    let remote = "udp:198.51.100.2:4191".parse().unwrap();
    let inside =
        Tunnel { local, remote, ..numbered_tunnel(TunnelEnd::MobileRouter, 1, 0, Vec::new(), true, 1472) };
    let former = numbered_tunnel(TunnelEnd::MobileRouter, 1, 1, Vec::new(), false, 1460);
    trial.table.set_tunnel(&inside.clone().into());
    trial.table.set_tunnel(&former.clone().into());
    let value = |table: &mut BindingTable| {
        let operations = table.commit_changes();
        let found = operations.into_iter().find_map(|operation| match operation {
            MapOperation::SetBinding(value) => Some(value),
            _ => None,
        });
        found.unwrap()
    };
    let without = value(&mut trial.table);
    assert_eq!((without.transmitting_paths, without.accepting_paths), (0, 1), "the former one is heard");
    trial.table.set_socket_interface(local, Some(7));
    let with = value(&mut trial.table);
    assert_eq!((with.transmitting_paths, with.accepting_paths, with.paths[0].interface_index), (1, 2, 7));
    assert_eq!((with.paths[0].tunnel_ends(), with.path_mtus[0]), ((local, remote), 1472));
    trial.table.set_socket_interface(local, Some(9));
    assert_eq!(value(&mut trial.table).paths[0].interface_index, 9);
    trial.table.set_socket_interface(local, Some(9));
    assert_eq!(trial.table.commit_changes(), []);
    trial.table.set_socket_interface(local, None);
    assert_eq!(value(&mut trial.table).transmitting_paths, 0);
}

/// Between any two writes a program sees old rules and old binding, or new rules and new binding.
#[test]
fn fast_path_flow_rules_change_with_their_binding() {
    use carnet_nemo::forwarding::desired::{
        DistributionMember, DistributionRule, FlowAction, FlowDistribution,
    };
    use carnet_nemo::forwarding::distribution::FlowDistributor;

    let mut table = BindingTable::new(64, 256);
    let tunnels: Vec<Tunnel> =
        (0..3).map(|way| numbered_tunnel(TunnelEnd::HomeAgent, 1, way, Vec::new(), true, 1460)).collect();
    tunnels.iter().for_each(|tunnel| table.set_tunnel(&tunnel.clone().into()));
    let rules = |weights: [u16; 3]| {
        let members = tunnels.iter().zip(weights);
        let members = members.map(|(t, weight)| DistributionMember {
            bid: None,
            local: t.local,
            remote: t.remote,
            weight,
        });
        let rule =
            DistributionRule { selector: None, action: FlowAction::Balance, members: members.collect() };
        let distribution = FlowDistribution {
            end: TunnelEnd::HomeAgent,
            home_address: numbered_home_address(1),
            home_agent: numbered_home_address(0),
            rules: vec![rule],
        };
        Some(crate::fast_path::flow_rules::flow_rules_of(&FlowDistributor::new(&distribution, None, 1)))
    };
    let binding = (TunnelEnd::HomeAgent, numbered_home_address(1));
    table.set_distribution(binding, rules([1, 1, 1]));
    let operations = table.commit_changes();
    let (first, value) = match &operations[..] {
        [MapOperation::SetRules(number), MapOperation::SetBinding(value), ..] => (*number, *value),
        _ => panic!("{operations:?}"),
    };
    assert_eq!((value.rule_list_number, value.transmitting_paths, value.accepting_paths), (first, 3, 3));
    assert!(table.added_rules(first).is_some());
    table.set_distribution(binding, rules([1, 1, 1]));
    assert_eq!(table.commit_changes(), []);
    table.set_distribution(binding, rules([5, 1, 1]));
    let operations = table.commit_changes();
    let [MapOperation::SetRules(second), MapOperation::SetBinding(value), MapOperation::RemoveRules(old)] =
        operations[..]
    else {
        panic!("{operations:?}")
    };
    assert!(value.rule_list_number == second && old == first && second != first);
    // Without rules one tunnel gets all packets of the binding.
    table.set_distribution(binding, None);
    let operations = table.commit_changes();
    let [MapOperation::SetBinding(value), MapOperation::RemoveRules(old)] = operations[..] else {
        panic!("{operations:?}")
    };
    assert_eq!(
        (value.rule_list_number, value.transmitting_paths, value.accepting_paths, old),
        (0, 1, 3, second)
    );
    table.set_distribution(binding, rules([1, 1, 1]));
    table.commit_changes();
    tunnels.iter().for_each(|tunnel| table.remove_tunnel(tunnel));
    assert!(table.commit_changes().iter().any(|operation| matches!(operation, MapOperation::RemoveRules(_))));
    assert!(table.rules_by_number.is_empty());
}
