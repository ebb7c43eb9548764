//! Measures how long no packets arrive when the mobile router moves from one foreign link to the other.
//!
//! As with the switch in the paper, one link loses its carrier when the other link gets it. Meanwhile a host
//! in the mobile network pings the correspondent, and so does the mobile router from its address in the
//! mobile network. The latency is the longest gap between two answered echoes. After a move the lab waits
//! until both pings get answers again, and then some more time. So the lab can measure even a slow subject,
//! and no move begins before the previous move has ended.

use anyhow::Context;
use nix::sys::signal::Signal;

use super::test_networks::TestNetworks;
use carnet_bench::figures::median;
use carnet_bench::world::CORRESPONDENT_ADDRESS;
use carnet_testbed::clock::{self, MILLISECOND, SECOND};
use carnet_testbed::isolate::{Interrupted, RUN_DIRECTORY, has_to_stop};
use carnet_testbed::process::{BackgroundProgram, command_in_node};
use carnet_testbed::traffic::ping;
use carnet_testbed::{tools, topology};

/// Time between echoes, in nanoseconds.
const PING_INTERVAL: u64 = 10 * MILLISECOND;
/// Time in nanoseconds for which echoes must be answered before a move.
const TIME_BEFORE_UPLINK_MOVE: u64 = SECOND;
/// Longest time in nanoseconds within which both pings must be answered, before the first move and after each
/// move.
pub const ANSWER_TIMEOUT: u64 = 30 * SECOND;
/// Time in nanoseconds between a finished move and the next one, so that late effects count for the earlier
/// move.
const PAUSE_AFTER_UPLINK_MOVE: u64 = 2 * SECOND;
/// Number of moves in a row without an answer after which the lab stops.
const MAX_CONSECUTIVE_FAILED_MOVES: usize = 2;

/// Longest gaps of a move in milliseconds: the host's and the router's. `None` if no echo was answered after
/// the move.
pub type GapsOfUplinkMove = [Option<f64>; 2];

/// Makes `count` moves between the links; fewer if the implementation under test stops answering.
pub fn measure_uplink_moves(
    routers: &mut TestNetworks,
    count: usize,
) -> anyhow::Result<Vec<GapsOfUplinkMove>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let agent = routers.subject_network.node_name("ha");
    // Let an interface keep its addresses when it goes down, as if a switch had removed only the carrier.
    let keep =
        "for one in all default f0 f1; do echo 1 > /proc/sys/net/ipv6/conf/$one/keep_addr_on_down; done";
    carnet_testbed::process::run_for_output(command_in_node(&agent, "sh").args(["-ec", keep]))?;
    topology::run_ip_batch(Some(&agent), "link set f1 down\n")?;
    clock::sleep(PAUSE_AFTER_UPLINK_MOVE);
    let mut gaps: Vec<GapsOfUplinkMove> = Vec::new();
    for number in 0..count {
        routers.check_running()?;
        let (from, to) = if number % 2 == 0 { ("f0", "f1") } else { ("f1", "f0") };
        gaps.push(measure_uplink_move(routers, &format!("link set {from} down\nlink set {to} up\n"))?);
        let in_vain = gaps.iter().rev().take_while(|gaps| gaps.contains(&None)).count();
        if in_vain >= MAX_CONSECUTIVE_FAILED_MOVES {
            break;
        }
    }
    topology::run_ip_batch(Some(&agent), "link set f0 up\nlink set f1 up\n")?;
    clock::sleep(PAUSE_AFTER_UPLINK_MOVE);
    Ok(gaps)
}

