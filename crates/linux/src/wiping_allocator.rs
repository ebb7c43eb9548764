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

use crate::memory::{is_large_block, map_block, resize_mapping, unmap_block};

/// Number of octets of the stack to wipe: more than reading a config uses, even in a build without
/// optimization.
const WIPED_STACK_OCTETS: usize = 512 * 1024;

/// Number of threads that run code in [`run_with_secrets`] now.
static THREADS_WITH_SECRETS: AtomicUsize = AtomicUsize::new(0);

/// An allocator that calls the system's allocator, and wipes freed memory while any thread reads secrets.
///
/// Takes large blocks directly from the kernel (`memory.rs`), which wipes them itself.
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

// SAFETY: all calls go to the system's allocator or to `memory`, by the size of the block. Their guarantees
// hold for the same arguments. The code here writes only to memory that the caller has freed, or that the
// system has just allocated.
unsafe impl GlobalAlloc for WipingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large_block(layout) {
            return map_block(layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large_block(layout) {
            return map_block(layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_large_block(layout) {
            // SAFETY: the caller frees the memory, which is a mapping with the size of the layout.
            return unsafe { unmap_block(memory, layout.size()) };
        }
        if has_secrets_in_use() {
            // SAFETY: the caller frees the memory, which has the size of the layout.
            unsafe { wipe_memory(memory, layout.size()) };
        }
        // SAFETY: the caller keeps the contract of `dealloc`, which is the system's.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (was_large, is_large) = (is_large_block(layout), is_large_block(new_layout));
        if was_large && is_large {
            // SAFETY: the memory is a mapping with the size of the layout.
            return unsafe { resize_mapping(memory, layout.size(), size) };
        }
        if !was_large && !is_large && !has_secrets_in_use() {
            // SAFETY: the caller keeps the contract of `realloc`, which is the system's.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // The system's `realloc` would leave the octets in the old memory, so copy and wipe them here.
        // SAFETY: old and new memory are as large as the copied part, and do not overlap. The old memory is
        // freed only if the allocation of the new memory has succeeded.
        unsafe {
            let new = self.alloc(new_layout);
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

    /// The test reads memory after it was freed. The system's allocator overwrites only the beginning of
    /// freed memory, with addresses. Other tests run in other threads: one may get the freed memory, or read
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

    /// Returns whether the process has a mapping at this address.
    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().any(|line| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
            let number = |text| usize::from_str_radix(text, 16).expect("an address");
            (number(range.0)..number(range.1)).contains(&address)
        })
    }

    #[test]
    fn block_keeps_its_octets_while_it_becomes_large_and_small() {
        let layout = |size| Layout::from_size_align(size, 16).expect("a layout");
        let sizes = [1000, 200_000, 3_000_000, 150_000, 2000, 130_000, 1_000_000];
        let resize_block = || {
            // SAFETY: each layout is that of the call before, and only its octets are used.
            unsafe {
                let mut memory = WipingAllocator.alloc(layout(sizes[0]));
                memory.write_bytes(0x5a, sizes[0]);
                for pair in sizes.windows(2) {
                    memory = WipingAllocator.realloc(memory, layout(pair[0]), pair[1]);
                    let octets = std::slice::from_raw_parts(memory, sizes[0]);
                    assert!(octets.iter().all(|octet| *octet == 0x5a), "{pair:?}");
                    memory.add(pair[1] - 1).write(1);
                }
                WipingAllocator.dealloc(memory, layout(1_000_000));
            }
        };
        resize_block();
        run_with_secrets(resize_block);
    }

    #[test]
    fn freed_large_block_returns_to_the_kernel() {
        let layout = Layout::from_size_align(64 << 20, 16).expect("a layout");
        // SAFETY: the layout has a size, and nothing uses the memory after it was freed.
        let begin = unsafe {
            let memory = WipingAllocator.alloc_zeroed(layout);
            assert_eq!(memory.add(layout.size() - 1).read(), 0);
            assert!(is_mapped(memory as usize));
            WipingAllocator.dealloc(memory, layout);
            memory as usize
        };
        // Another thread may get a part of the freed memory, but not all of it.
        assert!(!(begin..begin + layout.size()).step_by(4 << 20).all(is_mapped));
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
