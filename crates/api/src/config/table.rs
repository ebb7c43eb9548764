//! Reads the tables of a parsed TOML document by the [declarations](super::keys).
//!
//! A reader gets `None` for a value that is absent or wrong and continues, so that one run finds every error.

use std::sync::LazyLock;

use toml::de::{DeTable, DeValue};

use super::errors::ErrorSink;
use super::keys::{AbsentValue, DeclaredKey, Key, OptionalKey, Section, TableKey, ValueForm};
use super::reader::{Located, LocatedValue, format_list};

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
static EMPTY_TABLE: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::new);

/// A table of the document.
pub(super) struct Table<'t> {
    section: &'static Section,
    table_offset: usize,
    toml_table: &'t DeTable<'t>,
    error_sink: &'t ErrorSink<'t>,
}

impl<'t> Table<'t> {
    /// Opens a table, and reports every unknown key.
    pub(super) fn open_table(
        section: &'static Section,
        at: usize,
        entries: &'t DeTable<'t>,
        sink: &'t ErrorSink<'t>,
    ) -> Table<'t> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if section.declaration_of(name).is_none() {
                sink.push(key.span().start, message_for_unknown_key(section, name));
            }
        }
        Table { section, table_offset: at, toml_table: entries, error_sink: sink }
    }

    /// Opens the table that a value contains.
    pub(super) fn of_value(section: &'static Section, value: &LocatedValue<'t>) -> Option<Table<'t>> {
        let entries = value.read_toml_table(&format!("a table {}", section.header))?;
        Some(Table::open_table(section, value.offset(), entries, value.error_sink()))
    }

    /// Returns the octet of the text at which the table begins.
    pub(super) fn table_offset(&self) -> usize {
        self.table_offset
    }

    /// Returns the collector of errors.
    pub(super) fn error_sink(&self) -> &'t ErrorSink<'t> {
        self.error_sink
    }

    /// Reads a key: its value, or its default. Returns `None` after an error, which this function has
    /// reported.
    pub(super) fn read_key<K: ReadableKey>(&self, key: &K) -> Option<K::Value> {
        key.read_from(self)
    }

    /// Reads a key that always has a value, with its position.
    pub(super) fn read_key_with_offset<T: Clone + Sync>(&self, key: &Key<T>) -> Option<Located<T>> {
        key.read_with_offset(self)
    }

    /// Reads a key that may be absent, with its position.
    pub(super) fn find_key_with_offset<T: Clone + Sync>(
        &self,
        key: &OptionalKey<T>,
    ) -> Option<Option<Located<T>>> {
        key.read_with_offset(self)
    }

    /// Returns the value of a key in the file; `None` if it is absent.
    pub(super) fn value_of_key(&self, key: &dyn DeclaredKey) -> Option<LocatedValue<'t>> {
        let name = key.declaration().name;
        debug_assert!(
            self.section.declaration_of(name).is_some(),
            "{name} is not in {}",
            self.section.header
        );
        let (_, value) = self.toml_table.iter().find(|(key, _)| key.get_ref() == name)?;
        let path = self.section.path_of(name);
        Some(LocatedValue::new(path, value.span().start, value.get_ref(), self.error_sink))
    }

    /// Reads the default of a key.
    pub(super) fn default_value<T: Clone + Sync>(
        &self,
        key: &dyn DeclaredKey,
        text: &str,
        form: &ValueForm<T>,
    ) -> Option<Located<T>> {
        let value = DeValue::parse(text).ok()?;
        let path = self.section.path_of(key.declaration().name);
        let value = LocatedValue::new(path, self.table_offset, value.get_ref(), self.error_sink);
        Some(Located { value: form.read_value(&value)?, offset: self.table_offset })
    }

    /// Reports that a key is missing.
    pub(super) fn report_missing(&self, key: &dyn DeclaredKey, expected: &str) {
        let path = self.section.path_of(key.declaration().name);
        self.error_sink.push(self.table_offset, format!("`{path}` is missing, expected {expected}"));
    }

    /// Returns the table of a key; `Some(None)` if it is absent.
    pub(super) fn subtable(&self, key: &TableKey) -> Option<Option<Table<'t>>> {
        match self.value_of_key(key) {
            Some(value) => Table::of_value(key.section(), &value).map(Some),
            None if key.is_required() => {
                self.report_missing(key, key.expected_text());
                None
            }
            None => Some(None),
        }
    }

    /// Returns the table of a key, or a table with all defaults if it is absent.
    pub(super) fn table_or_defaults(&self, key: &TableKey) -> Option<Table<'t>> {
        Some(self.subtable(key)?.unwrap_or_else(|| self.table_of_defaults(key)))
    }

    /// Returns a table with all defaults for the key.
    pub(super) fn table_of_defaults(&self, key: &TableKey) -> Table<'t> {
        Table {
            section: key.section(),
            table_offset: self.table_offset,
            toml_table: &EMPTY_TABLE,
            error_sink: self.error_sink,
        }
    }

    /// Returns the tables of a key that may be repeated.
    pub(super) fn subtables(&self, key: &TableKey) -> Option<Vec<Table<'t>>> {
        match self.value_of_key(key) {
            Some(value) => {
                let section = key.section();
                let items = value.read_array(&format!("tables {}", section.header))?;
                Some(items.iter().filter_map(|item| Table::of_value(section, item)).collect())
            }
            None if key.is_required() => {
                self.report_missing(key, key.expected_text());
                None
            }
            None => Some(Vec::new()),
        }
    }
}

