//! Executes the experiments of the papers, network by network.
//!
//! An experiment may be impossible here, for example for an unprivileged user or a kernel without a feature.
//! The runner leaves it out with its reason and continues with the others. If the subject does not work, the
//! run ends.

use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::measure::MeasurementError;
use super::paper::{Experiment, ExperimentKind, ExperimentNetwork, FigureAxis, Paper};
use super::progress::EvaluationProgress;
use super::results::{
    CurvePoint, ExperimentParameters, MeasuredSubject, MeasurementFailure, OmittedExperiment, Results,
};
use super::test_networks::{
    self, HostPair, ImplementationUnderTest, PLAIN_SERIES, ROUTER_SERIES, SUBJECT_SERIES, TestNetworks,
};
use super::trace::Trace;
use super::{EvaluationPlan, handover, measure, packet_rates};
use carnet_bench::figures::Series;
use carnet_bench::rtt::measure_in_turns;
use carnet_bench::world::Programs;
use carnet_testbed::isolate::{Interrupted, IsolationMode, has_to_stop};
use carnet_testbed::process::BackgroundProgram;
use carnet_testbed::{clock, metrics, radio, run};

/// Expected time to start iperf3 and to wait for its end, in seconds.
const IPERF3_START_SECONDS: f64 = 0.4;
/// Expected time of an echo, in seconds.
const SECONDS_PER_ECHO: f64 = 1e-4;

/// A point to measure: its place in the figure, and the parameters of the measurement.
#[derive(Debug, Clone, PartialEq)]
struct MeasurementPoint {
    x: Option<f64>,
    second_variable: Option<String>,
    size: u32,
    mbit: f64,
    window: Option<u32>,
    segment: Option<u32>,
}

impl Experiment {
    /// Returns the points of the experiment's curves.
    fn measurement_points(&self) -> Vec<MeasurementPoint> {
        let point = MeasurementPoint {
            x: None,
            second_variable: None,
            size: 0,
            mbit: 0.0,
            window: None,
            segment: None,
        };
        match self.kind {
            ExperimentKind::Udp | ExperimentKind::Mgen => {
                let rates = self.mbit.iter();
                let both = rates.flat_map(|mbit| self.sizes.iter().map(move |size| (*mbit, *size)));
                let of = |(mbit, size): (f64, u32)| {
                    let (x, other, many) = match self.across {
                        FigureAxis::Size => (f64::from(size), format!("{mbit} Mbit/s"), self.mbit.len() > 1),
                        FigureAxis::Mbit => (mbit, format!("{size} octets"), self.sizes.len() > 1),
                    };
                    MeasurementPoint {
                        x: Some(x),
                        second_variable: many.then_some(other),
                        size,
                        mbit,
                        ..point.clone()
                    }
                };
                both.map(of).collect()
            }
            ExperimentKind::Tcp if !self.windows.is_empty() => {
                let of = |window: &u32| MeasurementPoint {
                    x: Some(f64::from(*window)),
                    window: Some(*window),
                    ..point.clone()
                };
                self.windows.iter().map(of).collect()
            }
            ExperimentKind::Tcp if !self.segments.is_empty() => {
                let of = |octets: &u32| MeasurementPoint {
                    x: Some(f64::from(*octets)),
                    segment: Some(*octets),
                    ..point.clone()
                };
                self.segments.iter().map(of).collect()
            }
            ExperimentKind::Rtt => {
                let of =
                    |size: &u32| MeasurementPoint { x: Some(f64::from(*size)), size: *size, ..point.clone() };
                self.sizes.iter().map(of).collect()
            }
            ExperimentKind::Tcp | ExperimentKind::PathMtu => vec![point],
            ExperimentKind::Echo
            | ExperimentKind::Handover
            | ExperimentKind::Packets
            | ExperimentKind::Scenario => Vec::new(),
        }
    }

