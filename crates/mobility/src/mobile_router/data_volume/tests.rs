//! Tests of periods, counters, and wrong clocks that are corrected.

use carnet_base::{Rng, Seed};

use super::*;

const HOUR_S: u64 = 3600;
const MONTH: VolumePeriod = VolumePeriod::Month { first_day: 1 };

/// Returns noon of a day since 1970-01-01.
const fn noon_of_day(day: u64) -> i64 {
    (day * DAY_S + DAY_S / 2).cast_signed()
}

fn octets(epoch: u64, total: u64) -> InterfaceOctets {
    InterfaceOctets { epoch, total, received: 0 }
}

/// A simulated machine: its clocks and its counters.
struct SimulatedDevice {
    volume: StoredVolume,
    kind: VolumePeriod,
    epoch: u64,
    total: u64,
    /// Monotonic time in seconds.
    now_s: u64,
    /// Time of day in seconds since 1970.
    wall_s: u64,
}

impl SimulatedDevice {
    fn new(wall_s: u64, kind: VolumePeriod) -> SimulatedDevice {
        let volume = StoredVolume::new(octets(1, 0));
        SimulatedDevice { volume, kind, epoch: 1, total: 0, now_s: 10, wall_s }
    }

    fn count_octets(&mut self, more: u64) -> bool {
        self.total += more;
        let (now, wall) =
            (Time::from_secs(self.now_s), WallTime::from_unix_nanos(self.wall_s * 1_000_000_000));
        self.volume.count_octets(now, wall, octets(self.epoch, self.total), self.kind)
    }

    fn wait_seconds(&mut self, seconds: u64) {
        self.now_s += seconds;
        self.wall_s += seconds;
    }

    /// Restarts the program with its state file.
    fn restart_program(&mut self) {
        let text = serde_json::to_string(&self.volume).expect("JSON");
        let volume = serde_json::from_str(&text).expect("what was written");
        self.volume = StoredVolume { restored: true, ..volume };
    }

    /// Restarts the machine with this clock.
    fn restart_device(&mut self, wall_s: u64) {
        self.restart_program();
        (self.epoch, self.total, self.now_s, self.wall_s) = (self.epoch + 1, 0, 10, wall_s);
    }
}

#[test]
fn volume_months_follow_the_calendar() {
    // Days since 1970-01-01 of 2024-02-29, 2024-03-01, 2024-12-31, 2025-01-01 and 2100-02-28, 2100-03-01.
    let expected = [
        (19_782, 2024 * 12 + 1),
        (19_783, 2024 * 12 + 2),
        (20_088, 2024 * 12 + 11),
        (20_089, 2025 * 12),
        (47_540, 2100 * 12 + 1),
        (47_541, 2100 * 12 + 2),
    ];
    for (days, number) in expected {
        assert_eq!(MONTH.period_number(noon_of_day(days)), Some(number), "day {days}");
    }
    assert_eq!(MONTH.period_number(noon_of_day(30)), None);
    assert_eq!(MONTH.period_number(-1), None);
}

/// A month may begin on any day. A month without that day begins on its last day.
#[test]
fn months_begin_on_the_billing_day() {
    let month = |first_day, days| {
        VolumePeriod::Month { first_day }.period_number(noon_of_day(days)).expect("a month")
    };
    // The days are 2024-02-16 and 2024-02-17.
    assert_eq!([19_769, 19_770].map(|day| month(17, day)), [2024 * 12, 2024 * 12 + 1]);
    // These days are the last two of February, March and April 2024. February has 29 days and April 30.
    let days = [19_781, 19_782, 19_812, 19_813, 19_842, 19_843];
    assert_eq!(days.map(|day| month(31, day) - 2024 * 12), [0, 1, 1, 2, 2, 3]);
    // The days are 2023-02-27, 2023-02-28 and 2100-02-28. The years 2023 and 2100 are no leap years.
    assert_eq!([19_415, 19_416].map(|day| month(30, day) - 2023 * 12), [0, 1]);
    assert_eq!(month(29, 47_540) - 2100 * 12, 1);
    // Day 11,015 is 2000-02-28. The period of a time before 2020 is unknown.
    assert_eq!(VolumePeriod::Month { first_day: 29 }.period_number(noon_of_day(11_015)), None);
    // In four years the number grows by one on each day on which a period begins, and on no other day.
    for first_day in 1..=31 {
        let mut last = month(first_day, 19_723);
        for day in 19_724..19_723 + 1461 {
            let (number, date) = (month(first_day, day), CalendarDate::of_unix_day(day));
            let begins = date.day_of_month == u64::from(first_day).min(date.last_day_of_month);
            assert_eq!(number, last + u32::from(begins), "day {day} from {first_day}");
            last = number;
        }
    }
}

