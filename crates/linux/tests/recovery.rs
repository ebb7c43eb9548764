//! Tests restarts after a crash, and starts without privileges.
//!
//! Some of these tests start this test program a second time, as a station that is killed or that runs under
//! other conditions. [`child`] is the code of that process.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use carnet_linux::Platform;
use carnet_nemo::forwarding::packet::PacketBuffer;

const ROLE_VARIABLE: &str = "CARNET_TEST_ROLE";

/// Code of the child process. In an ordinary test run it does nothing.
#[test]
fn child_process_of_recovery_test() {
    let Ok(role) = std::env::var(ROLE_VARIABLE) else { return };
    in_current_namespace(|scratch| async move {
        match role.as_str() {
            "killed" => {
                let undo_file = std::env::var("CARNET_TEST_UNDO").unwrap().into();
                let mut platform =
                    Platform::open(carnet_linux::PlatformConfig { undo_file, ..scratch.platform_config() })
                        .unwrap();
                for entry in entries_of_mobile_router("v0", "i0") {
                    platform.apply_change(&set_entry(entry)).unwrap();
                }
                println!("ready");
                std::thread::sleep(Duration::from_secs(60));
            }
            "opens" => match Platform::open(scratch.platform_config()) {
                Ok(platform) => {
                    platform.close().unwrap();
                    println!("result: opened");
                }
                Err(error) => println!("result: {error}"),
            },
            "works" => {
                run_ip("link set lo up");
                create_links();
                let before = kernel_state();
                let mut platform = scratch.open_platform_watching("v0", true);
                for entry in entries_of_mobile_router("v0", "i0") {
                    platform.apply_change(&set_entry(entry)).unwrap();
                }
                assert_eq!((policy_rules().len(), read_sysctl("all/forwarding")), (8, "1".into()));
                events_until(&mut platform, |seen| latest_interface_state(seen, "i0").is_some()).await;
                platform.close().unwrap();
                assert_eq!(kernel_state(), before);
                println!("result: worked");
            }
            other => panic!("unknown role {other}"),
        }
    });
}

/// Returns the command that runs this program in a role, with the words of `prefix` before the program.
fn child_command(prefix: &[&str], role: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match prefix {
        [] => Command::new(&program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&program);
            command
        }
    };
    command.args(["--exact", "child_process_of_recovery_test", "--nocapture"]).env(ROLE_VARIABLE, role);
    command
}

/// Returns the child's output after `result: `; the whole output if it lacks this word.
fn output_of(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match text.lines().find_map(|line| Some(line.split_once("result: ")?.1)) {
        Some(result) => result.to_owned(),
        None => text,
    }
}

fn create_links() {
    for (here, there) in [("v0", "v1"), ("i0", "i1")] {
        run_ip(&format!("link add {here} type veth peer name {there}"));
        run_ip(&format!("link set {here} addrgenmode none up"));
        run_ip(&format!("link set {there} addrgenmode none up"));
        wait_until_link_is_up(here);
        wait_until_link_is_up(there);
    }
}

#[test]
fn objects_of_killed_station_are_removed_at_next_start() {
    in_new_namespace(|scratch| async move {
        create_links();
        let before = kernel_state();
        let mut child = child_command(&[], "killed")
            .env("CARNET_TEST_UNDO", scratch.undo_file())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ready = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .any(|line| line.is_ok_and(|line| line.ends_with("ready")));
        assert!(ready);
        let error = Platform::open(scratch.platform_config()).unwrap_err();
        assert!(error.to_string().contains("another carnet station"), "{error}");
        assert_eq!(policy_rules().len(), 8, "the running station is left in peace");

        child.kill().unwrap();
        child.wait().unwrap();
        // The tunnel device is gone, but all other entries still exist.
        assert_eq!(policy_rules().len(), 8);
        assert_eq!((read_sysctl("all/forwarding"), routes_of_table("13510").len()), ("1".into(), 1));
        let platform = scratch.open_platform();
        assert_eq!(
            policy_rules(),
            ["0: from all lookup local proto kernel", "32766: from all lookup main proto kernel"]
        );
        assert!(!scratch.undo_file().exists());
        platform.close().unwrap();
        assert_eq!(kernel_state(), before);
    });
}

