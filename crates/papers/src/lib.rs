//! `carnet-lab eval`: repeats the measurements of papers about mobile routers, with plain routing and with a
//! subject, and compares the results with the papers' numbers. The subject is carnet, or routers that two
//! commands set up.
//!
//! * `paper` reads the papers: files in `eval/papers`, which describe the experiments.
//! * `test_networks` builds the networks, `measure`, `handover` and `packet_rates` measure in them, `runner`
//!   executes the experiments.
//! * `results` has the samples, `figure_numbers` and `trace` compute figures from them, `report` and
//!   `results_page` show the figures, `compare` compares two runs.
//!
//! The speed of a machine drifts. So plain routing and the subject take turns, point by point and repetition
//! by repetition, and neither is always the first. The results contain every repetition.
#![forbid(unsafe_code)]

pub mod commands;
mod compare;
mod figure_numbers;
mod handover;
mod measure;
mod packet_rates;
mod paper;
mod progress;
mod report;
mod results;
mod results_page;
mod runner;
mod test_networks;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use carnet_bench::path::DataPath;
use carnet_bench::world::Programs;
use carnet_bench::{cores, figures};
use carnet_testbed::commands::CommandLineError;
use carnet_testbed::isolate::{self, IsolationMode};
use carnet_testbed::{clock, console, machine, scenario, tools};
use paper::{Effort, Paper};
use results::{Results, SCHEMA_VERSION};
use test_networks::ImplementationUnderTest;

/// Arguments of `eval`.
#[derive(Debug, clap::Args)]
pub struct EvaluationArgs {
    /// The papers: nemo-basic-support, nemo-low-end, nemo-wimax, cargeo6, or all (default).
    papers: Vec<String>,
    /// Folder for eval.json, the reports and the logs.
    #[arg(long, value_name = "DIR", default_value = "out/eval-papers")]
    out: PathBuf,
    /// Path of the carnet program (default: next to carnet-lab, otherwise in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Folder of the scenarios (default: $CARNET_SCENARIOS, otherwise the folder `scenarios` nearest to the
    /// working folder).
    #[arg(long, value_name = "DIR")]
    scenarios: Option<PathBuf>,
    /// Fewer points and repetitions: 4 minutes instead of 25.
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Only check that everything works; the figures have no meaning.
    #[arg(long)]
    smoke: bool,
    /// carnet's data path (default: bpf, otherwise tun).
    #[arg(long, value_name = "PATH")]
    path: Option<DataPath>,
    /// Measure another implementation: the command that makes node `mr` the mobile router
    /// (docs/evaluation.md).
    #[arg(long, value_name = "COMMAND", requires = "ha", conflicts_with = "path")]
    mr: Option<String>,
    /// The command that makes node `ha` its home agent.
    #[arg(long, value_name = "COMMAND", requires = "mr")]
    ha: Option<String>,
    /// Measure nothing. Compare two eval.json files, and report which figures became slower and how certain
    /// that is.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["papers", "document", "rend\
        er"])]
    compare: Vec<PathBuf>,
    /// Measure nothing. Write the tables of an eval.json file into a page of documentation.
    #[arg(long, num_args = 2, value_names = ["RESULTS", "PAGE"], conflicts_with = "papers")]
    document: Vec<PathBuf>,
    /// Measure nothing. Write the reports of an eval.json file again, into its folder.
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["papers", "document"])]
    render: Option<PathBuf>,
}

/// Measurements to make, with their settings.
#[derive(Debug)]
pub struct EvaluationPlan {
    papers: Vec<Paper>,
    effort: Effort,
    implementation: ImplementationUnderTest,
    carnet: PathBuf,
    scenarios: PathBuf,
    out: PathBuf,
    mode: IsolationMode,
}

