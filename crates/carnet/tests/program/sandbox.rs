//! Rights that a running station still has, and rights that it has given up (`station.sandbox`).
//!
//! The test itself has all rights and acts as a debugger: it stops the station and lets it make system calls.
//! So the station's process makes the calls, with the rights that it still has. As a control, a process
//! without sandbox makes the same calls.

use std::fs;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::hosts::{
    Host, ScratchFolder, assert_same_state, can_run_or_report, output_text, seconds, wait_until,
};
use crate::station::{CARNET_PROGRAM, Station};
use crate::testbed::{CARE_OF_ADDRESSES, CORRESPONDENT, Testbed, config_with_station_line};

/// Capability bits: [`NETWORK_CAPABILITIES`] for `CAP_NET_ADMIN` and `CAP_NET_RAW`, [`BPF_CAPABILITIES`] for
/// `CAP_BPF` and `CAP_PERFMON`.
const NETWORK_CAPABILITIES: u64 = 1 << 12 | 1 << 13;
const BPF_CAPABILITIES: u64 = 1 << 39 | 1 << 38;

fn config_on_path(config: &str, path: &str) -> String {
    format!("{}\n[dataplane]\npath = '{path}'\n", config_with_station_line(config, "sandbox = 'required'"))
}

/// Returns whether this machine supports every part of the sandbox. If not, prints which part is missing.
fn has_whole_sandbox() -> bool {
    let scratch = ScratchFolder::new();
    let host = Host::new();
    let mut station = Station::start(&host, &agent_config_with_line(&scratch, "sandbox = 'auto'"));
    let lacking = station.show_json("status")["sandbox"]["lacking"].to_string();
    station.terminate();
    if lacking != "[]" {
        println!("\nSKIPPED: the kernel has not all of the sandbox: {lacking}");
    }
    lacking == "[]"
}

/// Returns the config of a home agent without a home link, with one further line.
fn agent_config_with_line(scratch: &ScratchFolder, line: &str) -> String {
    let socket = scratch.path_of("agent.sock");
    format!(
        "[station]\nname = 'agent'\nsocket = '{}'\n{line}\n[home_agent]\naddress = \
         '2001:db8:1::1'\nhome_prefix = '2001:db8:1::/64'\n[dataplane]\npath = 'tun'\n",
        socket.display()
    )
}

