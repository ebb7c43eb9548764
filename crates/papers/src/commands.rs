//! The command that a program mounts to repeat measurements of papers.

use std::process::ExitCode;

use carnet_testbed::isolate::{self, IsolationMode};
use clap::Subcommand;

/// A command that compares measurements of carnet with the figures of published papers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Repeat the measurements of papers about mobile routers, beside plain routing, and show them beside the
    /// papers' figures.
    Eval(Box<crate::EvaluationArgs>),
}

impl Command {
    /// Runs the command and returns the exit status of the program. `inside` is the isolation mode of a lab
    /// that already runs inside its namespaces; `None` outside of them.
    pub fn execute(&self, inside: Option<IsolationMode>) -> anyhow::Result<ExitCode> {
        match self {
            Command::Eval(args) => {
                if let Some(done) = crate::run_without_testbed(args)? {
                    return Ok(done);
                }
                let mode = inside.unwrap_or_else(IsolationMode::of_caller);
                let plan = crate::check_before_building(args, mode)?;
                if inside.is_none() {
                    return isolate::run_isolated(mode);
                }
                isolate::start_inner_lab()?;
                crate::run_evaluation(&plan)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
