//! Gives a node of the testbed a share of a core, for the kernel threads that poll its interfaces and for its
//! program.
//!
//! Kernel threads are only in the first process namespace, so the inner lab cannot name them. The outer lab
//! can, if it runs in that namespace. So the inner lab sends requests to the outer lab through the socket
//! that is its standard input ([`crate::isolate`]):
//!
//! ```text
//! begin GROUP SHARE        create a control group with this share of a core, 0 to 1
//! hold GROUP CORE i0,e0    move threads that poll these interfaces into the group and onto the core, if they
//!                          started after `begin`
//! used GROUP               return the nanoseconds that the threads of the group have run
//! end GROUP                remove the group
//! ```
//!
//! A CPU quota would be simpler. But since Linux 6.18 a quota does not stop kernel threads, because it acts
//! only on the return to user space. So the node's threads are in a control group with a weight, and a rival
//! thread runs on the same core all the time (`CompetingThread`). A thread that often sleeps does not get
//! exactly its share, so the result also contains the group's run time.
//!
//! The outer lab answers each request with `done` and a number (threads in the group, or nanoseconds), or
//! with an error. When the inner lab ends, the outer lab removes the remaining groups.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anyhow::{Context, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::clock::{self, MILLISECOND, SECOND};

/// Prefix of the names of the control groups.
const GROUP_NAME_PREFIX: &str = "carnet-lab-";

/// The mounted hierarchy of control groups with the CPU controller: version 2, or version 1.
#[derive(Debug, Clone)]
struct CgroupHierarchy {
    hierarchy_folder: PathBuf,
    is_version_2: bool,
}

impl CgroupHierarchy {
    fn find_hierarchy() -> anyhow::Result<CgroupHierarchy> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        let found = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let (root, kind) = (PathBuf::from(words.get(1)?), *words.get(2)?);
            let first = kind == "cgroup" && words.get(3)?.split(',').any(|option| option == "cpu");
            let controllers = || std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            let second = kind == "cgroup2" && controllers().split_whitespace().any(|one| one == "cpu");
            (first || second).then_some(CgroupHierarchy { hierarchy_folder: root, is_version_2: second })
        });
        found.context("there are no control groups for the processor (cgroup)")
    }

    fn create_group(&self, group: &str, share: f64) -> anyhow::Result<PathBuf> {
        ensure!(
            share > 0.0 && share < 1.0,
            "expected a share of processor time between 0 and 1, found {share}"
        );
        let place = self.hierarchy_folder.join(group);
        std::fs::create_dir(&place)?;
        // Ratio of the group's weight to the weight of the rival thread, which has the default weight.
        let ratio = share / (1.0 - share);
        if self.is_version_2 {
            std::fs::write(self.hierarchy_folder.join("cgroup.subtree_control"), "+cpu")?;
            std::fs::write(place.join("cpu.weight"), format!("{:.0}", (100.0 * ratio).max(1.0)))?;
        } else {
            std::fs::write(place.join("cpu.shares"), format!("{:.0}", (1024.0 * ratio).max(2.0)))?;
        }
        Ok(place)
    }

    fn members_file(&self) -> &'static str {
        if self.is_version_2 { "cgroup.procs" } else { "tasks" }
    }

    /// Removes a control group. The threads and processes in it move to the root group.
    fn remove_group(&self, place: &Path) {
        for _ in 0..50 {
            let inside = std::fs::read_to_string(place.join(self.members_file())).unwrap_or_default();
            for member in inside.lines() {
                let _ = std::fs::write(self.hierarchy_folder.join(self.members_file()), member);
            }
            if std::fs::remove_dir(place).is_ok() || !place.exists() {
                return;
            }
            clock::sleep(20 * MILLISECOND);
        }
    }
}

/// A thread that uses a core without pause, as much as the scheduler permits.
#[derive(Debug)]
struct CompetingThread {
    stop: Arc<AtomicBool>,
    join_handle: Option<JoinHandle<()>>,
}

