//! Walks a parsed TOML document by the [schema](super::schema), and notes what does not fit.
//!
//! A value that is absent or wrong is `None` to the caller, and reading goes on, so that one run finds
//! every error. Values carry the octet where they begin, for the checks that compare them.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::errors::Sink;
use super::schema::Section;

/// A value and where it begins in the text, in octets.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<T> {
    pub value: T,
    pub at: usize,
}

/// A table of the document.
pub(super) struct Table<'t> {
    section: &'static Section,
    at: usize,
    entries: &'t DeTable<'t>,
    sink: &'t Sink<'t>,
}

impl<'t> Table<'t> {
    /// Opens a table and notes every key that it must not have.
    pub(super) fn open(
        section: &'static Section,
        at: usize,
        entries: &'t DeTable<'t>,
        sink: &'t Sink<'t>,
    ) -> Table<'t> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !section.keys.iter().any(|known| known.name == name) {
                sink.push(key.span().start, refuse(section, name));
            }
        }
        Table { section, at, entries, sink }
    }

    /// Where the table begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Looks up a key of the schema; `None` when it is absent.
    pub(super) fn get(&self, name: &'static str) -> Option<Value<'t>> {
        debug_assert!(self.section.keys.iter().any(|key| key.name == name), "{name} is not in the schema");
        let (_, value) = self.entries.iter().find(|(key, _)| key.get_ref() == name)?;
        Some(Value { path: self.path(name), at: value.span().start, value: value.get_ref(), sink: self.sink })
    }

    /// Looks up a key that has to be there.
    pub(super) fn need(&self, name: &'static str, expected: &str) -> Option<Value<'t>> {
        let value = self.get(name);
        if value.is_none() {
            self.sink.push(self.at, format!("`{}` is missing, expected {expected}", self.path(name)));
        }
        value
    }

    fn path(&self, name: &str) -> String {
        match self.section.path {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
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
    /// True for an array without elements.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.value, DeValue::Array(items) if items.is_empty())
    }

    /// Where the value begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Notes an error about this value.
    pub(super) fn refuse(&self, message: &str) {
        self.sink.push(self.at, format!("`{}`: {message}", self.path));
    }

    /// The value if it is a string at all, without a complaint when it is not.
    pub(super) fn as_str(&self) -> Option<&'t str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// A string that `parse` understands; its error is "what is wrong, what was expected".
    pub(super) fn parse<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<At<T>> {
        let Some(text) = self.as_str() else {
            self.wrong_type(expected);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(At { value, at: self.at }),
            Err(message) => {
                self.refuse(&message);
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)], later: &[&str]) -> Option<At<T>> {
        let names: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let expected = list(&names, "or");
        self.parse(&expected, |text| {
            if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
                Ok(*value)
            } else if later.contains(&text) {
                Err(format!("{text:?} is not in this version, expected {expected}"))
            } else {
                Err(format!("{text:?} is not known, expected {expected}"))
            }
        })
    }

    /// An integer within bounds, none of them negative.
    pub(super) fn integer(&self, low: u32, high: u32) -> Option<At<u32>> {
        let found = self.signed(i64::from(low), i64::from(high))?;
        Some(At { value: u32::try_from(found).ok()?, at: self.at })
    }

    /// An integer within bounds.
    pub(super) fn signed(&self, low: i64, high: i64) -> Option<i64> {
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

    /// An integer or a float that `check` takes.
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

    /// True or false.
    pub(super) fn boolean(&self) -> Option<bool> {
        if let DeValue::Boolean(value) = self.value {
            return Some(*value);
        }
        self.wrong_type("true or false");
        None
    }

    /// Whether it is an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    /// The elements of an array.
    pub(super) fn array(&self, expected: &str) -> Option<Vec<Value<'t>>> {
        let DeValue::Array(items) = self.value else {
            self.wrong_type(expected);
            return None;
        };
        Some(items.iter().map(|item| self.item(item)).collect())
    }

    /// The table of a section.
    pub(super) fn table(&self, section: &'static Section) -> Option<Table<'t>> {
        let DeValue::Table(entries) = self.value else {
            self.wrong_type(&format!("a table {}", section.header));
            return None;
        };
        Some(Table::open(section, self.at, entries, self.sink))
    }

    /// The tables of a section that may be repeated.
    pub(super) fn tables(&self, section: &'static Section) -> Option<Vec<Table<'t>>> {
        let items = self.array(&format!("tables {}", section.header))?;
        Some(items.iter().filter_map(|item| item.table(section)).collect())
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
        self.refuse(&format!("{found} does not go here, expected {expected}"));
    }
}

/// Why a key is refused.
fn refuse(section: &Section, name: &str) -> String {
    let known: Vec<String> = section.keys.iter().map(|key| format!("`{}`", key.name)).collect();
    if section.later.contains(&name) {
        let what = match section.path {
            "" => format!("[{name}]"),
            path => format!("`{path}.{name}`"),
        };
        return format!("{what} is not in this version, expected {}", list(&known, "or"));
    }
    let nearest = section
        .keys
        .iter()
        .map(|key| (distance(name, key.name), key.name))
        .min()
        .filter(|(distance, known)| *distance <= known.len().min(name.len()) / 3 + 1);
    match nearest {
        Some((_, nearest)) => format!("unknown key `{name}` in {}, expected `{nearest}`", section.header),
        None => format!("unknown key `{name}` in {}, expected {}", section.header, list(&known, "or")),
    }
}

/// `a, b or c`
pub(super) fn list(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., tail] => format!("{} {last} {tail}", head.join(", ")),
    }
}

/// How many letters have to be added, removed, changed or swapped with the next to get from one word to
/// the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut cost = (above[j] + usize::from(a[i] != b[j])).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, list};

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance("socket", "socket"), 0);
        assert_eq!(distance("sokcet", "socket"), 1);
        assert_eq!(distance("scket", "socket"), 1);
        assert_eq!(distance("sockets", "socket"), 1);
        assert_eq!(distance("", "socket"), 6);
        assert_eq!(distance("name", "http"), 4);
    }

    #[test]
    fn lists_read_as_a_sentence() {
        let items: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(list(&items, "or"), "a, b or c");
        assert_eq!(list(&items[..1], "or"), "a");
    }
}
