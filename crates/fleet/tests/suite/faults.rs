//! Random schedules of faults. Members die and return, or are cut off from the store. The network loses and
//! delays packets, home agents fail, members give up seats, links to mobile routers are lost and return. The
//! world checks after each step that no two members lead. At each start of a home agent it checks that all
//! acknowledged records are present.
//!
//! `CARNET_SCHEDULES` sets the number of schedules at compile time; `CARNET_SEED` runs one schedule.

use std::time::Duration;

use carnet_base::Rng;
use carnet_fleet::LeadershipConfig;

use crate::simulated_fleet::{MAX_LINK_DETECTION_TIME, MEMBER_NAMES, SimulatedFleet};

/// Time that is longer than any schedule of faults in these tests.
const LONGER_THAN_ANY_SCHEDULE: Duration = Duration::from_secs(1_000_000);

fn shorten_delays(config: &mut LeadershipConfig) {
    config.fail_back_delay = Duration::from_secs(3);
    config.grace_period = Duration::from_secs(2);
}

/// Returns the longest time until a member with links leads. It includes the longest pause after restored
/// links, and the wait of a leader that is cut off.
fn longest_time_without_leader(world: &SimulatedFleet) -> Duration {
    let mut config = LeadershipConfig::new("anna", Vec::new());
    (world.configure)(&mut config);
    config.pause_after_failure * (1 << 8)
        + config.fail_back_delay
        + config.grace_period
        + config.wait_while_cut_off
        + MAX_LINK_DETECTION_TIME
        + Duration::from_secs(20)
}

/// Runs a schedule; returns its numbers of takeovers, kills, cuts and losses of links.
fn run_schedule(seed: u64) -> [u64; 4] {
    let mut world = SimulatedFleet::new(seed, shorten_delays);
    let mut rng = Rng::new(seed ^ 0x5eed);
    world.loss_per_mille = [0, 0, 20, 200][rng.number_below(4) as usize];
    world.max_delay = [2, 10, 60, 150].map(Duration::from_millis)[rng.number_below(4) as usize];
    let any = |rng: &mut Rng| rng.number_below(MEMBER_NAMES.len() as u64) as usize;
    let long = |rng: &mut Rng| rng.duration_between(Duration::from_millis(20), Duration::from_secs(5));
    for _ in 0..30 {
        let pause = rng.duration_between(Duration::from_millis(5), Duration::from_secs(3));
        world.advance_time(pause);
        let member = any(&mut rng);
        match rng.number_below(14) {
            0..3 => world.kill_member(member, long(&mut rng)),
            3..6 => world.cut_off_from_store(member, long(&mut rng)),
            6 => (0..MEMBER_NAMES.len()).for_each(|member| world.cut_off_from_store(member, long(&mut rng))),
            7 => world.fail_agent(member),
            8 => world.give_up_leadership(member, None),
            9 => world.give_up_leadership(member, Some(MEMBER_NAMES[any(&mut rng)])),
            10..13 => world.cut_off_from_routers(member, long(&mut rng)),
            _ => {
                (0..MEMBER_NAMES.len()).for_each(|member| world.cut_off_from_routers(member, long(&mut rng)))
            }
        }
    }
    // Cut the links between some or all members and the mobile routers. Every combination of members occurs.
    let without = rng.number_below(1 << MEMBER_NAMES.len());
    for member in (0..MEMBER_NAMES.len()).filter(|member| without >> member & 1 == 1) {
        world.cut_off_from_routers(member, LONGER_THAN_ANY_SCHEDULE);
    }
    // Without further faults exactly one home agent works.
    (world.loss_per_mille, world.max_delay) = (0, Duration::from_millis(5));
    world.advance_time(Duration::from_secs(20));
    let linked = |world: &SimulatedFleet| {
        let working = world.members_with_working_agent();
        matches!(working[..], [one] if world.members[one].reaches_routers)
    };
    if without != (1 << MEMBER_NAMES.len()) - 1 {
        let most = longest_time_without_leader(&world);
        let found = world.advance_until(most, linked);
        assert!(
            found.is_some(),
            "seed {seed}: {:?} without links {without:b}",
            world.members_with_working_agent()
        );
        // The leader keeps the seat, or gives it to another member that has links to routers.
        for _ in 0..5 {
            world.advance_time(Duration::from_secs(1));
            let working = world.members_with_working_agent();
            assert!(
                working.iter().any(|one| world.members[*one].reaches_routers),
                "seed {seed}: {working:?}"
            );
        }
        world.advance_until(most, |world| world.members_with_working_agent().len() == 1);
    }
    assert_eq!(
        world.members_with_working_agent().len(),
        1,
        "seed {seed}: {:?}",
        [0, 1, 2].map(|member| world.role_of_member(member))
    );
    let before = world.acknowledged_values.clone();
    world.advance_time(Duration::from_secs(1));
    assert_ne!(world.acknowledged_values, before, "seed {seed}: nothing is acknowledged");
    [world.takeover_count, world.kill_count, world.cut_off_count, world.link_loss_count]
}

#[test]
fn random_faults_give_one_leader_and_lose_no_acknowledged_binding() {
    if let Some(seed) = option_env!("CARNET_SEED").and_then(|text| text.parse().ok()) {
        run_schedule(seed);
        return;
    }
    let count = option_env!("CARNET_SCHEDULES").and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut total = [0; 4];
    for seed in 0..count {
        for (sum, one) in total.iter_mut().zip(run_schedule(seed)) {
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