    /// Returns the expected duration of one measurement, in seconds.
    fn seconds_per_measurement(&self) -> f64 {
        match self.kind {
            ExperimentKind::Udp | ExperimentKind::Tcp | ExperimentKind::Mgen => {
                self.seconds as f64 + IPERF3_START_SECONDS
            }
            ExperimentKind::Rtt => f64::from(self.echoes) * SECONDS_PER_ECHO + 0.03,
            ExperimentKind::Echo => f64::from(self.echoes) * 2.0 * SECONDS_PER_ECHO,
            ExperimentKind::PathMtu => 1.0,
            ExperimentKind::Packets => self.milliseconds as f64 * 1.1e-3,
            ExperimentKind::Handover => 3.2,
            ExperimentKind::Scenario => self.seconds as f64 + 8.0,
        }
    }

    /// Returns the number of measurements of the experiment.
    fn measurement_count(&self) -> usize {
        let lanes = if self.ipv4 { 3 } else { 2 };
        match self.kind {
            ExperimentKind::Packets => self.sizes.len() * self.repeat * 2,
            ExperimentKind::Handover => self.moves,
            ExperimentKind::Echo => self.repeat,
            ExperimentKind::Scenario => usize::from(self.factor > 0.0),
            _ if self.measurement_points().is_empty() || self.repeat == 0 => 0,
            _ => self.measurement_points().len() * self.repeat * lanes + if self.warm_up { lanes } else { 0 },
        }
    }

    /// Returns the expected duration of the experiment, in seconds.
    fn expected_seconds(&self) -> f64 {
        self.seconds_per_measurement() * self.measurement_count() as f64
    }
}

/// Returns the experiments of all papers in the order of execution. Handovers are last: an interface that
/// goes down loses the routes that a command has set, so later measurements would find a dead network.
fn experiments_in_order(papers: &[Paper]) -> Vec<(&Paper, &Experiment)> {
    let all = papers.iter().flat_map(|paper| paper.experiments.iter().map(move |one| (paper, one)));
    let (last, mut first): (Vec<_>, Vec<_>) = all.partition(|(_, one)| one.kind == ExperimentKind::Handover);
    first.extend(last);
    first
}

/// Executes all experiments of the plan.
pub fn run_experiments(
    plan: &EvaluationPlan,
    programs: &Programs,
    results: &mut Results,
) -> anyhow::Result<()> {
    let experiments = experiments_in_order(&plan.papers);
    results.subject = match &plan.implementation {
        ImplementationUnderTest::Carnet(_) => MeasuredSubject { name: "carnet".into(), mr: None, ha: None },
        ImplementationUnderTest::Commands { mr, ha } => MeasuredSubject {
            name: test_networks::GIVEN_COMMANDS_NAME.into(),
            mr: Some(mr.clone()),
            ha: Some(ha.clone()),
        },
    };
    let mut runner = ExperimentRunner {
        plan,
        results,
        progress: EvaluationProgress::new(
            experiments.iter().map(|(_, experiment)| experiment.expected_seconds()).sum(),
        ),
    };
    let at = |place: ExperimentNetwork| {
        let there = |(_, experiment): &&(&Paper, &Experiment)| {
            experiment.place == place
                && experiment.kind != ExperimentKind::Scenario
                && experiment.measurement_count() > 0
        };
        experiments.iter().filter(there).copied().collect::<Vec<_>>()
    };
    let made = runner
        .measure_with_routers(&at(ExperimentNetwork::Routers), programs)
        .and_then(|()| runner.measure_over_platoon(&at(ExperimentNetwork::OneHop), 1))
        .and_then(|()| runner.measure_over_platoon(&at(ExperimentNetwork::TwoHops), 2))
        .and_then(|()| {
            let scenarios = experiments
                .iter()
                .filter(|(_, one)| one.kind == ExperimentKind::Scenario && one.factor > 0.0);
            scenarios.copied().try_for_each(|(paper, experiment)| {
                let made = runner.run_scenario(paper, experiment);
                runner.record_outcome(paper, experiment, made, || Ok(()))
            })
        });
    runner.progress.remove_bar();
    made
}

