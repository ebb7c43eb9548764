//! Causes a random series of faults of machines, processes, links and the store (etcd). A seed determines the
//! series.
//!
//! In each fault half of the routers continue to register, at another care-of address each time. The other
//! half sends no Binding Updates from just before the fault until all checks are done, so that no later
//! registration hides a loss. After a fault, when traffic flows again, each home agent (seat) must have one
//! leader. The leader must list each acknowledged binding, and forward its packets.
//!
//! [`super::routers`] observes the packets all the time. It sees whether two members acknowledge for a seat
//! at once, and which member forwards.

use std::collections::BTreeMap;

use anyhow::bail;
use nix::sys::signal::Signal;

use super::super::MeasurementPlan;
use super::super::figures::FaultsFigure;
use super::super::path::DataPath;
use super::super::world::Programs;
use super::routers::Routers;
use super::start_machines_and_routers;
use super::world::TestMachines;
use carnet_testbed::clock::{MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;

/// Number of registrations per second of all routers together.
const REGISTRATIONS_PER_SECOND: f64 = 150.0;
/// Time after a fault within which all checks have to pass, in nanoseconds.
const RECOVERY_TIMEOUT: u64 = 30 * SECOND;
/// Number of faults with a failed check after which the run stops.
const MAX_FAULTS_WITHOUT_RECOVERY: u64 = 5;

/// Random numbers (SplitMix64), the same in each run with the same seed.
#[derive(Debug, Clone, Copy)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Creates the generator for a seed.
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed)
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number less than `end`.
    fn next_below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }

    /// Returns a number from `first` to `end - 1`.
    pub fn next_between(&mut self, first: u64, end: u64) -> u64 {
        first + self.next_u64() % (end - first).max(1)
    }

    fn next_bool(&mut self) -> bool {
        self.next_u64() & 1 == 1
    }
}

/// Selection of a member's processes.
#[derive(Debug, Clone, Copy)]
struct MemberProcesses {
    includes_carnet_fleet: bool,
    includes_home_agent: bool,
}

impl MemberProcesses {
    fn process_names(self) -> &'static str {
        match (self.includes_carnet_fleet, self.includes_home_agent) {
            (true, false) => "carnet-fleet",
            (false, _) => "carnet",
            _ => "both programs",
        }
    }
}

/// A fault that the benchmark causes.
#[derive(Debug, Clone)]
enum InjectedFault {
    /// `kill -9` of processes of members.
    Kill(Vec<usize>, MemberProcesses),
    /// Processes of members are stopped for longer than a lease.
    Stall(Vec<usize>, MemberProcesses),
    /// A member's carnet-fleet receives SIGTERM.
    Stop(usize),
    /// A machine cannot reach the store, the network, or both. `noticed` says that its interface loses the
    /// carrier.
    Cut { members: Vec<usize>, store: bool, network: bool, noticed: bool },
    /// Servers of the store (etcd) are killed.
    Store(Vec<usize>),
}

impl InjectedFault {
    fn draw_fault(random: &mut SeededRandom, machines: &TestMachines, routers: &Routers) -> InjectedFault {
        // Let most faults hit the leader of a home agent.
        let seat = random.next_below(machines.seat_count);
        let owner = routers.flows_of_seat(seat).next().map_or(0, |flow| flow.last_member);
        let member =
            if random.next_below(4) > 0 { owner } else { random.next_below(machines.all_members.len()) };
        let machine = machines.members_on(machines.all_members[member].machine_index);
        let which = match random.next_below(3) {
            0 => MemberProcesses { includes_carnet_fleet: true, includes_home_agent: true },
            1 => MemberProcesses { includes_carnet_fleet: false, includes_home_agent: true },
            _ => MemberProcesses { includes_carnet_fleet: true, includes_home_agent: false },
        };
        let members = if random.next_bool() { machine.clone() } else { vec![member] };
        match random.next_below(12) {
            0..=3 => InjectedFault::Kill(members, which),
            4..=5 => InjectedFault::Stall(members, which),
            6 => InjectedFault::Stop(member),
            7..=9 => {
                let (store, network) =
                    [(true, false), (true, false), (false, true), (true, true)][random.next_below(4)];
                InjectedFault::Cut { members: machine, store, network, noticed: random.next_bool() }
            }
            _ => {
                let servers: Vec<usize> = (0..machines.running_store_servers()).collect();
                InjectedFault::Store(if random.next_bool() {
                    servers
                } else {
                    vec![random.next_below(machines.running_store_servers())]
                })
            }
        }
    }

    /// Returns the kind of the fault, without its target.
    fn kind_name(&self) -> String {
        match self {
            InjectedFault::Kill(_, which) => format!("kill -9 of {}", which.process_names()),
            InjectedFault::Stall(_, which) => format!("stall of {}", which.process_names()),
            InjectedFault::Stop(_) => "SIGTERM".into(),
            InjectedFault::Cut { store: true, network: true, .. } => "cut off from all".into(),
            InjectedFault::Cut { store: true, .. } => "cut off from etcd".into(),
            InjectedFault::Cut { .. } => "cut off from routers".into(),
            InjectedFault::Store(servers) if servers.len() == 1 => "kill -9 of an etcd".into(),
            InjectedFault::Store(_) => "kill -9 of etcd".into(),
        }
    }

