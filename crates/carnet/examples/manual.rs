//! Writes the manual pages and the shell completions from the command line definitions: `manual DIRECTORY`.
//!
//! Packages contain these files. The program itself need not contain the code that writes them.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

#[path = "../src/cli.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod cli;

#[path = "../src/bin/carnet-fleet/cli.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod fleet;

// The command line uses the names of this module, so the example includes it.
#[path = "../src/facilities/named_numbers.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod named_numbers;

mod facilities {
    pub(crate) use super::named_numbers;
}

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("expected a directory to write to");
        std::process::exit(2);
    };
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    for (name, mut command) in [("carnet", cli::Cli::command()), ("carnet-fleet", fleet::Cli::command())] {
        clap_mangen::generate_to(command.clone(), &pages)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command, name, &completions)?;
        }
    }
    Ok(())
}
