//! The recorded cases of `conformance/recorded`: inputs of a station and its outputs, by standard and clause.
//!
//! The test runs each case and expects the same outputs, to the octet. `CARNET_UPDATE_CASES=1` writes the
//! present outputs instead. After that, a check with the codec of the conformance tester compares the outputs
//! with the standards. This codec shares no code with the station.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use carnet_api::config::Config;
use carnet_settings::recording::RecordedInputs;
use carnet_station::Station;
use carnet_station::io::{NemoOutput, Output};
use serde_json::{Value, json};

/// Environment variable that makes the test write the outputs instead of comparing them.
const UPDATE_CASES_VARIABLE: &str = "CARNET_UPDATE_CASES";

fn cases_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/recorded")
}

/// Folder of the recordings of whole scenarios.
const SCENARIOS_FOLDER: &str = "scenarios";

/// Returns the paths of the input files of all recorded cases (`scenarios` is `false`), or of all recorded
/// scenarios, by file name.
fn find_recordings(scenarios: bool) -> Vec<PathBuf> {
    let folders =
        fs::read_dir(cases_folder()).expect("the cases").map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<PathBuf> = folders
        .filter(|path| path.is_dir() && path.ends_with(SCENARIOS_FOLDER) == scenarios)
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".in.jsonl"))
        .collect();
    cases.sort();
    cases
}

/// Returns the path of the case's file of outputs, the station's outputs at its start, and its outputs for
/// the inputs. The outputs at the start depend on the config only. Each line has the number of an input and
/// one output.
fn replay_case(case: &Path) -> (PathBuf, String, String) {
    let text = fs::read_to_string(case).expect("a case");
    let head: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("a header");
    let name = cases_folder().join(head["config"].as_str().expect("the name of a config"));
    let config = Config::load_file(&name).unwrap_or_else(|errors| panic!("{errors}"));
    let (header, inputs) = RecordedInputs::open(case).unwrap_or_else(|error| panic!("{error}"));
    let mut station = header.into_station(&config);
    let (mut start, mut lines) = (String::new(), String::new());
    collect_outputs(&mut station, 0, &mut start);
    for (number, line) in inputs.enumerate() {
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        let _refusal = station.handle_input(line.time, line.wall, line.input);
        collect_outputs(&mut station, number + 1, &mut lines);
    }
    (name.with_extension("start.jsonl"), start, lines)
}

/// Number of octets of a path MTU probe before its padding, which consists of zeros.
const UNPADDED_PROBE_LENGTH: usize = 120;

/// Returns an output in the form for the file, without the padding of path MTU probes.
fn output_as_json(output: &Output) -> Value {
    let mut value = json!(output);
    if let Output::Nemo(NemoOutput::Packet(packet)) = output
        && packet.len() > 4 * UNPADDED_PROBE_LENGTH
        && packet.get(6) == Some(&41)
        && packet.get(46) == Some(&58)
        && let Some(Value::String(hex)) = value.get_mut("packet")
    {
        hex.truncate(2 * UNPADDED_PROBE_LENGTH);
        hex.push_str(&format!("… {} octets", packet.len()));
    }
    value
}

fn collect_outputs(station: &mut Station, number: usize, lines: &mut String) {
    let mut first = true;
    while let Some(output) = station.poll_output() {
        // No standard covers stored state and messages to operators, so the file leaves them out.
        if matches!(output, Output::Nemo(NemoOutput::Persist { .. }) | Output::Nemo(NemoOutput::Event(_))) {
            continue;
        }
        if std::mem::take(&mut first) {
            *lines += &format!("{}\n", json!({ "input": number }));
        }
        *lines += &format!("{}\n", json!({ "output": output_as_json(&output) }));
    }
}

#[test]
fn stations_answer_every_recorded_case_equally() {
    let cases = find_recordings(false);
    assert!(cases.len() >= 60, "{} cases", cases.len());
    compare_recordings(cases);
}

/// The test fails if a change of the code changes the outputs of a whole scenario.
#[test]
fn stations_answer_every_recorded_scenario_equally() {
    let scenarios = find_recordings(true);
    assert!(scenarios.len() >= 20, "{} scenarios", scenarios.len());
    compare_recordings(scenarios);
}

/// Compares the station's outputs with the recorded ones for each case, and fails with the first difference
/// of each file.
fn compare_recordings(cases: Vec<PathBuf>) {
    let mut differences = Vec::new();
    for case in cases {
        let name = case.file_name().expect("a name").to_string_lossy().replace(".in.jsonl", ".out.jsonl");
        let recorded = case.with_file_name(name);
        let (begin, start, found) = replay_case(&case);
        for (recorded, found) in [(begin, start), (recorded, found)] {
            if std::env::var_os(UPDATE_CASES_VARIABLE).is_some() {
                fs::write(&recorded, found).expect("written");
                continue;
            }
            let wanted = fs::read_to_string(&recorded).unwrap_or_default();
            if found == wanted {
                continue;
            }
            let line =
                found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted).count();
            let at = |text: &str| text.lines().nth(line).unwrap_or("nothing").to_owned();
            differences.push(format!(
                "{}:{}: {}\n  expected {}",
                recorded.display(),
                line + 1,
                at(&found),
                at(&wanted)
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{}\n{UPDATE_CASES_VARIABLE}=1 writes what is answered now",
        differences.join("\n")
    );
}

/// Runs one of the Python programs under `conformance/`; returns `None` if the machine has no Python.
fn run_python(arguments: &[&str]) -> Option<(bool, String)> {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "python3".into());
    let ran =
        Command::new(&python).args(["-B"]).args(arguments).current_dir(cases_folder().join("..")).output();
    match ran {
        Ok(ran) => Some((
            ran.status.success(),
            String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned(),
        )),
        Err(error) if std::env::var_os("CARNET_REQUIRE_TOOLS").is_some() => panic!("{python}: {error}"),
        Err(error) => {
            println!("SKIPPED: {python} does not start: {error}");
            None
        }
    }
}

#[test]
fn conformance_page_lists_every_recorded_case() {
    let Some((right, said)) = run_python(&["clauses", "--check"]) else { return };
    assert!(right, "{said}");
}

#[test]
fn recorded_outputs_match_their_stories() {
    let Some((right, said)) = run_python(&["recorded/author", "--check"]) else { return };
    assert!(right, "{said}");
}
