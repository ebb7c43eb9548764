//! Values of a parsed TOML document, and their errors.
//!
//! A reader gets `None` for a value that is absent or wrong and continues, so that one run finds every error.
//! Each value has its position in the text, for the checks that compare values.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::errors::ErrorSink;

/// A value with the octet of the text at which it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located<T> {
    pub value: T,
    pub offset: usize,
}

/// An array: its valid elements, and whether all elements are valid.
#[derive(Debug, Clone)]
pub(super) struct List<T> {
    pub valid_items: Vec<Located<T>>,
    pub all_valid: bool,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { valid_items: Vec::new(), all_valid: true }
    }
}

impl<T> List<T> {
    /// Reads an array, each element by `read`.
    pub(super) fn read_array(
        value: &LocatedValue<'_>,
        expected: &str,
        read: impl Fn(&LocatedValue<'_>) -> Option<T>,
    ) -> Option<List<T>> {
        let Some(found) = value.read_array(expected) else {
            return Some(List { valid_items: Vec::new(), all_valid: false });
        };
        let items: Vec<Located<T>> = found
            .iter()
            .filter_map(|value| Some(Located { value: read(value)?, offset: value.offset() }))
            .collect();
        Some(List { all_valid: items.len() == found.len(), valid_items: items })
    }

    /// Returns the elements, if all are valid.
    pub(super) fn complete_items(&self) -> Option<Vec<T>>
    where
        T: Clone,
    {
        self.all_valid.then(|| self.valid_items.iter().map(|item| item.value.clone()).collect())
    }
}

/// A value of the document.
pub(super) struct LocatedValue<'t> {
    path: String,
    offset: usize,
    value: &'t DeValue<'t>,
    error_sink: &'t ErrorSink<'t>,
}

impl<'t> LocatedValue<'t> {
    /// Creates the value of the key with this path.
    pub(super) fn new(
        path: String,
        at: usize,
        value: &'t DeValue<'t>,
        sink: &'t ErrorSink<'t>,
    ) -> LocatedValue<'t> {
        LocatedValue { path, offset: at, value, error_sink: sink }
    }

    /// Returns whether the value is an array without elements.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.value, DeValue::Array(items) if items.is_empty())
    }

    /// Returns the octet of the text at which the value begins.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Reports an error about this value.
    pub(super) fn report_error(&self, message: &str) {
        self.error_sink.push(self.offset, format!("`{}`: {message}", self.path));
    }

    /// Returns the string; `None`, without an error, if the value is no string.
    pub(super) fn as_str(&self) -> Option<&'t str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the file name as the caller gave it.
    pub(super) fn file(&self) -> &'t str {
        self.error_sink.file()
    }

    /// Reads a string.
    pub(super) fn read_text(&self, expected: &str) -> Option<&'t str> {
        let text = self.as_str();
        if text.is_none() {
            self.report_wrong_type(expected);
        }
        text
    }

    /// Returns the parsed value. After a parse error, reports the error and returns `None`.
    pub(super) fn accept_parsed<T>(&self, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|message| self.report_error(&message)).ok()
    }

    /// Reads a string that `parse` accepts.
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.accept_parsed(parse(self.read_text(expected)?))
    }

    /// Reads a string that must be one of these words; returns the index of the word.
    pub(super) fn read_word(&self, words: &[&str]) -> Option<usize> {
        let expected = words_in_quotes(words);
        let text = self.read_text(&expected)?;
        let known = words.iter().position(|word| *word == text);
        if known.is_none() {
            self.report_error(&format!("{text:?} is not known, expected {expected}"));
        }
        known
    }

    /// Reads an integer within bounds.
    pub(super) fn read_integer(&self, low: i64, high: i64) -> Option<i64> {
        let expected = format!("an integer from {low} to {high}");
        let DeValue::Integer(integer) = self.value else {
            self.report_wrong_type(&expected);
            return None;
        };
        match i64::from_str_radix(integer.as_str(), integer.radix()).ok() {
            Some(value) if (low..=high).contains(&value) => Some(value),
            _ => {
                self.report_error(&format!("{integer} is out of range, expected {expected}"));
                None
            }
        }
    }

    /// Reads an integer or a float as a number that `check` accepts.
    pub(super) fn read_number<T>(
        &self,
        expected: &str,
        check: impl FnOnce(f64) -> Result<T, String>,
    ) -> Option<T> {
        let number = match self.value {
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|integer| integer as f64)
            }
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        let Some(number) = number else {
            self.report_wrong_type(expected);
            return None;
        };
        check(number).map_err(|message| self.report_error(&message)).ok()
    }

    /// Reads true or false.
    pub(super) fn read_boolean(&self) -> Option<bool> {
        if let DeValue::Boolean(value) = self.value {
            return Some(*value);
        }
        self.report_wrong_type("true or false");
        None
    }

    /// Returns whether the value is an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    /// Returns the elements of an array.
    pub(super) fn read_array(&self, expected: &str) -> Option<Vec<LocatedValue<'t>>> {
        let DeValue::Array(items) = self.value else {
            self.report_wrong_type(expected);
            return None;
        };
        Some(items.iter().map(|item| self.value_of_item(item)).collect())
    }

    /// Returns the entries of a table; `expected` is its header.
    pub(super) fn read_toml_table(&self, expected: &str) -> Option<&'t DeTable<'t>> {
        if let DeValue::Table(entries) = self.value {
            return Some(entries);
        }
        self.report_wrong_type(expected);
        None
    }

    /// Returns the collector of errors.
    pub(super) fn error_sink(&self) -> &'t ErrorSink<'t> {
        self.error_sink
    }

    fn value_of_item(&self, item: &'t Spanned<DeValue<'t>>) -> LocatedValue<'t> {
        LocatedValue {
            path: self.path.clone(),
            offset: item.span().start,
            value: item.get_ref(),
            error_sink: self.error_sink,
        }
    }

    fn report_wrong_type(&self, expected: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.report_error(&format!("{found} is not permitted here, expected {expected}"));
    }
}

/// Formats a list: `a, b or c`.
pub(super) fn format_list(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., tail] => format!("{} {last} {tail}", head.join(", ")),
    }
}

/// Formats words: `"a", "b" or "c"`.
pub(super) fn words_in_quotes(words: &[&str]) -> String {
    format_list(&words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>(), "or")
}

#[cfg(test)]
mod tests {
    use super::format_list;

    #[test]
    fn expected_values_are_listed_as_a_sentence() {
        let items: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(format_list(&items, "or"), "a, b or c");
        assert_eq!(format_list(&items[..1], "or"), "a");
    }
}