fn measure_uplink_move(routers: &TestNetworks, commands: &str) -> anyhow::Result<GapsOfUplinkMove> {
    let seconds = format!("{}", PING_INTERVAL as f64 / 1e9);
    let world = &routers.subject_network;
    let start = |role: &str, source: &[&str]| -> anyhow::Result<BackgroundProgram> {
        let log = std::path::Path::new(RUN_DIRECTORY).join(format!("{role}-handover.log"));
        let mut command = command_in_node(&world.node_name(role), tools::path_of_program("ping"));
        command.args(["-6", "-n", "-D", "-i", &seconds]).args(source).arg(CORRESPONDENT_ADDRESS);
        BackgroundProgram::start(&format!("ping in {role}"), &log, &mut command)
    };
    let mut pings = [start("mnn", &[])?, start("mr", &["-I", "2001:db8:a::1"])?];
    // If both pings have no answers after the last move, do not move the mobile router again until they have.
    let ready = wait_until_answered(&pings, 0)?;
    clock::sleep(TIME_BEFORE_UPLINK_MOVE);
    topology::run_ip_batch(Some(&world.node_name("ha")), commands)?;
    let moved = clock::realtime_now();
    let back = ready && wait_until_answered(&pings, moved)?;
    clock::sleep(PAUSE_AFTER_UPLINK_MOVE);
    let mut gaps = [None, None];
    for (ping, gap) in pings.iter_mut().zip(&mut gaps) {
        ping.stop(Signal::SIGINT);
        *gap = longest_gap(&read_answers(ping)?, moved).filter(|_| back);
    }
    Ok(gaps)
}

fn read_answers(ping: &BackgroundProgram) -> anyhow::Result<Vec<ping::PingAnswer>> {
    let text = std::fs::read_to_string(&ping.log_file).context("cannot read what ping printed")?;
    Ok(ping::parse_transcript(&text).answers)
}

/// Returns when the request of an answer was sent, in milliseconds since 1970: the answer's time of arrival
/// minus the round trip.
fn request_sent_at_ms(answer: &ping::PingAnswer) -> f64 {
    answer.1 as f64 / 1e6 - answer.2
}

/// Waits until each ping has an answer to a request that was sent after `since` (nanoseconds since 1970), at
/// most [`ANSWER_TIMEOUT`]. Returns false if a ping has no such answer.
fn wait_until_answered(pings: &[BackgroundProgram], since: u64) -> anyhow::Result<bool> {
    let until = clock::monotonic_now() + ANSWER_TIMEOUT;
    loop {
        let mut answered = true;
        for ping in pings {
            answered &=
                read_answers(ping)?.iter().any(|answer| request_sent_at_ms(answer) > since as f64 / 1e6);
        }
        if answered || clock::monotonic_now() > until {
            return Ok(answered);
        }
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        clock::sleep(100 * MILLISECOND);
    }
}

/// Returns the longest time between the sending of two answered requests, minus the usual interval, in
/// milliseconds. `None` if no request after the move at `moved` (nanoseconds since 1970) was answered.
fn longest_gap(answers: &[ping::PingAnswer], moved: u64) -> Option<f64> {
    let sent: Vec<f64> = answers.iter().map(request_sent_at_ms).collect();
    let mut gaps: Vec<f64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let gap = gaps.last()? - median(&gaps);
    (*sent.last()? > moved as f64 / 1e6).then_some(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handover_gap_is_longest_answer_interval_minus_usual_interval() {
        let at = |number: u64, at_ms: u64| (number, at_ms * MILLISECOND, 1.0);
        let moved = 1000 * MILLISECOND;
        let mut answers: Vec<ping::PingAnswer> = (1..=100).map(|n| at(n, 10 * n)).collect();
        // A late answer belongs to a request from before the move.
        assert_eq!(longest_gap(&answers, moved), None);
        answers.extend((106..=250).map(|n| at(n, 10 * n)));
        assert_eq!(longest_gap(&answers, moved), Some(50.0));
        // On a slow machine the move is late. Answers to requests from before the move do not count.
        assert_eq!(longest_gap(&answers, 2600 * MILLISECOND), None);
        // ping may send more slowly than ordered.
        let slow: Vec<ping::PingAnswer> = (1..=150).map(|n| at(n, 17 * n)).collect();
        assert_eq!(longest_gap(&slow, moved), Some(0.0));
        assert_eq!(longest_gap(&[], moved), None);
    }
}