#[test]
fn marked_leftovers_are_removed_without_undo_file() {
    in_new_namespace(|scratch| async move {
        create_links();
        let before = kernel_state();
        for keep_undo_file in [true, false] {
            let mut platform = scratch.open_platform();
            for entry in entries_of_mobile_router("v0", "i0") {
                platform.apply_change(&set_entry(entry)).unwrap();
            }
            std::mem::forget(platform);
            run_ip("link del carnet0");
            if !keep_undo_file {
                std::fs::remove_file(scratch.undo_file()).unwrap();
                // The file with the former values of settings has been deleted.
                set_sysctl("all/forwarding", "0");
                for interface in ["v0", "v1", "i0", "i1"] {
                    set_sysctl(&format!("{interface}/accept_ra"), "1");
                }
            }
            scratch.open_platform().close().unwrap();
            assert_eq!(kernel_state(), before, "undo file kept: {keep_undo_file}");
        }
    });
}

#[test]
fn a_tunnel_device_deleted_from_outside_is_fatal() {
    in_new_namespace(|scratch| async move {
        create_links();
        let before = kernel_state();
        let mut platform = scratch.open_platform();
        for entry in entries_of_mobile_router("v0", "i0") {
            platform.apply_change(&set_entry(entry)).unwrap();
        }
        events_until(&mut platform, |seen| latest_interface_state(seen, "i0").is_some()).await;
        // carnet finds its TUN device although another program has renamed it.
        run_ip("link set carnet0 down");
        run_ip("link set carnet0 name other");
        run_ip("link set other name carnet0");
        run_ip("link set carnet0 up");
        events_during(&mut platform, Duration::from_millis(100)).await;
        let tunnel = platform.tunnel_device();
        let mut reader = carnet_linux::TunnelReader::new(tunnel.clone());
        let mut buffer = PacketBuffer::new();
        while reader.try_read(&mut buffer).is_ok() {}

        run_ip("link del carnet0");
        let text = "another program has deleted the tunnel device carnet0: restart carnet";
        let gone = tokio::time::timeout(Duration::from_secs(2), tunnel.readable(None)).await.expect("deaf");
        assert_eq!(gone.unwrap_err().to_string(), text);
        assert_eq!(reader.try_read(&mut buffer).unwrap_err().to_string(), text);
        assert_eq!(tunnel.try_write(&[0; 100]).unwrap_err().to_string(), text);
        for _ in 0..2 {
            let error = loop {
                let next = tokio::time::timeout(Duration::from_secs(2), platform.next_event()).await;
                if let Err(error) = next.expect("deaf") {
                    break error;
                }
            };
            assert!(error.is_fatal(), "{error}");
            assert_eq!(error.to_string(), text);
        }
        platform.close().unwrap();
        assert_eq!(kernel_state(), before);
    });
}

