//! Memory of the process.

/// Hands back to the kernel what is free, after something that needed much of it for a moment.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only hands free memory back to the kernel, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Hands the pages of code back that the start alone has needed: a config is read, and programs are loaded, once. What is
/// needed again comes from the page cache, or from the file.
pub fn give_back_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (begin, end) in maps.lines().filter_map(code) {
        // SAFETY: these are private mappings of files that nobody may write to, so that the kernel fills the pages as
        // before when they are touched again.
        unsafe {
            libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED);
        }
    }
}

/// The first address and the one behind the last, of a line of `/proc/self/maps` about code in a file.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let is_code = words.next()? == "r-xp" && words.nth(3)?.starts_with('/');
    let address = |text| usize::from_str_radix(text, 16).ok();
    is_code.then_some((address(begin)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_executed_and_not_written_from_a_file() {
        let line =
            |mode: &str, path: &str| format!("55d0a000-55d1b000 {mode} 00001000 fe:00 1234       {path}");
        assert_eq!(code(&line("r-xp", "/usr/bin/carnet")), Some((0x55d0_a000, 0x55d1_b000)));
        for other in [
            line("r--p", "/usr/bin/carnet"),
            line("rwxp", "/usr/bin/carnet"),
            line("r-xs", "/usr/bin/carnet"),
            line("r-xp", "[vdso]"),
            line("r-xp", ""),
            String::new(),
        ] {
            assert_eq!(code(&other), None, "{other}");
        }
        give_back_code();
        assert_eq!(code(&line("r-xp", "/lib/x86_64-linux-gnu/libc.so.6")), Some((0x55d0_a000, 0x55d1_b000)));
    }
}
