//! The queues of control messages, and the time from which their packets wake the station.
//!
//! The station wants to gather control messages before it handles them. If the runtime watched a queue
//! itself, each packet would wake the process, even if no task waits for the queue. At a home agent with
//! 100,000 routers, two of three wake-ups came from such messages. So a separate epoll watches the queues,
//! and the runtime watches that epoll.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use crate::async_descriptor::{DescriptorOwner, watch_readable};

/// Queues of control messages: one for known senders, one for all other senders. Packets of both queues wake
/// the station, or packets of neither queue.
#[derive(Debug)]
pub(super) struct ControlQueues {
    queue_files: [OwnedFd; 2],
    /// Epoll that is readable while a queue has packets.
    readable_queues: AsyncFd<QueueEpoll>,
    /// Whether the epoll reports packets now.
    reports_packets: AtomicBool,
}

#[derive(Debug)]
struct QueueEpoll(Epoll);

impl AsRawFd for QueueEpoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

impl DescriptorOwner for QueueEpoll {}

impl QueueEpoll {
    /// Checks for packets. Fails with [`io::ErrorKind::WouldBlock`] if no queue has a packet.
    fn check_for_packets(&self) -> io::Result<()> {
        match self.0.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}

impl ControlQueues {
    /// Creates the epoll for these queues.
    pub(super) fn new(files: [OwnedFd; 2]) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for file in &files {
            epoll.add(file, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(ControlQueues {
            queue_files: files,
            readable_queues: watch_readable(QueueEpoll(epoll))?,
            reports_packets: AtomicBool::new(true),
        })
    }

    pub(super) fn known_senders_queue(&self) -> &OwnedFd {
        let [known, _] = &self.queue_files;
        known
    }

    pub(super) fn unknown_senders_queue(&self) -> &OwnedFd {
        let [_, strangers] = &self.queue_files;
        strangers
    }

    /// Waits until a queue may have packets. With a time `from`, always waits until this time, even if
    /// packets arrive earlier. Safe to cancel.
    pub(super) async fn queue_readable(&self, from: Option<Instant>) -> io::Result<()> {
        self.set_packet_reports(from.is_none())?;
        if let Some(from) = from {
            sleep_until(from).await;
            return Ok(());
        }
        loop {
            // `try_io` clears the readiness if no queue has a packet.
            if let Ok(found) =
                self.readable_queues.readable().await?.try_io(|news| news.get_ref().check_for_packets())
            {
                return found;
            }
        }
    }

    /// Returns whether both queues were empty at the last check. Makes no system call.
    pub(super) fn are_queues_empty(&self) -> bool {
        self.reports_packets.load(Ordering::Relaxed)
            && self.readable_queues.try_io(Interest::READABLE, |_| Ok(())).is_err()
    }

    /// Notes that all packets have been read, so that [`Self::are_queues_empty`] may return true.
    pub(super) fn note_all_packets_read(&self) {
        // Ignore an error: the task that waits for the queues will get the same error.
        let _ = self.readable_queues.try_io(Interest::READABLE, QueueEpoll::check_for_packets);
    }

    fn set_packet_reports(&self, listens: bool) -> io::Result<()> {
        if self.reports_packets.swap(listens, Ordering::Relaxed) != listens {
            // With EPOLLIN the epoll reports packets and errors; with EPOLLONESHOT alone it reports only
            // errors. A removed device also causes an error in the first queue.
            let flags = if listens { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLONESHOT };
            for file in &self.queue_files {
                self.readable_queues.get_ref().0.modify(file, &mut EpollEvent::new(flags, 0))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::time::Duration;

    use super::*;

    const SOON_AFTER: Duration = Duration::from_millis(20);

    /// Returns two queues, and the files that write into them.
    fn two_queues() -> (ControlQueues, [File; 2]) {
        let pipes = [(); 2].map(|()| nix::unistd::pipe().expect("a pipe"));
        let [(first, to_first), (second, to_second)] = pipes;
        (ControlQueues::new([first, second]).expect("an epoll"), [to_first.into(), to_second.into()])
    }

    fn read_queue(queues: &ControlQueues, number: usize) {
        let mut file = File::from(queues.queue_files[number].try_clone().expect("a copy"));
        file.read_exact(&mut [0]).expect("an octet");
        queues.note_all_packets_read();
    }

    async fn is_readable(queues: &ControlQueues) -> bool {
        tokio::time::timeout(SOON_AFTER, queues.queue_readable(None)).await.is_ok()
    }

    #[tokio::test]
    async fn control_queues_report_packets_until_they_are_read() {
        let (queues, mut to) = two_queues();
        assert!(!is_readable(&queues).await && queues.are_queues_empty());
        for (number, to) in to.iter_mut().enumerate() {
            to.write_all(&[1, 2]).expect("written");
            assert!(is_readable(&queues).await && !queues.are_queues_empty(), "{number}");
            read_queue(&queues, number);
            assert!(is_readable(&queues).await && !queues.are_queues_empty(), "there is one more: {number}");
            read_queue(&queues, number);
            assert!(!is_readable(&queues).await && queues.are_queues_empty(), "{number}");
        }
    }

    #[tokio::test]
    async fn reader_waits_until_gathering_deadline_for_control_messages() {
        let (queues, mut to) = two_queues();
        let until = Instant::now() + 3 * SOON_AFTER;
        let mut gathering = Box::pin(queues.queue_readable(Some(until)));
        assert!(tokio::time::timeout(SOON_AFTER, &mut gathering).await.is_err());
        to[1].write_all(&[1]).expect("written");
        assert!(
            queues.readable_queues.get_ref().check_for_packets().is_err()
                && queues.readable_queues.try_io(Interest::READABLE, |_| Ok(())).is_err()
        );
        gathering.await.expect("no queue became readable in time");
        assert!(Instant::now() >= until);
        // The station may read packets although no packet has woken it.
        assert!(!queues.are_queues_empty());
        assert!(is_readable(&queues).await, "it came while nobody listened");
        read_queue(&queues, 1);
        assert!(!is_readable(&queues).await && queues.are_queues_empty());
    }
}
