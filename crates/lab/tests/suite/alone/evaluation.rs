//! Tests that the evaluation works, for carnet and for commands: every kind of experiment runs and appears in
//! the reports. The tests do not judge the values.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{
    LAB_PROGRAM, LabUser, new_output_folder, output_text, reason_not_to_run, report_skipped, repository_root,
    take_machine_lock,
};
use serde_json::Value;

/// Returns the path of the carnet program; `None` if the test cannot run here.
fn carnet_program(test: &str) -> Option<PathBuf> {
    let carnet = Path::new(LAB_PROGRAM).with_file_name("carnet");
    if !Command::new(&carnet).arg("--version").output().is_ok_and(|out| !out.stdout.is_empty()) {
        report_skipped(test, "the carnet program is not built: cargo build -p carnet");
        return None;
    }
    if let Some(why) = reason_not_to_run(LabUser::Root) {
        report_skipped(test, &why);
        return None;
    }
    Some(carnet)
}

fn run_evaluation(carnet: &Path, out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LAB_PROGRAM);
    command
        .current_dir(repository_root())
        .args(["eval", "--smoke", "--out"])
        .arg(out)
        .arg("--carnet")
        .arg(carnet);
    command.args(arguments).output().expect("the lab starts")
}

fn read_results(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("eval.json")).expect("eval.json")).expect("JSON")
}

fn measured_values(results: &Value, experiment: &str, series: &str) -> Vec<f64> {
    let samples = results["samples"].as_array().expect("an array");
    let of_it = samples.iter().filter(|one| one["experiment"] == experiment && one["series"] == series);
    of_it.map(|one| one["values"]["median"].as_f64().expect("a number")).collect()
}

const REPORTED_PAPERS: [&str; 4] = ["nemo-basic-support", "nemo-low-end", "nemo-wimax", "cargeo6"];
/// Widths in pixels of the screens of a telephone and of a desktop computer.
const WINDOW_WIDTHS: [u32; 2] = [390, 1440];

/// A web page that opens each report in a frame as wide as a screen. It returns as JSON how the browser has
/// drawn the report.
const LAYOUT_PROBE: &str = r#"<script>
const luminance = text => {
  const shares = text.match(/[\d.]+/g).slice(0, 3).map(v => v / 255);
  const [r, g, b] = shares.map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const backgroundBehind = (view, e) => {
  for (; e; e = e.parentElement) {
    const color = view.getComputedStyle(e).backgroundColor;
    if (!/, 0\)$/.test(color)) return color;
  }
  return 'rgb(255, 255, 255)';
};
const inspectFrame = frame => {
  const view = frame.contentWindow, page = frame.contentDocument;
  const isVisible = e => e.getBoundingClientRect().width > 0;
  const svgs = [...page.querySelectorAll('figure svg')].filter(isVisible);
  const outside = [], contrast = [];
  for (const svg of svgs) {
    const pictureBox = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll('text')) {
      const textBox = text.getBoundingClientRect();
      if (textBox.left < pictureBox.left - 1 || textBox.right > pictureBox.right + 1
          || textBox.top < pictureBox.top - 1 || textBox.bottom > pictureBox.bottom + 1)
        outside.push(text.textContent);
    }
  }
  for (const e of page.querySelectorAll('p, li, h1, h2, td, th, dt, dd, figcaption, svg text')) {
    if (!isVisible(e)) continue;
    const style = view.getComputedStyle(e);
    const textLuminance = luminance(e.tagName === 'text' ? style.fill : style.color);
    const [a, b] = [textLuminance, luminance(backgroundBehind(view, e))].sort((a, b) => b - a);
    contrast.push([(a + .05) / (b + .05), e.textContent.slice(0, 60)]);
  }
  return {
    page: frame.title, width: frame.clientWidth, wide: page.documentElement.scrollWidth,
    pictures: svgs.length,
    empty: svgs.filter(s => ![...s.querySelectorAll('path, rect')].some(isVisible)).length,
    outside, faint: contrast.filter(c => c[0] < 4.5), texts: contrast.length,
    background: view.getComputedStyle(page.body).backgroundColor,
  };
};
addEventListener('load', () => {
  const measuredFrames = JSON.stringify([...document.querySelectorAll('iframe')].map(inspectFrame));
  document.getElementById('seen').textContent = 'SEEN' + measuredFrames + 'SEEN';
});
</script>"#;

