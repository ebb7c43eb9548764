//! The evaluation works, for carnet and for commands: every kind of experiment is made and shown. What comes out is not
//! judged here.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{As, LAB, folder, obstacle, repository, said, skipped};
use serde_json::Value;

/// The carnet program, unless the test cannot be made here.
fn carnet(test: &str) -> Option<PathBuf> {
    let carnet = Path::new(LAB).with_file_name("carnet");
    if !Command::new(&carnet).arg("--version").output().is_ok_and(|out| !out.stdout.is_empty()) {
        skipped(test, "the carnet program is not built: cargo build -p carnet");
        return None;
    }
    if let Some(why) = obstacle(As::Root) {
        skipped(test, &why);
        return None;
    }
    Some(carnet)
}

fn eval(carnet: &Path, out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LAB);
    command.current_dir(repository()).args(["eval", "--smoke", "--out"]).arg(out).arg("--carnet").arg(carnet);
    command.args(arguments).output().expect("the lab starts")
}

fn results(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("eval.json")).expect("eval.json")).expect("JSON")
}

fn measured(results: &Value, experiment: &str, series: &str) -> Vec<f64> {
    let samples = results["samples"].as_array().expect("an array");
    let of_it = samples.iter().filter(|one| one["experiment"] == experiment && one["series"] == series);
    of_it.map(|one| one["values"]["median"].as_f64().expect("a number")).collect()
}

/// Opens a page in a browser without a window, narrow and dark, wide and light: nothing is wider than the window, one of
/// the two pictures of each figure is there, and the colours are those that were asked for.
fn looks_right(out: &Path, paper: &str) {
    let browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].map(Path::new);
    let Some(browser) = browser.iter().find(|browser| browser.exists()) else {
        return skipped("the pages of an evaluation in a browser", "chromium is not installed");
    };
    // What the browser made of it is written into the page itself.
    const SCRIPT: &str = "<script>addEventListener('load', () => {
        const shown = what => [...document.querySelectorAll(what)].filter(e => e.getBoundingClientRect().width > 0).length;
        document.body.setAttribute('data-seen', [document.documentElement.scrollWidth <= innerWidth,
            shown('div.wide svg'), shown('div.narrow svg'), getComputedStyle(document.body).backgroundColor].join(' '));
    });</script>";
    let page = std::fs::read_to_string(out.join(format!("{paper}.html"))).expect("the page");
    let probe = out.join("probe.html");
    std::fs::write(&probe, page + SCRIPT).expect("a page to look into");
    for (width, dark) in [(1200, false), (420, true)] {
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", out.join("browser").display()));
        command.arg(format!("--window-size={width},2000"));
        if dark {
            command.arg("--blink-settings=preferredColorScheme=0");
        }
        let dumped = command.arg(format!("file://{}", probe.display())).output().expect("the browser starts");
        let text = String::from_utf8_lossy(&dumped.stdout);
        let seen = text.split("data-seen=\"").nth(1).and_then(|rest| rest.split('"').next());
        let seen: Vec<&str> = seen.unwrap_or_else(|| panic!("{}", said(&dumped))).splitn(4, ' ').collect();
        assert_eq!(seen[0], "true", "{paper} at {width}: wider than its window");
        let [wide, narrow] = [1, 2].map(|at| seen[at].parse::<u32>().expect("a number"));
        assert!(if dark { wide == 0 && narrow > 2 } else { narrow == 0 && wide > 2 }, "{paper}: {seen:?}");
        assert_eq!(seen[3], if dark { "rgb(18, 20, 22)" } else { "rgb(247, 247, 245)" }, "{paper}: {seen:?}");
    }
}

#[test]
fn carnet_is_evaluated() {
    let Some(carnet) = carnet("evaluation") else { return };
    let out = folder("evaluation");
    let run = eval(&carnet, &out, &[]);
    let told = said(&run);
    assert!(run.status.success(), "{told}");
    let found = results(&out);
    assert_eq!(found["left_out"], serde_json::json!([]), "{told}");
    for experiment in [
        "udp-rates",
        "tcp",
        "rtt",
        "rtt-sizes",
        "path-mtu",
        "packets",
        "packets-limited",
        "rtt-one-hop",
        "udp",
    ] {
        for series in ["plain", "subject"] {
            let values = measured(&found, experiment, series);
            assert!(values.first().is_some_and(|value| *value > 0.0), "{experiment}, {series}: {values:?}");
        }
    }
    // The outer header is 40 octets.
    let payload = ["plain", "subject"].map(|series| measured(&found, "path-mtu", series)[0]);
    assert_eq!(payload, [1452.0, 1412.0]);
    for paper in ["nemo-basic-support", "nemo-low-end", "nemo-wimax", "cargeo6"] {
        assert!(out.join(format!("{paper}.html")).exists(), "{paper}: {told}");
    }
    for paper in ["nemo-basic-support", "cargeo6"] {
        looks_right(&out, paper);
    }
    // A run is as fast as itself.
    let file = out.join("eval.json");
    let run =
        Command::new(LAB).args(["eval", "--compare"]).arg(&file).arg(&file).output().expect("the lab starts");
    assert!(run.status.success() && said(&run).contains("0 slower, 0 faster"), "{}", said(&run));
    std::fs::remove_dir_all(out).expect("remove");
}

#[test]
fn a_static_tunnel_is_evaluated_without_any_change() {
    let Some(carnet) = carnet("evaluation of commands") else { return };
    let out = folder("evaluation-commands");
    let command = "eval/examples/static-tunnel";
    let run = eval(&carnet, &out, &["nemo-basic-support", "--mr", command, "--ha", command]);
    let told = said(&run);
    assert!(run.status.success(), "{told}");
    let found = results(&out);
    assert_eq!(found["subject"]["mr"], command, "{told}");
    for experiment in ["udp-rates", "tcp", "rtt"] {
        assert!(measured(&found, experiment, "subject")[0] > 0.0, "{experiment}: {told}");
    }
    assert_eq!(measured(&found, "path-mtu", "subject"), [1412.0], "{told}");
    // One that does not work is told with what it said.
    let run = eval(&carnet, &out, &["nemo-basic-support", "--mr", "echo no luck; exit 3", "--ha", "true"]);
    assert!(!run.status.success() && said(&run).contains("no luck"), "{}", said(&run));
    std::fs::remove_dir_all(out).expect("remove");
}
