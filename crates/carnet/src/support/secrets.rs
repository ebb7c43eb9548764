//! Values that must not be in a bundle: secrets in the config, and secrets in the files that the config
//! names.
//!
//! The config in the bundle has no secrets. This module finds copies of the secrets elsewhere, such as in a
//! line of the log.

use std::fs;
use std::path::{Path, PathBuf};

use carnet_api::config::{DisclosedConfig, LEFT_OUT_MARK};

/// Minimum length in octets of a word in a secret file that counts as a secret. A shorter word cannot be a
/// token, and may be any common word.
const MIN_SECRET_LENGTH: usize = 16;
/// Maximum size in octets of a file whose words count as secrets.
const MAX_SECRET_FILE_LENGTH: u64 = 65_536;

/// Secrets that the module searches for.
#[derive(Default)]
pub(super) struct KnownSecrets {
    secret_values: Vec<Vec<u8>>,
    unreadable_files: Vec<PathBuf>,
}

impl KnownSecrets {
    /// Adds the secrets of a config, and of the files that it names.
    pub(super) fn add_from_config(&mut self, disclosed: &DisclosedConfig, config: &Path) {
        for secret in &disclosed.removed_secrets {
            self.add_secret(secret.as_bytes());
        }
        let folder = config.parent().unwrap_or(Path::new(""));
        for path in &disclosed.secret_files {
            self.read_secret_file(&folder.join(path));
        }
    }

    fn read_secret_file(&mut self, path: &Path) {
        let files: Vec<PathBuf> = match fs::read_dir(path) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(_) => vec![path.to_owned()],
        };
        for file in files {
            let small =
                fs::metadata(&file).is_ok_and(|file| file.is_file() && file.len() <= MAX_SECRET_FILE_LENGTH);
            match fs::read(&file) {
                Ok(octets) if small => {
                    octets.split(u8::is_ascii_whitespace).for_each(|word| self.add_secret(word));
                    self.add_secret(&octets);
                }
                _ => self.unreadable_files.push(file),
            }
        }
    }

    fn add_secret(&mut self, word: &[u8]) {
        if word.len() < MIN_SECRET_LENGTH {
            return;
        }
        for form in [word.to_vec(), word.to_ascii_lowercase(), word.to_ascii_uppercase()] {
            if !self.secret_values.contains(&form) {
                self.secret_values.push(form);
            }
        }
        // Remove the longest secret first, because a shorter secret may be the beginning of a longer one.
        self.secret_values.sort_by_key(|word| std::cmp::Reverse(word.len()));
    }

    /// Returns the files with secrets that could not be read.
    pub(super) fn unreadable_files(&self) -> Vec<PathBuf> {
        self.unreadable_files.clone()
    }

    /// Removes the secrets from a text. Returns in how many places it found one.
    pub(super) fn remove(&self, text: &mut Vec<u8>) -> usize {
        let mut places = 0;
        for word in &self.secret_values {
            let mut from = 0;
            while let Some(at) = find_word(text.get(from..).unwrap_or_default(), word) {
                let start = from + at;
                text.splice(start..start + word.len(), LEFT_OUT_MARK.bytes());
                from = start + LEFT_OUT_MARK.len();
                places += 1;
            }
        }
        places
    }
}

fn find_word(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn secrets_of_config_and_key_files_are_removed_from_the_bundle() {
        let scratch = ScratchFolder::new();
        let put = |name: &str, text: &str| fs::write(scratch.path().join(name), text).expect("a file");
        put("tokens", "# read and operate\nread token-of-a-reader-1\noperate token-of-a-reader-12\n");
        put("a.key", "00112233445566778899AABBCCDDEEFF\n");
        let disclosed = DisclosedConfig {
            removed_secrets: vec!["aabbccddeeff00112233445566778899".into(), "300".into()],
            secret_files: ["tokens", "a.key", "none"].map(PathBuf::from).to_vec(),
            ..DisclosedConfig::default()
        };
        let mut secrets = KnownSecrets::default();
        secrets.add_from_config(&disclosed, &scratch.path().join("c.toml"));
        assert_eq!(secrets.unreadable_files(), [scratch.path().join("none")]);
        let mut text = b"spi 300, AABBCCDDEEFF00112233445566778899, read token-of-a-reader-12 \
                         00112233445566778899aabbccddeeff!"
            .to_vec();
        assert_eq!(secrets.remove(&mut text), 3);
        assert_eq!(text, b"spi 300, LEFT OUT, read LEFT OUT LEFT OUT!");
    }
}
