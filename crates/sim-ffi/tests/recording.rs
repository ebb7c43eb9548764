//! Records a run through the C interface. Checks that the recording, replayed without the simulator, gives
//! the same outputs.

use std::fs;

use carnet_api::config::Config;
use carnet_base::{Time, WallTime};
use carnet_geonet::{BROADCAST, ReceivedFrame};
use carnet_settings::recording::RecordedInputs;
use carnet_sim::station::{InputRefusal, SimulatedStation, SimulationOptions};
use carnet_station::io::{GeonetOutput, GeonetRequest, GeonetTransport, Input, Output, Position};

const CONFIG: &str = "[station]\nname = 'node'\n[geonet]\ninterface = 'radio'\nposition = \
                      'gpsd://localhost'\nbeacon = { interval = '1s' }\n";

fn position_input(timestamp: u32, longitude: i32) -> Input {
    Input::Position(Position {
        timestamp,
        latitude: 488_375_000,
        longitude,
        accurate: true,
        speed: 1000,
        heading: 900,
    })
}

#[test]
fn recorded_simulation_replays_equally() {
    let path = std::env::temp_dir().join(format!("carnet-sim-recording-{}.jsonl", std::process::id()));
    let mut outputs: Vec<Output> = Vec::new();
    let mut frames = 0;
    {
        let station = |mid: u64, record| {
            SimulatedStation::new(&SimulationOptions {
                config: CONFIG,
                gn_address: Some(mid),
                seed: mid,
                now: Time::ZERO,
                wall_at_start: WallTime::from_unix_nanos(1_700_000_000_000_000_000),
                recording_path: record,
            })
            .expect("a station")
        };
        let mut recorded = station(0x0200_0000_0001, Some(path.as_path()));
        let mut other = station(0x0200_0000_0002, None);
        let drain = |station: &mut SimulatedStation| -> Vec<Output> {
            std::iter::from_fn(|| station.poll_output()).collect()
        };
        outputs.extend(drain(&mut recorded));
        drain(&mut other);
        assert_eq!(
            other.handle_input(Time::from_millis(5), position_input(1, 21_009_000)),
            Ok(()),
            "a drained station takes inputs"
        );
        assert_eq!(other.handle_input(Time::from_millis(6), Input::Timeout), Err(InputRefusal::NotDrained));
        drain(&mut other);
        assert_eq!(other.handle_input(Time::ZERO, Input::Timeout), Err(InputRefusal::TimeRunsBackwards));
        for step in 1..100 {
            let now = Time::from_millis(100 * step);
            recorded.handle_input(now, position_input(100 * step as u32, 21_008_000)).expect("a position");
            outputs.extend(drain(&mut recorded));
            other.handle_input(now, Input::Timeout).expect("time");
            for output in drain(&mut other) {
                let Output::Geonet(GeonetOutput::Frame(frame)) = output else { continue };
                let frame =
                    ReceivedFrame { source: frame.source, destination: BROADCAST, packet: &frame.packet };
                recorded.handle_frame(now, frame).expect("a frame");
                outputs.extend(drain(&mut recorded));
                frames += 1;
            }
            if recorded.next_deadline().is_some_and(|due| due <= now) {
                recorded.handle_input(now, Input::Timeout).expect("time");
                outputs.extend(drain(&mut recorded));
            }
            let request = GeonetRequest {
                transport: GeonetTransport::GeoUnicast(0x0200_0000_0002),
                next_header: 0,
                store_carry_forward: false,
                traffic_class: 0,
                lifetime_ms: None,
                hop_limit: None,
                payload: vec![step as u8; 100],
            };
            recorded.handle_input(now, Input::Geonet(request)).expect("a payload");
            outputs.extend(drain(&mut recorded));
        }
    }
    assert!(frames >= 5 && outputs.len() > 50, "{frames} frames, {} outputs", outputs.len());
    let (header, inputs) = RecordedInputs::open(&path).expect("a recording");
    let mut station = header.into_station(&Config::parse(CONFIG, "config").expect("a config"));
    let mut replayed: Vec<Output> = std::iter::from_fn(|| station.poll_output()).collect();
    for line in inputs {
        let line = line.expect("an input");
        station.handle_input(line.time, line.wall, line.input).expect("taken before");
        replayed.extend(std::iter::from_fn(|| station.poll_output()));
    }
    assert_eq!(replayed, outputs);
    fs::remove_file(&path).expect("to be removed");
}
