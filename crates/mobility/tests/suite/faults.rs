//! Random schedules of loss, delay, flapping uplinks and restarts.
//!
//! While a schedule lasts, the simulated network checks the invariants after every input, among them those of
//! [`AgentAndRouters::check_invariants`]. Afterwards everything must be registered within 70 s, and traffic
//! must be carried within 5 s (the acknowledgement that it needs may follow a retransmission). A failure
//! names its seed: `CARNET_SEED=n cargo test -p carnet-mobility faults` runs that schedule alone,
//! `CARNET_DAYS=n` runs n schedules of each kind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_wire::mobility::MobilityOption;

use crate::agent::authorized_node;
use crate::agent_and_routers::{ADDRESS_ON_HOME_LINK, AgentAndRouters, Link, PairSetup};
use crate::test_messages::*;

const SECOND_HOME: &str = "2001:db8:1::5678";
const ATTACKER_ADDRESS: &str = "2001:db8:666::1";

fn random_setup(rng: &mut Rng) -> PairSetup {
    let mut setup = PairSetup::plain_setup();
    setup.seed = rng.random_u64();
    setup.agent.nodes.push(authorized_node(SECOND_HOME, &[SECOND_MOBILE_NETWORK_PREFIX]));
    let mut second = setup.routers[0].clone();
    second.home_address = addr(SECOND_HOME);
    second.prefixes = vec![net(SECOND_MOBILE_NETWORK_PREFIX)];
    setup.routers.push(second);
    for index in 0..2 {
        let authentication = match rng.number_below(3) {
            0 => Authentication::None,
            1 => Authentication::SharedKey(test_association()),
            _ => Authentication::SharedKey(SecurityAssociation {
                replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
                ..test_association()
            }),
        };
        setup.agent.nodes[index].authentication = authentication.clone();
        setup.routers[index].authentication = authentication;
    }
    if rng.is_true_with_probability(0.5) { setup.with_home_link() } else { setup }
}

fn care_of_address_of_uplink(router: usize, uplink: &str, network: u64) -> String {
    let link = if uplink == "wifi" { 0x100 } else { 0x200 };
    format!("2001:db8:f{:x}::{}", link + network, 10 + router)
}

fn inject_random_fault(pair: &mut AgentAndRouters, rng: &mut Rng) {
    let router = rng.number_below(2) as usize;
    let uplink = if rng.is_true_with_probability(0.5) { "wifi" } else { "cell" };
    match rng.number_below(20) {
        0..=5 => pair.attach_uplink(
            router,
            uplink,
            &care_of_address_of_uplink(router, uplink, rng.number_below(3)),
        ),
        6..=9 => pair.detach_uplink(router, uplink),
        10 => {
            pair.routers[router].interfaces.remove(uplink);
            pair.run_on_router(router, |machine, now, wall| machine.handle_interface_gone(now, wall, uplink));
        }
        // Only one router has an address on the home link, so only router 0 goes there.
        11 if pair.agent_config.home_link.is_some() => pair.attach_uplink(0, "wifi", ADDRESS_ON_HOME_LINK),
        12 => pair.restart_agent(rng.is_true_with_probability(0.5)),
        13 if rng.is_true_with_probability(0.3) => pair.reconfigure_router(router),
        13 => pair.restart_router(router, rng.is_true_with_probability(0.5)),
        14 => pair.is_agent_down = !pair.is_agent_down,
        15 => {
            let wish = [None, Some("wifi"), Some("cell")][rng.number_below(3) as usize];
            pair.run_on_router(router, |machine, now, wall| machine.handle_handover(now, wall, wish))
                .expect("handover");
        }
        16 => {
            // An attacker without the key sends an update, if the node has a key.
            for index in 0..2 {
                let node = &pair.agent_config.nodes[index];
                if let Some(association) = node.authentication.signing_association() {
                    let wrong = SecurityAssociation { key: [9; 16].into(), ..association.clone() };
                    let forged = TestUpdate::implicit_update(rng.random_u16())
                        .for_home_address(&node.home_address.to_string())
                        .from(ATTACKER_ADDRESS)
                        .lifetime(rng.number_below(20) as u16);
                    pair.inject_packet(forged.clone().with_signature_by(wrong).to_packet());
                    pair.inject_packet(forged.to_packet());
                }
            }
            // A router requests another router's prefix. It signs the update if it has a key.
            let node = &pair.agent_config.nodes[router];
            let prefix = if router == 0 { SECOND_MOBILE_NETWORK_PREFIX } else { MOBILE_NETWORK_PREFIX };
            let last = pair.agent.bindings().sequence(node.home_address).unwrap_or(0);
            let mut greedy = TestUpdate::explicit_update(last.wrapping_add(1))
                .for_home_address(&node.home_address.to_string())
                .from(&care_of_address_of_uplink(router, uplink, 0))
                .prefix(prefix)
                .with_option(MobilityOption::MessageIdentifier(pair.wall_time().to_ntp()));
            greedy.association = node.authentication.signing_association().cloned();
            pair.inject_packet(greedy.to_packet());
        }
        17 => {
            let steps = [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(500)];
            pair.routers[router].clock_lead = steps[rng.number_below(3) as usize];
        }
        _ => pair.send_data_packet(router),
    }
}

