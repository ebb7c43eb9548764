//! TS 102 687: the tables of reactive control, the equations of adaptive control, the queues, and many
//! stations in one channel. The expected values are the standard's rates and shares, or those of a model
//! without gates.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::dcc::adaptive::LimericParameters;
use carnet_geonet::dcc::reactive::ReactiveTable;
use carnet_geonet::dcc::{
    BUSY_RATIO_INTERVAL, ControlAlgorithm, DccDrop, DccGate, DccProfile, GateConfig, GatePacket, air_time,
};
use carnet_wire::geonet::TrafficClass;

const ONE_HOUR: Duration = Duration::from_secs(3600);

fn time_at_ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

fn reactive_gate(table: ReactiveTable) -> DccGate<u32> {
    DccGate::new(GateConfig { control_algorithm: ControlAlgorithm::Reactive(table), ..GateConfig::default() })
}

fn adaptive_gate(parameters: LimericParameters) -> DccGate<u32> {
    DccGate::new(GateConfig {
        control_algorithm: ControlAlgorithm::Adaptive(parameters),
        ..GateConfig::default()
    })
}

fn gate_packet(profile: DccProfile, octets: usize, content: u32) -> GatePacket<u32> {
    GatePacket {
        profile,
        lifetime: ONE_HOUR,
        octets,
        replaces_waiting_packet: false,
        packet_content: content,
    }
}

/// Handles the gate's timers until `end`. Returns the packets that the gate released, with the times.
fn run_gate(gate: &mut DccGate<u32>, end: Time) -> Vec<(Time, u32)> {
    let mut sent = Vec::new();
    while let Some(now) = gate.poll_timeout().filter(|due| *due <= end) {
        gate.handle_timeout(now);
        sent.extend(std::iter::from_fn(|| gate.poll_packet(now)).map(|(_, content)| (now, content)));
    }
    sent
}

/// Runs a gate that always has packets to send and gets the busy ratio `ratio` at each evaluation. Returns
/// the times of the packets.
fn run_saturated_gate(gate: &mut DccGate<u32>, octets: usize, ratio: f64, end: Time) -> Vec<Time> {
    let mut sent = Vec::new();
    while let Some(now) = gate.poll_timeout().filter(|due| *due <= end) {
        gate.handle_busy_ratio(now, ratio);
        gate.handle_timeout(now);
        sent.extend(std::iter::from_fn(|| gate.poll_packet(now)).map(|_| now));
        while gate.queue_lengths()[2] == 0 {
            sent.extend(
                gate.transmit_or_hold_packet(now, gate_packet(DccProfile::Dp2, octets, 0)).map(|_| now),
            );
        }
    }
    sent
}

/// Returns the packets per second at a constant busy ratio, after the reactive controller has reached its
/// final state.
fn packets_per_second(table: ReactiveTable, octets: usize, ratio: f64) -> f64 {
    let sent = run_saturated_gate(&mut reactive_gate(table), octets, ratio, Time::from_secs(60));
    let settled: Vec<Time> = sent.into_iter().filter(|at| *at >= Time::from_secs(10)).collect();
    let span = settled[settled.len() - 1].saturating_since(settled[0]);
    (settled.len() - 1) as f64 / span.as_secs_f64()
}

#[test]
fn reactive_dcc_tables_a_1_and_a_2_give_rates_at_their_bounds() {
    /// Rows of a table: the upper bound of the busy ratio, and the rate in packets per second below it. The
    /// rate of the fourth row also holds at its bound.
    type RateTable = [(f64, f64); 5];
    const RATES_OF_TABLE_A1: RateTable = [(0.30, 10.0), (0.40, 5.0), (0.50, 2.5), (0.60, 2.0), (1.01, 1.0)];
    const RATES_OF_TABLE_A2: RateTable = [(0.30, 20.0), (0.40, 10.0), (0.50, 5.0), (0.65, 4.0), (1.01, 1.0)];
    for (table, rows, octets) in
        [(ReactiveTable::A1, RATES_OF_TABLE_A1, 600), (ReactiveTable::A2, RATES_OF_TABLE_A2, 280)]
    {
        let mut least = 0.0;
        for (row, (below, expected)) in rows.into_iter().enumerate() {
            let first = if row == 4 { least + 0.0001 } else { least };
            let last = if row == 3 { below } else { below - 0.0001 };
            for ratio in [first, f64::midpoint(least, below), last] {
                let found = packets_per_second(table, octets, ratio);
                assert!(
                    (found - expected).abs() < 0.01,
                    "{table:?} at {ratio}: {found} packets/s, not {expected}"
                );
            }
            least = below;
        }
    }
}

