//! Tests of single events: failures, handovers, commits and lost links.

use std::time::Duration;

use carnet_fleet::{LeadershipConfig, MemberRole, StoreKey};

use crate::simulated_fleet::SimulatedFleet;

const MINUTE: Duration = Duration::from_secs(60);

fn keep_config(_: &mut LeadershipConfig) {}

fn shorten_fail_back_delay(config: &mut LeadershipConfig) {
    config.fail_back_delay = Duration::from_secs(5);
}

/// Returns a world in which the first member leads and its home agent works.
fn fleet_led_by_first_member(seed: u64) -> SimulatedFleet {
    let mut world = SimulatedFleet::new(seed, keep_config);
    world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [0])
        .expect("somebody has the seat");
    world.advance_time(Duration::from_secs(3));
    world
}

#[test]
fn first_configured_member_becomes_leader() {
    for seed in 0..50 {
        let world = fleet_led_by_first_member(seed);
        assert_eq!(
            [0, 1, 2].map(|member| world.role_of_member(member).expect("there is one")),
            [MemberRole::Leader, MemberRole::Standby, MemberRole::Standby]
        );
        assert!(world.acknowledged_values.len() > 20);
        assert_eq!(world.takeover_count, 1);
    }
}

#[test]
fn standby_replaces_dead_leader_within_a_second() {
    for seed in 0..200 {
        let mut world = fleet_led_by_first_member(seed);
        let acknowledged = world.acknowledged_values.clone();
        world.kill_member(0, MINUTE);
        let taken = world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
            .expect("the second takes the seat");
        assert!(taken < Duration::from_secs(1), "{taken:?}, seed {seed}");
        world.advance_time(Duration::from_secs(2));
        assert!(acknowledged.iter().all(|(key, value)| world.acknowledged_values[key] >= *value));
        assert!(world.acknowledged_values != acknowledged, "nothing was acknowledged since");
    }
}

#[test]
fn third_member_replaces_two_dead_members() {
    let mut world = fleet_led_by_first_member(1);
    world.kill_member(0, MINUTE);
    world.kill_member(1, MINUTE);
    let taken = world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [2])
        .expect("the third takes the seat");
    assert!(taken < Duration::from_secs(1), "{taken:?}");
}

#[test]
fn handover_of_leadership_has_no_gap_without_home_agent() {
    for seed in 0..100 {
        let mut world = fleet_led_by_first_member(seed);
        world.give_up_leadership(0, Some("carla"));
        let given = world.advance_until(MINUTE, |world| {
            assert!(!world.members_with_working_agent().is_empty(), "nobody works");
            world.members_with_working_agent() == [2]
        });
        assert!(given.expect("it is taken") < Duration::from_millis(400), "{given:?}, seed {seed}");
    }
}

#[test]
fn unclaimed_leadership_goes_to_next_living_member() {
    let mut world = fleet_led_by_first_member(1);
    world.give_up_leadership(0, None);
    world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
        .expect("the next takes it");
    world.kill_member(2, MINUTE);
    world.give_up_leadership(1, Some("carla"));
    // The first member must wait for its own lease to expire.
    let taken = world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [0])
        .expect("the first takes it");
    assert!(taken > Duration::from_millis(400), "{taken:?}");
}

/// The home agent may take any time to end; the member may lead, be a standby, or just take the seat.
#[test]
fn stopping_member_never_becomes_leader_again() {
    for seed in 0..200 {
        let mut world = fleet_led_by_first_member(seed);
        world.kill_member(0, MINUTE);
        world.advance_time(Duration::from_millis(5 * seed));
        world.retire_member(1);
        world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [2])
            .expect("the third takes the seat");
        world.kill_member(2, MINUTE);
        world.advance_time(MINUTE / 2);
        assert!(
            world.members_with_working_agent().is_empty(),
            "seed {seed}: {:?}",
            world.members_with_working_agent()
        );
    }
}

#[test]
fn home_agent_without_etcd_forwards_and_acknowledges_no_update() {
    let mut world = fleet_led_by_first_member(1);
    for member in 0..3 {
        world.cut_off_from_store(member, Duration::from_secs(4));
    }
    world.advance_time(Duration::from_millis(100));
    let acknowledged = world.acknowledged_values.clone();
    world.advance_time(Duration::from_millis(3800));
    assert_eq!((world.members_with_working_agent(), &world.acknowledged_values), (vec![0], &acknowledged));
    // The member that returns first may take the seat, because it has not yet received a presence of another
    // member.
    world.advance_time(Duration::from_secs(2));
    assert_eq!(world.members_with_working_agent().len(), 1);
    assert_ne!(world.acknowledged_values, acknowledged);
}

