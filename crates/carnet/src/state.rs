//! What survives a restart: one JSON file per station in `station.state_dir`, replaced whole.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use carnet_station::PersistentState;

/// The file, if the config names a directory for it.
#[derive(Debug)]
pub struct StateFile(Option<PathBuf>);

impl StateFile {
    /// The file of the station `name` in `directory`, which is created if it is missing.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(directory: Option<&Path>, name: &str) -> anyhow::Result<StateFile> {
        let Some(directory) = directory else { return Ok(StateFile(None)) };
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create station.state_dir {}", directory.display()))?;
        Ok(StateFile(Some(directory.join(format!("{name}.json")))))
    }

    /// What the last run left; nothing where there is none or it cannot be read, which is said.
    pub fn load(&self) -> PersistentState {
        let Some(path) = &self.0 else { return PersistentState::default() };
        let loaded = match fs::read(path) {
            Ok(octets) => serde_json::from_slice(&octets).map_err(anyhow::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => return PersistentState::default(),
            Err(error) => Err(error.into()),
        };
        loaded.unwrap_or_else(|error| {
            tracing::warn!("cannot use the state in {}, starting without: {error}", path.display());
            PersistentState::default()
        })
    }

    /// Replaces the file: after a crash or a power cut there is the old content or the new, never a half. It is
    /// its owner's alone, for it says where vehicles are.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, state: &PersistentState) -> anyhow::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let new = path.with_extension("new");
        let octets = serde_json::to_vec(state)?;
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&octets)?;
            file.sync_all()
        };
        write().with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, path).with_context(|| format!("cannot replace {}", path.display()))?;
        if let Some(directory) = path.parent() {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.with_context(|| format!("cannot write {}", directory.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_mobility::mobile_router::StoredSequence;

    #[test]
    fn what_is_stored_is_loaded_and_rubbish_is_not() {
        let directory = crate::scratch::Scratch::new();
        let file = StateFile::open(Some(&directory.path().join("deep/er")), "bus").expect("opens");
        assert_eq!(file.load(), PersistentState::default());
        let state = PersistentState {
            mobile_router: Some(StoredSequence { sequence: 7 }),
            ..PersistentState::default()
        };
        file.store(&state).expect("stores");
        assert_eq!(file.load(), state);
        fs::write(directory.path().join("deep/er/bus.json"), b"{\"mobile_router\": 5}").expect("writes");
        assert_eq!(file.load(), PersistentState::default());
        let nowhere = StateFile::open(None, "bus").expect("opens");
        nowhere.store(&state).expect("does nothing");
        assert_eq!(nowhere.load(), PersistentState::default());
    }
}