    fn fault_description(&self, machines: &TestMachines) -> String {
        let names = |members: &[usize]| {
            let names: Vec<String> = members.iter().map(|one| machines.all_members[*one].name()).collect();
            names.join(", ")
        };
        match self {
            InjectedFault::Kill(members, _) | InjectedFault::Stall(members, _) => {
                format!("{}: {}", self.kind_name(), names(members))
            }
            InjectedFault::Stop(member) => format!("{}: {}", self.kind_name(), names(&[*member])),
            InjectedFault::Cut { members, noticed, .. } => {
                let how = if *noticed { "" } else { " (unnoticed)" };
                format!("{}{how}: {}", self.kind_name(), names(members))
            }
            InjectedFault::Store(servers) => format!("{}: {servers:?}", self.kind_name()),
        }
    }

    /// Causes the fault, ends it, and restarts the processes that the fault has ended.
    fn inject_fault(
        &self,
        chance: &mut SeededRandom,
        machines: &mut TestMachines,
        all: &mut Routers,
    ) -> anyhow::Result<()> {
        let while_it_lasts = chance.next_between(600, 2500) * MILLISECOND;
        match self {
            InjectedFault::Kill(members, which) => {
                all.expect_leader_change();
                for member in members {
                    machines.all_members[*member].signal_processes(
                        which.includes_carnet_fleet,
                        which.includes_home_agent,
                        Signal::SIGKILL,
                    );
                }
                all.run_for(chance.next_between(100, 2000) * MILLISECOND)?;
                for member in members.iter().filter(|_| which.includes_carnet_fleet) {
                    machines.all_members[*member].reap_process();
                    machines.start_member(*member)?;
                }
            }
            InjectedFault::Stall(members, which) => {
                let signal = |machines: &TestMachines, signal| {
                    members.iter().for_each(|one| {
                        machines.all_members[*one].signal_processes(
                            which.includes_carnet_fleet,
                            which.includes_home_agent,
                            signal,
                        )
                    });
                };
                signal(machines, Signal::SIGSTOP);
                all.run_for(while_it_lasts)?;
                // SIGCONT has no effect on processes that were started meanwhile.
                signal(machines, Signal::SIGCONT);
            }
            InjectedFault::Stop(member) => {
                all.expect_leader_change();
                machines.all_members[*member].signal_processes(true, false, Signal::SIGTERM);
                let told = monotonic_now();
                let name = machines.all_members[*member].name();
                let well = loop {
                    all.run_for(20 * MILLISECOND)?;
                    if let Some(well) = machines.all_members[*member].exited_successfully() {
                        break well;
                    }
                    if monotonic_now() - told > RECOVERY_TIMEOUT {
                        bail!("expected the process {name} to end after SIGTERM, but it still runs");
                    }
                };
                if !well {
                    bail!("expected the process {name} to end without an error after SIGTERM, but it failed");
                }
                machines.start_member(*member)?;
            }
            InjectedFault::Cut { members, store, network, noticed } => {
                for up in [false, true] {
                    for member in members {
                        if *store {
                            machines.set_link_state(*member, 'e', up, *noticed)?;
                        }
                        if *network && *noticed {
                            machines.set_link_state(*member, 'f', up, true)?;
                            machines.set_link_state(*member, 'h', up, true)?;
                        } else if *network {
                            all.set_member_reachable(*member, up);
                        }
                    }
                    if !up {
                        all.run_for(while_it_lasts)?;
                    }
                }
            }
            InjectedFault::Store(servers) => {
                servers.iter().for_each(|server| machines.kill_store(*server));
                all.run_for(chance.next_between(50, 2000) * MILLISECOND)?;
                for server in servers {
                    machines.start_store(*server)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs all checks. Returns a description of each check that failed.
fn check_processes_and_bindings(
    machines: &TestMachines,
    routers: &mut Routers,
) -> anyhow::Result<Vec<String>> {
    let until = monotonic_now() + RECOVERY_TIMEOUT;
    let mut wrong = Vec::new();
    loop {
        let within = 4 * routers.packet_period;
        // If the leadership of a home agent moves back to its first member, all flows have packets again
        // within this time.
        if !routers.run_until(until, |routers| routers.all_flows_have_packets(within))? {
            wrong.push(format!(
                "only {} of {} flows have packets",
                routers.flows_with_packets(within),
                2 * routers.len()
            ));
            return Ok(wrong);
        }
        wrong.clear();
        for seat in 0..machines.seat_count {
            let before: Vec<usize> = routers.flows_of_seat(seat).map(|flow| flow.last_member).collect();
            match &machines.active_members(seat)[..] {
                // Compare the bindings only if the leader is still the same; meanwhile the leadership may
                // have moved.
                [(member, bindings)] if before.iter().all(|one| one == member) => {
                    wrong.extend(routers.missing_bindings(seat, *member, bindings));
                }
                several => {
                    let names: Vec<String> =
                        several.iter().map(|(member, _)| machines.all_members[*member].name()).collect();
                    wrong.push(format!("members {names:?} lead seat {seat}, expected exactly one"));
                }
            }
        }
        if wrong.is_empty() || monotonic_now() > until {
            return Ok(wrong);
        }
        routers.run_for(200 * MILLISECOND)?;
    }
}

/// Runs the series of faults.
pub fn measure_faults(
    path: DataPath,
    plan: &MeasurementPlan,
    programs: &Programs,
) -> anyhow::Result<FaultsFigure> {
    let (mut machines, mut all) = start_machines_and_routers(
        path,
        plan.seat_count,
        plan.store_server_count,
        plan.fault_router_count,
        programs,
    )?;
    (all.changes_care_of_address, all.updates_per_second) =
        (true, REGISTRATIONS_PER_SECOND.min(f64::from(plan.fault_router_count) * 2.0));
    let mut chance = SeededRandom::new(plan.fault_seed);
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let (mut lost, mut broken, mut longest, mut forwarded) = (0, 0, 0_u64, 0_u64);
    all.send_all_updates();
    all.run_until_all_acknowledged(30)?;
    for number in 0..plan.fault_count {
        all.halves_without_updates = [false; 2];
        all.run_for(chance.next_between(200, 500) * MILLISECOND)?;
        all.halves_without_updates[number as usize & 1] = true;
        let fault = InjectedFault::draw_fault(&mut chance, &machines, &all);
        let begun = monotonic_now();
        let doubled = all.packet_counts.doubled_packets;
        all.start_silence_measurement();
        fault.inject_fault(&mut chance, &mut machines, &mut all)?;
        all.halves_without_updates = [true; 2];
        let healed = monotonic_now();
        let wrong = check_processes_and_bindings(&machines, &mut all)?;
        all.end_silence_measurement();
        let silence = (0..machines.seat_count)
            .flat_map(|seat| all.flows_of_seat(seat))
            .map(|flow| flow.longest_silence)
            .max()
            .unwrap_or(0);
        longest = longest.max(silence);
        if all.packet_counts.doubled_packets > doubled {
            forwarded = forwarded.max(all.packet_counts.last_doubled_packet_at.saturating_sub(begun));
        }
        *kinds.entry(fault.kind_name()).or_default() += 1;
        console::print_step(&format!(
            "{} {}/{}: {}; silent for at most {} ms, {} packets forwarded by two, all well after {} ms{}",
            path.name(),
            number + 1,
            plan.fault_count,
            fault.fault_description(&machines),
            silence / MILLISECOND,
            all.packet_counts.doubled_packets - doubled,
            (monotonic_now() - healed) / MILLISECOND,
            if wrong.is_empty() { "" } else { ": NOT WELL" }
        ));
        if let Some(complaint) = all.first_error.take() {
            console::print_step(&complaint);
        }
        if !wrong.is_empty() {
            wrong.iter().take(5).for_each(|one| console::print_step(one));
            lost += wrong.iter().filter(|one| one.starts_with("router")).count() as u64;
            broken += 1;
            for member in
                (0..machines.all_members.len()).filter(|member| machines.all_members[*member].is_running())
            {
                machines.write_member_state(member, &format!("fault{}", number + 1));
            }
            if broken >= MAX_FAULTS_WITHOUT_RECOVERY {
                bail!(
                    "after {broken} injected faults a home agent did not recover; seed {}, logs in {}",
                    plan.fault_seed,
                    machines.log_folder_file().display()
                );
            }
        }
        // Wait until all routers have their acknowledgements, before the next fault.
        all.halves_without_updates = [false; 2];
        all.run_until_all_acknowledged(10)?;
    }
    let mut taken = 0;
    for seat in 0..machines.seat_count {
        taken += machines.takeovers_in_logs(seat)? as u64;
    }
    let seen = all.packet_counts;
    let figure = FaultsFigure {
        path,
        seed: plan.fault_seed,
        routers: plan.fault_router_count,
        seats: machines.seat_count,
        stores: machines.running_store_servers(),
        faults: plan.fault_count,
        kinds: kinds.into_iter().collect(),
        acknowledged: seen.acknowledged,
        late_acknowledgements: seen.late_acknowledgements,
        two: seen.acknowledgements_of_two_members,
        wrong: seen.wrong_acknowledgements,
        changes: seen.leader_changes,
        takeovers_in_logs: taken,
        lost,
        faults_without_recovery: broken,
        packets: seen.sent_packets,
        doubled: seen.doubled_packets,
        doubled_ms: forwarded as f64 / 1e6,
        longest_ms: longest as f64 / 1e6,
    };
    machines.stop_all()?;
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_faults() {
        let draw = |seed| {
            let mut chance = SeededRandom::new(seed);
            (0..5).map(|_| chance.next_below(100)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut chance = SeededRandom::new(1);
        assert!((0..100).all(|_| (3..6).contains(&chance.next_between(3, 6))));
    }
}
