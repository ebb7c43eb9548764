//! Random schedules of faults. Members die and return, or are cut off from the store. The network loses and
//! delays packets, home agents fail, members give up seats, links to routers are lost and return. The world
//! checks after each step that no two members lead. At each start of a home agent it checks that all
//! acknowledged records are present.
//!
//! `CARNET_SCHEDULES` sets the number of schedules at compile time; `CARNET_SEED` runs one schedule.

use std::time::Duration;

use carnet_base::Rng;
use carnet_fleet::SeatConfig;

use crate::world::{NAMES, NOTICES, World};

/// A time longer than a schedule.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

fn config(config: &mut SeatConfig) {
    config.fail_back_delay = Duration::from_secs(3);
    config.grace_period = Duration::from_secs(2);
}

/// Returns the longest time until a member with links leads. It includes the longest pause after restored
/// links, and the doubt about the leader's links.
fn bound(world: &World) -> Duration {
    let mut config = SeatConfig::new("anna", Vec::new());
    (world.config)(&mut config);
    config.failure_pause * (1 << 8)
        + config.fail_back_delay
        + config.grace_period
        + config.cut_off_wait
        + NOTICES
        + Duration::from_secs(20)
}

/// Runs a schedule; returns its numbers of takeovers, kills, cuts and losses of links.
fn schedule(seed: u64) -> [u64; 4] {
    let mut world = World::new(seed, config);
    let mut rng = Rng::new(seed ^ 0x5eed);
    world.loss = [0, 0, 20, 200][rng.below(4) as usize];
    world.far = [2, 10, 60, 150].map(Duration::from_millis)[rng.below(4) as usize];
    let any = |rng: &mut Rng| rng.below(NAMES.len() as u64) as usize;
    let long = |rng: &mut Rng| rng.duration(Duration::from_millis(20), Duration::from_secs(5));
    for _ in 0..30 {
        let pause = rng.duration(Duration::from_millis(5), Duration::from_secs(3));
        world.run(pause);
        let member = any(&mut rng);
        match rng.below(14) {
            0..3 => world.kill(member, long(&mut rng)),
            3..6 => world.cut(member, long(&mut rng)),
            6 => (0..NAMES.len()).for_each(|member| world.cut(member, long(&mut rng))),
            7 => world.fail(member),
            8 => world.give_up(member, None),
            9 => world.give_up(member, Some(NAMES[any(&mut rng)])),
            10..13 => world.unlink(member, long(&mut rng)),
            _ => (0..NAMES.len()).for_each(|member| world.unlink(member, long(&mut rng))),
        }
    }
    // Some or all members stay without links; every combination occurs.
    let without = rng.below(1 << NAMES.len());
    for member in (0..NAMES.len()).filter(|member| without >> member & 1 == 1) {
        world.unlink(member, FOR_EVER);
    }
    // Without further faults exactly one home agent works.
    (world.loss, world.far) = (0, Duration::from_millis(5));
    world.run(Duration::from_secs(20));
    let linked = |world: &World| matches!(world.working()[..], [one] if world.members[one].linked);
    if without != (1 << NAMES.len()) - 1 {
        let most = bound(&world);
        let found = world.until(most, linked);
        assert!(found.is_some(), "seed {seed}: {:?} without links {without:b}", world.working());
        // The leader keeps the seat, or gives it to another member with links.
        for _ in 0..5 {
            world.run(Duration::from_secs(1));
            let working = world.working();
            assert!(working.iter().any(|one| world.members[*one].linked), "seed {seed}: {working:?}");
        }
        world.until(most, |world| world.working().len() == 1);
    }
    assert_eq!(world.working().len(), 1, "seed {seed}: {:?}", [0, 1, 2].map(|member| world.role(member)));
    let before = world.acknowledged.clone();
    world.run(Duration::from_secs(1));
    assert_ne!(world.acknowledged, before, "seed {seed}: nothing is acknowledged");
    [world.takeovers, world.kills, world.cuts, world.unlinks]
}

#[test]
fn random_faults_give_one_leader_and_lose_no_acknowledged_binding() {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        schedule(seed);
        return;
    }
    let count = option_env!("CARNET_SCHEDULES").and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut total = [0; 4];
    for seed in 0..count {
        for (sum, one) in total.iter_mut().zip(schedule(seed)) {
            *sum += one;
        }
    }
    let [takeovers, kills, cuts, unlinks] = total;
    println!(
        "{count} schedules: {takeovers} times a home agent began to work, {kills} members killed, {cuts} cut \
         off from the store, {unlinks} from routers"
    );
    let troubled = |faults| faults > 100.min(5 * count);
    assert!(takeovers > 2 * count && troubled(kills + cuts) && troubled(unlinks), "{total:?}");
}