/// A key whose value [`Table::read_key`] reads.
pub(super) trait ReadableKey: DeclaredKey {
    /// Type of the value: an `Option` if the key may be absent.
    type Value;

    /// Reads the key from a table. Returns `None` after an error, which this function has reported.
    fn read_from(&self, table: &Table<'_>) -> Option<Self::Value>;
}

impl<T: Clone + Sync> ReadableKey for Key<T> {
    type Value = T;

    fn read_from(&self, table: &Table<'_>) -> Option<T> {
        self.read_with_offset(table).map(|read| read.value)
    }
}

impl<T: Clone + Sync> ReadableKey for OptionalKey<T> {
    type Value = Option<T>;

    fn read_from(&self, table: &Table<'_>) -> Option<Option<T>> {
        self.read_with_offset(table).map(|read| read.map(|read| read.value))
    }
}

impl<T: Clone + Sync> Key<T> {
    /// Reads the key with its position; a default has the position of the table.
    pub(super) fn read_with_offset(&self, table: &Table<'_>) -> Option<Located<T>> {
        let value = match (table.value_of_key(self), self.declaration().absent_value) {
            (Some(value), _) => value,
            (None, AbsentValue::Default(text)) => return table.default_value(self, text, self.value_form()),
            (None, _) => {
                table.report_missing(self, &self.value_form().expected_text());
                return None;
            }
        };
        Some(Located { value: self.value_form().read_value(&value)?, offset: value.offset() })
    }
}

impl<T: Clone + Sync> OptionalKey<T> {
    /// Reads the key with its position; `Some(None)` if it is absent.
    pub(super) fn read_with_offset(&self, table: &Table<'_>) -> Option<Option<Located<T>>> {
        let Some(value) = table.value_of_key(self) else { return Some(None) };
        Some(Some(Located { value: self.value_form().read_value(&value)?, offset: value.offset() }))
    }
}

/// Returns the error message for an unknown key, with the nearest known key.
fn message_for_unknown_key(section: &Section, name: &str) -> String {
    let known = section.declared_keys.iter().map(|key| key.declaration().name);
    let nearest = known
        .clone()
        .map(|known| (edit_distance(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().min(name.len()) / 3 + 1);
    let expected = match nearest {
        Some((_, nearest)) => format!("`{nearest}`"),
        None => format_list(&known.map(|name| format!("`{name}`")).collect::<Vec<_>>(), "or"),
    };
    format!("unknown key `{name}` in {}, expected {expected}", section.header)
}

/// Returns the number of letters to add, remove, change or swap that turn one word into the other.
fn edit_distance(a: &str, b: &str) -> usize {
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
    use super::edit_distance;

    #[test]
    fn edit_distance_of_config_keys_counts_changed_letters() {
        assert_eq!(edit_distance("socket", "socket"), 0);
        assert_eq!(edit_distance("sokcet", "socket"), 1);
        assert_eq!(edit_distance("scket", "socket"), 1);
        assert_eq!(edit_distance("sockets", "socket"), 1);
        assert_eq!(edit_distance("", "socket"), 6);
        assert_eq!(edit_distance("name", "http"), 4);
    }
}
