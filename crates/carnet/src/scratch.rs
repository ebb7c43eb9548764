//! Directories for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory for a single test; dropping the value removes it.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Creates the directory.
    pub fn new() -> ScratchFolder {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("carnet-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        ScratchFolder(path)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
