//! `carnet-lab conformance`: runs a suite under `conformance/` against an implementation.
//!
//! The suites are programs in Python, which share no code with the implementation under test.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::tools;

/// Implementation under test.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ConformanceTarget {
    /// RFC 6275, 3963, 5648, 6089, 5555 and 4285: the home agent's side.
    HomeAgent,
    /// RFC 6275 and 3963: the mobile router's side.
    MobileRouter,
    /// ETSI's test purposes for GeoNetworking, BTP and IPv6 over GeoNetworking.
    Geonetworking,
}

#[derive(Debug, clap::Args)]
pub struct ConformanceArgs {
    /// Implementation under test.
    #[arg(long, value_enum)]
    target: ConformanceTarget,
    /// Path of the carnet program (default: next to carnet-lab, otherwise in PATH).
    #[arg(long, value_name = "PATH")]
    carnet: Option<PathBuf>,
    /// Further arguments of the suite: ids of cases, --list, --out DIR, --parameters FILE for a home agent
    /// that is not carnet (conformance/nemo/README.md).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Replaces this process by the conformance suite, whose exit status becomes that of carnet-lab. Returns only
/// if that fails.
pub fn run(args: &ConformanceArgs) -> anyhow::Result<()> {
    let (suite, target) = match args.target {
        ConformanceTarget::HomeAgent => ("nemo", Some("home-agent")),
        ConformanceTarget::MobileRouter => ("nemo", Some("mobile-router")),
        ConformanceTarget::Geonetworking => ("geonetworking", None),
    };
    let program = tools::find_beside_this_program(&format!("conformance/{suite}/run"), Path::is_file)
        .with_context(|| format!("no conformance/{suite}/run in this folder or above it"))?;
    let mut command = Command::new(&program);
    command.args(target.map(|target| format!("--target={target}")));
    command.arg("--carnet").arg(tools::carnet_program(args.carnet.as_deref())?);
    Err(command.args(&args.rest).exec()).with_context(|| format!("start {}", program.display()))
}
