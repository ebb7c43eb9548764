//! Formats the state of signatures for people.

use std::fmt::Write;

use carnet_api::model::Security;

use super::{ABSENT_VALUE, format_utc, state_in_words};

/// Formats the tickets, the waiting messages, the accepted messages, and the drop reasons.
pub(super) fn format_security(security: &Security) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<17} {value}");
    };
    let date = |seconds: u64| format_utc(seconds as f64).replace(".000Z", "Z");
    line("policy", state_in_words(&security.policy));
    match &security.ticket {
        Some(ticket) => {
            line("ticket", ticket.name.clone());
            line("  holds", format!("{} to {}", date(ticket.from), date(ticket.until)));
        }
        None => line("ticket", "none: nothing is signed".into()),
    }
    let until = security.tickets_until.map_or_else(|| ABSENT_VALUE.to_owned(), date);
    let (now, later) = (security.tickets_now, security.tickets_later);
    line("own tickets", format!("{now} now, {later} later, the last until {until}"));
    line("known", format!("{} issuers, {} tickets of others", security.issuers, security.signers));
    line("to be verified", format!("{} of {}", security.queued, security.queue));
    line("certificate lacks", format!("{} of {}", security.parked, security.parking));
    let (verifications, most) = (security.verifications, security.verifications_per_second);
    line("verifications", format!("{verifications}, at most {most} a second"));
    if let Some(ahead) = security.clock_ahead_ms {
        let direction = if ahead > 0 { "ahead of" } else { "behind" };
        line("clock", format!("{} s {direction} all signed neighbours'", ahead.unsigned_abs() / 1000));
    }
    line("signed", security.signed.to_string());
    line("received", security.received.to_string());
    line("  believed", format!("{} and {} copies", security.verified, security.copies));
    if security.plain > 0 {
        line("  in the open", security.plain.to_string());
    }
    for (reason, count) in &security.dropped {
        line("  dropped", format!("{count} {}", state_in_words(reason)));
    }
    out
}
