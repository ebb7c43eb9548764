//! Returns unused memory of the process to the kernel.
//!
//! A block of memory of at least 128 KiB has a mapping of its own, which returns to the kernel once the block
//! is free. The tables of a home agent with very many nodes have such blocks, and a table that grows frees
//! its old block. The system's allocator would put most of these blocks between small blocks. There the pages
//! of a free block stay with the process.

use std::alloc::Layout;
use std::ptr::null_mut;

/// Size in octets from which a block gets a mapping.
const LARGE_BLOCK_SIZE: usize = 128 << 10;
/// Largest alignment that every mapping has: the smallest size of a page.
const MAPPING_ALIGNMENT: usize = 4096;

/// Returns whether a block has a mapping of its own.
pub(crate) fn is_large_block(layout: Layout) -> bool {
    layout.size() >= LARGE_BLOCK_SIZE && layout.align() <= MAPPING_ALIGNMENT
}

/// Returns a new mapping of zeros; null if the kernel has no memory.
pub(crate) fn map_block(size: usize) -> *mut u8 {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the call makes a new mapping and touches no other memory.
    let mapping = unsafe { libc::mmap(null_mut(), size, rights, flags, -1, 0) };
    if mapping == libc::MAP_FAILED { null_mut() } else { mapping.cast() }
}

/// Changes the size of a mapping, which may move; null if the kernel has no memory. The mapping then stays as
/// it was.
///
/// # Safety
/// `mapping` must be a mapping of [`map_block`] with this size, and no code may use its former address later.
pub(crate) unsafe fn resize_mapping(mapping: *mut u8, size: usize, new_size: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that the mapping has this size.
    let resized = unsafe { libc::mremap(mapping.cast(), size, new_size, libc::MREMAP_MAYMOVE) };
    if resized == libc::MAP_FAILED { null_mut() } else { resized.cast() }
}

/// Returns a mapping to the kernel.
///
/// # Safety
/// `mapping` must be a mapping of [`map_block`] with this size that nothing uses any more.
pub(crate) unsafe fn unmap_block(mapping: *mut u8, size: usize) {
    // SAFETY: the caller guarantees that the mapping has this size and is not in use.
    unsafe {
        libc::munmap(mapping.cast(), size);
    }
}

/// Returns free memory to the kernel, after work that needed much memory for a moment.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call only returns free memory to the kernel, and is allowed at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the pages of program code and constants to the kernel. The start of carnet touches many pages that
/// it does not need later, and the kernel loads the pages next to them as well. A page that is needed again
/// comes from the page cache or the file.
pub fn return_code_pages() {
    // A kernel without `smaps` does not report which pages the process has written.
    let maps = ["/proc/self/smaps", "/proc/self/maps"].map(std::fs::read_to_string);
    let maps = maps.into_iter().flatten().next().unwrap_or_default();
    for (begin, end) in unwritten_file_mappings(&maps) {
        // SAFETY: each range is a private mapping of a file that the process may not write to. The process
        // has written none of its pages. So the kernel fills the pages as before when they are touched again.
        unsafe {
            libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED);
        }
    }
}

/// Returns start and end of each mapping of a file whose pages were never written. `maps` is
/// `/proc/self/smaps`, or `/proc/self/maps`. From `maps` only code counts as never written, because the
/// relocation of the program has written to other pages.
fn unwritten_file_mappings(maps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut constants = None;
    for line in maps.lines() {
        match parse_mapping(line) {
            Some((place, "r-xp")) => found.push(place),
            Some((place, mode)) => constants = (mode == "r--p").then_some(place),
            None if line.ends_with(" 0 kB") => found.extend(constants.take_if(|_| line.starts_with("Swap:"))),
            None if line.starts_with("Anonymous:") || line.starts_with("Swap:") => constants = None,
            None => {}
        }
    }
    found
}

/// Returns the range and mode of a mapping from its first line; the mode is `None` if the mapping is not of a
/// file.
fn parse_mapping(line: &str) -> Option<((usize, usize), &str)> {
    let mut words = line.split_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let place = (address(begin)?, address(end)?);
    let mode = words.next()?;
    Some((place, if words.nth(3).is_some_and(|path| path.starts_with('/')) { mode } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unmodified_file_pages_are_returned_to_kernel() {
        let line =
            |mode: &str, path: &str| format!("55d0a000-55d1b000 {mode} 00001000 fe:00 1234       {path}\n");
        let place = vec![(0x55d0_a000, 0x55d1_b000)];
        let state = |anonymous, swap| {
            format!("Rss: 64 kB\nAnonymous: {anonymous:7} kB\nSwap: {swap:7} kB\nLocked: 0 kB\n")
        };
        let clean = &state(0, 0);
        let program = "/usr/bin/carnet";
        assert_eq!(unwritten_file_mappings(&line("r-xp", program)), place);
        assert_eq!(unwritten_file_mappings(&(line("r-xp", program) + clean)), place);
        assert_eq!(unwritten_file_mappings(&(line("r--p", program) + clean)), place);
        for other in [
            line("r--p", program),
            line("r--p", program) + &state(4, 0),
            line("r--p", program) + &state(0, 4),
            line("r--p", program) + &line("rw-p", program) + clean,
            line("rw-p", program) + clean,
            line("rwxp", program) + clean,
            line("r-xs", program) + clean,
            line("r-xp", "[vdso]") + clean,
            line("r--p", "[vvar]") + clean,
            line("r-xp", "") + clean,
            String::new(),
        ] {
            assert_eq!(unwritten_file_mappings(&other), [], "{other}");
        }
    }

    #[test]
    fn returned_pages_are_readable_again() {
        static WRITTEN_SECTIONS: &[&str] = &["relocated", "constants"];
        return_code_pages();
        assert_eq!(std::hint::black_box(WRITTEN_SECTIONS).concat(), "relocatedconstants");
        assert!(
            !unwritten_file_mappings(&std::fs::read_to_string("/proc/self/maps").expect("maps")).is_empty()
        );
    }
}