#[test]
fn reactive_dcc_changes_state_in_single_steps() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    let mut states = Vec::new();
    for look in 0..10u64 {
        let now = Time::ZERO + BUSY_RATIO_INTERVAL * u32::try_from(look).expect("small");
        gate.handle_busy_ratio(now, if look < 6 { 0.9 } else { 0.1 });
        gate.handle_timeout(now);
        states.push(gate.reactive_state_name().expect("reactive"));
    }
    let up = ["active_1", "active_2", "active_3", "restrictive", "restrictive", "restrictive"];
    let down = ["active_3", "active_2", "active_1", "relaxed"];
    assert_eq!(states, [up.as_slice(), down.as_slice()].concat());
}

#[test]
fn changed_reactive_state_changes_gate_at_once() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.handle_timeout(time_at_ms(0));
    assert_eq!(gate.transmit_or_hold_packet(time_at_ms(10), gate_packet(DccProfile::Dp2, 300, 1)), Some(1));
    assert_eq!(gate.gate_opens_at(), time_at_ms(110));
    gate.handle_busy_ratio(time_at_ms(100), 0.35);
    gate.handle_timeout(time_at_ms(100));
    assert_eq!(gate.gate_opens_at(), time_at_ms(210), "200 ms after the packet");
}

#[test]
fn long_airtime_closes_dcc_gate_for_longer() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    assert!(
        air_time(1400, 6) > Duration::from_micros(1000) && air_time(1400, 6) < Duration::from_micros(2000)
    );
    assert_eq!(gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp3, 1400, 1)), Some(1));
    assert_eq!(gate.gate_opens_at(), time_at_ms(200));
}

#[test]
fn airtime_follows_ofdm_on_10_mhz() {
    // 22 bits and 8 for each of 100 + 38 octets are 1126 bits: 24 symbols of 48 bits, after 40 us.
    assert_eq!(air_time(100, 6), Duration::from_micros(40 + 24 * 8));
    // At 3 Mbit/s: 47 symbols of 24 bits. At 27 Mbit/s: 6 symbols of 216 bits.
    assert_eq!(air_time(100, 3), Duration::from_micros(40 + 47 * 8));
    assert_eq!(air_time(100, 27), Duration::from_micros(40 + 6 * 8));
}

#[test]
fn dcc_uses_assumed_busy_ratio_without_reports() {
    let config = GateConfig { assumed_busy_ratio: 0.55, ..GateConfig::default() };
    let mut gate: DccGate<u32> = DccGate::new(config);
    run_gate(&mut gate, Time::from_secs(1));
    assert_eq!(
        (gate.reactive_state_name(), gate.busy_ratio_reading(Time::from_secs(1))),
        (Some("active_3"), None)
    );
    gate.handle_busy_ratio(Time::from_secs(1), 0.1);
    run_gate(&mut gate, Time::from_secs(2));
    assert_eq!(gate.reactive_state_name(), Some("relaxed"));
    // A reading of the busy ratio becomes stale after a second.
    run_gate(&mut gate, time_at_ms(2500));
    assert_eq!(gate.reactive_state_name(), Some("active_3"));
}