#[test]
fn weeks_begin_on_monday() {
    // 2024-02-25 was a Sunday.
    let [sunday, monday, next] =
        [19_778, 19_779, 19_785].map(|day| VolumePeriod::Week.period_number(noon_of_day(day)));
    assert_eq!(monday.zip(sunday).map(|(a, b)| a - b), Some(1));
    assert_eq!(monday, next);
    assert_eq!(VolumePeriod::Day.period_number(noon_of_day(19_778)), Some(19_778));
}

#[test]
fn used_volume_is_the_growth_of_interface_counters() {
    let mut machine = SimulatedDevice::new(20_000 * DAY_S, MONTH);
    machine.total = 500;
    machine.volume = StoredVolume::new(octets(1, 500));
    machine.count_octets(0);
    assert_eq!(machine.volume.used, 0);
    machine.count_octets(200);
    assert_eq!(machine.volume.used, 200);
    // The name now belongs to another interface, whose counter restarts at 0.
    (machine.epoch, machine.total) = (2, 0);
    machine.count_octets(900);
    assert_eq!(machine.volume.used, 1100);
    // The counter restarts at 0 without a new epoch.
    machine.total = 0;
    machine.count_octets(50);
    assert_eq!(machine.volume.used, 1150);
    machine.total = 0;
    machine.count_octets(u64::MAX);
    (machine.epoch, machine.total) = (3, 0);
    machine.count_octets(u64::MAX);
    assert_eq!(machine.volume.used, u64::MAX);
}

#[test]
fn new_volume_period_begins_with_zero_used_octets() {
    let mut machine = SimulatedDevice::new(noon_of_day(20_000).cast_unsigned(), VolumePeriod::Day);
    assert!(machine.count_octets(100));
    machine.wait_seconds(11 * HOUR_S);
    assert!(!machine.count_octets(50));
    assert_eq!(machine.volume.used, 150);
    machine.wait_seconds(2 * HOUR_S);
    assert!(machine.count_octets(10));
    assert_eq!(machine.volume.used, 10);
    // The machine is switched off for two days.
    machine.restart_device(noon_of_day(20_003).cast_unsigned());
    assert!(machine.count_octets(7));
    assert_eq!((machine.volume.used, machine.volume.period), (7, 20_003));
}

/// A vehicle without a battery-backed clock starts with the date of its image or of its last stop; the clock
/// is set later.
#[test]
fn used_volume_survives_a_restart_with_the_clock_in_another_month() {
    // The right date is 2024-02-15; 2024-01-10 and 2026-06-01 are wrong.
    let right = noon_of_day(19_768).cast_unsigned();
    for wrong in [noon_of_day(19_732).cast_unsigned(), noon_of_day(20_605).cast_unsigned(), 12 * HOUR_S] {
        let mut machine = SimulatedDevice::new(right, MONTH);
        machine.count_octets(657_800);
        machine.restart_device(wrong);
        machine.count_octets(7_000);
        machine.wait_seconds(30);
        machine.count_octets(100);
        // The program restarts in the meantime.
        machine.restart_program();
        machine.count_octets(100);
        machine.wall_s = right + HOUR_S;
        machine.count_octets(1_000);
        assert_eq!(machine.volume.used, 666_000, "the clock was at {wrong}");
        // The next start keeps the corrected period.
        machine.restart_device(right + 2 * HOUR_S);
        machine.count_octets(1);
        assert_eq!(machine.volume.used, 666_001, "the clock was at {wrong}");
    }
}

