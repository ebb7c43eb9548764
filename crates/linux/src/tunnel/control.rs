//! The queues of control messages, and the time from which their packets wake the station.
//!
//! A separate epoll watches the queues, and the runtime watches that epoll. If the runtime watched a queue
//! itself, each packet would wake the process, even if no task waits for the queue. But the station wants to
//! gather control messages before it handles them. At a home agent with 100,000 routers two of three wake-ups
//! came from such messages.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use crate::readable::{Owner, watch};

/// The two queues, for known senders and for all others. Either both wake the station, or neither does for a
/// while.
#[derive(Debug)]
pub(super) struct Queues {
    files: [OwnedFd; 2],
    /// Epoll that is readable while a queue has packets.
    news: AsyncFd<News>,
    /// Whether the epoll reports packets now.
    listens: AtomicBool,
}

#[derive(Debug)]
struct News(Epoll);

impl AsRawFd for News {
    fn as_raw_fd(&self) -> RawFd {
        self.0.0.as_raw_fd()
    }
}

impl Owner for News {}

impl News {
    /// Checks for packets. Fails with [`io::ErrorKind::WouldBlock`] if no queue has a packet.
    fn look(&self) -> io::Result<()> {
        match self.0.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}

impl Queues {
    /// Creates the epoll for these queues.
    pub(super) fn new(files: [OwnedFd; 2]) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for file in &files {
            epoll.add(file, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(Queues { files, news: watch(News(epoll))?, listens: AtomicBool::new(true) })
    }

    pub(super) fn known(&self) -> &OwnedFd {
        let [known, _] = &self.files;
        known
    }

    pub(super) fn strangers(&self) -> &OwnedFd {
        let [_, strangers] = &self.files;
        strangers
    }

    /// Waits until a queue may have packets. Before the time `from`, no packet wakes the task. Safe to
    /// cancel.
    pub(super) async fn readable(&self, from: Option<Instant>) -> io::Result<()> {
        self.listen(from.is_none())?;
        if let Some(from) = from {
            sleep_until(from).await;
            return Ok(());
        }
        loop {
            // If no queue has a packet, this clears the readiness.
            if let Ok(found) = self.news.readable().await?.try_io(|news| news.get_ref().look()) {
                return found;
            }
        }
    }

    /// Returns whether the queues are empty as far as the runtime knows. Makes no system call.
    pub(super) fn is_quiet(&self) -> bool {
        self.listens.load(Ordering::Relaxed) && self.news.try_io(Interest::READABLE, |_| Ok(())).is_err()
    }

    /// Notes that all packets may have been read, so that [`Self::is_quiet`] can become true.
    pub(super) fn was_read(&self) {
        // Ignore an error: it appears again when a task waits for the queues.
        let _ = self.news.try_io(Interest::READABLE, News::look);
    }

    fn listen(&self, listens: bool) -> io::Result<()> {
        if self.listens.swap(listens, Ordering::Relaxed) != listens {
            // With EPOLLONESHOT the epoll reports nothing, except errors. The error of a removed device also
            // shows in its first queue.
            let flags = if listens { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLONESHOT };
            for file in &self.files {
                self.news.get_ref().0.modify(file, &mut EpollEvent::new(flags, 0))?;
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

    const SOON: Duration = Duration::from_millis(20);

    /// Returns two queues, and the files that write into them.
    fn queues() -> (Queues, [File; 2]) {
        let pipes = [(); 2].map(|()| nix::unistd::pipe().expect("a pipe"));
        let [(first, to_first), (second, to_second)] = pipes;
        (Queues::new([first, second]).expect("an epoll"), [to_first.into(), to_second.into()])
    }

    fn read(queues: &Queues, number: usize) {
        let mut file = File::from(queues.files[number].try_clone().expect("a copy"));
        file.read_exact(&mut [0]).expect("an octet");
        queues.was_read();
    }

    async fn is_readable(queues: &Queues) -> bool {
        tokio::time::timeout(SOON, queues.readable(None)).await.is_ok()
    }

    #[tokio::test]
    async fn whatever_comes_into_either_is_heard_of_until_it_is_read() {
        let (queues, mut to) = queues();
        assert!(!is_readable(&queues).await && queues.is_quiet());
        for (number, to) in to.iter_mut().enumerate() {
            to.write_all(&[1, 2]).expect("written");
            assert!(is_readable(&queues).await && !queues.is_quiet(), "{number}");
            read(&queues, number);
            assert!(is_readable(&queues).await && !queues.is_quiet(), "there is one more: {number}");
            read(&queues, number);
            assert!(!is_readable(&queues).await && queues.is_quiet(), "{number}");
        }
    }

    #[tokio::test]
    async fn what_gathers_wakes_nobody_and_is_there_at_the_end() {
        let (queues, mut to) = queues();
        let until = Instant::now() + 3 * SOON;
        let mut gathering = Box::pin(queues.readable(Some(until)));
        assert!(tokio::time::timeout(SOON, &mut gathering).await.is_err());
        to[1].write_all(&[1]).expect("written");
        assert!(
            queues.news.get_ref().look().is_err()
                && queues.news.try_io(Interest::READABLE, |_| Ok(())).is_err()
        );
        gathering.await.expect("the time is over");
        assert!(Instant::now() >= until);
        // The station may look for packets without having been woken.
        assert!(!queues.is_quiet());
        assert!(is_readable(&queues).await, "it came while nobody listened");
        read(&queues, 1);
        assert!(!is_readable(&queues).await && queues.is_quiet());
    }
}