impl CompetingThread {
    fn start_on_core(core: usize) -> CompetingThread {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let thread = std::thread::spawn(move || {
            if pin_thread(0, core).is_ok() {
                while !own.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        CompetingThread { stop, join_handle: Some(thread) }
    }
}

impl Drop for CompetingThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.join_handle.take() {
            let _ = thread.join();
        }
    }
}

/// Pins a thread to one core; thread 0 is the caller.
fn pin_thread(thread: u32, core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(thread as i32), &set)
        .with_context(|| format!("cannot pin thread {thread}"))
}

/// Returns the nanoseconds that a thread has run, from its `schedstat`.
fn thread_run_time(thread: u32) -> anyhow::Result<u64> {
    let file = format!("/proc/{thread}/schedstat");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.with_context(|| format!("{file} is not as expected: {text}"))
}

/// A control group that the inner lab has requested, and its rival thread.
#[derive(Debug)]
pub struct CpuQuota {
    name: String,
    group_folder: PathBuf,
    core: usize,
    process: Cell<Option<u32>>,
    _competing_thread: CompetingThread,
}

impl CpuQuota {
    /// Creates a control group whose processes together get this share of a core.
    pub fn create_group(world: &str, share: f64, core: usize) -> anyhow::Result<CpuQuota> {
        let hierarchy = CgroupHierarchy::find_hierarchy()?;
        // The time in the name makes it unique on the machine.
        let name = format!("{GROUP_NAME_PREFIX}{}-{world}", clock::realtime_now());
        request_from_outer_lab(&format!("begin {name} {share}"))?;
        Ok(CpuQuota {
            group_folder: hierarchy.hierarchy_folder.join(&name),
            name,
            core,
            process: Cell::new(None),
            _competing_thread: CompetingThread::start_on_core(core),
        })
    }

    /// Puts a process and the polling threads of these interfaces into the group. The threads must have
    /// started after the group was created.
    pub fn add_members(&self, interfaces: &[&str], process: Option<u32>) -> anyhow::Result<()> {
        let held =
            request_from_outer_lab(&format!("hold {} {} {}", self.name, self.core, interfaces.join(",")))?;
        ensure!(
            held >= interfaces.len(),
            "expected a polling thread of each of the {} interfaces, found {held} threads",
            interfaces.len()
        );
        if let Some(process) = process {
            std::fs::write(self.group_folder.join("cgroup.procs"), process.to_string()).with_context(
                || format!("cannot put process {process} into {}", self.group_folder.display()),
            )?;
            pin_thread(process, self.core)?;
            self.process.set(Some(process));
        }
        Ok(())
    }

    /// Returns the nanoseconds that the group's members have run since they joined.
    pub fn used_nanoseconds(&self) -> anyhow::Result<u64> {
        let own = self.process.get().map_or(Ok(0), thread_run_time)?;
        Ok(request_from_outer_lab(&format!("used {}", self.name))? as u64 + own)
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let _ = request_from_outer_lab(&format!("end {}", self.name));
    }
}

/// Answers of the outer lab that have arrived.
static ANSWERS_OF_OUTER_LAB: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock_answers() -> std::sync::MutexGuard<'static, Vec<String>> {
    ANSWERS_OF_OUTER_LAB.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Handles a line from the outer lab, which is the answer to a request.
pub fn handle_answer(line: String) {
    lock_answers().push(line);
}

/// Sends a request to the outer lab and returns the number in its answer.
fn request_from_outer_lab(request: &str) -> anyhow::Result<usize> {
    lock_answers().clear();
    nix::unistd::write(std::io::stdin().as_fd(), format!("{request}\n").as_bytes())
        .context("cannot send a request to the outer lab")?;
    let end = clock::monotonic_now() + 5 * SECOND;
    loop {
        if let Some(answer) = lock_answers().pop() {
            let number = answer.strip_prefix("done ").and_then(|number| number.parse().ok());
            return number.with_context(|| format!("cannot limit the processor time of programs: {answer}"));
        }
        ensure!(clock::monotonic_now() < end, "the outer lab has not answered a request for 5 s");
        clock::sleep(MILLISECOND);
    }
}