#[test]
fn gate_releases_one_packet_of_highest_priority_at_a_time() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.handle_timeout(time_at_ms(0));
    assert_eq!(gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp3, 300, 30)), Some(30));
    for (profile, content) in [
        (DccProfile::Dp3, 31),
        (DccProfile::Dp2, 20),
        (DccProfile::Dp1, 10),
        (DccProfile::Dp0, 1),
        (DccProfile::Dp1, 11),
    ] {
        assert_eq!(gate.transmit_or_hold_packet(time_at_ms(1), gate_packet(profile, 300, content)), None);
    }
    let sent = run_gate(&mut gate, Time::from_secs(1));
    let expected = [(100, 1), (200, 10), (300, 11), (400, 20), (500, 31)];
    assert_eq!(sent, expected.map(|(at, content)| (time_at_ms(at), content)));
    assert_eq!((gate.counters().sent_by_profile, gate.counters().held_packets), ([1, 2, 1, 2], 5));
}

#[test]
fn packet_does_not_overtake_waiting_packet_of_its_profile() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, 1));
    gate.transmit_or_hold_packet(time_at_ms(1), gate_packet(DccProfile::Dp2, 300, 2));
    // The gate is open, but `poll_packet` has not yet released the waiting packet, so the new packet must
    // wait.
    assert_eq!(gate.transmit_or_hold_packet(time_at_ms(150), gate_packet(DccProfile::Dp2, 300, 3)), None);
    assert_eq!(gate.poll_packet(time_at_ms(150)).map(|(_, content)| content), Some(2));
}

#[test]
fn full_queue_of_a_profile_drops_its_oldest_packet() {
    let config = GateConfig { queue_length: 3, ..GateConfig::default() };
    let mut gate: DccGate<u32> = DccGate::new(config);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, 0));
    for content in 1..=5 {
        gate.transmit_or_hold_packet(time_at_ms(1), gate_packet(DccProfile::Dp2, 300, content));
    }
    gate.transmit_or_hold_packet(time_at_ms(1), gate_packet(DccProfile::Dp3, 300, 9));
    assert_eq!((gate.queue_lengths(), gate.counters().dropped(DccDrop::QueueFull)), ([0, 0, 3, 1], 2));
    let sent: Vec<u32> =
        run_gate(&mut gate, Time::from_secs(1)).into_iter().map(|(_, content)| content).collect();
    assert_eq!(sent, [3, 4, 5, 9]);
}

#[test]
fn gate_drops_packet_after_its_lifetime() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, 0));
    let short = |content, lifetime| GatePacket {
        lifetime: Duration::from_millis(lifetime),
        ..gate_packet(DccProfile::Dp2, 300, content)
    };
    gate.transmit_or_hold_packet(time_at_ms(1), short(1, 50));
    gate.transmit_or_hold_packet(time_at_ms(1), short(2, 99));
    gate.transmit_or_hold_packet(time_at_ms(1), short(3, 100));
    assert_eq!(run_gate(&mut gate, Time::from_secs(1)), [(time_at_ms(100), 3)]);
    assert_eq!(gate.counters().dropped(DccDrop::LifetimeExpired), 2);
    // An expired packet leaves the queue first, so the gate drops no other packet.
    let mut gate: DccGate<u32> = DccGate::new(GateConfig { queue_length: 1, ..GateConfig::default() });
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, 0));
    gate.transmit_or_hold_packet(time_at_ms(1), short(1, 50));
    gate.transmit_or_hold_packet(time_at_ms(60), short(2, 100));
    let dropped = DccDrop::ALL.iter().filter(|reason| gate.counters().dropped(**reason) > 0);
    assert_eq!(dropped.collect::<Vec<_>>(), [&DccDrop::LifetimeExpired]);
    assert_eq!(gate.counters().dropped(DccDrop::LifetimeExpired), 1);
}

#[test]
fn dcc_profile_follows_traffic_class_and_forwarded_packets_come_last() {
    use DccProfile::{Dp0, Dp1, Dp2, Dp3};
    let of = |id, asked, own| {
        DccProfile::dcc_profile_of(TrafficClass { id, ..TrafficClass::default() }, asked, own)
    };
    assert_eq!([0, 1, 2, 3, 4, 63].map(|id| of(id, None, true)), [Dp3, Dp1, Dp2, Dp3, Dp3, Dp3]);
    assert_eq!([0, 1, 2, 3].map(|id| of(id, Some(Dp0), true)), [Dp0; 4]);
    assert_eq!([0, 1, 2, 3].map(|id| of(id, None, false)), [Dp3; 4]);
    assert_eq!(of(1, Some(Dp0), false), Dp3);
}