#[test]
fn home_agent_stops_after_long_etcd_outage_and_returns() {
    let mut world = fleet_led_by_first_member(1);
    for member in 0..3 {
        world.cut_off_from_store(member, Duration::from_secs(30));
    }
    world.advance_time(Duration::from_secs(9));
    assert_eq!(world.members_with_working_agent(), [0]);
    world.advance_time(Duration::from_secs(3));
    assert!(world.members_with_working_agent().is_empty());
    world
        .advance_until(MINUTE, |world| !world.members_with_working_agent().is_empty())
        .expect("it comes back");
}

#[test]
fn leader_cut_off_from_etcd_stops_when_it_learns_of_its_successor() {
    let mut world = fleet_led_by_first_member(1);
    world.cut_off_from_store(0, Duration::from_secs(3));
    let taken = world
        .advance_until(MINUTE, |world| world.members_with_working_agent().contains(&1))
        .expect("the second takes the seat");
    assert!(taken < Duration::from_secs(1), "{taken:?}");
    // The first home agent still forwards, but acknowledges nothing; the world checks this.
    assert_eq!(world.members_with_working_agent(), [0, 1]);
    world
        .advance_until(Duration::from_secs(4), |world| world.members_with_working_agent() == [1])
        .expect("the first stops");
}

#[test]
fn failed_home_agent_is_replaced_at_once_and_pauses() {
    let mut world = fleet_led_by_first_member(1);
    world.fail_agent(0);
    let taken = world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
        .expect("the second takes the seat");
    assert!(taken < Duration::from_millis(400), "{taken:?}");
    world.advance_time(Duration::from_secs(4));
    assert_eq!(world.members_with_working_agent(), [1]);
}

#[test]
fn preferred_member_becomes_leader_again_without_gap() {
    let mut world = SimulatedFleet::new(1, shorten_fail_back_delay);
    world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [0])
        .expect("somebody has the seat");
    world.kill_member(0, Duration::from_secs(2));
    world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
        .expect("the second takes the seat");
    world.advance_time(Duration::from_secs(4));
    assert_eq!(world.members_with_working_agent(), [1], "before it has settled");
    let back = world.advance_until(MINUTE, |world| {
        assert!(!world.members_with_working_agent().is_empty(), "nobody works");
        world.members_with_working_agent() == [0]
    });
    back.expect("it gets it back");
}

/// The member writes its presence, but has no working home agent, so it does not get the seat.
#[test]
fn a_member_with_a_failing_home_agent_does_not_disturb_the_leader() {
    for begins in [true, false] {
        let mut world = SimulatedFleet::new(1, shorten_fail_back_delay);
        world.members[0].agents_fail_to_start = true;
        if !begins {
            world.make_standby_agents_end(0);
        }
        world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
            .expect("the second has the seat");
        world.advance_time(10 * MINUTE);
        assert_eq!(world.members_with_working_agent(), [1]);
        let disturbed = world.takeover_count;
        // The first member takes the seat only a few times, because its pause doubles after each failure. If
        // its standby home agent ends too, it never takes the seat.
        assert!(disturbed <= if begins { 8 } else { 1 }, "{disturbed} times");
        world.members[0].agents_fail_to_start = false;
        if begins {
            world
                .advance_until(30 * MINUTE, |world| world.members_with_working_agent() == [0])
                .expect("it is tried again");
        }
    }
}

/// etcd also limits the octets of a request: a request that is too large would block all later ones.
#[test]
fn a_large_commit_is_sent_in_several_transactions() {
    let mut world = fleet_led_by_first_member(1);
    let long = "1".repeat(100_000);
    let changes = (0..50).map(|one| (format!("2001:db8:2::{one:x}"), Some(long.clone()))).collect();
    world.commit_changes(0, changes);
    let last = StoreKey::Record("2001:db8:2::31".into());
    world.advance_until(MINUTE, |world| world.store.keys.contains_key(&last)).expect("all is stored");
    assert_eq!(world.members_with_working_agent(), [0]);
}

