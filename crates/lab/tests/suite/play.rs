//! Functions that run scenarios, and small scenarios with a stand-in for the carnet program.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    LAB_PROGRAM, LabUser, lab_command, new_output_folder, output_text, reason_not_to_run, report_skipped,
    repository_root, share_machine_lock, take_machine_lock,
};

pub fn carnet_program() -> Option<PathBuf> {
    let file = Path::new(LAB_PROGRAM).with_file_name("carnet");
    let works = Command::new(&file).arg("--version").output().is_ok_and(|o| !o.stdout.is_empty());
    works.then_some(file)
}

/// Whether the first run of a scenario shares the machine with other tests.
#[derive(Clone, Copy, PartialEq)]
pub enum FirstRun {
    /// Shares the machine with other runs.
    Beside,
    /// Has the machine alone.
    Alone,
}

/// Runs a scenario until it meets all its expectations, at most three times, and alone after the first run.
/// Expectations limit times, and a busy machine may be late once, but a real fault shows in each run.
pub fn assert_passes(test: &str, scenario: &str, user: LabUser) {
    assert_passes_with_options(test, scenario, user, &["--path", "auto"]);
}

/// Calls [`assert_passes`] with options of the command line, for example a data path.
pub fn assert_passes_with_options(test: &str, scenario: &str, user: LabUser, options: &[&str]) {
    assert_passes_with_first_run(FirstRun::Beside, test, scenario, user, options);
}

pub fn assert_passes_with_first_run(
    first: FirstRun,
    test: &str,
    scenario: &str,
    who: LabUser,
    options: &[&str],
) {
    let Some(carnet) = carnet_program() else {
        return report_skipped(test, "the carnet program is not built: cargo build -p carnet");
    };
    if let Some(why) = reason_not_to_run(who) {
        return report_skipped(test, &why);
    }
    let out = new_output_folder(test);
    let mut told = String::new();
    let held = (1..=3).any(|attempt| {
        let (_beside, _alone) = match (attempt, first) {
            (1, FirstRun::Beside) => (Some(share_machine_lock()), None),
            _ => (None, Some(take_machine_lock())),
        };
        let run = lab_command(who, Path::new(LAB_PROGRAM))
            .args(["run", scenario, "--quick"])
            .args(options)
            .arg("--out")
            .arg(&out)
            .arg("--carnet")
            .arg(&carnet)
            .arg("--scenarios")
            .arg(repository_root().join("scenarios"))
            .output()
            .expect("the lab starts");
        told = output_text(&run);
        if !run.status.success() {
            println!("{test}, attempt {attempt}:\n{told}");
        }
        run.status.success()
    });
    assert!(held, "{told}");
    let words = if who == LabUser::Root { "as root" } else { "without root, in a user namespace" };
    assert!(told.contains(words), "{told}");
    let results: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("results.json")).expect("results")).expect("JSON");
    assert_eq!(results["schema_version"], 1);
    assert_eq!(results["passed"], true);
    let page = std::fs::read_to_string(out.join("report.html")).expect("report");
    assert!(!page.contains("http"), "the report has an address in it");
    std::fs::remove_dir_all(out).expect("remove");
}

/// Creates a scenario with two nodes, for which the lab need not wait. `carnet` is a script.
pub fn write_small_scenario(name: &str, script: &str, more: &str) -> PathBuf {
    let place = new_output_folder(name);
    let scenario = place.join("small");
    std::fs::create_dir(&scenario).expect("folder");
    let text = format!(
        "title = \"small\"\n[nodes.a]\naddresses.e0 = [\"2001:db8::1/64\"]\ncarnet = \"a.toml\"\n\
         [nodes.b]\naddresses.e0 = [\"2001:db8::2/64\"]\n[[links]]\nends = [\"a:e0\", \"b:e0\"]\n\
         [timetable]\nduration = \"2s\"\n[[traffic.probe]]\nname = \"probe\"\nbetween = [\"a\", \"b\"]\n\
         rate = 200\n[[expect]]\nwhat = \"nothing is lost\"\nmetric = \"probe.lost\"\nequals = 0\n{more}"
    );
    std::fs::write(scenario.join("scenario.toml"), text).expect("file");
    std::fs::write(scenario.join("a.toml"), "[station]\nname = \"a\"\n").expect("file");
    let program = place.join("carnet");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).expect("file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("rights");
    place
}

pub fn run_small_scenario(folder: &Path) -> Command {
    let mut command = Command::new(LAB_PROGRAM);
    command.args(["run", "small", "--scenarios"]).arg(folder).arg("--carnet").arg(folder.join("carnet"));
    command.arg("--out").arg(folder.join("out"));
    command
}

pub fn can_run_small_scenario(test: &str) -> bool {
    let who = if nix::unistd::geteuid().is_root() { LabUser::Root } else { LabUser::Nobody };
    let why = reason_not_to_run(who).or_else(|| {
        let python = Command::new("python3").arg("--version").output();
        python.is_err().then(|| "python3 is not installed".to_string())
    });
    if let Some(why) = &why {
        report_skipped(test, why);
    }
    why.is_none()
}