/// Returns the limits of each thread of a process.
fn thread_limits(pid: i32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a living process");
    let status = threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("status")));
    let kept = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"];
    status
        .map(|status| {
            let status = status.expect("a status");
            let lines = status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
            lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn assert_has_capabilities(station: &Station, capabilities: u64) {
    let none = 0;
    let with = |capabilities: u64| {
        format!(
            "CapInh: {none:016x} CapPrm: {capabilities:016x} CapEff: {capabilities:016x} CapBnd: {none:016x} \
             CapAmb: {none:016x} NoNewPrivs: 1 Seccomp: 2"
        )
    };
    let rights = thread_limits(station.pid());
    assert_eq!(rights[0], with(capabilities));
    // Threads that have opened the state and write it have no capabilities.
    assert!(rights[1..].iter().all(|rights| *rights == with(0)), "{rights:#?}");
    let sandbox = &station.show_json("status")["sandbox"];
    assert_eq!((&sandbox["seccomp"], &sandbox["lacking"]), (&json!(true), &json!([])), "{sandbox}");
    assert!(sandbox["landlock"].as_u64() > Some(0), "{sandbox}");
    let text = sandbox["capabilities"].to_string();
    assert_eq!(text.contains("CAP_BPF"), capabilities & BPF_CAPABILITIES != 0, "{text}");
}

/// Checks that a mobile router and its home agent work completely in the sandbox.
fn check_station_works(path: &str, capabilities: u64) {
    let bed = Testbed::new();
    let state = format!("state_dir = '{}'", bed.scratch.path_of("state").display());
    let agent_config = config_with_station_line(&config_on_path(&bed.agent_config(), path), &state);
    let router_config = config_with_station_line(&config_on_path(&bed.router_config(), path), &state);
    let before = bed.agent.kernel_state();
    let mut agent = Station::start(&bed.agent, &agent_config);
    let mut router = Station::start(&bed.router, &router_config);
    router.wait_until_registered();
    let reaches = |what: &str| wait_until(what, seconds(10), || bed.host.can_ping(CORRESPONDENT));
    reaches("packets pass");
    assert_has_capabilities(&agent, capabilities);
    assert_has_capabilities(&router, capabilities);

    // During the run, make a handover, let uplinks disappear and return, and replace configs by new files as
    // an editor does.
    let care_of = || agent.bindings().first().map(|binding| binding.1.clone()).unwrap_or_default();
    assert!(router.run_command(&["handover", "wwan0"]).status.success());
    wait_until("the other uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[1]);
    assert!(router.run_command(&["handover", "auto"]).status.success());
    wait_until("the first uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[0]);
    bed.router.run_ip("link del wlan0");
    wait_until("the other uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[1]);
    bed.add_uplink(0);
    wait_until("the first uplink again", seconds(20), || care_of() == CARE_OF_ADDRESSES[0]);
    let new = router.config_file.with_extension("new");
    fs::write(&new, router_config.replace("priority = 10", "priority = 30")).expect("a config file");
    fs::rename(&new, &router.config_file).expect("a config file");
    router.send_signal(Signal::SIGHUP);
    wait_until("the other uplink", seconds(10), || care_of() == CARE_OF_ADDRESSES[1]);
    reaches("packets pass over the other uplink");

    // Kill the station. After its next run has ended, the kernel must have none of its entries.
    agent.end_by_signal(Signal::SIGKILL);
    let mut agent = Station::start(&bed.agent, &agent_config);
    reaches("packets pass after a crash");
    assert_has_capabilities(&agent, capabilities);
    router.terminate();
    agent.terminate();
    assert_same_state(&before, &bed.agent.kernel_state(), "after the agent has ended");
    for log in [agent.log_text(), router.log_text()] {
        for word in ["Permission denied", "not permitted", "not implemented"] {
            assert!(!log.contains(word), "{word} in\n{log}");
        }
    }
}

#[test]
fn station_works_inside_sandbox_on_path_tun() {
    if can_run_or_report() && has_whole_sandbox() {
        check_station_works("tun", NETWORK_CAPABILITIES);
    }
}

#[test]
fn station_works_inside_sandbox_on_path_bpf() {
    if can_run_or_report() && has_whole_sandbox() {
        check_station_works("bpf", NETWORK_CAPABILITIES | BPF_CAPABILITIES);
    }
}

#[test]
fn station_works_inside_sandbox_on_path_xdp() {
    if can_run_or_report() && has_whole_sandbox() {
        check_station_works("xdp", NETWORK_CAPABILITIES | BPF_CAPABILITIES);
    }
}

/// GeoNetworking inside UDP needs no rights at all.
#[test]
fn a_station_that_changes_no_network_setting_keeps_no_capability() {
    if !(can_run_or_report() && has_whole_sandbox()) {
        return;
    }
    let scratch = ScratchFolder::new();
    let config = format!(
        "[station]\nname = 'car'\nsocket = '{}'\nsandbox = 'required'\n[geonet]\ninterface = \
         'udp:[::1]:8947,[::1]:8948'\nposition = 'fixed:48.8375,2.1008'\n[dataplane]\npath = 'tun'\n",
        scratch.path_of("car.sock").display()
    );
    let host = Host::new();
    let mut station = Station::start(&host, &config);
    assert_has_capabilities(&station, 0);
    wait_until("beacons", seconds(20), || station.counter("geonet.sent") > 0);
    station.terminate();
}

#[test]
fn reload_that_needs_more_rights_is_refused() {
    if !(can_run_or_report() && has_whole_sandbox()) {
        return;
    }
    let bed = Testbed::new();
    let elsewhere = ScratchFolder::new();
    let (_agent, mut router) = bed.start_stations();
    let file = format!("signal_file = '{}'", elsewhere.path_of("signal").display());
    let uplink = "interface = 'wlan0'\n";
    router.reload(&bed.router_config().replace(uplink, &format!("{uplink}{file}\n")));
    assert!(router.log_text().contains("it needs reading in"), "{}", router.log_text());
    assert!(router.is_running() && router.mobile_router_state() == "registered");
    // The station may read files in the folder of its config.
    let file = format!("signal_file = '{}'", bed.scratch.path_of("signal").display());
    router.reload(&bed.router_config().replace(uplink, &format!("{uplink}{file}\n")));
    fs::write(bed.scratch.path_of("signal"), "-61\n").expect("a signal");
    wait_until("the signal", seconds(10), || router.show_json("uplinks").to_string().contains("-61"));
}

#[test]
fn a_station_without_sandbox_keeps_its_rights_and_logs_it() {
    if !can_run_or_report() {
        return;
    }
    let scratch = ScratchFolder::new();
    let host = Host::new();
    let mut station = Station::start(&host, &agent_config_with_line(&scratch, "sandbox = 'off'"));
    let before = &thread_limits(std::process::id().cast_signed())[0];
    assert!(thread_limits(station.pid()).iter().all(|rights| rights == before), "{before}");
    assert_eq!(station.show_json("status")["sandbox"], json!(null));
    assert!(station.log_text().contains("station.sandbox = \"off\""), "{}", station.log_text());
    station.terminate();
}

/// Script that makes a system call fail for the program that it runs, as a container's filter does. Its
/// arguments are the number of the call, and the error that the call returns.
const WITHOUT_CALL_PROGRAM: &str = "
import ctypes, os, struct, sys
number, error = map(int, sys.argv[1:3])
filter = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | error), (6, 0, 0, 0x7fff0000)]
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in filter))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 4, ctypes.addressof(filter)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])
";