fn find_browser(test: &str) -> Option<&'static Path> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].map(Path::new);
    let found = found.into_iter().find(|browser| browser.exists());
    if found.is_none() {
        report_skipped(test, "chromium is not installed");
    }
    found
}

/// Opens all reports in a headless browser, narrow and wide, light and dark. Checks that no element is wider
/// than the window, no picture is missing or empty, and all text is complete and readable.
fn assert_reports_are_readable(out: &Path) {
    let Some(browser) = find_browser("the pages of an evaluation in a browser") else { return };
    let mut probe = String::from("<!doctype html><meta charset=\"utf-8\"><pre id=\"seen\"></pre>");
    for paper in REPORTED_PAPERS {
        let page = std::fs::read_to_string(out.join(format!("{paper}.html"))).expect("the page");
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        for width in WINDOW_WIDTHS {
            probe += &format!(
                "<iframe title=\"{paper}\" style=\"border:0;width:{width}px;height:900px\" \
                 srcdoc=\"{page}\"></iframe>"
            );
        }
    }
    let file = out.join("probe.html");
    std::fs::write(&file, probe + LAYOUT_PROBE).expect("a page to look into");
    for dark in [false, true] {
        let mut command = Command::new(browser);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", out.join("browser").display()));
        command.arg("--window-size=1600,2000");
        if dark {
            command.arg("--blink-settings=preferredColorScheme=0");
        }
        let dumped = command.arg(format!("file://{}", file.display())).output().expect("the browser starts");
        let text = String::from_utf8_lossy(&dumped.stdout);
        let seen = text.split("SEEN").nth(1).unwrap_or_else(|| panic!("{}", output_text(&dumped)));
        let seen =
            seen.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&");
        let seen: Vec<Value> = serde_json::from_str(&seen).expect("JSON");
        assert_eq!(seen.len(), REPORTED_PAPERS.len() * WINDOW_WIDTHS.len());
        for page in &seen {
            let told = format!("dark: {dark}, {page:#}");
            assert!(page["wide"].as_u64() <= page["width"].as_u64(), "wider than its window: {told}");
            assert_eq!(page["empty"], 0, "empty pictures: {told}");
            assert_eq!(page["outside"], serde_json::json!([]), "cut off: {told}");
            assert_eq!(page["faint"], serde_json::json!([]), "too little contrast: {told}");
            assert!(page["texts"].as_u64() > Some(20), "nothing to read: {told}");
            let color = if dark { "rgb(18, 20, 22)" } else { "rgb(247, 247, 245)" };
            assert_eq!(page["background"], color, "{told}");
        }
        // The report has each picture twice, for wide and narrow screens. Screens of both widths must show
        // the same number of pictures.
        for pair in seen.chunks(WINDOW_WIDTHS.len()) {
            assert_eq!(pair[0]["pictures"], pair[1]["pictures"], "{pair:#?}");
        }
        let pictures: u64 = seen.iter().filter_map(|page| page["pictures"].as_u64()).sum();
        assert!(pictures > 20, "{pictures}");
    }
}

