//! Wipes memory that held secrets.
//!
//! A key has a type that wipes it when it is dropped (`carnet_base::Key`). But while carnet reads the config,
//! other memory also contains the key: the text of the config, the TOML parser and the stack. A vector that
//! grows leaves its octets in its former memory. So code that reads secrets runs in [`run_with_secrets`].
//! Until that code ends, carnet wipes all heap memory that any thread frees. After that it wipes the stack
//! that the code has used.
//!
//! This requires [`WipingAllocator`] as the program's allocator. Outside of [`run_with_secrets`] the
//! allocator only checks a counter and calls the system's allocator. Packets and messages are no secrets, and
//! there are very many of them.
//!
//! Left out: memory that is freed at other times, registers, and the kernel's copy of a file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of octets of the stack to wipe: more than reading a config uses, even in a build without
/// optimization.
const WIPED_STACK_OCTETS: usize = 512 * 1024;

/// Number of threads that run code in [`run_with_secrets`] now.
static THREADS_WITH_SECRETS: AtomicUsize = AtomicUsize::new(0);

/// An allocator that calls the system's allocator, and wipes freed memory while any thread reads secrets.
pub struct WipingAllocator;

/// Wipes memory before it is freed.
///
/// # Safety
/// `memory` must be writable for `size` octets, and no code may read them any more.
unsafe fn wipe_memory(memory: *mut u8, size: usize) {
    // SAFETY: the caller guarantees that the memory is writable for `size` octets.
    unsafe { memory.write_bytes(0, size) };
    // Without `black_box` the compiler would remove the write, because no code reads the memory any more.
    black_box(memory);
}

fn has_secrets_in_use() -> bool {
    THREADS_WITH_SECRETS.load(Ordering::Relaxed) > 0
}

// SAFETY: all calls go to the system's allocator, whose guarantees hold for the same arguments. The code here
// writes only to memory that the caller has freed, or that the system has just allocated.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if has_secrets_in_use() {
            // SAFETY: the caller frees the memory, which has the size of the layout.
            unsafe { wipe_memory(memory, layout.size()) };
        }
        // SAFETY: the caller keeps the contract of `dealloc`, which is the system's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !has_secrets_in_use() {
            // SAFETY: the caller keeps the contract of `realloc`, which is the system's.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // The system's `realloc` would leave the octets in the old memory, so copy and wipe them here.
        // SAFETY: the caller guarantees that the size is valid with this alignment. Old and new memory are as
        // large as the copied part, and do not overlap. The old memory is freed only if the allocation of the
        // new memory has succeeded.
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

/// Runs code that reads secrets, and wipes the memory that it used. The result of the code should be small,
/// or have its secrets on the heap: a moved value leaves its octets behind.
pub fn run_with_secrets<T>(reads: impl FnOnce() -> T) -> T {
    THREADS_WITH_SECRETS.fetch_add(1, Ordering::Relaxed);
    let done = run_in_separate_frames(reads);
    wipe_stack();
    THREADS_WITH_SECRETS.fetch_sub(1, Ordering::Relaxed);
    done
}

/// Runs the code in separate stack frames, below the frame of the caller.
#[inline(never)]
fn run_in_separate_frames<T>(reads: impl FnOnce() -> T) -> T {
    reads()
}

/// Wipes the stack below the caller's frame, and returns its pages to the kernel.
#[inline(never)]
fn wipe_stack() {
    let mut room = [0_u8; WIPED_STACK_OCTETS];
    let begin = black_box(&mut room).as_mut_ptr() as usize;
    // SAFETY: the call only reads a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (first, behind) = (begin.next_multiple_of(page), (begin + WIPED_STACK_OCTETS) / page * page);
    if first < behind {
        // SAFETY: these pages contain only `room`, whose content does not matter. Code that touches them
        // later finds zeros.
        unsafe {
            libc::madvise(first as *mut libc::c_void, behind - first, libc::MADV_DONTNEED);
        }
    }
    black_box(&room[..1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test reads memory after it was freed. The system's allocator overwrites only the begin of freed
    /// memory, with addresses. Other tests run in other threads: one may get the freed memory, or read
    /// secrets at the same time. So the test tries each case several times.
    #[test]
    fn memory_freed_while_reading_secrets_is_overwritten() {
        const ATTEMPTS: usize = 100;
        let layout = Layout::from_size_align(4096, 16).expect("a layout");
        // Returns the number of octets that still have their old value; `None` if another thread has got the
        // memory from the system.
        let left = |memory: *mut u8| {
            // SAFETY: the layout has a size.
            let again = unsafe { WipingAllocator.alloc(layout) };
            let found = (again == memory).then(|| {
                // SAFETY: the memory has 4096 octets that were written before.
                let octets = unsafe { std::slice::from_raw_parts(again, 4096) };
                octets.iter().skip(64).filter(|octet| **octet == 0xa5).count()
            });
            // SAFETY: the memory is from this allocator, with this layout.
            unsafe { WipingAllocator.dealloc(again, layout) };
            found
        };
        let filled = || {
            // SAFETY: the layout has a size, and the written octets fit into it.
            unsafe {
                let memory = WipingAllocator.alloc(layout);
                memory.write_bytes(0xa5, 4096);
                memory
            }
        };
        let free = |memory| {
            // SAFETY: the memory is from this allocator, with this layout.
            unsafe { WipingAllocator.dealloc(memory, layout) };
        };
        let grow = |memory| {
            // SAFETY: the memory is from this allocator, with this layout. The new size is valid with its
            // alignment.
            let grown = run_with_secrets(|| unsafe { WipingAllocator.realloc(memory, layout, 16384) });
            // SAFETY: the grown memory has at least 4096 written octets.
            let kept = unsafe { std::slice::from_raw_parts(grown, 4096) };
            assert!(kept.iter().all(|octet| *octet == 0xa5), "it is the same in another place");
            // SAFETY: the memory is from this allocator, and has this size.
            unsafe { WipingAllocator.dealloc(grown, Layout::from_size_align(16384, 16).expect("a layout")) };
        };
        let attempts = |release: &dyn Fn(*mut u8)| -> Vec<usize> {
            let attempt = || {
                let memory = filled();
                release(memory);
                left(memory)
            };
            let found: Vec<usize> = (0..ATTEMPTS).filter_map(|_| attempt()).collect();
            assert!(!found.is_empty(), "the system never hands out what was freed last");
            found
        };
        let unwiped = attempts(&|memory| free(memory));
        assert!(unwiped.iter().any(|found| *found > 4000), "at other times it is the system's: {unwiped:?}");
        let wiped = attempts(&|memory| run_with_secrets(|| free(memory)));
        assert!(wiped.iter().all(|found| *found == 0), "{wiped:?}");
        let wiped = attempts(&|memory| grow(memory));
        assert!(wiped.iter().all(|found| *found == 0), "{wiped:?}");
    }

    #[test]
    fn stack_used_while_reading_secrets_is_overwritten() {
        #[inline(never)]
        fn recurse_for_stack_depth(octet: u8) -> usize {
            let room = black_box([octet; 16384]);
            black_box(room.as_ptr() as usize)
        }
        let found = |at: usize| {
            // SAFETY: the addresses are in this thread's stack, in a part that has been in use.
            (at..at + 16384)
                .step_by(64)
                .filter(|at| unsafe { (*at as *const u8).read_volatile() } == 0xa5)
                .count()
        };
        let at = recurse_for_stack_depth(0xa5);
        assert!(found(at) > 200, "a function leaves what it had");
        let at = run_with_secrets(|| recurse_for_stack_depth(0xa5));
        assert_eq!(found(at), 0);
    }
}