/// Returns the command that runs a program with this call blocked. If the machine cannot block calls, prints
/// why and returns `None`.
fn wrapper_without_system_call(number: i64, error: Errno) -> Option<Vec<String>> {
    if cfg!(target_endian = "big") || Command::new("python3").arg("--version").output().is_err() {
        println!("\nSKIPPED: needs python3");
        return None;
    }
    let (number, error) = (number.to_string(), (error as i32).to_string());
    Some(vec!["python3".into(), "-c".into(), WITHOUT_CALL_PROGRAM.into(), number, error])
}

#[test]
fn station_without_bpf_support_gives_up_the_right_to_load_programs() {
    if !(can_run_or_report() && has_whole_sandbox()) {
        return;
    }
    let Some(wrapper) = wrapper_without_system_call(nix::libc::SYS_bpf, Errno::EPERM) else { return };
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let (scratch, host) = (ScratchFolder::new(), Host::new());
    let config = agent_config_with_line(&scratch, "sandbox = 'required'").replace("'tun'", "'auto'");
    let mut station = Station::start_wrapped(&host, &config, &wrapper, CARNET_PROGRAM);
    assert_ne!(station.show_json("status")["dataplane"], json!("bpf"));
    let rights = thread_limits(station.pid());
    assert!(
        rights[0]
            .contains(&format!("CapPrm: {NETWORK_CAPABILITIES:016x} CapEff: {NETWORK_CAPABILITIES:016x} ")),
        "{rights:?}"
    );
    assert_eq!(
        station.show_json("status")["sandbox"]["capabilities"],
        json!(["CAP_NET_ADMIN", "CAP_NET_RAW"])
    );
    station.terminate();
}

