//! Metrics of traffic over GeoNetworking.

use std::collections::BTreeMap;
use std::ops::Range;

use super::add_percentiles;
use crate::traffic::geonet::{BroadcastResult, BroadcastResults, GnPings, PingRequest};

/// Adds the metrics of a ping over GeoNetworking, from the requests that were sent in a window.
pub(super) fn add_ping_metrics(m: &mut BTreeMap<String, f64>, seen: &GnPings, window: &Range<u64>) {
    let name = &seen.name;
    let inside: Vec<&PingRequest> = seen.requests.iter().filter(|r| window.contains(&r.0)).collect();
    let answers: Vec<(f64, u64)> = inside.iter().flat_map(|r| r.1.iter().copied()).collect();
    let lost = inside.iter().filter(|r| r.1.is_empty()).count();
    m.insert(format!("{name}.sent"), inside.len() as f64);
    if !inside.is_empty() {
        m.insert(format!("{name}.lost"), lost as f64);
        m.insert(format!("{name}.answers"), answers.len() as f64);
        m.insert(format!("{name}.answered_percent"), 100.0 - 100.0 * lost as f64 / inside.len() as f64);
    }
    let mut rtts: Vec<f64> = answers.iter().map(|a| a.0).collect();
    rtts.sort_by(f64::total_cmp);
    add_percentiles(m, &format!("{name}.ms"), &rtts);
    let mut hops: Vec<f64> = answers.iter().map(|a| a.1 as f64).collect();
    hops.sort_by(f64::total_cmp);
    add_percentiles(m, &format!("{name}.hops"), &hops);
    if let Some(least) = hops.first() {
        m.insert(format!("{name}.hops.min"), *least);
    }
}

/// Adds the metrics of a broadcast over GeoNetworking, from the packets that were sent in a window.
pub(super) fn add_broadcast_metrics(
    m: &mut BTreeMap<String, f64>,
    seen: &BroadcastResults,
    window: &Range<u64>,
) {
    let name = &seen.name;
    let floods: Vec<&BroadcastResult> =
        seen.broadcasts.iter().filter(|f| window.contains(&f.sent_at)).collect();
    let sum = |value: fn(&BroadcastResult) -> u64| floods.iter().map(|f| value(f)).sum::<u64>() as f64;
    let (inside, received) = (sum(|f| f.receivers_inside), sum(|f| f.received_inside));
    let outside = sum(|f| f.received_outside);
    m.insert(format!("{name}.sent"), floods.len() as f64);
    if floods.is_empty() {
        return;
    }
    m.insert(format!("{name}.unsent"), sum(|f| u64::from(f.is_refused)));
    m.insert(format!("{name}.inside"), inside);
    m.insert(format!("{name}.received"), received);
    if inside > 0.0 {
        m.insert(format!("{name}.missed"), inside - received);
        m.insert(format!("{name}.delivered_percent"), 100.0 * received / inside);
    }
    if received + outside > 0.0 {
        m.insert(format!("{name}.duplicated"), sum(|f| f.duplicates));
        m.insert(format!("{name}.outside"), outside);
    }
    // Leave out a packet if no node was inside its destination circle, unless the station refused to send it.
    let judged: Vec<&&BroadcastResult> =
        floods.iter().filter(|f| f.receivers_inside > 0 || f.is_refused).collect();
    if !judged.is_empty() {
        let complete =
            judged.iter().filter(|f| !f.is_refused && f.received_inside == f.receivers_inside).count();
        m.insert(format!("{name}.complete_percent"), 100.0 * complete as f64 / judged.len() as f64);
    }
    m.insert(format!("{name}.unicast.mean"), sum(|f| f.unicast) / floods.len() as f64);
    m.insert(format!("{name}.senders.mean"), sum(|f| f.senders) / floods.len() as f64);
    m.insert(format!("{name}.transmissions.mean"), sum(|f| f.transmissions) / floods.len() as f64);
    let mut transmissions: Vec<f64> = floods.iter().map(|f| f.transmissions as f64).collect();
    transmissions.sort_by(f64::total_cmp);
    add_percentiles(m, &format!("{name}.transmissions"), &transmissions);
    let mut delays: Vec<f64> = floods.iter().flat_map(|f| f.delays_ms.iter().copied()).collect();
    delays.sort_by(f64::total_cmp);
    add_percentiles(m, &format!("{name}.ms"), &delays);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{MILLISECOND, SECOND};

    #[test]
    fn answers_of_a_ping_are_summed() {
        let requests = vec![(6 * MILLISECOND, vec![(4.0, 2), (6.0, 3)]), (100 * MILLISECOND, vec![])];
        let seen = GnPings { name: "p".into(), label: String::new(), requests };
        let mut m = BTreeMap::new();
        add_ping_metrics(&mut m, &seen, &(0..SECOND));
        assert_eq!(
            (m["p.sent"], m["p.lost"], m["p.answers"], m["p.answered_percent"]),
            (2.0, 1.0, 2.0, 50.0)
        );
        assert_eq!((m["p.ms.p50"], m["p.hops.min"], m["p.hops.max"]), (4.0, 2.0, 3.0));
    }

    #[test]
    fn refused_packets_are_lost() {
        let lost = BroadcastResult {
            sent_at: 2,
            receivers_inside: 3,
            is_refused: true,
            ..BroadcastResult::default()
        };
        let nowhere = BroadcastResult { sent_at: 3, is_refused: true, ..BroadcastResult::default() };
        let for_nobody = BroadcastResult { sent_at: 4, ..BroadcastResult::default() };
        let good = BroadcastResult {
            sent_at: 1,
            receivers_inside: 3,
            received_inside: 3,
            ..BroadcastResult::default()
        };
        let of = |floods: &[&BroadcastResult]| {
            let floods = floods.iter().map(|f| (*f).clone()).collect();
            let mut m = BTreeMap::new();
            let seen =
                BroadcastResults { name: "b".into(), broadcasts: floods, ..BroadcastResults::default() };
            add_broadcast_metrics(&mut m, &seen, &(0..10));
            m
        };
        let m = of(&[&good, &lost, &nowhere, &for_nobody]);
        assert_eq!((m["b.sent"], m["b.unsent"], m["b.missed"]), (4.0, 2.0, 3.0));
        assert_eq!((m["b.delivered_percent"], m["b.complete_percent"].round()), (50.0, 33.0));
        let silent = of(&[&for_nobody]);
        for name in ["missed", "delivered_percent", "complete_percent", "duplicated", "outside"] {
            assert!(!silent.contains_key(&format!("b.{name}")), "{name}");
        }
    }

    #[test]
    fn broadcasts_are_summed() {
        let flood = |at: u64, received: u64, transmissions: u64| BroadcastResult {
            sent_at: at,
            receivers_inside: 10,
            received_inside: received,
            transmissions,
            delays_ms: vec![received as f64],
            ..BroadcastResult::default()
        };
        let floods = vec![flood(1, 10, 3), flood(2, 8, 6), flood(99, 0, 50)];
        let seen = BroadcastResults { name: "b".into(), broadcasts: floods, ..BroadcastResults::default() };
        let mut m = BTreeMap::new();
        add_broadcast_metrics(&mut m, &seen, &(0..10));
        assert_eq!(
            (m["b.sent"], m["b.inside"], m["b.missed"], m["b.delivered_percent"]),
            (2.0, 20.0, 2.0, 90.0)
        );
        assert_eq!((m["b.complete_percent"], m["b.transmissions.mean"]), (50.0, 4.5));
        assert_eq!((m["b.transmissions.max"], m["b.ms.max"]), (6.0, 10.0));
    }
}