struct ExperimentRunner<'a> {
    plan: &'a EvaluationPlan,
    results: &'a mut Results,
    progress: EvaluationProgress,
}

impl ExperimentRunner<'_> {
    fn curve_point_key(&self, paper: &Paper, experiment: &Experiment, series: &str) -> CurvePoint {
        CurvePoint {
            paper: paper.name.clone(),
            experiment: experiment.id.clone(),
            series: series.into(),
            second_variable: None,
            x: None,
            quantity: String::new(),
            unit: String::new(),
            values: Series::default(),
        }
    }

    fn omit_experiment(&mut self, paper: &Paper, experiment: &Experiment, why: &str) {
        self.progress.add_finished_work(experiment.expected_seconds());
        let (paper, experiment) = (paper.name.clone(), experiment.id.clone());
        self.results.omitted_experiments.push(OmittedExperiment { paper, experiment, reason: why.into() });
    }

    /// Records the result of an experiment. Leaves out a failed experiment, and fails only if the network no
    /// longer works.
    fn record_outcome(
        &mut self,
        paper: &Paper,
        experiment: &Experiment,
        made: anyhow::Result<()>,
        check: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match made {
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                check()?;
                self.omit_experiment(paper, experiment, &format!("{error:#}"));
                super::save_results(self.plan, self.results)
            }
            Ok(()) => super::save_results(self.plan, self.results),
        }
    }

    /// Shows the name of the experiment that begins.
    fn start_experiment(&mut self, paper: &Paper, experiment: &Experiment) -> anyhow::Result<()> {
        if has_to_stop() {
            return Err(Interrupted.into());
        }
        self.progress.set_label(&format!("{}: {}", paper.name, experiment.id));
        let parameters = serde_json::to_value(experiment)?;
        let (paper, experiment) = (paper.name.clone(), experiment.id.clone());
        self.results.experiments.push(ExperimentParameters { paper, experiment, parameters });
        Ok(())
    }

    fn measure_with_routers(
        &mut self,
        experiments: &[(&Paper, &Experiment)],
        programs: &Programs,
    ) -> anyhow::Result<()> {
        if experiments.is_empty() {
            return Ok(());
        }
        let mut routers = TestNetworks::build_networks(&self.plan.implementation, programs)?;
        self.results.subject = routers.subject_description.clone();
        for (paper, experiment) in experiments.iter().copied() {
            self.start_experiment(paper, experiment)?;
            let made = match experiment.kind {
                ExperimentKind::Packets => self.measure_packets(paper, experiment, &mut routers),
                ExperimentKind::Handover => self.measure_handovers(paper, experiment, &mut routers),
                ExperimentKind::Echo => self.measure_echoes(paper, experiment, &mut routers),
                _ => routers.set_link_rate(experiment.link.as_deref()).and_then(|()| {
                    let ends = routers.host_pairs(experiment.ipv4);
                    self.measure_curves(paper, experiment, &ends, || routers.check_running())
                }),
            };
            self.record_outcome(paper, experiment, made, || routers.check_running())?;
        }
        routers.stop_routers()
    }

    fn measure_over_platoon(
        &mut self,
        experiments: &[(&Paper, &Experiment)],
        hops: usize,
    ) -> anyhow::Result<()> {
        if experiments.is_empty() {
            return Ok(());
        }
        if let ImplementationUnderTest::Commands { .. } = self.plan.implementation {
            for (paper, experiment) in experiments.iter().copied() {
                self.omit_experiment(paper, experiment, "about GeoNetworking; the commands are about NEMO");
            }
            return Ok(());
        }
        let folder = test_networks::platoon_scenario_folder(&self.plan.scenarios, hops);
        let plan = run::RunPlan {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            folder,
            carnet: self.plan.carnet.clone(),
            out: self.plan.out.clone(),
            is_quick: false,
            series_size: None,
            time_factor: None,
            captures_packets: false,
            hold_until_ctrl_c: false,
            verbose: false,
            data_path: None,
            radio: radio::RadioKind::default(),
            is_slow_machine: false,
            mode: self.plan.mode,
        };
        let mut testbed = match run::Testbed::start_testbed(&plan, &mut metrics::Metrics::new()) {
            Ok((testbed, _)) => testbed,
            Err(error) if error.is::<Interrupted>() => return Err(error),
            // Keep the results of the earlier experiments.
            Err(error) => {
                for (paper, experiment) in experiments.iter().copied() {
                    self.omit_experiment(paper, experiment, &format!("{}: {error:#}", plan.name));
                }
                return Ok(());
            }
        };
        for (paper, experiment) in experiments.iter().copied() {
            self.start_experiment(paper, experiment)?;
            let made = self.measure_curves(paper, experiment, &test_networks::platoon_host_pairs(), || {
                testbed.check_programs()
            });
            self.record_outcome(paper, experiment, made, || testbed.check_programs())?;
        }
        testbed.stop_testbed()
    }

    /// Measures all points of an experiment with all repetitions. The curves take turns.
    fn measure_curves(
        &mut self,
        paper: &Paper,
        experiment: &Experiment,
        ends: &[HostPair],
        mut check: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let points = experiment.measurement_points();
        if let (true, Some(point)) = (experiment.warm_up, points.first()) {
            for one in ends {
                if let Err(error) = measure_or_record_failure(experiment, one, point)
                    && !error.is::<MeasurementError>()
                {
                    return Err(error);
                }
                self.progress.add_finished_work(experiment.seconds_per_measurement());
            }
        }
        for round in 0..experiment.repeat {
            for (number, point) in points.iter().enumerate() {
                for turn in 0..ends.len() {
                    // Rotate the order: even with one repetition, no series is then always measured first.
                    let one = &ends[(turn + round + number) % ends.len()];
                    let key = CurvePoint {
                        second_variable: point.second_variable.clone(),
                        x: point.x,
                        ..self.curve_point_key(paper, experiment, one.series)
                    };
                    record_values(
                        self.results,
                        &key,
                        experiment.kind,
                        round,
                        measure_or_record_failure(experiment, one, point),
                    )?;
                    self.progress.add_finished_work(experiment.seconds_per_measurement());
                }
                check()?;
            }
        }
        ends.iter().try_for_each(|one| {
            check_has_values(self.results, &self.curve_point_key(paper, experiment, one.series))
        })
    }

    fn measure_packets(
        &mut self,
        paper: &Paper,
        experiment: &Experiment,
        routers: &mut TestNetworks,
    ) -> anyhow::Result<()> {
        ensure!(
            self.plan.mode == IsolationMode::Root,
            "these experiments need root, because BPF programs send and count the packets"
        );
        routers.set_link_rate(None)?;
        let (plain, subject) = (
            self.curve_point_key(paper, experiment, PLAIN_SERIES),
            self.curve_point_key(paper, experiment, SUBJECT_SERIES),
        );
        let (results, progress) = (&mut *self.results, &mut self.progress);
        let Experiment { sizes, repeat, milliseconds, share, .. } = experiment;
        packet_rates::measure_packet_rates(
            routers,
            sizes,
            *repeat,
            *milliseconds,
            *share,
            |(size, series, rate)| {
                let key = if series == PLAIN_SERIES { &plain } else { &subject };
                let mbit = rate * f64::from(size) * 8.0 / 1e6;
                for (quantity, unit, value) in [("packets", "packets/s", rate), ("mbit", "Mbit/s", mbit)] {
                    let key = CurvePoint {
                        x: Some(f64::from(size)),
                        quantity: quantity.into(),
                        unit: unit.into(),
                        ..key.clone()
                    };
                    results.add(key, value);
                }
                progress.add_finished_work(experiment.seconds_per_measurement());
            },
        )
    }

    /// Measures repeatedly the average time of some echoes.
    fn measure_echoes(
        &mut self,
        paper: &Paper,
        experiment: &Experiment,
        routers: &mut TestNetworks,
    ) -> anyhow::Result<()> {
        routers.set_link_rate(None)?;
        for _ in 0..experiment.repeat {
            let times = measure_in_turns(
                &[&routers.plain_network, &routers.subject_network],
                experiment.echoes as usize,
            )?;
            for (series, times) in [PLAIN_SERIES, SUBJECT_SERIES].into_iter().zip(times) {
                let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
                let key = CurvePoint {
                    quantity: "ms".into(),
                    unit: "ms".into(),
                    ..self.curve_point_key(paper, experiment, series)
                };
                self.results.add(key, mean / 1e6);
            }
            self.progress.add_finished_work(experiment.seconds_per_measurement());
            routers.check_running()?;
        }
        Ok(())
    }

    fn measure_handovers(
        &mut self,
        paper: &Paper,
        experiment: &Experiment,
        routers: &mut TestNetworks,
    ) -> anyhow::Result<()> {
        routers.set_link_rate(None)?;
        let gaps = handover::measure_uplink_moves(routers, experiment.moves)?;
        self.progress.add_finished_work(experiment.expected_seconds());
        let mut lost = 0;
        for (number, gaps) in gaps.iter().enumerate() {
            for (series, gap) in [SUBJECT_SERIES, ROUTER_SERIES].into_iter().zip(gaps) {
                let Some(gap) = gap else {
                    lost += 1;
                    continue;
                };
                let key = CurvePoint {
                    x: Some((number + 1) as f64),
                    quantity: "ms".into(),
                    unit: "ms".into(),
                    ..self.curve_point_key(paper, experiment, series)
                };
                self.results.add(key, *gap);
            }
        }
        ensure!(
            lost == 0,
            "after {lost} of {} moves between links, host and router received no answers within {} s",
            2 * gaps.len(),
            handover::ANSWER_TIMEOUT / clock::SECOND
        );
        Ok(())
    }

    /// Runs a scenario in separate namespaces, and reads its metrics.
    fn run_scenario(&mut self, paper: &Paper, experiment: &Experiment) -> anyhow::Result<()> {
        self.start_experiment(paper, experiment)?;
        if let ImplementationUnderTest::Commands { .. } = self.plan.implementation {
            self.omit_experiment(paper, experiment, "the scenario moves carnet by its signal files");
            return Ok(());
        }
        let name = experiment.scenario.as_deref().context("an experiment with a scenario names it")?;
        let out = self.plan.out.join(name);
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.args(["run", name, "--factor", &experiment.factor.to_string(), "--out"]).arg(&out);
        command.arg("--carnet").arg(&self.plan.carnet).arg("--scenarios").arg(&self.plan.scenarios);
        command.stdin(Stdio::null());
        let log = self.plan.out.join("logs").join(format!("{name}.log"));
        // Remove the results file of an earlier run.
        let file = out.join("results.json");
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
            _ => {}
        }
        let mut lab = BackgroundProgram::start(&format!("carnet-lab run {name}"), &log, &mut command)?;
        let (begin, limit) = (clock::monotonic_now(), 2 * (experiment.expected_seconds() * 1e9) as u64);
        let mut status = None;
        while status.is_none() {
            if has_to_stop() {
                lab.stop(nix::sys::signal::Signal::SIGTERM);
                return Err(Interrupted.into());
            }
            status = lab.exit_status();
            if clock::monotonic_now() - begin > limit {
                lab.stop(nix::sys::signal::Signal::SIGTERM);
                bail!("the lab's run of scenario {name} exceeded its time limit:\n{}", lab.log_tail());
            }
            clock::sleep(clock::SECOND / 5);
            self.progress.add_finished_work(if status.is_none() { 0.2 } else { 0.0 });
        }
        // Exit status 1 means a failed expectation; the metrics are valid anyway.
        let code = status.and_then(|status| status.code());
        ensure!(
            matches!(code, Some(0 | 1)),
            "the lab's run of scenario {name} failed ({status:?}):\n{}",
            lab.log_tail()
        );
        let text = std::fs::read(&file).with_context(|| {
            format!("the lab's run of scenario {name} wrote no results:\n{}", lab.log_tail())
        })?;
        let told: Value = serde_json::from_slice(&text)?;
        for figure in paper.figures.iter().filter(|one| one.experiment.as_ref() == Some(&experiment.id)) {
            for value in &figure.values {
                let Some(metric) = value.ours.as_ref().and_then(|ours| ours.metric.as_ref()) else {
                    continue;
                };
                let Some(number) = told["metrics"]["run"][metric].as_f64() else { continue };
                let key = CurvePoint {
                    second_variable: None,
                    quantity: metric.clone(),
                    unit: value.unit.clone(),
                    ..self.curve_point_key(paper, experiment, SUBJECT_SERIES)
                };
                self.results.add(key, number);
            }
            if let Some(trace) =
                figure.trace.as_deref().and_then(|name| Trace::from_scenario_results(&told, name))
            {
                let (paper, experiment) = (paper.name.clone(), experiment.id.clone());
                self.results.traces.push(Trace { paper, experiment, ..trace });
            }
        }
        Ok(())
    }
}

