//! Reads the tables of a parsed TOML document by the [declarations](super::keys).
//!
//! A reader gets `None` for a value that is absent or wrong and continues, so that one run finds every error.

use std::sync::LazyLock;

use toml::de::{DeTable, DeValue};

use super::errors::Sink;
use super::keys::{Absent, Declared, Form, Key, Optional, Section, Tables};
use super::reader::{At, Value, list};

/// Builds a struct if all fields are `Some`. It evaluates all fields first, so that every error is reported.
macro_rules! all {
    ($name:ident { $($field:ident: $value:expr),* $(,)? }) => {
        match ($($value,)*) {
            ($(Some($field),)*) => Some($name { $($field),* }),
            _ => None,
        }
    };
}
pub(super) use all;

/// An empty table, which the reader uses in place of an absent table.
static NO_KEYS: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::new);

/// A table of the document.
pub(super) struct Table<'t> {
    section: &'static Section,
    at: usize,
    entries: &'t DeTable<'t>,
    sink: &'t Sink<'t>,
}

impl<'t> Table<'t> {
    /// Opens a table, and reports every unknown key.
    pub(super) fn open(
        section: &'static Section,
        at: usize,
        entries: &'t DeTable<'t>,
        sink: &'t Sink<'t>,
    ) -> Table<'t> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if section.key(name).is_none() {
                sink.push(key.span().start, unknown(section, name));
            }
        }
        Table { section, at, entries, sink }
    }

    /// Opens the table that a value contains.
    pub(super) fn of(section: &'static Section, value: &Value<'t>) -> Option<Table<'t>> {
        let entries = value.entries(&format!("a table {}", section.header))?;
        Some(Table::open(section, value.at(), entries, value.sink()))
    }

    /// Returns the octet of the text at which the table begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the collector of errors.
    pub(super) fn sink(&self) -> &'t Sink<'t> {
        self.sink
    }

    /// Reads a key: its value, or its default. Returns `None` after an error, which this function has
    /// reported.
    pub(super) fn take<K: Readable>(&self, key: &K) -> Option<K::Read> {
        key.read(self)
    }

    /// Reads a key that always has a value, with its position.
    pub(super) fn take_at<T: Clone + Sync>(&self, key: &Key<T>) -> Option<At<T>> {
        key.read_at(self)
    }

    /// Reads a key that may be absent, with its position.
    pub(super) fn find_at<T: Clone + Sync>(&self, key: &Optional<T>) -> Option<Option<At<T>>> {
        key.read_at(self)
    }

    /// Returns the value of a key in the file; `None` if it is absent.
    pub(super) fn value(&self, key: &dyn Declared) -> Option<Value<'t>> {
        let name = key.declaration().name;
        debug_assert!(self.section.key(name).is_some(), "{name} is not in {}", self.section.header);
        let (_, value) = self.entries.iter().find(|(key, _)| key.get_ref() == name)?;
        let path = self.section.path_of(name);
        Some(Value::new(path, value.span().start, value.get_ref(), self.sink))
    }

    /// Reads the default of a key.
    pub(super) fn default<T: Clone + Sync>(
        &self,
        key: &dyn Declared,
        text: &str,
        form: &Form<T>,
    ) -> Option<At<T>> {
        let value = DeValue::parse(text).ok()?;
        let path = self.section.path_of(key.declaration().name);
        let value = Value::new(path, self.at, value.get_ref(), self.sink);
        Some(At { value: form.read(&value)?, at: self.at })
    }

    /// Reports that a key is missing.
    pub(super) fn miss(&self, key: &dyn Declared, expected: &str) {
        let path = self.section.path_of(key.declaration().name);
        self.sink.push(self.at, format!("`{path}` is missing, expected {expected}"));
    }

    /// Returns the table of a key; `Some(None)` if it is absent.
    pub(super) fn table(&self, key: &Tables) -> Option<Option<Table<'t>>> {
        match self.value(key) {
            Some(value) => Table::of(key.section(), &value).map(Some),
            None if key.is_required() => {
                self.miss(key, key.expected());
                None
            }
            None => Some(None),
        }
    }

    /// Returns the table of a key, or a table with all defaults if it is absent.
    pub(super) fn table_or_defaults(&self, key: &Tables) -> Option<Table<'t>> {
        Some(self.table(key)?.unwrap_or_else(|| self.defaults(key)))
    }

    /// Returns a table with all defaults for the key.
    pub(super) fn defaults(&self, key: &Tables) -> Table<'t> {
        Table { section: key.section(), at: self.at, entries: &NO_KEYS, sink: self.sink }
    }

    /// Returns the tables of a key that may be repeated.
    pub(super) fn tables(&self, key: &Tables) -> Option<Vec<Table<'t>>> {
        match self.value(key) {
            Some(value) => {
                let section = key.section();
                let items = value.array(&format!("tables {}", section.header))?;
                Some(items.iter().filter_map(|item| Table::of(section, item)).collect())
            }
            None if key.is_required() => {
                self.miss(key, key.expected());
                None
            }
            None => Some(Vec::new()),
        }
    }
}