/// Prints a report again. Checks that the PDF's pages have the text, and that no word is beyond the margin of
/// a page.
fn assert_reports_print_to_pdf(out: &Path) {
    let test = "a report as PDF";
    if find_browser(test).is_none() {
        return;
    }
    if !Command::new("pdftotext").arg("-v").output().is_ok_and(|out| out.status.success()) {
        return report_skipped(test, "pdftotext is not installed: apt-get install poppler-utils");
    }
    // A run with `--smoke` prints no PDF.
    let mut found = read_results(out);
    found["effort"] = "quick".into();
    found["papers"] = serde_json::json!(["nemo-basic-support"]);
    let folder = out.join("print");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("eval.json"), found.to_string()).expect("a file");
    let done = Command::new(LAB_PROGRAM).args(["eval", "--render"]).arg(folder.join("eval.json")).output();
    let done = done.expect("the lab starts");
    let pdf = folder.join("nemo-basic-support.pdf");
    assert!(done.status.success() && pdf.exists(), "{}", output_text(&done));
    let text = Command::new("pdftotext").arg("-bbox").arg(&pdf).arg("-").output().expect("pdftotext starts");
    let text = String::from_utf8_lossy(&text.stdout);
    let number = |line: &str, name: &str| -> f64 {
        let value = line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
    };
    let (mut pages, mut width, mut words) = (0, 0.0, Vec::new());
    for line in text.lines() {
        if line.contains("<page ") {
            (pages, width) = (pages + 1, number(line, " width"));
        } else if line.contains("<word ") {
            let (left, right) = (number(line, "xMin"), number(line, "xMax"));
            assert!(left > 20.0 && right < width - 20.0, "beyond the margin of page {pages}: {line}");
            words.push(line.split('>').nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default());
        }
    }
    let words = words.join(" ");
    assert!(pages >= 3, "{pages} pages");
    assert!(!words.contains("pape "), "a heading is cut off: {words}");
    for wanted in
        ["Performance Evaluation of NEMO", "place in the paper", "Figure 2:", "92.8 Mbit/s", "The machine"]
    {
        assert!(words.contains(wanted), "the PDF lacks {wanted:?}: {words}");
    }
}

/// Checks eval.json against its schema.
fn assert_results_match_schema(test: &str, out: &Path) {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    if !Command::new(&python).args(["-c", "import jsonschema"]).output().is_ok_and(|out| out.status.success())
    {
        return report_skipped(test, "jsonschema is not installed: apt-get install python3-jsonschema");
    }
    let mut command = Command::new(python);
    command.env("PYTHONPATH", repository_root().join("eval")).env("PYTHONDONTWRITEBYTECODE", "1");
    let told =
        command.args(["-m", "carnet_eval", "check"]).arg(out.join("eval.json")).output().expect("Python");
    assert!(told.status.success(), "{}", output_text(&told));
}

#[test]
fn evaluation_measures_carnet() {
    let Some(carnet) = carnet_program("evaluation") else { return };
    let _alone = take_machine_lock();
    let out = new_output_folder("evaluation");
    let run = run_evaluation(&carnet, &out, &[]);
    let told = output_text(&run);
    assert!(run.status.success(), "{told}");
    let found = read_results(&out);
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
            let values = measured_values(&found, experiment, series);
            assert!(values.first().is_some_and(|value| *value > 0.0), "{experiment}, {series}: {values:?}");
        }
    }
    // The tunnel's outer header takes 40 octets of each packet of the subject.
    let payload = ["plain", "subject"].map(|series| measured_values(&found, "path-mtu", series)[0]);
    assert_eq!(payload, [1452.0, 1412.0]);
    assert_results_match_schema("eval.json by its schema", &out);
    assert_reports_are_readable(&out);
    assert_reports_print_to_pdf(&out);
    // Comparing a run with itself must find no change.
    let file = out.join("eval.json");
    let run = Command::new(LAB_PROGRAM)
        .args(["eval", "--compare"])
        .arg(&file)
        .arg(&file)
        .output()
        .expect("the lab starts");
    assert!(
        run.status.success() && output_text(&run).contains("0 slower, 0 faster"),
        "{}",
        output_text(&run)
    );
    std::fs::remove_dir_all(out).expect("remove");
}

/// Commands that set up a slow router to measure: it notices a move between links only after four seconds.
/// Both ends have plain routes and change them after the carrier has changed.
const SLOW_ROUTER_COMMANDS: &str = r#"
set -eu
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
case $EVAL_ROLE in
mr) network=default ends="e0:2001:db8:f0::1 e1:2001:db8:f1::1" ;;
ha) network=$EVAL_MOBILE_NETWORK ends="f0:2001:db8:f0::2 f1:2001:db8:f1::2" ;;
esac
now=
while :; do
  for end in $ends; do
    ip -o link show dev "${end%%:*}" | grep -q LOWER_UP || continue
    [ "$now" = "$end" ] && break
    [ -z "$now" ] || sleep 4
    ip -6 route replace "$network" via "${end#*:}" dev "${end%%:*}" metric 50
    now=$end
    break
  done
  sleep 0.1