#[test]
fn undo_file_of_another_namespace_is_ignored() {
    in_new_namespace(|scratch| async move {
        create_links();
        let mut platform = scratch.open_platform();
        platform.apply_change(&set_entry(setting_entry("v0", "accept_ra", "2"))).unwrap();
        let undo = std::fs::read(scratch.undo_file()).unwrap();
        platform.close().unwrap();
        set_sysctl("v0/accept_ra", "2");

        std::fs::write(scratch.undo_file(), &undo).unwrap();
        let undo_file = scratch.undo_file();
        std::thread::spawn(|| {
            // In another network namespace carnet ignores the file, although boot and interface names are the
            // same.
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            create_links();
            set_sysctl("v0/accept_ra", "2");
            in_current_namespace(|other| async move {
                std::fs::rename(undo_file, other.undo_file()).unwrap();
                other.open_platform().close().unwrap();
            });
            assert_eq!(read_sysctl("v0/accept_ra"), "2");
        })
        .join()
        .unwrap();

        // carnet does not restore settings of another interface that has the recorded name.
        std::fs::write(scratch.undo_file(), &undo).unwrap();
        run_ip("link del v0");
        run_ip("link add v0 type veth peer name v1");
        set_sysctl("v0/accept_ra", "2");
        scratch.open_platform().close().unwrap();
        assert_eq!(read_sysctl("v0/accept_ra"), "2");

        std::fs::write(scratch.undo_file(), b"\0garbage").unwrap();
        scratch.open_platform().close().unwrap();
    });
}

#[test]
fn missing_local_rule_is_restored_at_start() {
    in_new_namespace(|scratch| async move {
        run_ip("-6 rule add pref 110 lookup local proto 135");
        run_ip("-6 rule del pref 0");
        scratch.open_platform().close().unwrap();
        assert_eq!(policy_rules()[0], "0: from all lookup local proto kernel");
        assert_eq!(policy_rules().len(), 2);
    });
}

/// Returns the path of a copy of this program that another user can run, and a command prefix that switches
/// to this user.
fn command_as_nobody(scratch: &ScratchFolder) -> (String, Vec<String>) {
    let program = scratch.path().join("program");
    // Let `cp` copy the file. If this process wrote it, a child process of another test could inherit the
    // descriptor. Executing the file would then fail (ETXTBSY).
    run_command(&format!("cp {} {}", std::env::current_exe().unwrap().display(), program.display()));
    for path in [scratch.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let words = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    (program.display().to_string(), words.split(' ').map(str::to_owned).collect())
}

#[test]
fn error_names_missing_capabilities() {
    in_new_namespace(|scratch| async move {
        let (program, words) = command_as_nobody(&scratch);
        let answer_of = |script: &str, words: &[String]| {
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", script, "sh"]).args(words).arg(&program);
            command
                .args(["--exact", "child_process_of_recovery_test", "--nocapture"])
                .env(ROLE_VARIABLE, "opens");
            output_of(command)
        };
        assert_eq!(
            answer_of("exec \"$@\"", &words),
            "missing capability CAP_NET_ADMIN and CAP_NET_RAW: start carnet as root, with `setcap \
             cap_net_admin,cap_net_raw+ep`, or in a user and network namespace of its own (`unshare -Urn`)"
        );
        let hide = "mount -t tmpfs none /dev/net && exec \"$@\"";
        let answer = answer_of(hide, &[]);
        assert!(
            answer.starts_with("/dev/net/tun is missing: load the TUN driver (`modprobe tun`)"),
            "{answer}"
        );
        let forbid = "mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200 && exec \"$@\"";
        let unshare = ["unshare", "-Urn"].map(str::to_owned);
        let answer = answer_of(forbid, &[words.as_slice(), &unshare].concat());
        assert!(answer.starts_with("no permission to open /dev/net/tun: it must be"), "{answer}");
        // With the device readable for all, root of a new user namespace still lacks a right: the network
        // namespace belongs to another user namespace.
        let allow = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";
        let unshare = ["unshare", "-Ur"].map(str::to_owned);
        let answer = answer_of(allow, &[words.as_slice(), &unshare].concat());
        assert!(answer.contains("belongs to another user namespace"), "{answer}");
    });
}

#[test]
fn platform_works_in_user_namespace_without_root() {
    in_new_namespace(|scratch| async move {
        let (program, words) = command_as_nobody(&scratch);
        let script = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).args(words).args(["unshare", "-Urn"]).arg(program);
        command
            .args(["--exact", "child_process_of_recovery_test", "--nocapture"])
            .env(ROLE_VARIABLE, "works");
        assert_eq!(output_of(command), "worked");
    });
}