/// A clock that is behind must not reopen an earlier period, which would have volume left.
#[test]
fn clock_that_is_behind_starts_no_new_volume_period() {
    let mut machine = SimulatedDevice::new(noon_of_day(19_768).cast_unsigned(), MONTH);
    machine.count_octets(900);
    machine.restart_device(noon_of_day(19_732).cast_unsigned());
    machine.count_octets(50);
    assert_eq!(machine.volume.used, 950);
    // The clock is right but behind the former date, which was years ahead. carnet believes the right date
    // after a day.
    machine.wait_seconds(DAY_S + 20);
    assert!(machine.count_octets(1));
    assert_eq!(machine.volume.used, 51);
}

/// A faulty receiver sets the clock to another year and back.
#[test]
fn volume_counts_every_octet_while_the_clock_jumps_and_returns() {
    let mut machine = SimulatedDevice::new(noon_of_day(19_768).cast_unsigned(), MONTH);
    for _ in 0..10 {
        machine.count_octets(100);
        machine.wait_seconds(HOUR_S);
    }
    machine.wall_s -= 19 * 365 * DAY_S;
    machine.count_octets(10);
    machine.wait_seconds(60);
    machine.restart_program();
    machine.count_octets(10);
    machine.wall_s += 19 * 365 * DAY_S;
    machine.count_octets(1);
    assert_eq!(machine.volume.used, 1021);
}

/// The counts continue from the state of an earlier version, and after a change of the kind of period.
#[test]
fn changed_period_kind_keeps_used_volume() {
    let text = r#"{"period": 24289, "used": 5000, "octets": {"epoch": 1, "total": 70, "received": 30}}"#;
    let volume: StoredVolume = serde_json::from_str(text).expect("of an earlier version");
    let mut machine = SimulatedDevice::new(noon_of_day(19_768).cast_unsigned(), MONTH);
    machine.volume = StoredVolume { restored: true, ..volume };
    machine.total = 70;
    machine.count_octets(30);
    assert_eq!((machine.volume.period, machine.volume.used), (24_289, 5030));
    machine.kind = VolumePeriod::Month { first_day: 17 };
    machine.count_octets(1);
    assert_eq!(machine.volume.used, 5031);
    machine.restart_device(noon_of_day(19_768).cast_unsigned() + HOUR_S);
    machine.kind = VolumePeriod::Week;
    machine.count_octets(1);
    assert_eq!(machine.volume.used, 5032);
}

/// During a long run the oldest days are combined, so that the state stays small.
#[test]
fn volume_state_stays_small_during_a_long_run() {
    let mut machine = SimulatedDevice::new(noon_of_day(19_768).cast_unsigned(), VolumePeriod::Week);
    for _ in 0..400 {
        machine.count_octets(1);
        machine.wait_seconds(DAY_S);
    }
    assert!(
        machine.volume.pieces.len() <= MAX_DAY_COUNTS && machine.volume.settled.len() <= MAX_SETTLED_PERIODS
    );
    assert!((1..=7).contains(&machine.volume.used), "{}", machine.volume.used);
    assert!(serde_json::to_string(&machine.volume).expect("JSON").len() < 3000);
}