/// All members reach the store; the leader is cut off from the mobile routers.
#[test]
fn leader_cut_off_from_routers_hands_over_without_gap() {
    for seed in 0..50 {
        let mut world = fleet_led_by_first_member(seed);
        // The second member of the list does not reach the mobile routers either.
        world.cut_off_from_routers(1, MINUTE);
        world.advance_time(Duration::from_secs(5));
        assert_eq!(world.members_with_working_agent(), [0]);
        world.cut_off_from_routers(0, MINUTE);
        let given = world.advance_until(MINUTE, |world| {
            assert!(!world.members_with_working_agent().is_empty(), "nobody works");
            world.members_with_working_agent() == [2]
        });
        assert!(given.expect("it is taken") < Duration::from_millis(1500), "{given:?}, seed {seed}");
    }
}

#[test]
fn gateway_failure_for_all_members_keeps_the_leader() {
    for seed in 0..20 {
        let mut world = fleet_led_by_first_member(seed);
        for outage in [100, 700, 5_000, 20_000].map(Duration::from_millis) {
            (0..3).for_each(|member| world.cut_off_from_routers(member, outage));
            world.advance_time(outage + Duration::from_secs(5));
            assert_eq!(
                (world.members_with_working_agent(), world.takeover_count),
                (vec![0], 1),
                "seed {seed}, {outage:?}"
            );
        }
    }
}

/// Members detect a lost carrier at once, and a lost neighbour after up to five quarters of `reach_ms`.
/// A leader that is cut off waits for twice `reach_ms` (`carnet-fleet`).
#[test]
fn gateway_failure_seen_at_different_times_keeps_the_leader() {
    for seed in 0..40 {
        let mut world = SimulatedFleet::new(seed, |config| {
            keep_config(config);
            config.wait_while_cut_off = Duration::from_secs(2);
        });
        world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [0])
            .expect("somebody has the seat");
        for late in [250, 700, 1250].map(Duration::from_millis) {
            let outage = Duration::from_secs(20);
            world.cut_off_from_routers(0, outage);
            world.advance_time(late);
            (1..3).for_each(|member| world.cut_off_from_routers(member, outage - late));
            world.advance_time(outage + Duration::from_secs(10));
            assert_eq!(
                (world.members_with_working_agent(), world.takeover_count),
                (vec![0], 1),
                "seed {seed}, {late:?}"
            );
        }
    }
}

#[test]
fn one_of_all_cut_off_members_becomes_leader() {
    for seed in 0..10 {
        let mut world = fleet_led_by_first_member(seed);
        (0..3).for_each(|member| world.cut_off_from_routers(member, 10 * MINUTE));
        world.advance_time(Duration::from_secs(10));
        world.kill_member(0, Duration::from_secs(40));
        let taken = world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
            .expect("the second takes the seat");
        assert!(taken < Duration::from_secs(2), "{taken:?}, seed {seed}");
        // The first member is preferred, but it is cut off, too. So it does not get the leadership back.
        world.advance_time(2 * MINUTE);
        assert_eq!(world.members_with_working_agent(), [1], "seed {seed}");
    }
}

/// A member that is cut off lets a connected member lead. In the test the leadership ends in four ways. The
/// leader dies, its home agent fails, it gives the leadership up, or it names the cut-off member as the next
/// leader.
#[test]
fn member_cut_off_from_routers_lets_connected_member_lead() {
    let to_it = |world: &mut SimulatedFleet| world.give_up_leadership(0, Some("bruno"));
    let ends: [fn(&mut SimulatedFleet); 4] = [
        |world| world.kill_member(0, MINUTE),
        |world| world.fail_agent(0),
        |world| world.give_up_leadership(0, None),
        to_it,
    ];
    for seed in 0..20 {
        for end in ends {
            let mut world = fleet_led_by_first_member(seed);
            world.cut_off_from_routers(1, 2 * MINUTE);
            world.advance_time(Duration::from_secs(5));
            end(&mut world);
            let taken = world.advance_until(MINUTE, |world| {
                assert!(!world.members_with_working_agent().contains(&1), "seed {seed}");
                world.members_with_working_agent() == [2]
            });
            assert!(taken.expect("the third takes it") < Duration::from_secs(1), "{taken:?}, seed {seed}");
        }
    }
}

/// The third member announces its presence and does not take the seat.
#[test]
fn member_cut_off_from_routers_leads_if_no_other_member_does() {
    let mut world = fleet_led_by_first_member(1);
    world.cut_off_from_routers(1, 10 * MINUTE);
    world.advance_time(Duration::from_secs(5));
    world.kill_member(2, 10 * MINUTE);
    world.kill_member(0, 10 * MINUTE);
    let taken = world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
        .expect("it takes the seat");
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    world
        .advance_until(20 * MINUTE, |world| world.members_with_working_agent() == [0])
        .expect("the first has it back");
}