/// Executes the inner lab's requests in the outer lab until the inner lab ends.
pub fn serve_inner_lab(stream: UnixStream) {
    let mut groups = GroupsByName::new();
    let Ok(mut answers) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer = match handle_request(&line, &mut groups) {
            Ok(number) => format!("done {number}\n"),
            Err(error) => format!("{error:#}\n"),
        };
        if answers.write_all(answer.as_bytes()).is_err() {
            break;
        }
    }
    groups.values().for_each(|group| group.hierarchy.remove_group(&group.group_folder));
}

/// The groups in the outer lab, by name.
type GroupsByName = BTreeMap<String, LimitedGroup>;

/// State of a group in the outer lab.
#[derive(Debug)]
struct LimitedGroup {
    hierarchy: CgroupHierarchy,
    group_folder: PathBuf,
    threads_before: BTreeSet<u32>,
    threads_in_group: BTreeSet<u32>,
}

fn handle_request(line: &str, groups: &mut GroupsByName) -> anyhow::Result<usize> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["begin", group, share] => {
            let plain = group.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            ensure!(
                group.starts_with(GROUP_NAME_PREFIX) && plain,
                "expected the name of a control group of the lab, found {group:?}"
            );
            let hierarchy = CgroupHierarchy::find_hierarchy()?;
            let place = hierarchy.create_group(group, share.parse()?)?;
            let before = polling_kernel_threads()?.into_keys().collect();
            groups.insert(
                group.into(),
                LimitedGroup {
                    hierarchy,
                    group_folder: place,
                    threads_before: before,
                    threads_in_group: BTreeSet::new(),
                },
            );
            Ok(0)
        }
        ["hold", group, core, interfaces] => {
            let group = groups.get_mut(group).context("no such group")?;
            for (thread, name) in polling_kernel_threads()? {
                let of_them = interfaces.split(',').any(|one| name.starts_with(&format!("napi/{one}-")));
                if of_them && !group.threads_before.contains(&thread) {
                    std::fs::write(
                        group.group_folder.join(group.hierarchy.members_file()),
                        thread.to_string(),
                    )
                    .with_context(|| format!("cannot move thread {name}"))?;
                    pin_thread(thread, core.parse()?)?;
                    group.threads_in_group.insert(thread);
                }
            }
            Ok(group.threads_in_group.len())
        }
        ["used", group] => {
            let group = groups.get(group).context("no such group")?;
            let all = group
                .threads_in_group
                .iter()
                .map(|thread| thread_run_time(*thread))
                .sum::<anyhow::Result<u64>>()?;
            Ok(all as usize)
        }
        ["end", group] => {
            let group = groups.remove(group).context("no such group")?;
            group.hierarchy.remove_group(&group.group_folder);
            Ok(0)
        }
        _ => bail!("expected a request of the inner lab, found {line:?}"),
    }
}

/// Returns the kernel threads that poll interfaces, by thread number.
fn polling_kernel_threads() -> anyhow::Result<BTreeMap<u32, String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        found.extend(polling_thread_name(&text).map(|name| (thread, name.to_owned())));
    }
    Ok(found)
}

/// Returns the name of a kernel thread that polls an interface, from its `/proc/PID/stat`; `None` for other
/// processes. Kernel threads are children of kthreadd, which is process 2.
fn polling_thread_name(stat: &str) -> Option<&str> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?;
    (parent == "2" && name.starts_with("napi/")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_are_distinguished_from_programs() {
        assert_eq!(polling_thread_name("71 (napi/i0-8193) S 2 0 0 0 -1"), Some("napi/i0-8193"));
        assert_eq!(polling_thread_name("71 (napi/i0-8193) S 1 0 0 0 -1"), None);
        assert_eq!(polling_thread_name("71 (kworker/0:0) I 2 0"), None);
    }

    #[test]
    fn only_control_groups_of_the_lab_are_changed() {
        let mut groups = GroupsByName::new();
        for request in [
            "begin ../x 0.5",
            "begin other 0.5",
            "begin carnet-lab-a/b 0.5",
            "begin carnet-lab-a 1",
            "hold x 0 e0",
            "used x",
            "end x",
            "",
        ] {
            assert!(handle_request(request, &mut groups).is_err(), "{request}");
        }
        assert!(groups.is_empty());
    }
}
