//! Measures several machines that serve as home agents together (docs/fleet.md). Each home agent (seat) is
//! led by one of the machines (members). The benchmark measures the outage when a machine is killed. It also
//! checks after each fault that no acknowledged binding is lost, and that no seat has two leaders.
//!
//! * [`world`] runs the machines with the real programs, and etcd as the store with its data on the disk.
//! * [`routers`] simulates the mobile routers, with traffic to and from the network of each.
//! * [`faults`] is a random series of kills, stalls and cuts, determined by a seed.
//!
//! This module kills one machine after the other, each with a third of the routers, and restarts it. The
//! silence of a flow is the time between two of its packets. Left out: the time that a routing protocol takes
//! to announce the new place of a seat.

mod faults;
mod routers;
mod world;

use anyhow::ensure;
use nix::sys::signal::Signal;

use super::MeasurementPlan;
use super::cores::Cores;
use super::figures::{FaultsFigure, TakeoverFigure};
use super::path::DataPath;
use super::world::Programs;
use carnet_testbed::clock::{MILLISECOND, SECOND, monotonic_now};
use carnet_testbed::console;
use carnet_testbed::traffic::stats::percentile;
use faults::SeededRandom;
use routers::Routers;
use world::{MACHINE_NAMES, TestMachines};

pub use world::find_etcd;

/// Time after which each router renews its registration, in seconds.
const REFRESH_PERIOD_SECONDS: f64 = 45.0;
/// Time in nanoseconds for which a killed machine stays dead before the checks.
const DOWN_TIME_OF_KILLED_MACHINE: u64 = 3 * SECOND;

/// Returns the time between two packets of a flow: 20 packets per second, and at most 10,000 per second of
/// all flows.
fn packet_period(routers: u32) -> u64 {
    (50 * MILLISECOND).max(u64::from(routers) * SECOND / 20_000)
}

/// Starts the machines, and registers all routers.
fn start_machines_and_routers(
    path: DataPath,
    seats: usize,
    stores: usize,
    routers: u32,
    programs: &Programs,
) -> anyhow::Result<(TestMachines, Routers)> {
    let machines = TestMachines::start_all(path, seats, stores, routers, programs)?;
    let mut all = Routers::new(&machines, routers, packet_period(routers))?;
    all.send_all_updates();
    ensure!(
        all.run_until_all_acknowledged(60)?,
        "{} of {routers} simulated mobile routers have no Binding Acknowledgement after 60 s",
        all.waiting_routers()
    );
    let flows = all
        .run_until(monotonic_now() + 30 * SECOND, |all| all.all_flows_have_packets(4 * all.packet_period))?;
    ensure!(
        flows,
        "expected packets of all flows, but only {} of {} flows arrive",
        all.flows_with_packets(4 * all.packet_period),
        2 * routers
    );
    Ok((machines, all))
}

