//! Random schedules of what goes wrong: members die and come back, are cut off from the store, the network loses and delays,
//! home agents fail, seats are given up. The world checks after each step that no two members have the seat, and at each
//! start that everything acknowledged is there.
//!
//! `CARNET_SCHEDULES`, when this is compiled, says how many; `CARNET_SEED` runs one.

use std::time::Duration;

use carnet_base::Rng;
use carnet_fleet::SeatConfig;

use crate::world::{NAMES, World};

fn config(config: &mut SeatConfig) {
    config.settled = Duration::from_secs(3);
    config.patience = Duration::from_secs(2);
}

/// Takeovers, kills and cuts of a schedule.
fn schedule(seed: u64) -> [u64; 3] {
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
        match rng.below(10) {
            0..3 => world.kill(member, long(&mut rng)),
            3..6 => world.cut(member, long(&mut rng)),
            6 => (0..NAMES.len()).for_each(|member| world.cut(member, long(&mut rng))),
            7 => world.fail(member),
            8 => world.give_up(member, None),
            _ => world.give_up(member, Some(NAMES[any(&mut rng)])),
        }
    }
    // When nothing goes wrong any more one works, and only one.
    (world.loss, world.far) = (0, Duration::from_millis(5));
    world.run(Duration::from_secs(20));
    assert_eq!(world.working().len(), 1, "seed {seed}: {:?}", [0, 1, 2].map(|member| world.role(member)));
    let before = world.acknowledged.clone();
    world.run(Duration::from_secs(1));
    assert_ne!(world.acknowledged, before, "seed {seed}: nothing is acknowledged");
    [world.takeovers, world.kills, world.cuts]
}

#[test]
fn no_two_members_have_a_seat_and_nothing_acknowledged_is_lost() {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        schedule(seed);
        return;
    }
    let count = option_env!("CARNET_SCHEDULES").and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut total = [0; 3];
    for seed in 0..count {
        for (sum, one) in total.iter_mut().zip(schedule(seed)) {
            *sum += one;
        }
    }
    let [takeovers, kills, cuts] = total;
    println!(
        "{count} schedules: {takeovers} times a home agent began to work, {kills} members killed, {cuts} cut off"
    );
    assert!(takeovers > 2 * count && kills + cuts > 200.min(10 * count), "{total:?}");
}
