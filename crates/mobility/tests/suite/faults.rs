//! Random schedules of loss, delay, flapping uplinks and restarts.
//!
//! While a schedule lasts, [`Pair::check`] and its companions check the invariants after every input.
//! Afterwards everything must be registered within 70 s, and traffic must be carried within 5 s (the
//! acknowledgement that it needs may follow a retransmission). A failure names its seed: `CARNET_SEED=n cargo
//! test -p carnet-mobility faults` runs that schedule alone, `CARNET_DAYS=n` runs n schedules of each kind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use carnet_base::Rng;
use carnet_mobility::{Authentication, ReplayProtection, SecurityAssociation};
use carnet_wire::mobility::MobilityOption;

use crate::agent::node;
use crate::craft::*;
use crate::pair::{AT_HOME, Link, Pair, Setup};

const SECOND_HOME: &str = "2001:db8:1::5678";
const EVIL: &str = "2001:db8:666::1";

fn setup(rng: &mut Rng) -> Setup {
    let mut setup = Setup::plain();
    setup.seed = rng.u64();
    setup.agent.nodes.push(node(SECOND_HOME, &[SECOND_PREFIX]));
    let mut second = setup.routers[0].clone();
    second.home_address = addr(SECOND_HOME);
    second.prefixes = vec![net(SECOND_PREFIX)];
    setup.routers.push(second);
    for index in 0..2 {
        let authentication = match rng.below(3) {
            0 => Authentication::None,
            1 => Authentication::SharedKey(association()),
            _ => Authentication::SharedKey(SecurityAssociation {
                replay: ReplayProtection::Timestamp { window: Duration::from_secs(7) },
                ..association()
            }),
        };
        setup.agent.nodes[index].authentication = authentication.clone();
        setup.routers[index].authentication = authentication;
    }
    if rng.chance(0.5) { setup.with_home_link() } else { setup }
}

fn care_of(router: usize, uplink: &str, network: u64) -> String {
    let link = if uplink == "wifi" { 0x100 } else { 0x200 };
    format!("2001:db8:f{:x}::{}", link + network, 10 + router)
}

fn disturb(pair: &mut Pair, rng: &mut Rng) {
    let router = rng.below(2) as usize;
    let uplink = if rng.chance(0.5) { "wifi" } else { "cell" };
    match rng.below(20) {
        0..=5 => pair.attach(router, uplink, &care_of(router, uplink, rng.below(3))),
        6..=9 => pair.detach(router, uplink),
        10 => {
            pair.routers[router].interfaces.remove(uplink);
            pair.router_does(router, |machine, now, wall| machine.handle_interface_gone(now, wall, uplink));
        }
        // The home link has room for one router only.
        11 if pair.agent_config.home_link.is_some() => pair.attach(0, "wifi", AT_HOME),
        12 => pair.restart_agent(rng.chance(0.5)),
        13 if rng.chance(0.3) => pair.reconfigure_router(router),
        13 => pair.restart_router(router, rng.chance(0.5)),
        14 => pair.agent_down = !pair.agent_down,
        15 => {
            let wish = [None, Some("wifi"), Some("cell")][rng.below(3) as usize];
            pair.router_does(router, |machine, now, wall| machine.handle_handover(now, wall, wish))
                .expect("handover");
        }
        16 => {
            // An attacker without the key sends an update, if the node has a key.
            for index in 0..2 {
                let node = &pair.agent_config.nodes[index];
                if let Some(association) = node.authentication.association() {
                    let wrong = SecurityAssociation { key: [9; 16].into(), ..association.clone() };
                    let forged = Update::implicit(rng.u16())
                        .of(&node.home_address.to_string())
                        .from(EVIL)
                        .lifetime(rng.below(20) as u16);
                    pair.inject(forged.clone().signed_by(wrong).packet());
                    pair.inject(forged.packet());
                }
            }
            // A router asks for another router's prefix, with or without a key.
            let node = &pair.agent_config.nodes[router];
            let prefix = if router == 0 { SECOND_PREFIX } else { PREFIX };
            let last = pair.agent.bindings().sequence(node.home_address).unwrap_or(0);
            let mut greedy = Update::explicit(last.wrapping_add(1))
                .of(&node.home_address.to_string())
                .from(&care_of(router, uplink, 0))
                .prefix(prefix)
                .with(MobilityOption::MessageIdentifier(pair.wall().to_ntp()));
            greedy.association = node.authentication.association().cloned();
            pair.inject(greedy.packet());
        }
        17 => {
            let steps = [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(500)];
            pair.routers[router].clock_ahead = steps[rng.below(3) as usize];
        }
        _ => pair.traffic(router),
    }
}

/// Runs the schedule of this seed; `traffic` says whether packets flow all the time.
fn day(seed: u64, traffic: bool) {
    let mut rng = Rng::new(seed);
    let mut pair = Pair::new(setup(&mut rng));
    pair.conditions = Link {
        loss_probability: rng.below(41) as f64 / 100.0,
        duplication_probability: if rng.chance(0.5) { 0.2 } else { 0.0 },
        delay_range: (Duration::ZERO, Duration::from_millis(1 + rng.below(3000))),
    };
    for _ in 0..rng.below(60) {
        disturb(&mut pair, &mut rng);
        let longest = Duration::from_secs(1 + rng.below(20));
        let pause = rng.duration(Duration::ZERO, longest);
        let end = pair.now + pause;
        while traffic && pair.now + Duration::from_millis(500) < end {
            pair.run(0.5);
            pair.traffic(0);
            pair.traffic(1);
        }
        pair.run_until(end);
    }
    // The faults end.
    pair.conditions = Link::LOSSLESS;
    pair.agent_down = false;
    for router in 0..2 {
        pair.router_does(router, |machine, now, wall| machine.handle_handover(now, wall, None))
            .expect("handover");
        for uplink in ["wifi", "cell"] {
            pair.attach(router, uplink, &care_of(router, uplink, 0));
        }
    }
    let start = pair.now;
    let within = |limit: u64| start + Duration::from_secs(limit);
    let mut carried = false;
    while !(pair.is_registered(0) && pair.is_registered(1)) {
        carried |= pair.is_carried(0) && pair.is_carried(1);
        let late = pair.now >= within(70) || (traffic && !carried && pair.now >= within(5));
        assert!(
            !late,
            "after {:?}: {:?} {:?}, carried: {carried}",
            pair.now.saturating_since(start),
            pair.routers[0].machine.state(),
            pair.routers[1].machine.state()
        );
        if traffic {
            pair.traffic(0);
            pair.traffic(1);
        }
        pair.run(0.1);
    }
    // Without further faults both routers stay registered.
    pair.run(10.0);
    pair.forget();
    pair.run(120.0);
    assert!(pair.is_registered(0) && pair.is_registered(1), "it did not last");
    assert!(pair.sent.len() < 40, "{} packets in two quiet minutes", pair.sent.len());
}

/// Schedules of each kind; `CARNET_DAYS` overrides the number.
const DAYS: u64 = match option_env!("CARNET_DAYS") {
    Some(text) => match u64::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("CARNET_DAYS is no number"),
    },
    None => 500,
};

fn days(count: u64, traffic: bool) {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        return day(seed, traffic);
    }
    for seed in 0..count {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| day(seed, traffic))) {
            eprintln!("seed {seed}, traffic {traffic}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_thousand_bad_days_without_traffic() {
    days(DAYS, false);
}

#[test]
fn a_thousand_bad_days_with_traffic() {
    days(DAYS, true);
}
