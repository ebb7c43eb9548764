//! Tests the lab's messages to a user who names missing scenarios, nodes or files. The tests need no
//! privileges.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{LAB_PROGRAM, new_output_folder, output_text, repository_root};

/// Returns the names of the scenarios' folders.
fn scenario_folders() -> Vec<String> {
    let entries = std::fs::read_dir(repository_root().join("scenarios")).expect("the scenarios");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let folders = entries.filter(|entry| entry.path().join("scenario.toml").exists());
    let mut names: Vec<String> =
        folders.map(|entry| entry.file_name().into_string().expect("a name in UTF-8")).collect();
    names.sort();
    assert!(names.iter().any(|name| name == "two-uplinks"), "{names:?}");
    names
}

fn run_lab(arguments: &[&str]) -> Output {
    Command::new(LAB_PROGRAM).args(arguments).current_dir(repository_root()).output().expect("the lab starts")
}

#[test]
fn lab_lists_scenarios() {
    let out = run_lab(&["list"]);
    assert!(out.status.success(), "{}", output_text(&out));
    let listed = String::from_utf8_lossy(&out.stdout).into_owned();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, scenario_folders());
}

/// If the reader of the output closes the pipe, as in `carnet-lab list | head`, the lab succeeds.
#[test]
fn closed_output_pipe_is_no_error() {
    let mut child = Command::new(LAB_PROGRAM)
        .arg("list")
        .current_dir(repository_root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unknown_scenario_error_lists_existing_scenarios() {
    let out = run_lab(&["run", "two-uplink"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        output_text(&out).contains(&format!(
            "there is no scenario \"two-uplink\"; there are: {}",
            scenario_folders().join(", ")
        )),
        "{}",
        output_text(&out)
    );
}

#[test]
fn scenario_error_names_file_and_line() {
    let scenarios = new_output_folder("bad");
    std::fs::create_dir(scenarios.join("bad")).expect("folder");
    let text = "title = \"bad\"\n[nodes.a]\nrole = \"x\"\ncolour = 1\n[timetable]\nduration = \"1s\"\n";
    std::fs::write(scenarios.join("bad/scenario.toml"), text).expect("file");
    let out = run_lab(&["run", "bad", "--scenarios", scenarios.to_str().expect("a name")]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        output_text(&out).contains("bad/scenario.toml:4:1: unknown field `colour`"),
        "{}",
        output_text(&out)
    );
    std::fs::remove_dir_all(scenarios).expect("remove");
}

#[test]
fn missing_carnet_program_is_named() {
    let out = run_lab(&["run", "two-uplinks", "--carnet", "/nowhere/carnet"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(output_text(&out).contains("there is no program /nowhere/carnet"), "{}", output_text(&out));
}

#[test]
fn a_shell_needs_a_running_lab() {
    let out = run_lab(&["shell", "two-uplinks", "mr", "true"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        output_text(&out).contains("no running lab has the scenario \"two-uplinks\""),
        "{}",
        output_text(&out)
    );
}

#[test]
fn unknown_options_are_errors() {
    assert_eq!(run_lab(&["run", "two-uplinks", "--quik"]).status.code(), Some(2));
    assert!(Path::new(LAB_PROGRAM).exists());
}