#[test]
fn dcc_gate_is_closed_for_at_most_a_second() {
    for table in [ReactiveTable::A1, ReactiveTable::A2] {
        let mut gate = reactive_gate(table);
        for look in 0..5 {
            gate.handle_busy_ratio(time_at_ms(100 * look), 1.0);
            gate.handle_timeout(time_at_ms(100 * look));
        }
        gate.transmit_or_hold_packet(time_at_ms(500), gate_packet(DccProfile::Dp3, 1400, 1));
        assert_eq!(gate.gate_opens_at(), time_at_ms(1500), "{table:?}");
    }
}

#[test]
fn stale_busy_ratio_does_not_open_the_gate() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    for look in 0..=20 {
        if look <= 5 {
            gate.handle_busy_ratio(time_at_ms(100 * look), 0.9);
        }
        gate.handle_timeout(time_at_ms(100 * look));
    }
    assert_eq!(
        (gate.reactive_state_name(), gate.busy_ratio_reading(time_at_ms(2000))),
        (Some("restrictive"), None)
    );
    assert_eq!((gate.busy_ratio(time_at_ms(2000)), gate.counters().stale_reports), (0.9, 1));
    // The reports of the busy ratio start again, and stop a second time.
    gate.handle_busy_ratio(time_at_ms(2050), 0.1);
    run_gate(&mut gate, time_at_ms(5000));
    assert_eq!((gate.reactive_state_name(), gate.counters().stale_reports), (Some("relaxed"), 2));
}

#[test]
fn newer_replacing_packet_removes_waiting_one() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, 0));
    for content in 1..=3 {
        gate.transmit_or_hold_packet(
            time_at_ms(1),
            GatePacket { replaces_waiting_packet: true, ..gate_packet(DccProfile::Dp2, 300, content) },
        );
        gate.transmit_or_hold_packet(time_at_ms(1), gate_packet(DccProfile::Dp2, 300, 10 * content));
    }
    assert_eq!((gate.backlog_octets(), gate.counters().dropped(DccDrop::Replaced)), (1200, 2));
    let sent: Vec<u32> =
        run_gate(&mut gate, Time::from_secs(1)).into_iter().map(|(_, content)| content).collect();
    assert_eq!(sent, [10, 20, 3, 30]);
}

#[test]
fn gate_counts_discarded_packets() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    for content in 0..5 {
        gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, 300, content));
    }
    gate.discard_waiting_packets(DccDrop::AddressChanged, |content| content % 2 == 0);
    gate.discard_waiting_packets(DccDrop::Reset, |_| true);
    let dropped = [DccDrop::AddressChanged, DccDrop::Reset].map(|reason| gate.counters().dropped(reason));
    assert_eq!((dropped, gate.queue_lengths()), ([2, 2], [0; 4]));
}

#[test]
fn dcc_interval_depends_on_last_packet_of_profile() {
    let mut gate = reactive_gate(ReactiveTable::A1);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp3, 1400, 1));
    assert_eq!(gate.min_interval_after(DccProfile::Dp2), Duration::from_millis(100));
    assert_eq!(gate.min_interval_after(DccProfile::Dp3), Duration::from_millis(200));
    let share =
        LimericParameters { max_duty_cycle: 0.01, min_duty_cycle: 0.01, ..LimericParameters::default() };
    let mut gate = adaptive_gate(share);
    gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, PACKET_OCTETS, 1));
    assert!((gate.min_interval_after(DccProfile::Dp2).as_secs_f64() - 0.12).abs() < 1e-6);
}

