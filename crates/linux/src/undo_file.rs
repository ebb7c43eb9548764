//! The undo file, which lists the changes to revert after a crash.
//!
//! After a crash carnet finds its routes and rules by their mark, and the TUN device has vanished with the
//! process. But the kernel does not store the former value of a setting, and not every kernel stores the mark
//! of an address. So carnet writes a setting into the file before it changes the setting, and an address
//! directly after it has added the address. The file belongs to one boot and one network namespace: carnet
//! ignores a file of another boot or namespace. It also ignores each entry that no longer matches the
//! kernel's state.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::disk::{Disk, KernelDisk, replace_file};
use crate::error::{Error, Result};

/// Boot and network namespace for which a file is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UndoFileValidity {
    /// Content of `/proc/sys/kernel/random/boot_id`.
    pub(crate) boot_id: String,
    /// Inode of the network namespace. A later namespace may get the same inode, so carnet compares the
    /// cookie as well.
    pub(crate) netns: u64,
    /// Cookie of the namespace, unique since boot (Linux 5.14 and later; otherwise 0).
    pub(crate) netns_cookie: u64,
}

impl UndoFileValidity {
    fn current_boot_and_namespace() -> UndoFileValidity {
        UndoFileValidity {
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map(|id| id.trim().to_owned())
                .unwrap_or_default(),
            netns: fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino()),
            netns_cookie: netns_cookie().unwrap_or(0),
        }
    }
}

/// Returns the cookie of the calling thread's network namespace; `None` before Linux 5.14.
fn netns_cookie() -> Option<u64> {
    /// Socket option `SO_NETNS_COOKIE` of asm-generic/socket.h.
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None).ok()?;
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is writable for `length` octets, both outlive the call, and the descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(cookie)
}

/// A setting that carnet has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedSetting {
    pub(crate) interface: String,
    /// Index of the interface, 0 for `all`. A later interface with the same name has another index.
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Value before carnet changed the setting.
    #[serde(rename = "original")]
    pub(crate) original_value: String,
    /// Value that carnet has set.
    #[serde(rename = "ours")]
    pub(crate) carnet_value: String,
    /// For `all`: former values of every interface, because writing `all` overwrites some settings of all
    /// interfaces.
    #[serde(rename = "others")]
    pub(crate) former_values: BTreeMap<String, String>,
    /// Whether carnet has begun to restore this setting and the settings after it in the record. Even if this
    /// setting has its original value again, the later settings may not be restored yet.
    #[serde(default, rename = "returns")]
    pub(crate) is_being_restored: bool,
}

/// An address that carnet has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddedAddress {
    pub(crate) interface: String,
    pub(crate) index: u32,
    pub(crate) address: Ipv6Addr,
    pub(crate) prefix_length: u8,
}

/// A link-layer address that carnet has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedLinkAddress {
    pub(crate) interface: String,
    pub(crate) index: u32,
    /// Link-layer address before carnet changed it.
    #[serde(rename = "original")]
    pub(crate) original_address: [u8; 6],
    /// Link-layer address that carnet has set.
    #[serde(rename = "ours")]
    pub(crate) carnet_address: [u8; 6],
}

/// All changes that carnet has to revert after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RecordedChanges {
    pub(crate) settings: Vec<ChangedSetting>,
    pub(crate) addresses: Vec<AddedAddress>,
    #[serde(default)]
    pub(crate) link_addresses: Vec<ChangedLinkAddress>,
    /// Whether carnet has installed its table of the packet filter.
    #[serde(default)]
    pub(crate) rule_table: bool,
}

#[derive(Serialize, Deserialize)]
struct UndoFileContents {
    place: UndoFileValidity,
    record: RecordedChanges,
}

/// The undo file, and its content in memory.
#[derive(Debug)]
pub(crate) struct UndoFile {
    disk: Box<dyn Disk>,
    path: PathBuf,
    file_validity: UndoFileValidity,
    /// Whether the file differs from the content in memory.
    has_unsaved_changes: bool,
    /// Changes that the file lists.
    pub(crate) recorded_changes: RecordedChanges,
}

impl UndoFile {
    /// Reads the file of an earlier run. The record is empty if that run was in another boot or namespace, or
    /// if the file is unreadable.
    pub(crate) fn open(path: &Path) -> UndoFile {
        UndoFile::open_on_disk(Box::new(KernelDisk), path, UndoFileValidity::current_boot_and_namespace())
    }

    /// Reads the record from a file on another disk, as [`Self::open`] does. The record is valid only for the
    /// boot and namespace in `place`.
    pub(crate) fn open_on_disk(disk: Box<dyn Disk>, path: &Path, place: UndoFileValidity) -> UndoFile {
        let record = match disk.read(path) {
            Ok(None) => RecordedChanges::default(),
            Ok(Some(octets)) => match serde_json::from_slice::<UndoFileContents>(&octets) {
                Ok(contents) if contents.place == place => contents.record,
                Ok(_) => {
                    tracing::debug!(path = %path.display(), "carnet does not revert the changes in the undo \
                     file: they were made before a reboot or in another network namespace");
                    RecordedChanges::default()
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot revert the changes of an earlier \
                     run: the undo file is damaged");
                    RecordedChanges::default()
                }
            },
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the undo file, which lists \
                 changes of an earlier run to revert");
                RecordedChanges::default()
            }
        };
        UndoFile {
            disk,
            path: path.to_owned(),
            file_validity: place,
            has_unsaved_changes: false,
            recorded_changes: record,
        }
    }

    /// Writes the record to the file. After a power cut the file has either the old or the new record.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.has_unsaved_changes = true;
        let failed =
            |e: std::io::Error| Error::from_kernel_refusal(format!("write {}", self.path.display()), e);
        let contents =
            UndoFileContents { place: self.file_validity.clone(), record: self.recorded_changes.clone() };
        let octets = serde_json::to_vec_pretty(&contents).map_err(|e| failed(e.into()))?;
        replace_file(&*self.disk, &self.path, &octets).map_err(failed)?;
        self.has_unsaved_changes = false;
        Ok(())
    }

    /// Returns whether the last attempt to write the file has failed.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.has_unsaved_changes
    }

    /// Deletes the file.
    pub(crate) fn delete(&mut self) -> Result<()> {
        self.has_unsaved_changes = false;
        self.disk
            .remove(&self.path)
            .map_err(|error| Error::from_kernel_refusal(format!("delete {}", self.path.display()), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_file_survives_restart_and_is_ignored_after_reboot() {
        let path = std::env::temp_dir().join(format!("carnet-undo-{}.json", std::process::id()));
        let mut undo = UndoFile::open(&path);
        assert_eq!(undo.recorded_changes, RecordedChanges::default());
        undo.recorded_changes.addresses.push(AddedAddress {
            interface: "i0".into(),
            index: 7,
            address: Ipv6Addr::LOCALHOST,
            prefix_length: 64,
        });
        undo.save().expect("save");
        assert_eq!(UndoFile::open(&path).recorded_changes, undo.recorded_changes);

        undo.file_validity.boot_id.push('x');
        undo.save().expect("save");
        assert_eq!(UndoFile::open(&path).recorded_changes, RecordedChanges::default());

        fs::write(&path, b"{ not json").expect("write");
        assert_eq!(UndoFile::open(&path).recorded_changes, RecordedChanges::default());
        undo.delete().expect("delete");
        undo.delete().expect("delete again");
    }
}