/// Kills the machines one after the other, and measures each takeover.
fn measure_kills(
    path: DataPath,
    plan: &MeasurementPlan,
    programs: &Programs,
) -> anyhow::Result<TakeoverFigure> {
    let (mut machines, mut all) = start_machines_and_routers(
        path,
        plan.seat_count,
        plan.store_server_count,
        plan.takeover_router_count,
        programs,
    )?;
    all.updates_per_second = f64::from(plan.takeover_router_count) / REFRESH_PERIOD_SECONDS;
    let mut chance = SeededRandom::new(1);
    let (mut silences, mut others, mut back, mut missing) = (Vec::new(), 0, Vec::new(), 0);
    for round in 0..plan.kill_count {
        let machine = round % MACHINE_NAMES.len();
        let on = machines.members_on(machine);
        // Wait until the first member of each home agent leads it. On a busy machine a lease may have ended,
        // so that the leadership has moved and is moving back. A kill at that time would measure nothing.
        let at_home: Vec<Vec<usize>> =
            (0..machines.seat_count).map(|seat| machines.members_on(seat % MACHINE_NAMES.len())).collect();
        let settled = all.run_until(monotonic_now() + 30 * SECOND, |all| {
            at_home
                .iter()
                .enumerate()
                .all(|(seat, on)| all.flows_of_seat(seat).all(|flow| on.contains(&flow.last_member)))
        })?;
        ensure!(
            settled,
            "expected the first member in each home agent's list to be its leader within 30 s, found another \
             leader"
        );
        all.start_silence_measurement();
        all.run_for(chance.next_between(300, 800) * MILLISECOND)?;
        let affected: Vec<usize> = (0..machines.seat_count)
            .filter(|seat| all.flows_of_seat(*seat).next().is_some_and(|flow| on.contains(&flow.last_member)))
            .collect();
        for keepers in [true, false] {
            for member in &on {
                machines.all_members[*member].signal_processes(keepers, true, Signal::SIGKILL);
            }
        }
        all.run_for(DOWN_TIME_OF_KILLED_MACHINE)?;
        let so_far = silences.len();
        all.run_until(monotonic_now() + 30 * SECOND, |all| {
            all.all_flows_have_packets(4 * all.packet_period)
        })?;
        all.end_silence_measurement();
        for seat in 0..machines.seat_count {
            let of_seat = all.flows_of_seat(seat).map(|flow| flow.longest_silence);
            if affected.contains(&seat) {
                silences.extend(of_seat);
            } else {
                others = others.max(of_seat.max().unwrap_or(0));
            }
        }
        let longest = silences[so_far..].iter().max().copied().unwrap_or(0);
        for seat in &affected {
            let working = machines.active_members(*seat);
            let [(member, bindings)] = &working[..] else {
                missing += all.flows_of_seat(*seat).count() / 2;
                continue;
            };
            let lost = all.missing_bindings(*seat, *member, bindings);
            if let Some(first) = lost.first() {
                console::print_step(first);
            }
            missing += lost.len();
        }
        for member in &on {
            machines.all_members[*member].reap_process();
            machines.start_member(*member)?;
        }
        all.run_for(SECOND)?;
        all.start_silence_measurement();
        let returned = all.run_until(monotonic_now() + 30 * SECOND, |all| {
            affected.iter().all(|seat| all.flows_of_seat(*seat).all(|flow| on.contains(&flow.last_member)))
        })?;
        ensure!(
            returned || affected.is_empty(),
            "expected the member {} to lead its home agent again after 30 s, found another leader",
            MACHINE_NAMES[machine]
        );
        all.run_for(SECOND)?;
        all.end_silence_measurement();
        back.extend(
            affected.iter().flat_map(|seat| all.flows_of_seat(*seat)).map(|flow| flow.longest_silence),
        );
        console::print_step(&format!(
            "{}: {} dies with {} flows, silent for at most {} ms; it comes back",
            path.name(),
            MACHINE_NAMES[machine],
            silences.len() - so_far,
            longest / MILLISECOND
        ));
    }
    silences.sort_unstable();
    back.sort_unstable();
    let ms = |value: Option<u64>| value.unwrap_or(0) as f64 / 1e6;
    let within = |time: u64| silences.iter().filter(|one| **one <= time).count() as u64;
    let figure = TakeoverFigure {
        path,
        routers: plan.takeover_router_count,
        seats: machines.seat_count,
        stores: machines.running_store_servers(),
        packets: 2e9 * f64::from(plan.takeover_router_count) / all.packet_period as f64,
        period_ms: all.packet_period as f64 / 1e6,
        kills: plan.kill_count,
        flows: silences.len() as u64,
        within_1s: within(SECOND),
        within_2s: within(2 * SECOND),
        median_ms: ms(percentile(&silences, 50.0)),
        p99_ms: ms(percentile(&silences, 99.0)),
        longest_ms: ms(silences.last().copied()),
        longest_outage_of_other_seats_ms: ms(Some(others)),
        back_ms: ms(back.last().copied()),
        missing_bindings: missing as u64,
        acknowledgements_of_two_members: all.packet_counts.acknowledgements_of_two_members,
        wrong_acknowledgements: all.packet_counts.wrong_acknowledgements,
    };
    if let Some(complaint) = &all.first_error {
        console::print_step(complaint);
    }
    machines.stop_all()?;
    Ok(figure)
}

/// Measures the given data paths, except those without carnet.
pub fn measure_takeovers(
    paths: &[DataPath],
    plan: &MeasurementPlan,
    programs: &Programs,
    cores: &Cores,
) -> anyhow::Result<(Vec<TakeoverFigure>, Vec<FaultsFigure>)> {
    // Let all programs of this measurement run on any core.
    cores.allow_all_cores()?;
    let (mut takeovers, mut faults) = (Vec::new(), Vec::new());
    for path in paths.iter().copied().filter(|path| matches!(path, DataPath::Tun | DataPath::Bpf)) {
        if plan.kill_count > 0 {
            takeovers.push(measure_kills(path, plan, programs)?);
        }
        if plan.fault_count > 0 {
            faults.push(faults::measure_faults(path, plan, programs)?);
        }
    }
    cores.pin_to_measuring_core()?;
    Ok((takeovers, faults))
}