#[test]
fn gate_limits_invalid_dcc_parameters() {
    let default = LimericParameters::default();
    for impossible in [
        LimericParameters { min_duty_cycle: 0.0, max_duty_cycle: 0.0, ..default },
        LimericParameters { min_duty_cycle: 0.5, max_duty_cycle: 0.1, ..default },
        LimericParameters { min_duty_cycle: f64::NAN, max_duty_cycle: f64::NAN, ..default },
        LimericParameters { max_increase: -0.1, max_decrease: 0.1, ..default },
        LimericParameters { max_increase: f64::NAN, max_decrease: f64::NAN, ..default },
        LimericParameters { alpha: f64::NAN, beta: f64::INFINITY, target_busy_ratio: f64::NAN, ..default },
    ] {
        let mut gate = adaptive_gate(impossible);
        let sent = run_saturated_gate(&mut gate, 300, 0.9, Time::from_secs(5));
        assert!((4..=201).contains(&sent.len()), "{impossible:?}: {} packets", sent.len());
        assert!(impossible.equal_share(10) > 0.0, "{impossible:?}");
    }
}

/// Octets of a packet of 1200 us at 6 Mbit/s: 145 symbols.
const PACKET_OCTETS: usize = 829;

#[test]
fn adaptive_dcc_follows_equation_b_1() {
    assert_eq!(air_time(PACKET_OCTETS, 6), Duration::from_micros(1200));
    // The time between packets is time on air over duty cycle, at least 25 ms and at most a second.
    for (duty_cycle, expected) in [(0.02, 60), (0.03, 40), (0.06, 25), (0.0012, 1000), (0.0006, 1000)] {
        let mut gate = adaptive_gate(LimericParameters {
            max_duty_cycle: duty_cycle,
            min_duty_cycle: duty_cycle,
            ..LimericParameters::default()
        });
        gate.transmit_or_hold_packet(time_at_ms(0), gate_packet(DccProfile::Dp2, PACKET_OCTETS, 0));
        let closed = gate.gate_opens_at().saturating_since(time_at_ms(0)).as_secs_f64() * 1e3;
        assert!((closed - f64::from(expected)).abs() < 0.001, "at {duty_cycle}: {closed} ms, not {expected}");
    }
}

#[test]
fn adaptive_dcc_follows_equation_b_2() {
    // With beta 0 the duty cycle never grows: it halves at every second evaluation.
    let halving = LimericParameters {
        alpha: 0.5,
        beta: 0.0,
        max_duty_cycle: 0.04,
        min_duty_cycle: 0.0,
        ..LimericParameters::default()
    };
    let mut gate = adaptive_gate(halving);
    gate.handle_timeout(time_at_ms(0));
    gate.transmit_or_hold_packet(time_at_ms(60), gate_packet(DccProfile::Dp2, PACKET_OCTETS, 0));
    assert_eq!(gate.gate_opens_at(), time_at_ms(120));
    // At 100 ms a third of the closing time of 60 ms remains. The closing time becomes 120 ms, of which a
    // third is 40 ms, so the gate opens at 140 ms.
    gate.handle_timeout(time_at_ms(100));
    assert!(
        gate.gate_opens_at()
            .saturating_since(time_at_ms(140))
            .max(time_at_ms(140).saturating_since(gate.gate_opens_at()))
            < Duration::from_micros(1)
    );
    // A new evaluation of the busy ratio does not close an open gate.
    for look in 2..6 {
        gate.handle_timeout(time_at_ms(100 * look));
    }
    assert!(
        gate.gate_opens_at() < time_at_ms(200)
            && gate
                .transmit_or_hold_packet(time_at_ms(500), gate_packet(DccProfile::Dp2, PACKET_OCTETS, 1))
                .is_some()
    );
}

#[test]
fn adaptive_dcc_follows_steps_of_clause_5_4() {
    // Two readings of 0.8 have the mean 0.8, which is 0.12 above the target. The step of 0.0012 * 0.12 =
    // 0.000144 is within G-max.
    let mut gate = adaptive_gate(LimericParameters::default());
    let mut look = 0;
    let mut tell = |ratio: f64| {
        for _ in 0..2 {
            gate.handle_busy_ratio(time_at_ms(look), ratio);
            gate.handle_timeout(time_at_ms(look));
            look += 100;
        }
        gate.duty_cycle().expect("adaptive")
    };
    let first = 0.0153 * 0.984 - 0.000144;
    assert!((tell(0.8) - first).abs() < 1e-12);
    // After two readings of 0.4, the average is half of 0.8 and half of 0.4: 0.6.
    let second = first * 0.984 + 0.0012 * 0.08;
    assert!((tell(0.4) - second).abs() < 1e-12);
    // With a larger beta, a full channel lowers the duty cycle by at most G-max. An empty channel raises the
    // duty cycle by at most G+max.
    let bold = LimericParameters { alpha: 0.0, beta: 0.1, ..LimericParameters::default() };
    for (ratio, step) in [(1.0, -0.00025), (0.0, 0.0005)] {
        let mut gate = adaptive_gate(bold);
        for look in [0, 100] {
            gate.handle_busy_ratio(time_at_ms(look), ratio);
            gate.handle_timeout(time_at_ms(look));
        }
        assert!((gate.duty_cycle().expect("adaptive") - 0.0153 - step).abs() < 1e-12);
    }
}

