//! `[security.pseudonyms]`: accepted configs, and refused ones.

use super::geonet::{SMALL_GEONET_CONFIG, refusals_of_lines};
use super::{Duration, Pseudonyms, parse};

const SECURITY_CONFIG: &str =
    "[security]\nroots = ['root.cert']\ntickets = 'tickets'\n[security.pseudonyms]\n";

fn pseudonyms_with(keys: &str) -> Option<Pseudonyms> {
    let text = format!("{SMALL_GEONET_CONFIG}address = 'anonymous'\n{SECURITY_CONFIG}{keys}");
    parse(&text).security.expect("a [security]").pseudonyms
}

#[test]
fn config_reads_keys_of_pseudonym_changes() {
    let seconds = Duration::from_secs;
    let usual = Pseudonyms {
        first_change_distance_range_m: (800, 1500),
        min_change_distance_m: 800,
        time: (seconds(120), seconds(360)),
        max_change_delay: seconds(255),
    };
    assert_eq!(pseudonyms_with(""), Some(usual));
    let keys = "min_first_distance = '1m'\nmax_first_distance = '1m'\ndistance = '2km'\nmin_time = '0s'\n\
                max_time = '1h'\nlongest_lock = '0s'\n";
    let other = Pseudonyms {
        first_change_distance_range_m: (1, 1),
        min_change_distance_m: 2000,
        time: (seconds(0), seconds(3600)),
        max_change_delay: seconds(0),
    };
    assert_eq!(pseudonyms_with(keys), Some(other));
    assert_eq!(
        parse(&format!("{SMALL_GEONET_CONFIG}[security]\nroots = ['root.cert']\n"))
            .security
            .expect("one")
            .pseudonyms,
        None
    );
}

#[test]
fn settings_that_reveal_a_pseudonym_are_refused() {
    let anonymous = "address = 'anonymous'\n";
    for (lines, expected) in [
        (SECURITY_CONFIG.to_owned(), "expected `geonet.address` = \"anonymous\""),
        (
            format!("{anonymous}[facilities]\nstation_id = 7\n{SECURITY_CONFIG}"),
            "expected no `facilities.station_id`",
        ),
        (
            format!("{anonymous}{}", SECURITY_CONFIG.replace("tickets = 'tickets'\n", "")),
            "expected `security.tickets`",
        ),
        (format!("{anonymous}{SECURITY_CONFIG}min_time = '7m'\n"), "min_time is above max_time"),
        (
            format!("{anonymous}{SECURITY_CONFIG}max_first_distance = '7m'\n"),
            "min_first_distance is above max_first_distance",
        ),
        (format!("{anonymous}{SECURITY_CONFIG}distance = '7'\n"), "\"7\" is no length"),
    ] {
        let errors = refusals_of_lines(&lines);
        assert!(matches!(&errors[..], [error] if error.contains(expected)), "{lines}: {errors:?}");
    }
}
