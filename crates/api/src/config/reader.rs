//! Values of a parsed TOML document, and their errors.
//!
//! A reader gets `None` for a value that is absent or wrong and continues, so that one run finds every error.
//! Each value has its position in the text, for the checks that compare values.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::errors::Sink;

/// A value with the octet of the text at which it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<T> {
    pub value: T,
    pub at: usize,
}

/// An array: its valid elements, and whether all elements are valid.
#[derive(Debug, Clone)]
pub(super) struct List<T> {
    pub items: Vec<At<T>>,
    pub whole: bool,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List { items: Vec::new(), whole: true }
    }
}

impl<T> List<T> {
    /// Reads an array, each element by `read`.
    pub(super) fn read(
        value: &Value<'_>,
        expected: &str,
        read: impl Fn(&Value<'_>) -> Option<T>,
    ) -> Option<List<T>> {
        let Some(found) = value.array(expected) else {
            return Some(List { items: Vec::new(), whole: false });
        };
        let items: Vec<At<T>> =
            found.iter().filter_map(|value| Some(At { value: read(value)?, at: value.at() })).collect();
        Some(List { whole: items.len() == found.len(), items })
    }

    /// Returns the elements, if all are valid.
    pub(super) fn complete(&self) -> Option<Vec<T>>
    where
        T: Clone,
    {
        self.whole.then(|| self.items.iter().map(|item| item.value.clone()).collect())
    }
}

/// A value of the document.
pub(super) struct Value<'t> {
    path: String,
    at: usize,
    value: &'t DeValue<'t>,
    sink: &'t Sink<'t>,
}

impl<'t> Value<'t> {
    /// Creates the value of the key with this path.
    pub(super) fn new(path: String, at: usize, value: &'t DeValue<'t>, sink: &'t Sink<'t>) -> Value<'t> {
        Value { path, at, value, sink }
    }

    /// Returns whether the value is an array without elements.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.value, DeValue::Array(items) if items.is_empty())
    }

    /// Returns the octet of the text at which the value begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Reports an error about this value.
    pub(super) fn refuse(&self, message: &str) {
        self.sink.push(self.at, format!("`{}`: {message}", self.path));
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
        self.sink.file()
    }

    /// Reads a string.
    pub(super) fn text(&self, expected: &str) -> Option<&'t str> {
        let text = self.as_str();
        if text.is_none() {
            self.wrong_type(expected);
        }
        text
    }

    /// Returns the parsed value, or reports its error.
    pub(super) fn accept<T>(&self, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|message| self.refuse(&message)).ok()
    }

    /// Reads a string that `parse` accepts.
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.accept(parse(self.text(expected)?))
    }

    /// Reads one of a few words; returns its index.
    pub(super) fn word(&self, words: &[&str]) -> Option<usize> {
        let expected = words_in_quotes(words);
        let text = self.text(&expected)?;
        let known = words.iter().position(|word| *word == text);
        if known.is_none() {
            self.refuse(&format!("{text:?} is not known, expected {expected}"));
        }
        known
    }

    /// Reads an integer within bounds.
    pub(super) fn integer(&self, low: i64, high: i64) -> Option<i64> {
        let expected = format!("an integer from {low} to {high}");
        let DeValue::Integer(integer) = self.value else {
            self.wrong_type(&expected);
            return None;
        };
        match i64::from_str_radix(integer.as_str(), integer.radix()).ok() {
            Some(value) if (low..=high).contains(&value) => Some(value),
            _ => {
                self.refuse(&format!("{integer} is out of range, expected {expected}"));
                None
            }
        }
    }

    /// Reads an integer or a float that `check` accepts.
    pub(super) fn number<T>(
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
            self.wrong_type(expected);
            return None;
        };
        check(number).map_err(|message| self.refuse(&message)).ok()
    }

    /// Reads true or false.
    pub(super) fn boolean(&self) -> Option<bool> {
        if let DeValue::Boolean(value) = self.value {
            return Some(*value);
        }
        self.wrong_type("true or false");
        None
    }

    /// Returns whether the value is an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    /// Returns the elements of an array.
    pub(super) fn array(&self, expected: &str) -> Option<Vec<Value<'t>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong_type(expected);
            return None;
        };
        Some(items.iter().map(|item| self.item(item)).collect())
    }

    /// Returns the entries of a table; `expected` is its header.
    pub(super) fn entries(&self, expected: &str) -> Option<&'t DeTable<'t>> {
        if let DeValue::Table(entries) = self.value {
            return Some(entries);
        }
        self.wrong_type(expected);
        None
    }

    /// Returns the collector of errors.
    pub(super) fn sink(&self) -> &'t Sink<'t> {
        self.sink
    }

    fn item(&self, item: &'t Spanned<DeValue<'t>>) -> Value<'t> {
        Value { path: self.path.clone(), at: item.span().start, value: item.get_ref(), sink: self.sink }
    }

    fn wrong_type(&self, expected: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.refuse(&format!("{found} is not permitted here, expected {expected}"));
    }
}

/// Formats a list: `a, b or c`.
pub(super) fn list(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., tail] => format!("{} {last} {tail}", head.join(", ")),
    }
}

/// Formats words: `"a", "b" or "c"`.
pub(super) fn words_in_quotes(words: &[&str]) -> String {
    list(&words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>(), "or")
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn expected_values_are_listed_as_a_sentence() {
        let items: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(list(&items, "or"), "a, b or c");
        assert_eq!(list(&items[..1], "or"), "a");
    }
}
