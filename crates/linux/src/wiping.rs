//! Wiping what secrets were in.
//!
//! A key has a type that wipes it when it is dropped (`carnet_base::Key`). But on its way there its digits
//! and octets are in other memory: the text of the config, the TOML parser and the stack. They are also in
//! vectors that grow and leave their octets behind. So code that reads secrets runs in [`with_secrets`].
//! Until it is done all freed heap memory is wiped, whichever thread frees it, and then the stack below.
//!
//! That takes the program to have [`WipingAllocator`] as its allocator. At other times that is the system's,
//! less one look at a flag, for packets and messages are no secrets and there are very many.
//!
//! Left out: what is freed at other times, registers, and what the kernel has read of a file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Octets of stack that are wiped: more than what reads a config takes, without optimization as well.
const STACK: usize = 512 * 1024;

/// How many are reading secrets.
static READING: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which wipes what is freed while secrets are read.
pub struct WipingAllocator;

/// Wipes memory that is about to be freed.
///
/// # Safety
/// It is `size` octets that can be written to, and no code reads them any more.
unsafe fn wipe(memory: *mut u8, size: usize) {
    // SAFETY: as the caller has promised.
    unsafe { memory.write_bytes(0, size) };
    // Without this the compiler would remove the write: no code reads it any more.
    black_box(memory);
}

fn is_reading() -> bool {
    READING.load(Ordering::Relaxed) > 0
}

// SAFETY: everything is the system's, whose promises hold for the same arguments. The added code touches only
// memory that the caller has given up, or has just been given.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller has promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_reading() {
            // SAFETY: the caller gives it up.
            unsafe { wipe(memory, layout.size()) };
        }
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_reading() {
            // SAFETY: as the caller has promised.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // The system would leave moved octets where they were, and truncated ones. SAFETY: the caller has
        // promised that the size is a good one with this alignment. Both places are as large as the copied
        // part, and apart; the old one is given up when there is a new one.
        unsafe {
            let new = System.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            new
        }
    }
}

/// Runs code that reads secrets, and wipes the memory that it leaves behind. Its result should be small, or
/// have its secrets in the heap: a move leaves them where they were.
pub fn with_secrets<T>(reads: impl FnOnce() -> T) -> T {
    READING.fetch_add(1, Ordering::Relaxed);
    let done = apart(reads);
    wipe_stack();
    READING.fetch_sub(1, Ordering::Relaxed);
    done
}

/// In frames of its own, below the caller's.
#[inline(never)]
fn apart<T>(reads: impl FnOnce() -> T) -> T {
    reads()
}

/// Wipes the stack below the caller's frame, and hands it back to the kernel.
#[inline(never)]
fn wipe_stack() {
    let mut room = [0_u8; STACK];
    let begin = black_box(&mut room).as_mut_ptr() as usize;
    // SAFETY: it only asks.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (first, behind) = (begin.next_multiple_of(page), (begin + STACK) / page * page);
    if first < behind {
        // SAFETY: these pages have nothing but `room`, which has nothing that matters; they are zeros when
        // they are touched next.
        unsafe {
            libc::madvise(first as *mut libc::c_void, behind - first, libc::MADV_DONTNEED);
        }
    }
    black_box(&room[..1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test reads freed memory as the system's allocator has it: the allocator writes addresses at the
    /// beginning, and no more.
    #[test]
    fn what_is_freed_while_secrets_are_read_is_wiped() {
        let layout = Layout::from_size_align(4096, 16).expect("a layout");
        let left = |memory: *mut u8| {
            // SAFETY: this thread alone has used this place, and the system keeps it for the next.
            let again = unsafe { WipingAllocator.alloc(layout) };
            assert_eq!(again, memory, "the system hands out what was freed last");
            // SAFETY: it has been written to before.
            let octets = unsafe { std::slice::from_raw_parts(again, 4096) };
            let found = octets.iter().skip(64).filter(|octet| **octet == 0xa5).count();
            // SAFETY: it is from this allocator, with this layout.
            unsafe { WipingAllocator.dealloc(again, layout) };
            found
        };
        let filled = || {
            // SAFETY: the layout has a size; what is written to is as large.
            unsafe {
                let memory = WipingAllocator.alloc(layout);
                memory.write_bytes(0xa5, 4096);
                memory
            }
        };
        let memory = filled();
        // SAFETY: it is from this allocator, with this layout.
        unsafe { WipingAllocator.dealloc(memory, layout) };
        assert!(left(memory) > 4000, "at other times it is the system's");

        let memory = filled();
        // SAFETY: as above.
        with_secrets(|| unsafe { WipingAllocator.dealloc(memory, layout) });
        assert_eq!(left(memory), 0);

        let memory = filled();
        // SAFETY: as above; the size is good with this alignment.
        let grown = with_secrets(|| unsafe { WipingAllocator.realloc(memory, layout, 16384) });
        // SAFETY: it is as large.
        let kept = unsafe { std::slice::from_raw_parts(grown, 4096) };
        assert!(kept.iter().all(|octet| *octet == 0xa5), "it is the same in another place");
        assert_eq!(left(memory), 0);
        // SAFETY: it is from this allocator, and so large.
        unsafe { WipingAllocator.dealloc(grown, Layout::from_size_align(16384, 16).expect("a layout")) };
    }

    #[test]
    fn what_was_on_the_stack_is_wiped() {
        #[inline(never)]
        fn depth(octet: u8) -> usize {
            let room = black_box([octet; 16384]);
            black_box(room.as_ptr() as usize)
        }
        let found = |at: usize| {
            // SAFETY: it is in this thread's stack, of which that much has been in use.
            (at..at + 16384)
                .step_by(64)
                .filter(|at| unsafe { (*at as *const u8).read_volatile() } == 0xa5)
                .count()
        };
        let at = depth(0xa5);
        assert!(found(at) > 200, "a function leaves what it had");
        let at = with_secrets(|| depth(0xa5));
        assert_eq!(found(at), 0);
    }
}