/// Simulates stations in one channel that always have packets to send. Every 100 ms each station measures the
/// busy ratio. The `late` stations begin after 40 s. Returns the busy ratio of the last 20 s, and the share
/// of each station in this time.
fn simulate_channel(early: usize, late: usize) -> (f64, Vec<f64>) {
    const SIMULATED_SECONDS: u64 = 160;
    let mut gates: Vec<DccGate<u32>> = Vec::new();
    let mut ratio = 0.0;
    let mut shares = Vec::new();
    let on_air = air_time(350, 6).as_secs_f64();
    let mut measured = (0.0, 0u32);
    for window in 0..SIMULATED_SECONDS * 10 {
        let count = if window < 400 { early } else { early + late };
        gates.resize_with(count, || adaptive_gate(LimericParameters::default()));
        shares.resize(count, 0.0);
        let (from, to) = (time_at_ms(window * 100), time_at_ms(window * 100 + 99));
        let mut busy = 0.0;
        for (index, gate) in gates.iter_mut().enumerate() {
            gate.handle_busy_ratio(from, ratio);
            // Shift the stations' evaluation times, so that no two stations evaluate at the same time.
            let begin = time_at_ms(window * 100 + (index as u64 * 7) % 100);
            let mut sent = 0;
            while gate.queue_lengths()[2] == 0 {
                sent += usize::from(
                    gate.transmit_or_hold_packet(begin, gate_packet(DccProfile::Dp2, 350, 0)).is_some(),
                );
            }
            while let Some(now) = gate.poll_timeout().filter(|due| *due <= to) {
                gate.handle_timeout(now);
                while gate.poll_packet(now).is_some() {
                    sent += 1;
                    gate.transmit_or_hold_packet(now, gate_packet(DccProfile::Dp2, 350, 0));
                }
            }
            busy += sent as f64 * on_air;
            if window >= (SIMULATED_SECONDS - 20) * 10 {
                shares[index] += sent as f64 * on_air / 20.0;
            }
        }
        ratio = busy / 0.1;
        if window >= (SIMULATED_SECONDS - 20) * 10 {
            measured = (measured.0 + ratio, measured.1 + 1);
        }
    }
    (measured.0 / f64::from(measured.1), shares)
}

#[test]
fn stations_of_one_channel_converge_to_the_same_share_below_the_target() {
    for (early, late) in [(30, 0), (60, 60), (20, 180)] {
        let (ratio, shares) = simulate_channel(early, late);
        let stations = f64::from(u32::try_from(early + late).expect("small"));
        // The share is the fixed point of 0.984 d + 0.0012 (0.68 - N d) = d.
        let share = 0.0012 * 0.68 / (0.016 + 0.0012 * stations);
        let expected = stations * share;
        assert!((ratio / expected - 1.0).abs() < 0.03, "{stations} stations: {ratio}, not {expected}");
        assert!(ratio < 0.68, "{stations} stations: {ratio} is above the target");
        // Jain's fairness index: 1 if all stations have the same share of the channel.
        let (sum, squares) =
            shares.iter().fold((0.0, 0.0), |(sum, squares), it| (sum + it, squares + it * it));
        let fairness = sum * sum / (stations * squares);
        assert!(fairness > 0.999, "{stations} stations: fairness {fairness}");
        assert!((LimericParameters::default().equal_share((early + late) as u32) / share - 1.0).abs() < 1e-9);
    }
}
