//! Parses dates in gpsd's format (ISO 8601 in UTC).

use carnet_base::WallTime;

/// Parses a date like `2026-11-21T12:00:00.250Z`. A leap second (`23:59:60`) equals the second after it, as
/// in the system clock. Returns `None` for other texts and for dates before 1970.
pub(super) fn parse(text: &str) -> Option<WallTime> {
    let octets = text.as_bytes();
    let number = |from: usize, length: usize| -> Option<u64> {
        let digits = octets.get(from..from + length)?;
        digits.iter().try_fold(0u64, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + u64::from(digit - b'0'))
        })
    };
    for (at, expected) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if octets.get(at) != Some(&expected) {
            return None;
        }
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let nanos = match octets.get(19..)?.strip_suffix(b"Z")? {
        [] => 0,
        [b'.', fraction @ ..] if (1..=9).contains(&fraction.len()) => {
            number(20, fraction.len())? * 10u64.pow(9 - fraction.len() as u32)
        }
        _ => return None,
    };
    // The year is at most 2500, because nanoseconds of much later years exceed 64 bits.
    if !(1970..=2500).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days_since_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(WallTime::from_unix_nanos(seconds * 1_000_000_000 + nanos))
}

/// Returns the number of days from 1970-01-01 to a day of the Gregorian calendar. It counts years from March
/// on, so that the leap day is the last day of a year.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let of_years = year * 365 + year / 4 - year / 100 + year / 400;
    // Beginning with March, the months have 31 30 31 30 31, 31 30 31 30 31, 31 days.
    let of_months = (153 * month + 2) / 5;
    of_years + of_months + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix_seconds(text: &str) -> Option<u64> {
        parse(text).map(|time| time.as_unix_nanos() / 1_000_000_000)
    }

    /// The expected values come from `date -u +%s`.
    #[test]
    fn dates_become_unix_times() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1999-12-31T23:59:59Z", 946_684_799),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2000-03-01T00:00:00.000Z", 951_868_800),
            ("2004-01-01T00:00:00Z", 1_072_915_200),
            ("2016-12-31T23:59:60.000Z", 1_483_228_800),
            ("2026-11-21T12:00:00Z", 1_795_262_400),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(unix_seconds(text), Some(expected), "{text}");
        }
        let time = parse("2005-06-08T10:34:48.283Z").expect("date");
        assert_eq!(time.as_unix_nanos(), 1_118_226_888_283_000_000);
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "2026-11-21T12:00:00+00",
            "2026-13-21T12:00:00Z",
            "2026-00-21T12:00:00Z",
            "2026-11-32T12:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:60:00Z",
            "2026-11-21T12:00:61Z",
            "2026-11-21T12:00:00.Z",
            "2026-11-21T12:00:00.1234567890Z",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59Z",
            "2026-11-21T12:00:0\u{e9}Z",
            "+026-11-21T12:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