/// Executes a command that needs no network. Returns its exit status; `None` if the arguments ask for a
/// measurement.
pub fn run_without_testbed(args: &EvaluationArgs) -> anyhow::Result<Option<ExitCode>> {
    if let [old, new] = &args.compare[..] {
        // The exit status is as for `diff`: 1 for a difference, 2 if the comparison is impossible.
        let verdict = read_results(old).and_then(|old| compare::compare_runs(&old, &read_results(new)?));
        let verdict = verdict.map_err(|error| CommandLineError(format!("{error:#}")))?;
        print!("{}", verdict.report_text());
        return Ok(Some(if verdict.has_slower_or_lost_curve() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }));
    }
    if let [results, page] = &args.document[..] {
        let results = read_results(results)?;
        let text =
            std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
        write_file(page, &results_page::fill_tables(&text, &results)?)?;
        return Ok(Some(ExitCode::SUCCESS));
    }
    if let Some(file) = &args.render {
        let folder = file.parent().unwrap_or(Path::new("."));
        write_reports(&read_results(file)?, folder, true)?;
        return Ok(Some(ExitCode::SUCCESS));
    }
    Ok(None)
}

/// Checks the arguments and tools before the run builds any network.
pub fn check_before_building(args: &EvaluationArgs, mode: IsolationMode) -> anyhow::Result<EvaluationPlan> {
    let effort = match (args.quick, args.smoke) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Smoke,
        _ => Effort::Full,
    };
    let papers =
        paper::papers_named(&args.papers, effort).map_err(|error| CommandLineError(format!("{error:#}")))?;
    tools::check_programs(&[("ethtool", "ethtool"), ("tc", "iproute2")])?;
    let carnet = tools::carnet_program(args.carnet.as_deref())?;
    let scenarios = scenario::scenarios_folder(args.scenarios.as_deref())?;
    std::fs::create_dir_all(args.out.join("logs"))
        .with_context(|| format!("cannot make {}", args.out.display()))?;
    let out = args.out.canonicalize()?;
    for (what, file) in [
        ("the output folder", &out),
        ("the carnet program", &carnet),
        ("the folder of scenarios", &scenarios),
    ] {
        isolate::check_not_below_run_directory(what, file)?;
    }
    let contender = match (&args.mr, &args.ha, args.path) {
        (Some(mr), Some(ha), _) => ImplementationUnderTest::Commands { mr: mr.clone(), ha: ha.clone() },
        (_, _, Some(path)) if path.uses_carnet() => ImplementationUnderTest::Carnet(vec![path]),
        (_, _, Some(path)) => bail!("--path: expected a data path of carnet, found {}", path.name()),
        _ if mode == IsolationMode::Root => {
            ImplementationUnderTest::Carnet(vec![DataPath::Bpf, DataPath::Tun])
        }
        _ => ImplementationUnderTest::Carnet(vec![DataPath::Tun]),
    };
    Ok(EvaluationPlan { papers, effort, implementation: contender, carnet, scenarios, out, mode })
}