#[test]
fn sandbox_auto_starts_and_required_fails_without_landlock() {
    if !(can_run_or_report() && has_whole_sandbox()) {
        return;
    }
    let (scratch, host) = (ScratchFolder::new(), Host::new());
    let Some(wrapper) = wrapper_without_system_call(nix::libc::SYS_landlock_create_ruleset, Errno::ENOSYS)
    else {
        return;
    };
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut station = Station::start_wrapped(
        &host,
        &agent_config_with_line(&scratch, "sandbox = 'auto'"),
        &wrapper,
        CARNET_PROGRAM,
    );
    let sandbox = &station.show_json("status")["sandbox"];
    assert_eq!((&sandbox["landlock"], &sandbox["seccomp"]), (&json!(null), &json!(true)), "{sandbox}");
    assert_eq!(station.log_text().matches("the kernel has no Landlock").count(), 1, "{}", station.log_text());
    station.terminate();

    let file = scratch.path_of("required.toml");
    fs::write(&file, agent_config_with_line(&scratch, "sandbox = 'required'")).expect("a config file");
    let path = file.to_str().expect("a path");
    let output = host.run_program(&[&wrapper[..], &[CARNET_PROGRAM, "run", "--config", path]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let text = "cannot restrict the process as station.sandbox = \"required\" demands: carnet's access to \
                files and ports is not restricted";
    assert!(output_text(&output).contains(text), "{}", output_text(&output));
}

/// Without `CAP_SETPCAP` the process cannot reduce its bounding set, which does not matter.
#[test]
fn root_without_cap_setpcap_keeps_only_needed_capabilities() {
    if !(can_run_or_report() && has_whole_sandbox()) {
        return;
    }
    let scratch = ScratchFolder::new();
    let wrapper = ["setpriv", "--bounding-set", "-setpcap", "--inh-caps", "-setpcap"];
    let config = agent_config_with_line(&scratch, "sandbox = 'required'");
    let host = Host::new();
    let mut station = Station::start_wrapped(&host, &config, &wrapper, CARNET_PROGRAM);
    let rights = thread_limits(station.pid());
    assert!(rights[0].contains(&format!("CapEff: {NETWORK_CAPABILITIES:016x} ")), "{rights:?}");
    station.terminate();
}

#[cfg(target_arch = "x86_64")]
mod system_calls {
    use nix::sys::ptrace;
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::hosts::wait_for;

    /// A process that makes system calls for the test.
    pub struct TracedProcess {
        pid: Pid,
        saved_registers: nix::libc::user_regs_struct,
        /// Address of an instruction that makes a system call.
        syscall_instruction: u64,
        /// Address of unused memory below the process's stack.
        writable_memory: u64,
    }

    /// Result of a system call, or the end of the process.
    #[derive(Debug, PartialEq, Eq)]
    pub enum SystemCallResult {
        Done(i64),
        Refused(Errno),
        Killed,
    }

    impl TracedProcess {
        /// Attaches to a process that waits in the kernel, and stops it.
        pub fn new(pid: i32) -> TracedProcess {
            let pid = Pid::from_raw(pid);
            wait_for("it waits in the kernel, behind a `syscall`", seconds(10), || {
                ptrace::attach(pid).expect("a debugger's rights");
                waitpid(pid, None).expect("a child");
                let before = ptrace::getregs(pid).expect("its registers");
                let call = before.rip - 2;
                let instruction = ptrace::read(pid, call as ptrace::AddressType).expect("its code");
                if instruction & 0xffff != 0x050f {
                    ptrace::detach(pid, None).expect("a process");
                    return None;
                }
                Some(TracedProcess {
                    pid,
                    saved_registers: before,
                    syscall_instruction: call,
                    writable_memory: (before.rsp - 16384) & !7,
                })
            })
        }

        /// Writes octets into the memory of the process, and returns their address.
        pub fn write_memory(&self, at: u64, octets: &[u8]) -> u64 {
            let address = self.writable_memory + at;
            for (word, octets) in (0..).zip(octets.chunks(8)) {
                let mut value = [0; 8];
                value[..octets.len()].copy_from_slice(octets);
                let to = (address + word * 8) as ptrace::AddressType;
                ptrace::write(self.pid, to, i64::from_ne_bytes(value)).expect("its memory");
            }
            address
        }

        pub fn call_kernel(&self, number: i64, arguments: [u64; 6]) -> SystemCallResult {
            let mut registers = self.saved_registers;
            [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
                arguments;
            registers.rax = number.cast_unsigned();
            registers.rip = self.syscall_instruction;
            // This value in the register prevents the kernel from restarting the interrupted call.
            registers.orig_rax = u64::MAX;
            ptrace::setregs(self.pid, registers).expect("its registers");
            loop {
                ptrace::step(self.pid, None).expect("a step");
                match waitpid(self.pid, None).expect("a child") {
                    WaitStatus::Signaled(_, Signal::SIGSYS, _) => return SystemCallResult::Killed,
                    WaitStatus::Stopped(_, Signal::SIGTRAP) => break,
                    // A signal has stopped the process before the step, for example a signal of a traced
                    // process.
                    WaitStatus::Stopped(..) => {}
                    status => panic!("{status:?}"),
                }
            }
            match ptrace::getregs(self.pid).expect("its registers").rax.cast_signed() {
                error @ -4095..=-1 => SystemCallResult::Refused(Errno::from_raw(-error as i32)),
                value => SystemCallResult::Done(value),
            }
        }

        /// Lets the process continue as before the test.
        pub fn release(self) {
            ptrace::setregs(self.pid, self.saved_registers).expect("its registers");
            ptrace::detach(self.pid, None).expect("a process");
        }
    }

    const BPF_PROG_GET_NEXT_ID: u64 = 11;
    /// Value of `PTRACE_ATTACH`.
    const PTRACE_ATTACH_REQUEST: u64 = 16;

    /// Makes system calls that the sandbox must refuse with an error. Returns the name, the expected error
    /// and the result of each call.
    fn attempt_forbidden_calls(
        puppet: &TracedProcess,
        elsewhere: &str,
    ) -> Vec<(&'static str, Errno, SystemCallResult)> {
        use nix::libc::*;
        let shadow = puppet.write_memory(0, b"/etc/shadow\0");
        let new = puppet.write_memory(512, format!("{elsewhere}/new\0").as_bytes());
        let room = puppet.write_memory(1024, &[0; 128]);
        let here = AT_FDCWD as i64 as u64;
        let (flags, netlink) = ((O_CREAT | O_WRONLY) as u64, AF_NETLINK as u64);
        let memory =
            [0, 4096, (PROT_READ | PROT_EXEC) as u64, (MAP_PRIVATE | MAP_ANONYMOUS) as u64, u64::MAX, 0];
        let parent = std::process::id().into();
        [
            ("read /etc/shadow", Errno::EACCES, SYS_openat, [here, shadow, 0, 0, 0, 0]),
            ("write elsewhere", Errno::EACCES, SYS_openat, [here, new, flags, 0o600, 0, 0]),
            ("hear of devices", Errno::EPERM, SYS_socket, [netlink, SOCK_RAW as u64, 15, 0, 0, 0]),
            ("change a mode", Errno::EPERM, SYS_chmod, [new, 0o666, 0, 0, 0, 0]),
            ("executable memory", Errno::EPERM, SYS_mmap, memory),
            ("signal", Errno::EPERM, SYS_kill, [parent, 0, 0, 0, 0, 0]),
            ("others' programs", Errno::EPERM, SYS_bpf, [BPF_PROG_GET_NEXT_ID, room, 128, 0, 0, 0]),
        ]
        .map(|(what, errno, number, arguments)| (what, errno, puppet.call_kernel(number, arguments)))
        .into()
    }

    const FATAL_CALL_COUNT: usize = 7;

    /// Makes one of the system calls that no part of the program needs. The sandbox must then end the
    /// process.
    fn attempt_fatal_call(
        puppet: &TracedProcess,
        which: usize,
        elsewhere: &str,
        other: i32,
    ) -> (&'static str, SystemCallResult) {
        use nix::libc::*;
        let program = puppet.write_memory(0, b"/bin/true\0");
        let words = puppet.write_memory(64, &[program.to_ne_bytes(), [0; 8]].concat());
        let folder = puppet.write_memory(512, format!("{elsewhere}\0").as_bytes());
        let kind = puppet.write_memory(1024, b"tmpfs\0");
        let other = other as u64;
        // The last call replaces the process, so no other call can follow.
        let calls: [_; FATAL_CALL_COUNT] = [
            ("trace", SYS_ptrace, [PTRACE_ATTACH_REQUEST, other, 0, 0, 0, 0]),
            ("read another's memory", SYS_process_vm_readv, [other, 0, 0, 0, 0, 0]),
            ("mount", SYS_mount, [kind, folder, kind, 0, 0, 0]),
            ("unmount", SYS_umount2, [folder, 0, 0, 0, 0, 0]),
            ("new namespace", SYS_unshare, [CLONE_NEWUTS as u64, 0, 0, 0, 0, 0]),
            ("keys", SYS_keyctl, [0, -3_i64 as u64, 1, 0, 0, 0]),
            ("execute", SYS_execve, [program, words, 0, 0, 0, 0]),
        ];
        let (what, number, arguments) = calls[which];
        (what, puppet.call_kernel(number, arguments))
    }

    #[test]
    fn attacker_in_the_station_cannot_leave_the_sandbox() {
        if !(can_run_or_report() && has_whole_sandbox()) {
            return;
        }
        let (scratch, elsewhere, host) = (ScratchFolder::new(), ScratchFolder::new(), Host::new());
        fs::create_dir_all(elsewhere.path_of("folder")).expect("a folder");
        let folder = elsewhere.path_of("folder").display().to_string();
        let mut victim = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = victim.id().cast_signed();

        // Control: a process without sandbox can make all of these calls.
        let free = Station::start(&host, &agent_config_with_line(&scratch, "sandbox = 'off'"));
        let puppet = TracedProcess::new(free.pid());
        for (what, _, end) in attempt_forbidden_calls(&puppet, &folder) {
            // If no BPF program is loaded, the call for the next program's ID returns ENOENT.
            assert!(
                matches!(end, SystemCallResult::Done(_) | SystemCallResult::Refused(Errno::ENOENT)),
                "{what}: {end:?}"
            );
        }
        fs::remove_file(elsewhere.path_of("folder").join("new")).expect("what was written elsewhere");
        for which in 0..FATAL_CALL_COUNT {
            let (what, end) = attempt_fatal_call(&puppet, which, &folder, pid);
            assert!(matches!(end, SystemCallResult::Done(_)), "{what}: {end:?}");
        }
        drop(free);

        // From here on the station runs with its sandbox.
        let confined = agent_config_with_line(&scratch, "sandbox = 'required'");
        let mut station = Station::start(&host, &confined);
        let puppet = TracedProcess::new(station.pid());
        for (what, errno, end) in attempt_forbidden_calls(&puppet, &folder) {
            assert_eq!(end, SystemCallResult::Refused(errno), "{what}");
        }
        puppet.release();
        // The process still works after the sandbox has refused calls.
        assert!(station.run_command(&["status"]).status.success());
        station.terminate();
        for which in 0..FATAL_CALL_COUNT {
            let station = Station::start(&host, &confined);
            let puppet = TracedProcess::new(station.pid());
            let (what, end) = attempt_fatal_call(&puppet, which, &folder, pid);
            assert_eq!(end, SystemCallResult::Killed, "{what}");
            drop(station);
        }
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        victim.wait().expect("a child");
    }

    /// Only a station whose data path uses BPF programs keeps the right to load them.
    #[test]
    fn only_stations_with_fast_path_keep_cap_bpf() {
        if !(can_run_or_report() && has_whole_sandbox()) {
            return;
        }
        for (path, may) in [("tun", false), ("bpf", true), ("xdp", true)] {
            let scratch = ScratchFolder::new();
            let config = agent_config_with_line(&scratch, "sandbox = 'required'")
                .replace("'tun'", &format!("'{path}'"));
            let host = Host::new();
            let mut station = Station::start(&host, &config);
            let puppet = TracedProcess::new(station.pid());
            // Parameters of a BPF map: an array that has one entry of four octets.
            let array: Vec<u8> = [2_u32, 4, 4, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
            let attr = puppet.write_memory(0, &[array, vec![0; 112]].concat());
            match puppet.call_kernel(nix::libc::SYS_bpf, [0, attr, 128, 0, 0, 0]) {
                SystemCallResult::Done(_) => assert!(may, "{path}"),
                end => assert!(!may && end == SystemCallResult::Refused(Errno::EPERM), "{path}: {end:?}"),
            }
            let next = puppet.call_kernel(nix::libc::SYS_bpf, [BPF_PROG_GET_NEXT_ID, attr, 128, 0, 0, 0]);
            assert_eq!(next, SystemCallResult::Refused(Errno::EPERM), "{path}");
            puppet.release();
            station.terminate();
        }
    }
}
