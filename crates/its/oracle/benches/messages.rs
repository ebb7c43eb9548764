//! Measures the CAMs per second that one core encodes and decodes. The benchmark measures carnet's codec,
//! optimized for size as in the program, and the codec of c-its-parser in turns.

use std::hint::black_box;
use std::time::Instant;

use c_its_parser::standards::cam_1_4_1::cam_pdu_descriptions::CAM;
use carnet_its::cam::Cam;
use carnet_its::ldm::PartialCam;
use carnet_its_oracle::test_cam;

/// Number of measurements of each codec.
const MEASUREMENT_ROUNDS: usize = 41;
/// Number of messages in each measurement.
const MESSAGES_PER_ROUND: u32 = 20_000;

/// Returns how many times per second `step` runs, in millions.
fn operations_per_second(step: &dyn Fn()) -> f64 {
    let begin = Instant::now();
    (0..MESSAGES_PER_ROUND).for_each(|_| step());
    f64::from(MESSAGES_PER_ROUND) / begin.elapsed().as_secs_f64() / 1e6
}

/// Measures the steps in turns, and returns the median rate of each step.
fn median_rates<const N: usize>(steps: [&dyn Fn(); N]) -> [f64; N] {
    let mut rates = [(); N].map(|()| Vec::new());
    for _ in 0..MEASUREMENT_ROUNDS {
        for (step, rates) in steps.iter().zip(&mut rates) {
            rates.push(operations_per_second(*step));
        }
    }
    rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[MEASUREMENT_ROUNDS / 2]
    })
}

fn main() {
    println!("M/s on one core             carnet  c-its-parser  ratio");
    for (name, cam) in [
        ("CAM", test_cam(None)),
        ("CAM, 10 points", test_cam(Some(10))),
        ("CAM, 23 points", test_cam(Some(23))),
    ] {
        let octets = cam.to_octets().expect("a CAM");
        let theirs = CAM::decode_from_uper(&octets).expect("a CAM");
        let shown = |what: &str, [ours, other]: [f64; 2]| {
            println!("{:<26} {ours:>7.2} {other:>13.2} {:>6.1}", format!("{what} {name}"), ours / other);
            assert!(ours >= other && ours >= 0.45, "at least as fast, and 450,000 a second");
        };
        let encode = || drop(black_box(black_box(&cam).to_octets()));
        let other = || drop(black_box(black_box(&theirs).encode_to_uper()));
        shown("encode", median_rates([&encode, &other]));
        let decode = || drop(black_box(Cam::from_octets(black_box(&octets))));
        let other = || drop(black_box(CAM::decode_from_uper(black_box(&octets))));
        shown("decode", median_rates([&decode, &other]));
        let [glance] = median_rates([&|| {
            let _ = black_box(PartialCam::of(black_box(&octets)));
        }]);
        println!("{:<26} {glance:>7.2}", format!("glance at {name}"));
        assert!(glance >= 1.0, "the LDM: 1,000,000 a second");
    }
}
