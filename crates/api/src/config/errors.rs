//! Errors of a config file, each at its place.

use std::fmt;
use std::io;

/// One thing that is wrong with a config file.
///
/// Displayed as `FILE:LINE:COL: what is wrong, what was expected`, or without line and column when the
/// file cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// Line and column, both from 1, the column in characters.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what was expected, in one line.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Everything that is wrong with a config file, in the order of the file; never empty.
///
/// Displayed one line each, without a newline at the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The file could not be read.
    pub(super) fn unreadable(file: &str, error: &io::Error) -> ConfigErrors {
        let message = format!("cannot read the config, expected a readable TOML file: {error}");
        ConfigErrors(vec![ConfigError { file: file.to_owned(), place: None, message }])
    }

    /// The errors.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}