/// Records the values of a measurement. If the measurement failed, or no echo was answered, records a
/// failure.
fn record_values(
    results: &mut Results,
    key: &CurvePoint,
    kind: ExperimentKind,
    round: usize,
    measured: anyhow::Result<Vec<measure::MeasuredValue>>,
) -> anyhow::Result<()> {
    let failure = |quantity: Option<&str>, said: String| MeasurementFailure {
        quantity: quantity.map(str::to_owned),
        repetition: round,
        error_message: said,
        ..MeasurementFailure::of_sample(key)
    };
    let found = match measured {
        Ok(found) => found,
        Err(error) if error.is::<MeasurementError>() => {
            results.failures.push(failure(None, format!("{error:#}")));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if kind == ExperimentKind::Rtt && !found.iter().any(|one| one.0 == "ms") {
        results.failures.push(failure(Some("ms"), "no echo was answered".into()));
    }
    for (quantity, unit, value) in found {
        results.add(CurvePoint { quantity: quantity.into(), unit: unit.into(), ..key.clone() }, value);
    }
    Ok(())
}

/// Fails if a series of an experiment has no value at all. The error quotes the first failure.
fn check_has_values(results: &Results, key: &CurvePoint) -> anyhow::Result<()> {
    let name = (&key.paper, &key.experiment, &key.series);
    if results.curve_points.iter().any(|one| (&one.paper, &one.experiment, &one.series) == name) {
        return Ok(());
    }
    match results.failures.iter().find(|one| (&one.paper, &one.experiment, &one.series) == name) {
        Some(first) => {
            bail!(
                "all measurements of the series {} failed; the first error: {}",
                key.series,
                first.error_message
            )
        }
        None => Ok(()),
    }
}

fn measure_or_record_failure(
    experiment: &Experiment,
    ends: &HostPair,
    point: &MeasurementPoint,
) -> anyhow::Result<Vec<measure::MeasuredValue>> {
    match experiment.kind {
        ExperimentKind::Udp => {
            measure::measure_udp(ends, point.size, point.mbit, experiment.down, experiment.seconds)
        }
        ExperimentKind::Tcp => {
            measure::measure_tcp(ends, experiment.down, experiment.seconds, point.window, point.segment)
        }
        ExperimentKind::Rtt => measure::measure_rtt(ends, point.size, experiment.echoes),
        ExperimentKind::Mgen => measure::measure_mgen(ends, point.size, point.mbit, experiment.seconds),
        ExperimentKind::PathMtu => measure::measure_path_mtu(ends),
        ExperimentKind::Echo
        | ExperimentKind::Handover
        | ExperimentKind::Packets
        | ExperimentKind::Scenario => {
            bail!(
                "bug: expected an experiment without a measurement function of its own, found {}",
                experiment.id
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Effort, all_papers};

    /// Returns how many seconds the experiments of all papers are expected to take.
    fn evaluation_cost(effort: Effort) -> f64 {
        let papers = all_papers(effort).expect("are good");
        papers.iter().flat_map(|paper| &paper.experiments).map(Experiment::expected_seconds).sum()
    }

    #[test]
    fn evaluation_takes_25_minutes_and_quick_run_4_at_most() {
        let [full, quick, smoke] = [Effort::Full, Effort::Quick, Effort::Smoke].map(evaluation_cost);
        assert!(full < 23.0 * 60.0, "{full} s");
        assert!(quick < 210.0, "{quick} s");
        assert!(smoke < 45.0, "{smoke} s");
    }

    #[test]
    fn handover_experiments_run_last() {
        let papers = all_papers(Effort::Full).expect("are good");
        let order = experiments_in_order(&papers);
        assert_eq!(order.len(), papers.iter().map(|paper| paper.experiments.len()).sum::<usize>());
        let first =
            order.iter().position(|(_, one)| one.kind == ExperimentKind::Handover).expect("there is one");
        assert!(order[first..].iter().all(|(_, one)| one.kind == ExperimentKind::Handover));
        assert!(order[..first].iter().any(|(paper, _)| paper.name == "nemo-low-end"));
    }

    #[test]
    fn failed_measurement_is_recorded_as_failure() {
        use crate::results::tests::test_point;
        let mut results = Results::default();
        let key = test_point("tcp", SUBJECT_SERIES, None, "", "");
        let failed = || Err(MeasurementError("iperf3: unable to connect".into()).into());
        record_values(&mut results, &key, ExperimentKind::Tcp, 0, failed()).expect("is kept");
        let told = check_has_values(&results, &key).expect_err("there is no value").to_string();
        assert_eq!(
            told,
            "all measurements of the series subject failed; the first error: iperf3: unable to connect"
        );
        record_values(&mut results, &key, ExperimentKind::Tcp, 1, Ok(vec![("mbit", "Mbit/s", 3.0)]))
            .expect("is kept");
        assert_eq!(results.values_by_repetition(&results.curve_points[0]), [(1, 3.0)]);
        check_has_values(&results, &key).expect("each point has a value");
        // With all echoes lost, the loss has a value, and the round trip has no value.
        let key = test_point("rtt", SUBJECT_SERIES, None, "", "");
        record_values(&mut results, &key, ExperimentKind::Rtt, 0, Ok(vec![("loss", "%", 100.0)]))
            .expect("is kept");
        record_values(
            &mut results,
            &key,
            ExperimentKind::Rtt,
            1,
            Ok(vec![("ms", "ms", 2.0), ("loss", "%", 0.0)]),
        )
        .expect("is kept");
        assert_eq!(results.values_by_repetition(&results.curve_points[1]), [(0, 100.0), (1, 0.0)]);
        assert_eq!(results.values_by_repetition(&results.curve_points[2]), [(1, 2.0)]);
        let broken =
            record_values(&mut results, &key, ExperimentKind::Rtt, 2, Err(anyhow::anyhow!("no ping")));
        assert!(broken.is_err(), "what is no measurement's failure ends the experiment");
    }

    #[test]
    fn second_varied_parameter_gives_one_curve_for_each_value() {
        let papers = all_papers(Effort::Full).expect("are good");
        let of = |paper: &str, id: &str| {
            let paper = papers.iter().find(|one| one.name == paper).expect("is there");
            paper.experiment(id).expect("is there").measurement_points()
        };
        let points = of("cargeo6", "udp");
        assert_eq!(points[0].second_variable.as_deref(), Some("0.25 Mbit/s"));
        assert_eq!((points[0].x, points[0].mbit), (Some(100.0), 0.25));
        let points = of("nemo-basic-support", "udp-rates");
        assert_eq!(
            (points[0].x, points[0].second_variable.as_deref(), points[0].size),
            (Some(80.0), None, 1192)
        );
    }
}