/// Runs the schedule of this seed; `traffic` says whether packets flow all the time.
fn run_schedule(seed: u64, traffic: bool) {
    let mut rng = Rng::new(seed);
    let mut pair = AgentAndRouters::new(random_setup(&mut rng));
    pair.link_conditions = Link {
        loss_probability: rng.number_below(41) as f64 / 100.0,
        duplication_probability: if rng.is_true_with_probability(0.5) { 0.2 } else { 0.0 },
        delay_range: (Duration::ZERO, Duration::from_millis(1 + rng.number_below(3000))),
    };
    for _ in 0..rng.number_below(60) {
        inject_random_fault(&mut pair, &mut rng);
        let longest = Duration::from_secs(1 + rng.number_below(20));
        let pause = rng.duration_between(Duration::ZERO, longest);
        let end = pair.now + pause;
        while traffic && pair.now + Duration::from_millis(500) < end {
            pair.advance_seconds(0.5);
            pair.send_data_packet(0);
            pair.send_data_packet(1);
        }
        pair.advance_until(end);
    }
    // The faults end.
    pair.link_conditions = Link::LOSSLESS;
    pair.is_agent_down = false;
    for router in 0..2 {
        pair.run_on_router(router, |machine, now, wall| machine.handle_handover(now, wall, None))
            .expect("handover");
        for uplink in ["wifi", "cell"] {
            pair.attach_uplink(router, uplink, &care_of_address_of_uplink(router, uplink, 0));
        }
    }
    let start = pair.now;
    let within = |limit: u64| start + Duration::from_secs(limit);
    let mut carried = false;
    while !(pair.is_registered(0) && pair.is_registered(1)) {
        carried |= pair.is_traffic_carried(0) && pair.is_traffic_carried(1);
        let late = pair.now >= within(70) || (traffic && !carried && pair.now >= within(5));
        assert!(
            !late,
            "after {:?}: {:?} {:?}, carried: {carried}",
            pair.now.saturating_since(start),
            pair.routers[0].mobile_router.state(),
            pair.routers[1].mobile_router.state()
        );
        if traffic {
            pair.send_data_packet(0);
            pair.send_data_packet(1);
        }
        pair.advance_seconds(0.1);
    }
    // Without further faults both routers stay registered.
    pair.advance_seconds(10.0);
    pair.clear_records();
    pair.advance_seconds(120.0);
    assert!(pair.is_registered(0) && pair.is_registered(1), "it did not last");
    assert!(pair.sent_packets.len() < 40, "{} packets in two quiet minutes", pair.sent_packets.len());
}

/// Number of random schedules of faults in each test; `CARNET_DAYS` overrides it.
const SCHEDULE_COUNT: u64 = match option_env!("CARNET_DAYS") {
    Some(text) => match u64::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_DAYS is no number"),
    },
    None => 500,
};

fn run_schedules(count: u64, traffic: bool) {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        return run_schedule(seed, traffic);
    }
    for seed in 0..count {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_schedule(seed, traffic))) {
            eprintln!("seed {seed}, traffic {traffic}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn router_recovers_from_a_thousand_random_fault_schedules_without_traffic() {
    run_schedules(SCHEDULE_COUNT, false);
}

#[test]
fn router_recovers_from_a_thousand_random_fault_schedules_with_traffic() {
    run_schedules(SCHEDULE_COUNT, true);
}
