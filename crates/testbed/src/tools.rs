//! Finds the programs that the lab uses, and names the Debian packages of missing ones.

use std::path::{Path, PathBuf};

/// Programs that every run needs, each with its Debian package.
const REQUIRED_TOOLS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("radvd", "radvd"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
];

/// Returns the path of a program: in PATH, or in the folders of system programs that a user's PATH may lack.
/// `None` if the program is missing.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Returns the path to start a program; only its name if the program is missing.
pub fn path_of_program(program: &str) -> PathBuf {
    find_program(program).unwrap_or_else(|| program.into())
}

/// Returns the missing programs, each with its package.
fn missing_tools<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    REQUIRED_TOOLS
        .iter()
        .chain(more)
        .copied()
        .filter(|(program, _)| find_program(program).is_none())
        .collect()
}

/// Fails if a program is missing; the error names the package to install. `more` are programs that only this
/// run needs.
pub fn check_programs(more: &[(&str, &str)]) -> anyhow::Result<()> {
    let missing = missing_tools(more);
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|m| m.0).collect();
    let mut packages: Vec<&str> = missing.iter().map(|m| m.1).collect();
    packages.sort_unstable();
    packages.dedup();
    anyhow::bail!(
        "cannot find the program {}; install it with: apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    )
}

/// Returns the path of the carnet program: the given one, otherwise next to the lab's program, otherwise in
/// PATH.
pub fn carnet_program(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|e| Some(e.parent()?.join("carnet")));
    let found = match given {
        Some(file) => Some(file.to_path_buf()).filter(|f| f.is_file()),
        None => beside.filter(|f| f.is_file()).or_else(|| find_program("carnet")),
    };
    match found {
        Some(file) => Ok(file.canonicalize()?),
        None => match given {
            Some(file) => anyhow::bail!("there is no program {}", file.display()),
            None => anyhow::bail!("no carnet program beside carnet-lab nor in PATH; name one with --carnet"),
        },
    }
}

/// Returns the first path with this name for which `is_it` returns true; `None` if no path fits. Searches the
/// working folder and the folders above it, then the folders above the lab's program.
pub fn find_beside_this_program(name: &str, is_it: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let mut places =
        starts.iter().flatten().flat_map(|start| start.ancestors()).map(|folder| folder.join(name));
    places.find(|place| is_it(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_searched_in_path() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program-anywhere"), None);
        assert_eq!(path_of_program("no-such-program-anywhere"), PathBuf::from("no-such-program-anywhere"));
    }

    #[test]
    fn named_program_must_exist() {
        let told = carnet_program(Some(Path::new("/nowhere/carnet"))).expect_err("is not there").to_string();
        assert_eq!(told, "there is no program /nowhere/carnet");
    }
}
