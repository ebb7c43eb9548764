//! Congestion control, for operators and for whoever measures the channel.

use carnet_api::model::{ChannelRequest, Dcc};
use carnet_base::Time;
use carnet_station::Station;
use carnet_station::io::Input;

/// `GET /v1/dcc`
///
/// # Errors
/// When there is none.
pub fn dcc(now: Time, station: &Station) -> Result<Dcc, String> {
    let gate = station
        .congestion()
        .ok_or("this station has no congestion control: there is no [geonet.dcc] in its config")?;
    let reading = gate.reading(now);
    let state = gate.state();
    Ok(Dcc {
        algorithm: if state.is_some() { "reactive" } else { "adaptive" }.to_owned(),
        busy_percent: 100.0 * reading.map_or(gate.config().assumed, |(_, ratio)| ratio),
        told_ms: reading
            .map(|(at, _)| u64::try_from(now.saturating_since(at).as_millis()).unwrap_or(u64::MAX)),
        state: state.map(str::to_owned),
        duty_cycle_percent: gate.duty_cycle().map(|share| 100.0 * share),
        closed_ms: 1e3 * gate.opens().saturating_since(now).as_secs_f64(),
        waiting: gate.waiting().map(|count| count as u64).to_vec(),
    })
}

/// `POST /v1/channel`
///
/// # Errors
/// When a channel cannot be that busy.
pub fn channel_busy(channel: &ChannelRequest) -> Result<Input, String> {
    let busy = channel.busy_percent;
    if !(0.0..=100.0).contains(&busy) {
        return Err(format!("busy_percent is {busy}, expected 0 to 100"));
    }
    Ok(Input::ChannelBusy((10.0 * busy).round() as u16))
}