/// Random sequences of wrong and corrected clocks, restarts of the program, and starts of the machine. The
/// present period must contain exactly the octets that were counted in it. If the clock was wrong, its ends
/// may be wrong by up to a day.
#[test]
fn volume_is_exact_after_random_clock_errors_and_restarts() {
    for seed in 0..2000_u64 {
        let mut rng = Rng::from_seed(Seed::Number(seed));
        let below = |rng: &mut Rng, end: u64| rng.random_u64() % end;
        let kinds = [MONTH, VolumePeriod::Week, VolumePeriod::Day, VolumePeriod::Month { first_day: 17 }];
        let kind = kinds[below(&mut rng, 4) as usize];
        let mut truth = (19_768 + below(&mut rng, 400)) * DAY_S;
        let mut machine = SimulatedDevice::new(truth, kind);
        // Octets that were counted, each number with its true date; the octets since the present start of the
        // machine are last.
        let mut counted: Vec<(u64, u64)> = Vec::new();
        let mut start = 0;
        let (mut always_right, mut unknown) = (true, false);
        machine.count_octets(0);
        for _ in 0..below(&mut rng, 60) {
            match below(&mut rng, 12) {
                0..=6 => {
                    let steps = below(&mut rng, 30);
                    // After a day without a change of the clock, carnet believes even a date that it has
                    // doubted.
                    let left = (20 * HOUR_S).saturating_sub(machine.now_s) / HOUR_S;
                    for _ in 0..if unknown { steps.min(left) } else { steps } {
                        machine.wait_seconds(HOUR_S);
                        truth += HOUR_S;
                        let more = below(&mut rng, 1000);
                        machine.count_octets(more);
                        counted.push((truth, more));
                    }
                }
                7 => machine.restart_program(),
                8 => {
                    machine.wall_s = truth;
                    unknown = false;
                    machine.count_octets(0);
                }
                9 => {
                    // The clock is set to a wrong time, by minutes to years.
                    let by = 120 << below(&mut rng, 22);
                    machine.wall_s = if rng.random_u64().is_multiple_of(2) {
                        truth + by
                    } else {
                        truth.saturating_sub(by)
                    };
                    machine.count_octets(0);
                    (always_right, unknown) = (false, false);
                }
                kind_of_start => {
                    let right = machine.wall_s == truth;
                    if !right && !unknown {
                        machine.wall_s = truth;
                        machine.count_octets(0);
                    }
                    truth += below(&mut rng, 3 * DAY_S) + 120;
                    if unknown {
                        // Octets that were counted at a date that carnet did not believe get the date of the
                        // next start.
                        counted[start..].iter_mut().for_each(|(at, _)| *at = truth);
                    } else {
                        start = counted.len();
                    }
                    unknown = kind_of_start == 11;
                    if unknown {
                        always_right = false;
                        let behind = [0, 19_000 * DAY_S, truth - 40 * DAY_S];
                        machine.restart_device(
                            behind[below(&mut rng, 3) as usize].min(machine.wall_s.saturating_sub(2 * DAY_S)),
                        );
                    } else {
                        machine.restart_device(truth);
                    }
                    machine.count_octets(0);
                }
            }
        }
        machine.wall_s = truth;
        machine.count_octets(0);
        let current = kind.period_number(truth.cast_signed());
        let sum = |slack: i64| -> u64 {
            let inside = |at: &u64| kind.period_number(at.cast_signed() + slack) == current;
            counted.iter().filter(|(at, _)| inside(at)).map(|(_, more)| more).sum()
        };
        let used = machine.volume.used;
        if always_right {
            assert_eq!(used, sum(0), "seed {seed}, {kind:?}");
            continue;
        }
        // One count covers at most a day, and belongs to the period of its first octet.
        let since = |slack: i64| -> u64 {
            let begins = |at: &u64| {
                let at = at.cast_signed() + slack;
                kind.period_number(at).is_some_and(|it| Some(it) >= current)
            };
            counted.iter().filter(|(at, _)| begins(at)).map(|(_, more)| more).sum()
        };
        let day = DAY_S.cast_signed();
        assert!(
            (since(-day)..=since(day)).contains(&used),
            "seed {seed}, {kind:?}: {used} is not from {} to {}",
            since(-day),
            since(day)
        );
    }
}