/// A key whose value [`Table::take`] reads.
pub(super) trait Readable: Declared {
    /// Type of the value: an `Option` if the key may be absent.
    type Read;

    /// Reads the key from a table. Returns `None` after an error, which this function has reported.
    fn read(&self, table: &Table<'_>) -> Option<Self::Read>;
}

impl<T: Clone + Sync> Readable for Key<T> {
    type Read = T;

    fn read(&self, table: &Table<'_>) -> Option<T> {
        self.read_at(table).map(|read| read.value)
    }
}

impl<T: Clone + Sync> Readable for Optional<T> {
    type Read = Option<T>;

    fn read(&self, table: &Table<'_>) -> Option<Option<T>> {
        self.read_at(table).map(|read| read.map(|read| read.value))
    }
}

impl<T: Clone + Sync> Key<T> {
    /// Reads the key with its position; a default has the position of the table.
    pub(super) fn read_at(&self, table: &Table<'_>) -> Option<At<T>> {
        let value = match (table.value(self), self.declaration().absent) {
            (Some(value), _) => value,
            (None, Absent::Default(text)) => return table.default(self, text, self.form()),
            (None, _) => {
                table.miss(self, &self.form().expected());
                return None;
            }
        };
        Some(At { value: self.form().read(&value)?, at: value.at() })
    }
}

impl<T: Clone + Sync> Optional<T> {
    /// Reads the key with its position; `Some(None)` if it is absent.
    pub(super) fn read_at(&self, table: &Table<'_>) -> Option<Option<At<T>>> {
        let Some(value) = table.value(self) else { return Some(None) };
        Some(Some(At { value: self.form().read(&value)?, at: value.at() }))
    }
}

/// Returns the error message for an unknown key, with the nearest known key.
fn unknown(section: &Section, name: &str) -> String {
    let known = section.keys.iter().map(|key| key.declaration().name);
    let nearest = known
        .clone()
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().min(name.len()) / 3 + 1);
    let expected = match nearest {
        Some((_, nearest)) => format!("`{nearest}`"),
        None => list(&known.map(|name| format!("`{name}`")).collect::<Vec<_>>(), "or"),
    };
    format!("unknown key `{name}` in {}, expected {expected}", section.header)
}

/// Returns the number of letters to add, remove, change or swap that turn one word into the other.
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
    use super::distance;

    #[test]
    fn edit_distance_of_config_keys_counts_letters() {
        assert_eq!(distance("socket", "socket"), 0);
        assert_eq!(distance("sokcet", "socket"), 1);
        assert_eq!(distance("scket", "socket"), 1);
        assert_eq!(distance("sockets", "socket"), 1);
        assert_eq!(distance("", "socket"), 6);
        assert_eq!(distance("name", "http"), 4);
    }
}
