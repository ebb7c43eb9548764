//! Errors of a config file, each with its position.

use std::cell::RefCell;
use std::fmt;
use std::io;

/// One error of a config file.
///
/// Displayed as `FILE:LINE:COL: what is wrong, what was expected`, or without line and column if the file
/// cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// File name as the caller gave it.
    pub file: String,
    /// Line and column, both from 1, the column in characters.
    pub line_and_column: Option<(usize, usize)>,
    /// Fault and expected value, in one line.
    pub error_message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line_and_column {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file, self.error_message),
            None => write!(f, "{}: {}", self.file, self.error_message),
        }
    }
}

/// All errors of a config file, in the order of the file; never empty.
///
/// Displayed one line each, without a newline at the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Creates the error for a file that cannot be read.
    pub(super) fn unreadable_file(file: &str, error: &io::Error) -> ConfigErrors {
        let message = format!("cannot read the config, expected a readable TOML file: {error}");
        ConfigErrors(vec![ConfigError {
            file: file.to_owned(),
            line_and_column: None,
            error_message: message,
        }])
    }

    /// Creates a single error at an octet of the text.
    pub(super) fn single_error(file: &str, text: &str, at: usize, message: &str) -> ConfigErrors {
        let message = message.to_owned();
        ConfigErrors(vec![ConfigError {
            file: file.to_owned(),
            line_and_column: Some(line_and_column(text, at)),
            error_message: message,
        }])
    }

    /// Creates the errors of a text that is no TOML. One mistake makes the parser report several errors, so
    /// the function returns only the first error of each line.
    pub(super) fn syntax_errors(sink: ErrorSink<'_>, errors: &[toml::de::Error]) -> ConfigErrors {
        for error in errors {
            let span = error.span().unwrap_or_default();
            let message = match error.message() {
                "duplicate key" => {
                    let key = sink.config_text.get(span.clone()).unwrap_or_default();
                    format!("duplicate key `{key}`, expected it once")
                }
                message => message_for_unquoted_string(line_at(sink.config_text, span.start))
                    .unwrap_or(message.replace(['\n', '\r'], " ")),
            };
            sink.push(span.start, message);
        }
        let (file, text) = (sink.file, sink.config_text);
        let mut errors = sink.into_errors().unwrap_or_else(|| {
            ConfigErrors::single_error(file, text, 0, "no TOML, expected a TOML document")
        });
        errors.0.dedup_by_key(|error| error.line_and_column.map(|(line, _)| line));
        errors
    }

    /// Returns the errors in the order of the file.
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

/// Collector of the errors of one file.
pub(super) struct ErrorSink<'t> {
    file: &'t str,
    config_text: &'t str,
    found_errors: RefCell<Vec<(usize, String)>>,
}

impl<'t> ErrorSink<'t> {
    /// Creates a collector without errors for the text of a file.
    pub(super) fn new(file: &'t str, text: &'t str) -> ErrorSink<'t> {
        ErrorSink { file, config_text: text, found_errors: RefCell::new(Vec::new()) }
    }

    /// Returns the file name as the caller gave it.
    pub(super) fn file(&self) -> &'t str {
        self.file
    }

    /// Records an error at this octet of the text.
    pub(super) fn push(&self, at: usize, message: impl Into<String>) {
        self.found_errors.borrow_mut().push((at, message.into()));
    }

    /// Formats the position of an octet as `FILE:LINE:COL`, for a message about a conflict between two places
    /// of the file.
    pub(super) fn format_position(&self, at: usize) -> String {
        let (line, column) = line_and_column(self.config_text, at);
        format!("{}:{line}:{column}", self.file)
    }

    /// Returns the errors in the order of the file, or `None` without errors.
    pub(super) fn into_errors(self) -> Option<ConfigErrors> {
        let mut found = self.found_errors.into_inner();
        if found.is_empty() {
            return None;
        }
        found.sort_by_key(|(at, _)| *at);
        let errors = found.into_iter().map(|(at, message)| ConfigError {
            file: self.file.to_owned(),
            line_and_column: Some(line_and_column(self.config_text, at)),
            error_message: message,
        });
        Some(ConfigErrors(errors.collect()))
    }
}

/// Returns the line that contains the octet `at`.
fn line_at(text: &str, at: usize) -> &str {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').unwrap_or(after.len());
    &text[start..before.len() + end]
}

/// Returns the error message for a line whose string has no quotation marks, the most frequent mistake;
/// `None` for any other line.
fn message_for_unquoted_string(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let is_text = value.contains(|c: char| c.is_alphabetic() || ":/".contains(c));
    let other = ["0x", "0o", "0b"].iter().any(|radix| value.starts_with(radix));
    let in_marks = value.contains(['"', '\'', '[', ']', '{', '}']);
    (is_text && !other && !in_marks && !["true", "false"].contains(&value)).then(|| {
        format!("{value} is no TOML value, expected a string in quotes: {} = \"{value}\"", key.trim())
    })
}

/// Returns line and column of an octet of a text, both from 1 and the column in characters.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::{line_and_column, line_at, message_for_unquoted_string};

    #[test]
    fn error_says_that_a_string_lacks_quotes() {
        for (line, value) in [
            ("name = nc-bus", "nc-bus"),
            ("  name=nc-bus  # ours", "nc-bus"),
            ("name = 60s", "60s"),
            ("name = 2001:db8::1", "2001:db8::1"),
            ("name = /var/lib", "/var/lib"),
        ] {
            let told = format!("{value} is no TOML value, expected a string in quotes: name = \"{value}\"");
            assert_eq!(message_for_unquoted_string(line), Some(told), "{line}");
        }
        for line in ["name = 'bus", "a = 01", "a = [1, x", "a = 0xg", "a = true", "a =", "name nc-bus", ""] {
            assert_eq!(message_for_unquoted_string(line), None, "{line}");
        }
        let text = "a = 1\nname = é\n";
        assert_eq!((line_at(text, 6), line_at(text, 0)), ("name = é", "a = 1"));
        assert_eq!((line_at(text, text.len()), line_at(text, 99), line_at("", 0)), ("", "", ""));
    }

    #[test]
    fn config_error_counts_columns_in_characters() {
        let text = "é = 1\nkey = 2\n";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, 3), (1, 3));
        assert_eq!(line_and_column(text, 7), (2, 1));
        assert_eq!(line_and_column(text, text.len()), (3, 1));
        assert_eq!(line_and_column(text, text.len() + 9), (3, 1));
    }
}