/// Measures inside the lab's namespaces, and writes the reports.
pub fn run_evaluation(plan: &EvaluationPlan) -> anyhow::Result<()> {
    let begin = clock::monotonic_now();
    let watch = cores::ProcessorTimeMeter::begin()?;
    let mut results = Results {
        schema_version: SCHEMA_VERSION,
        machine: machine::describe_machine(&plan.carnet, &plan.scenarios),
        time: clock::format_utc(clock::realtime_now()),
        effort: plan.effort,
        load_before: cores::load_averages(),
        papers: plan.papers.iter().map(|paper| paper.name.clone()).collect(),
        ..Results::default()
    };
    let told = figures::describe_disturbances(results.machine.cores, results.load_before[0], [0.0; 2]);
    for why in told {
        console::print_step(&format!("the figures will not be reliable: {why}"));
    }
    let programs = Programs { carnet_program: plan.carnet.clone(), log_folder: plan.out.join("logs") };
    // Remove the partial results of an earlier run.
    let until_then = partial_results_file(plan);
    if until_then.exists() {
        std::fs::remove_file(&until_then)
            .with_context(|| format!("cannot remove {}", until_then.display()))?;
    }
    runner::run_experiments(plan, &programs, &mut results).map_err(|error| match until_then.exists() {
        true => error.context(format!("the results up to the error are in {}", until_then.display())),
        false => error,
    })?;
    results.core_shares_of_others = watch.busy_shares_of_others()?;
    results.disturbed = figures::describe_disturbances(
        results.machine.cores,
        results.load_before[0],
        results.core_shares_of_others,
    );
    results.duration_s = (clock::monotonic_now() - begin) as f64 / 1e9;
    let file = plan.out.join("eval.json");
    save_results(plan, &results)?;
    std::fs::rename(partial_results_file(plan), &file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    // Print no PDF on an emulated machine, because the browser takes minutes per page there. `--render` can
    // print it on another machine.
    let written = write_reports(&results, &plan.out, !results.machine.emulated)?;
    println!("\n{}", results_page::results_summary(&results)?);
    for warning in results.warnings_about_machine() {
        console::print_step(&format!("NOTE: {warning}"));
    }
    console::print_step(&format!("{:.0} s; {}", results.duration_s, file.display()));
    for page in written {
        console::print_step(&page.display().to_string());
    }
    let unmeasured = unmeasured_papers(&results);
    anyhow::ensure!(
        unmeasured.is_empty(),
        "all measurements of these experiments failed: {}",
        unmeasured.join(", ")
    );
    Ok(())
}

/// Returns the papers for which the run has neither a measurement nor an experiment that was left out for a
/// recorded reason. Returns all papers if the run has no measurement at all.
fn unmeasured_papers(results: &Results) -> Vec<&str> {
    let papers = results.papers.iter().map(String::as_str);
    let has_value = |paper: &str| results.curve_points.iter().any(|one| one.paper == paper);
    let is_left_out = |paper: &str| results.omitted_experiments.iter().any(|one| one.paper == paper);
    if !results.papers.iter().any(|paper| has_value(paper)) {
        return papers.collect();
    }
    papers.filter(|paper| !has_value(paper) && !is_left_out(paper)).collect()
}

/// Returns the file of an unfinished run's results. The eval.json of an earlier run stays until this run
/// ends.
fn partial_results_file(plan: &EvaluationPlan) -> PathBuf {
    plan.out.join("eval.json.new")
}

/// Writes the results of a run that has not finished.
fn save_results(plan: &EvaluationPlan, results: &Results) -> anyhow::Result<()> {
    write_file(&partial_results_file(plan), &format!("{}\n", serde_json::to_string_pretty(results)?))
}

/// Writes the reports, and with `pdf` also a PDF of each. Returns the paths of the pages.
fn write_reports(results: &Results, folder: &Path, pdf: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for paper in paper::papers_named(&results.papers, results.effort)? {
        let page = folder.join(format!("{}.html", paper.name));
        write_file(&page, &report::html_report(&paper, results))?;
        pages.push(page.clone());
        let wanted = pdf && results.effort != Effort::Smoke;
        if let Some(browser) = tools::find_program("chromium").filter(|_| wanted) {
            let print = folder.join(format!("{}.pdf", paper.name));
            match report::print_to_pdf(&browser, &page, &print) {
                Ok(()) => pages.push(print),
                Err(error) => console::print_step(&format!("no PDF: {error:#}")),
            }
        }
    }
    Ok(pages)
}

fn read_results(file: &Path) -> anyhow::Result<Results> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let results: Results =
        serde_json::from_slice(&text).with_context(|| format!("{} is no eval.json", file.display()))?;
    let version = results.schema_version;
    anyhow::ensure!(
        version == SCHEMA_VERSION,
        "{}: expected schema version {SCHEMA_VERSION}, found {version}",
        file.display()
    );
    Ok(results)
}

fn write_file(file: &Path, content: &str) -> anyhow::Result<()> {
    std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::OmittedExperiment;
    use crate::results::tests::test_point;

    #[test]
    fn report_names_papers_without_any_measurement() {
        let mut results = Results { papers: vec!["a".into(), "b".into()], ..Results::default() };
        assert_eq!(unmeasured_papers(&results), ["a", "b"]);
        let mut one = test_point("tcp", "plain", None, "", "");
        one.paper = "a".into();
        results.curve_points.push(one);
        assert_eq!(unmeasured_papers(&results), ["b"]);
        let (paper, experiment, why) = ("b".into(), "rtt".into(), "no IPv4 here".into());
        results.omitted_experiments.push(OmittedExperiment { paper, experiment, reason: why });
        assert!(unmeasured_papers(&results).is_empty());
        results.curve_points.clear();
        assert_eq!(unmeasured_papers(&results), ["a", "b"]);
    }
}
