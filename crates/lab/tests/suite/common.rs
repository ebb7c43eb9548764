//! Common functions of the tests: paths of programs, commands of the lab's two users, the lock of the
//! machine, and messages about skipped tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Path of the lab that was built for the test.
pub const LAB_PROGRAM: &str = env!("CARGO_BIN_EXE_carnet-lab");

/// User that runs the lab.
#[derive(Clone, Copy, PartialEq)]
pub enum LabUser {
    /// Root.
    Root,
    /// A user without privileges.
    Nobody,
}

/// Returns the folder of the repository.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// Creates a folder for the test's files that every user may write.
pub fn new_output_folder(name: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("carnet-lab-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("its rights");
    folder
}

/// Returns why a test cannot run here; `None` if it can.
pub fn reason_not_to_run(user: LabUser) -> Option<String> {
    let root = nix::unistd::geteuid().is_root();
    for tool in ["ip", "radvd", "ping", "iperf3", "nsenter", "unshare"] {
        let found =
            ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|d| Path::new(d).join(tool).exists());
        if !found {
            return Some(format!("{tool} is not installed"));
        }
    }
    if user == LabUser::Root && !root {
        return Some("not root".into());
    }
    let probe = match (user, root) {
        (LabUser::Root, _) => lab_command(user, Path::new("unshare")).args(["--net", "true"]).output(),
        (LabUser::Nobody, _) => lab_command(user, Path::new("unshare"))
            .args(["--user", "--map-root-user", "--net", "true"])
            .output(),
    };
    match probe {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(format!("no namespaces: {}", String::from_utf8_lossy(&out.stderr).trim())),
        Err(e) => Some(format!("no namespaces: {e}")),
    }
}

/// Prints that a test is skipped, with the reason, so that the test run can count it.
pub fn report_skipped(test: &str, why: &str) {
    println!("SKIPPED: {test}: {why}");
}

/// Returns a command that runs as this user. If the caller is root, an unprivileged user gets a
/// `/dev/net/tun` that it may open, in a separate mount namespace.
pub fn lab_command(user: LabUser, program: &Path) -> Command {
    if user == LabUser::Root || !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    const SANDBOX_SCRIPT: &str = "set -e
mount -t tmpfs -o mode=0755 tmpfs /mnt
mknod -m 0666 /mnt/tun c 10 200
mount --bind /mnt/tun /dev/net/tun
exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SANDBOX_SCRIPT, "sh"]).arg(program);
    command
}

/// Returns the output of a program, for a failed assertion.
pub fn output_text(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs the benchmark in its short form with these further arguments. Returns its folder, its output and its
/// figures (`bench.json`).
///
/// # Panics
/// Panics with the output if the benchmark fails.
pub fn run_smoke_bench(
    name: &str,
    arguments: &[&str],
    carnet: &Path,
) -> (PathBuf, String, serde_json::Value) {
    let out = new_output_folder(name);
    let run = Command::new(LAB_PROGRAM)
        .args(["bench", "--smoke"])
        .args(arguments)
        .arg("--out")
        .arg(&out)
        .arg("--carnet")
        .arg(carnet)
        .output()
        .expect("the lab starts");
    let told = output_text(&run);
    assert!(run.status.success(), "{told}");
    let text = std::fs::read(out.join("bench.json")).expect("bench.json");
    let figures = serde_json::from_slice(&text).expect("JSON");
    (out, told, figures)
}

/// Lock for the use of the machine. `--test-threads` limits the number of runs that share it.
static MACHINE_LOCK: RwLock<()> = RwLock::new(());

/// Takes the lock for a run that may share the machine.
pub fn share_machine_lock() -> RwLockReadGuard<'static, ()> {
    MACHINE_LOCK.read().unwrap_or_else(|e| e.into_inner())
}

/// Takes the lock for a run that needs the machine alone.
pub fn take_machine_lock() -> RwLockWriteGuard<'static, ()> {
    MACHINE_LOCK.write().unwrap_or_else(|e| e.into_inner())
}