done
"#;

#[test]
fn evaluation_measures_slow_handover_of_other_router() {
    let Some(carnet) = carnet_program("evaluation of a slow subject") else { return };
    let _alone = take_machine_lock();
    let out = new_output_folder("evaluation-slow");
    let script = out.join("slow");
    std::fs::write(&script, SLOW_ROUTER_COMMANDS).expect("file");
    let command = format!("exec sh {}", script.display());
    let run = run_evaluation(&carnet, &out, &["nemo-basic-support", "--mr", &command, "--ha", &command]);
    let told = output_text(&run);
    assert!(run.status.success(), "{told}");
    let found = read_results(&out);
    assert_eq!(found["left_out"], serde_json::json!([]), "{told}");
    for series in ["subject", "router"] {
        let gaps = measured_values(&found, "handover", series);
        assert!(!gaps.is_empty() && gaps.iter().all(|gap| *gap > 3000.0), "{series}: {gaps:?}, {told}");
    }
    std::fs::remove_dir_all(out).expect("remove");
}

/// The test also covers the paper whose moves are in a scenario. With `--smoke` the lab makes no moves for
/// that paper.
#[test]
fn smoke_evaluation_covers_each_paper() {
    let Some(carnet) = carnet_program("smoke of nemo-wimax") else { return };
    let _alone = take_machine_lock();
    let out = new_output_folder("evaluation-wimax");
    let run = run_evaluation(&carnet, &out, &["nemo-wimax"]);
    assert!(run.status.success(), "{}", output_text(&run));
    let found = read_results(&out);
    for experiment in ["tcp-down", "tcp-up", "udp-down", "udp-up"] {
        assert!(
            !measured_values(&found, experiment, "subject").is_empty(),
            "{experiment}: {}",
            output_text(&run)
        );
    }
    std::fs::remove_dir_all(out).expect("remove");
}

#[test]
fn evaluation_measures_example_static_tunnel() {
    let Some(carnet) = carnet_program("evaluation of commands") else { return };
    let _alone = take_machine_lock();
    let out = new_output_folder("evaluation-commands");
    let command = "eval/examples/static-tunnel";
    let papers = ["nemo-basic-support", "nemo-low-end"];
    let run = run_evaluation(&carnet, &out, &[&papers[..], &["--mr", command, "--ha", command]].concat());
    let told = output_text(&run);
    assert!(run.status.success(), "{told}");
    let found = read_results(&out);
    // A handover removes the measured router's static routes, so handovers come after the other experiments.
    // Only handovers may be left out.
    let left = found["left_out"].as_array().expect("an array");
    assert!(left.iter().all(|one| one["experiment"] == "handover"), "{left:?}, {told}");
    for experiment in ["mgen", "packets", "packets-limited"] {
        let values = measured_values(&found, experiment, "subject");
        assert!(values.first().is_some_and(|value| *value > 0.0), "{experiment}: {values:?}, {told}");
    }
    assert_eq!(found["subject"]["mr"], command, "{told}");
    for experiment in ["udp-rates", "tcp", "rtt"] {
        assert!(measured_values(&found, experiment, "subject")[0] > 0.0, "{experiment}: {told}");
    }
    assert_eq!(measured_values(&found, "path-mtu", "subject"), [1412.0], "{told}");
    assert_results_match_schema("eval.json of commands by its schema", &out);
    // The lab reports a failed command with its output.
    let run = run_evaluation(
        &carnet,
        &out,
        &["nemo-basic-support", "--mr", "echo no luck; exit 3", "--ha", "true"],
    );
    assert!(!run.status.success() && output_text(&run).contains("no luck"), "{}", output_text(&run));
    assert!(!output_text(&run).contains("eval.json.new"), "nothing was measured: {}", output_text(&run));
    std::fs::remove_dir_all(out).expect("remove");
}
