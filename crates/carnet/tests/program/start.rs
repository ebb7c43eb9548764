//! Starts of a station that fail, and a start without root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::hosts::{
    Host, ScratchFolder, assert_same_state, can_run_or_report, output_text, seconds, wait_for, wait_until,
};
use crate::station::{CARNET_PROGRAM, Station, run_carnet};
use crate::testbed::{CORRESPONDENT, Testbed};

/// Starts a router with `wrapper` before the program on the command line. The program must end with status 1
/// and one line that contains `texts`, and leave no entries behind.
fn assert_start_fails_with(wrapper: &[&str], texts: &[&str]) {
    let bed = Testbed::new();
    let config = bed.router_config();
    let file = bed.scratch.path_of("router.toml");
    fs::write(&file, config).expect("a config file");
    let before = bed.router.kernel_state();
    let path = file.to_str().expect("a path");
    let output = bed.router.run_program(&[wrapper, &[CARNET_PROGRAM, "run", "--config", path]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    for text in ["carnet: "].iter().chain(texts) {
        assert!(error.contains(text), "expected {text:?} in: {error}");
    }
    assert_same_state(&before, &bed.router.kernel_state(), "after a start that failed");
    assert_eq!(bed.scratch.file_names(), ["router.toml"]);
}

#[test]
fn without_a_tun_device_the_error_names_the_remedy_and_no_setting_remains() {
    if can_run_or_report() {
        const HIDE_TUN_SCRIPT: &str = "mount -t tmpfs tmpfs /dev/net && exec \"$@\"";
        assert_start_fails_with(
            &["unshare", "--mount", "sh", "-c", HIDE_TUN_SCRIPT, "sh"],
            &["/dev/net/tun is missing", "modprobe tun"],
        );
    }
}

#[test]
fn error_without_tun_permission_names_remedy() {
    if can_run_or_report() {
        const FORBID_TUN_SCRIPT: &str = "mount -t tmpfs tmpfs /dev/net && mknod -m 0 /dev/net/tun c 10 200 \
         && exec \
                             setpriv --bounding-set -dac_override,-dac_read_search \"$@\"";
        assert_start_fails_with(
            &["unshare", "--mount", "sh", "-c", FORBID_TUN_SCRIPT, "sh"],
            &["no permission to open /dev/net/tun", "readable and writable by carnet's user"],
        );
    }
}

#[test]
fn error_without_capability_names_it() {
    if !can_run_or_report() {
        return;
    }
    for (drop, name) in [
        ("-net_admin", "missing capability CAP_NET_ADMIN: start carnet as root"),
        ("-net_raw", "missing capability CAP_NET_RAW: start carnet as root"),
        ("-net_admin,-net_raw", "missing capability CAP_NET_ADMIN and CAP_NET_RAW: "),
    ] {
        assert_start_fails_with(&["setpriv", "--bounding-set", drop, "--inh-caps", drop], &[name, "setcap"]);
    }
}

#[test]
fn second_station_in_a_namespace_is_refused() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let (_agent, mut first) = bed.start_stations();
    wait_until("the first one works", seconds(10), || bed.host.can_ping(CORRESPONDENT));
    let before = bed.router.kernel_state();
    let config = bed.router_config().replace("router.sock", "second.sock");
    let mut second = Station::spawn_without_wait(&bed.router, &config, &[], CARNET_PROGRAM);
    let end = second.wait_for_end(Instant::now());
    assert_eq!(end.status.code(), Some(1), "{}", second.log_text());
    assert!(second.log_text().contains("another carnet station runs in this network namespace"));
    assert_same_state(&before, &bed.router.kernel_state(), "after a second station");
    assert!(first.is_running() && bed.host.can_ping(CORRESPONDENT), "{}", first.log_text());
    assert!(!bed.scratch.path_of("second.sock").exists() && !bed.scratch.path_of("second.undo").exists());
}

/// Two namespaces may share `/run`. A second station with the same name is refused, because the first one
/// uses the socket.
#[test]
fn a_station_whose_socket_is_in_use_is_refused_and_changes_nothing() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let before = bed.router.kernel_state();
    let (_agent, mut first) = bed.start_stations();
    let elsewhere = Host::new();
    let untouched = elsewhere.kernel_state();
    let output = elsewhere.run_program(&[
        CARNET_PROGRAM,
        "run",
        "--config",
        first.config_file.to_str().expect("a path"),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("another running station uses this socket"),
        "{}",
        output_text(&output)
    );
    assert_same_state(&untouched, &elsewhere.kernel_state(), "after a start that failed");
    // The undo file of the first station is still there, so the start after its crash can use it.
    first.end_by_signal(Signal::SIGKILL);
    Station::start(&bed.router, &bed.router_config()).terminate();
    assert_same_state(&before, &bed.router.kernel_state(), "after a crash and a start and an end");
}

#[test]
fn station_runs_in_user_namespace_without_root() {
    if !can_run_or_report() {
        return;
    }
    const USER_NAMESPACE_SCRIPT: &str = "
        exec >$1/out 2>&1
        ip link set lo up
        for link in wlan0 wwan0 lan0; do
            ip link add $link type veth peer name x$link
            # The far ends stand for other machines: this one learns nothing there, not from carnet either.
            echo 0 >/proc/sys/net/ipv6/conf/x$link/accept_ra
            ip link set $link up; ip link set x$link up
        done
        ip -6 addr add 2001:db8:f1::10/64 dev wlan0 nodad
        ip -6 route add default via 2001:db8:f1::1 dev wlan0
        sleep 3
        look() {
            ip -6 rule; ip -6 route show table all | sort; ip -6 addr; ip link
            grep . /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/accept_ra
        }
        look >$1/before
        $2 run --config $3 & child=$!
        echo $child >$1/pid
        wait $child
        echo $? >$1/status
        look >$1/after
        cp $1/status $1/done";
    const AS_NOBODY_SCRIPT: &str = "set -e
        mount -t tmpfs -o mode=0755 tmpfs /mnt
        mknod -m 0666 /mnt/tun c 10 200
        mount --bind /mnt/tun /dev/net/tun
        exec setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user --net \"$@\"";
    let scratch = ScratchFolder::new();
    let directory = scratch.path_of("");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("a mode");
    let directory = directory.to_str().expect("a path");
    // The user of this test may not read the folder in which the program was built.
    fs::copy(CARNET_PROGRAM, scratch.path_of("carnet")).expect("a copy of the program");
    let file = scratch.path_of("router.toml");
    let bed = Testbed::new();
    let socket = scratch.path_of("router.sock");
    let config =
        bed.router_config().replace(&bed.scratch.path_of("router.sock").display().to_string(), "SOCKET");
    fs::write(&file, config.replace("SOCKET", socket.to_str().expect("a path"))).expect("a config file");
    drop(bed);
    let host = Host::new();
    let program = scratch.path_of("carnet");
    let words = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        AS_NOBODY_SCRIPT,
        "sh",
        "sh",
        "-c",
        USER_NAMESPACE_SCRIPT,
        "sh",
        directory,
    ];
    let last = [program.to_str().expect("a path"), file.to_str().expect("a path")];
    let words: Vec<String> = words.iter().chain(&last).map(|word| (*word).to_owned()).collect();
    let mut world = host.spawn_program(&words, |_: &mut Command| {});

    let read = |name: &str| fs::read_to_string(scratch.path_of(name)).unwrap_or_default();
    let state = || {
        let output = run_carnet(&["status", "--json", "--socket", socket.to_str().expect("a path")]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let registering = || state().contains("\"state\": \"registering\"");
    let start = Instant::now();
    while !registering() {
        assert!(start.elapsed() < seconds(30), "no station: {}\n{}", state(), read("out"));
        std::thread::sleep(seconds(1) / 10);
    }
    let pid: i32 = read("pid").trim().parse().expect("a process number");
    let owner = fs::read_to_string(format!("/proc/{pid}/status")).expect("a living process");
    assert!(owner.contains("Uid:\t65534\t65534"), "{owner}");
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a living process");
    wait_for("the end", seconds(20), || scratch.path_of("done").exists().then_some(()));
    assert_eq!(read("status").trim(), "0", "{}", read("out"));
    assert_same_state(&read("before"), &read("after"), "after the end");
    assert!(!socket.exists() && !socket.with_extension("undo").exists());
    let _ = world.wait();
}

/// If an interface has the home agent's address, Binding Updates go to the kernel and never reach the
/// station. So the station warns at its start.
#[test]
fn the_station_warns_if_an_interface_has_the_home_agents_address() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let warned =
        |log: &str| log.contains("this machine has home_agent.address 2001:db8:1::1 on an interface");
    let mut agent = Station::start(&bed.agent, &bed.agent_config());
    assert!(!warned(&agent.log_text()), "{}", agent.log_text());
    agent.terminate();
    bed.agent.run_ip_batch("addr add 2001:db8:1::1/128 dev lo");
    bed.agent.wait_until_settled();
    let agent = Station::start(&bed.agent, &bed.agent_config());
    assert!(warned(&agent.log_text()), "{}", agent.log_text());
}