/// All members are cut off. The leader gives the seat to the first member whose links return and last.
#[test]
fn first_reconnected_member_becomes_leader() {
    let mut world = fleet_led_by_first_member(1);
    for (member, outage) in [(0, 10), (1, 9), (2, 1)] {
        world.cut_off_from_routers(member, outage * MINUTE);
    }
    world.advance_time(MINUTE);
    assert_eq!(world.members_with_working_agent(), [0]);
    let given = world
        .advance_until(MINUTE, |world| world.members_with_working_agent() == [2])
        .expect("it is given it");
    assert!(given > Duration::from_secs(4), "its links have not lasted: {given:?}");
    // The first member gets the seat back like any member that returns.
    let back = world
        .advance_until(20 * MINUTE, |world| world.members_with_working_agent() == [0])
        .expect("it gets it back");
    assert!(back > 9 * MINUTE, "{back:?}");
}

/// Each time that links fail before the settling time is over, the member waits longer before it counts them
/// as up.
#[test]
fn flapping_links_of_leader_do_not_move_leadership_often() {
    for period in [1, 20, 38] {
        let mut world = fleet_led_by_first_member(1);
        world.registers_rarely = true;
        let periods = 900 / period;
        for _ in 0..periods {
            world.cut_off_from_routers(0, Duration::from_secs(period) / 2);
            world.advance_time(Duration::from_secs(period));
        }
        assert!(world.takeover_count <= 8, "{period} s: {} times", world.takeover_count);
        world
            .advance_until(40 * MINUTE, |world| world.members_with_working_agent() == [0])
            .expect("it gets it back");
    }
}

/// One of two members is connected at a time, and never for long.
#[test]
fn links_flapping_in_turn_do_not_move_leadership_often() {
    for period in [2, 8, 20] {
        let mut world = fleet_led_by_first_member(1);
        world.registers_rarely = true;
        world.cut_off_from_routers(2, 60 * MINUTE);
        for turn in 0..600 / period as usize {
            world.cut_off_from_routers(turn % 2, Duration::from_secs(period));
            world.advance_time(Duration::from_secs(period));
        }
        assert!(world.takeover_count <= 8, "{period} s: {} times", world.takeover_count);
    }
}

/// A member with another private key than the fleet lets the other members lead, however the leadership ends.
#[test]
fn member_with_another_key_lets_member_with_the_key_of_the_fleet_lead() {
    let ends: [fn(&mut SimulatedFleet); 4] = [
        |world| world.kill_member(0, MINUTE),
        |world| world.fail_agent(0),
        |world| world.give_up_leadership(0, None),
        |world| world.give_up_leadership(0, Some("bruno")),
    ];
    for seed in 0..20 {
        for end in ends {
            let mut world = fleet_led_by_first_member(seed);
            world.set_key_of_member(1, false);
            world.advance_time(Duration::from_secs(5));
            end(&mut world);
            let taken = world.advance_until(MINUTE, |world| {
                assert!(!world.members_with_working_agent().contains(&1), "seed {seed}");
                world.members_with_working_agent() == [2]
            });
            assert!(taken.expect("the third takes it") < Duration::from_secs(1), "{taken:?}, seed {seed}");
        }
    }
}

/// If no other member is present, the member takes the seat after the grace period. It gives the seat to the
/// first member that has the key of the fleet.
#[test]
fn member_with_another_key_leads_late_and_until_another_member_can() {
    for seed in 0..20 {
        let mut world = fleet_led_by_first_member(seed);
        world.set_key_of_member(1, false);
        world.advance_time(Duration::from_secs(5));
        world.kill_member(2, 10 * MINUTE);
        world.kill_member(0, MINUTE);
        let taken = world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
            .expect("it takes the seat");
        assert!(taken >= Duration::from_secs(10), "{taken:?}, seed {seed}");
        let given = world
            .advance_until(3 * MINUTE, |world| world.members_with_working_agent() == [0])
            .expect("the first member gets the seat");
        // The first member is back after a minute. It takes the seat at once, without the delay of its place
        // in the list.
        assert!(taken + given < MINUTE + Duration::from_secs(5), "{given:?}, seed {seed}");
        // With the right key, the member is a standby like others.
        world.set_key_of_member(1, true);
        world.advance_time(Duration::from_secs(5));
        world.kill_member(0, MINUTE);
        let taken = world
            .advance_until(MINUTE, |world| world.members_with_working_agent() == [1])
            .expect("it takes the seat");
        assert!(taken < Duration::from_secs(1), "{taken:?}, seed {seed}");
    }
}
