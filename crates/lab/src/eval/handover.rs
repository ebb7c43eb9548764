//! How long nothing comes when the mobile router is plugged from one foreign link into the other.
//!
//! As with the paper's switch, one link loses its carrier in the moment in which the other gets it. The host on board
//! and the mobile router, by its address in the mobile network, ping the correspondent all the while; the longest gap
//! between two echoes that were answered is the latency.

use anyhow::Context;
use nix::sys::signal::Signal;

use super::bed::Routers;
use crate::bench::figures::median;
use crate::bench::world::CN;
use crate::clock::{self, MILLISECOND, SECOND};
use crate::isolate::RUN;
use crate::process::{Daemon, in_node};
use crate::traffic::ping;
use crate::{tools, topology};

/// Between echoes, nanoseconds.
const INTERVAL: u64 = 10 * MILLISECOND;
/// Before and after a move.
const BEFORE: u64 = SECOND;
const AFTER: u64 = 2 * SECOND;

/// The longest gaps of a move in milliseconds: the host's and the router's. `None` where nothing came afterwards.
pub type Gaps = [Option<f64>; 2];

/// Makes so many moves, to and fro.
pub fn moves(routers: &mut Routers, count: usize) -> anyhow::Result<Vec<Gaps>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let agent = routers.subject.node("ha");
    // What is down keeps its addresses, as behind a switch.
    let keep =
        "for one in all default f0 f1; do echo 1 > /proc/sys/net/ipv6/conf/$one/keep_addr_on_down; done";
    crate::process::output(in_node(&agent, "sh").args(["-ec", keep]))?;
    topology::batch(Some(&agent), "link set f1 down\n")?;
    clock::sleep(AFTER);
    let mut gaps = Vec::new();
    for number in 0..count {
        routers.check()?;
        let (from, to) = if number % 2 == 0 { ("f0", "f1") } else { ("f1", "f0") };
        gaps.push(one(routers, &format!("link set {from} down\nlink set {to} up\n"))?);
    }
    topology::batch(Some(&agent), "link set f0 up\nlink set f1 up\n")?;
    clock::sleep(AFTER);
    Ok(gaps)
}

fn one(routers: &Routers, commands: &str) -> anyhow::Result<Gaps> {
    let seconds = format!("{}", INTERVAL as f64 / 1e9);
    let world = &routers.subject;
    let start = |role: &str, source: &[&str]| -> anyhow::Result<Daemon> {
        let log = std::path::Path::new(RUN).join(format!("{role}-handover.log"));
        let mut command = in_node(&world.node(role), tools::path("ping"));
        command.args(["-6", "-n", "-D", "-i", &seconds]).args(source).arg(CN);
        Daemon::start(&format!("ping in {role}"), &log, &mut command)
    };
    let mut pings = [start("mnn", &[])?, start("mr", &["-I", "2001:db8:a::1"])?];
    clock::sleep(BEFORE);
    topology::batch(Some(&world.node("ha")), commands)?;
    let moved = clock::realtime();
    clock::sleep(AFTER);
    let mut gaps = [None, None];
    for (ping, gap) in pings.iter_mut().zip(&mut gaps) {
        ping.stop(Signal::SIGINT);
        let text = std::fs::read_to_string(&ping.log).context("cannot read what ping printed")?;
        *gap = longest(&ping::parse(&text), moved);
    }
    Ok(gaps)
}

/// The longest time from one answered request to the next beyond the usual one, milliseconds; `None` where no request
/// was answered that was sent after the move was made, at `moved` (nanoseconds since 1970).
fn longest(answers: &[ping::Answer], moved: u64) -> Option<f64> {
    // When a request was sent is the time of its answer less the round trip.
    let sent: Vec<f64> = answers.iter().map(|answer| answer.1 as f64 / 1e6 - answer.2).collect();
    let mut gaps: Vec<f64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let gap = gaps.last()? - median(&gaps);
    (*sent.last()? > moved as f64 / 1e6).then_some(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_what_is_missing_between_answers() {
        let at = |number: u64, at_ms: u64| (number, at_ms * MILLISECOND, 1.0);
        let moved = 1000 * MILLISECOND;
        let mut answers: Vec<ping::Answer> = (1..=100).map(|n| at(n, 10 * n)).collect();
        // Whatever came late was sent before.
        assert_eq!(longest(&answers, moved), None);
        answers.extend((106..=250).map(|n| at(n, 10 * n)));
        assert_eq!(longest(&answers, moved), Some(50.0));
        // A slow machine makes its move late: what was answered until then does not count.
        assert_eq!(longest(&answers, 2600 * MILLISECOND), None);
        // ping may be slower than it was told to be.
        let slow: Vec<ping::Answer> = (1..=150).map(|n| at(n, 17 * n)).collect();
        assert_eq!(longest(&slow, moved), Some(0.0));
        assert_eq!(longest(&[], moved), None);
    }
}
