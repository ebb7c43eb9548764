//! Memory of the process.

/// Hands back to the kernel what is free, after something that needed much of it for a moment.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only hands free memory back to the kernel, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the pages of mapped files to the kernel that were not written to: code, constants, names. The
/// start needs many that nothing needs afterwards (a config is read, and programs are loaded, once), and each
/// touched page brings its neighbours along. Pages that are needed again come from the page cache, or from
/// the file.
pub fn give_back_code() {
    // Not every kernel can tell what has been written to.
    let maps = ["/proc/self/smaps", "/proc/self/maps"].map(std::fs::read_to_string);
    let maps = maps.into_iter().flatten().next().unwrap_or_default();
    for (begin, end) in unwritten(&maps) {
        // SAFETY: these are private mappings of files that the process may not write to and none of whose
        // pages was written. So the kernel fills the pages as before when they are touched again.
        unsafe {
            libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED);
        }
    }
}

/// The first address and the one behind the last, of each mapping of a file of which no page has ever been
/// written to. `maps` is `/proc/self/smaps`, or `/proc/self/maps`, by which one can tell that of code only:
/// other pages have been written to while the program was relocated.
fn unwritten(maps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut constants = None;
    for line in maps.lines() {
        match mapping(line) {
            Some((place, "r-xp")) => found.push(place),
            Some((place, mode)) => constants = (mode == "r--p").then_some(place),
            None if line.ends_with(" 0 kB") => found.extend(constants.take_if(|_| line.starts_with("Swap:"))),
            None if line.starts_with("Anonymous:") || line.starts_with("Swap:") => constants = None,
            None => {}
        }
    }
    found
}

/// Returns the range and mode of a mapping from its first line; no mode if it is not of a file.
fn mapping(line: &str) -> Option<((usize, usize), &str)> {
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
    fn given_back_is_what_is_from_a_file_and_has_not_been_written_to() {
        let line =
            |mode: &str, path: &str| format!("55d0a000-55d1b000 {mode} 00001000 fe:00 1234       {path}\n");
        let place = vec![(0x55d0_a000, 0x55d1_b000)];
        let state = |anonymous, swap| {
            format!("Rss: 64 kB\nAnonymous: {anonymous:7} kB\nSwap: {swap:7} kB\nLocked: 0 kB\n")
        };
        let clean = &state(0, 0);
        let program = "/usr/bin/carnet";
        assert_eq!(unwritten(&line("r-xp", program)), place);
        assert_eq!(unwritten(&(line("r-xp", program) + clean)), place);
        assert_eq!(unwritten(&(line("r--p", program) + clean)), place);
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
            assert_eq!(unwritten(&other), [], "{other}");
        }
    }

    #[test]
    fn what_was_given_back_is_there() {
        static WRITTEN: &[&str] = &["relocated", "constants"];
        give_back_code();
        assert_eq!(std::hint::black_box(WRITTEN).concat(), "relocatedconstants");
        assert!(!unwritten(&std::fs::read_to_string("/proc/self/maps").expect("maps")).is_empty());
    }
}
