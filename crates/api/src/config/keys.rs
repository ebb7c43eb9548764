//! Declarations of config keys.
//!
//! The file of a section declares each of its keys once: name, type, default, and the sentence of
//! `docs/config.md`. [Tables](super::table) read values and defaults by the declaration. The
//! [disclosure](super::disclosure) decides by it which values others may see. A test writes the rows of the
//! page.

use super::reader::{Value, words_in_quotes};

/// A table of the config file.
pub(super) struct Section {
    /// Header as an operator writes it: `[station]`, `[[mobile_router.uplink]]`, or `auth` for the inline
    /// table.
    pub header: &'static str,
    /// Dotted path before a key in messages; empty at the top.
    pub path: &'static str,
    /// Keys, in the order of the page.
    pub keys: &'static [&'static dyn Declared],
    /// Sentences of the page that replace those of the declarations, by key.
    #[cfg(test)]
    pub meanings: &'static [(&'static str, &'static str)],
}

impl Section {
    /// Creates a table with these keys.
    pub(super) const fn new(
        header: &'static str,
        path: &'static str,
        keys: &'static [&'static dyn Declared],
    ) -> Section {
        Section {
            header,
            path,
            keys,
            #[cfg(test)]
            meanings: &[],
        }
    }

    /// Creates a table with the keys of another table. `meanings` has the sentences of the page that differ.
    pub(super) const fn with_meanings(self, meanings: &'static [(&'static str, &'static str)]) -> Section {
        #[cfg(not(test))]
        let _ = meanings;
        Section {
            #[cfg(test)]
            meanings,
            ..self
        }
    }

    /// Returns the declaration of a key.
    pub(super) fn key(&self, name: &str) -> Option<&Declaration> {
        self.keys.iter().map(|key| key.declaration()).find(|key| key.name == name)
    }

    /// Returns the dotted path of a key.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// Declaration of a key, without the type of its value.
pub(super) struct Declaration {
    /// Name of the key.
    pub name: &'static str,
    /// Value of an absent key.
    pub absent: Absent,
    /// Part of the value that others may see.
    pub disclosure: Disclosure,
    /// Table that the value of the key contains.
    pub below: Option<&'static Section>,
    /// Sentences about the key for `docs/config.md`. Only the test of this page uses them.
    #[cfg(test)]
    pub meaning: &'static str,
    /// Name of the type on the page; `None` if the form of the value determines it.
    #[cfg(test)]
    type_name: Option<&'static str>,
}

/// Value of an absent key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// An absent key is an error.
    Required,
    /// An absent key has no value.
    Nothing,
    /// An absent key has this value, written in TOML and read like a value of the file.
    Default(&'static str),
    /// The value of an absent key depends on other keys; the string describes it on the page.
    Computed(&'static str),
}

/// Part of a value that others may see, in a support bundle for example.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Disclosure {
    /// Others may see the whole value.
    Open,
    /// Others must not see the value, because it is a secret.
    Secret,
    /// Others may see the value: it is the path of a file or folder that contains secrets.
    PathOfSecret,
    /// Others may see the value only if it is one of these words. In an inline table they see only the values
    /// of these keys.
    Words(&'static [&'static str]),
}

/// A declared config key, independent of the type of its value.
pub(super) trait Declared: Sync {
    /// Returns the declaration.
    fn declaration(&self) -> &Declaration;

    /// Returns the type in the words of the page.
    #[cfg(test)]
    fn type_name(&self) -> String;
}

/// The type of a config value: its form (string, number, array) with a check, and its name on the page.
pub(super) struct Kind<T: 'static> {
    form: Form<T>,
    disclosure: Disclosure,
    below: Option<&'static Section>,
    /// Name on the page; `None` if the name follows from the form.
    #[cfg(test)]
    name: Option<&'static str>,
}

/// The form of a value.
pub(super) enum Form<T: 'static> {
    /// A string.
    Text { expected: &'static str, parse: fn(&str) -> Result<T, String> },
    /// An integer within bounds.
    Integer { low: i64, high: i64, convert: fn(i64) -> Option<T> },
    /// One of these words.
    Words(&'static [(&'static str, T)]),
    /// Any other value.
    Value { expected: &'static str, read: fn(&Value<'_>) -> Option<T> },
}

/// Creates the type of a string that `parse` accepts. Its error is "what is wrong, what was expected".
pub(super) const fn text<T>(
    name: &'static str,
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Kind<T> {
    kind(Some(name), Form::Text { expected, parse })
}

/// Creates the type of an integer within bounds that `T` can represent.
pub(super) const fn integer<T: TryFrom<i64>>(low: i64, high: i64) -> Kind<T> {
    fn convert<T: TryFrom<i64>>(integer: i64) -> Option<T> {
        T::try_from(integer).ok()
    }
    kind(None, Form::Integer { low, high, convert: convert::<T> })
}

/// Creates the type of a value that is one of these words.
pub(super) const fn words<T>(words: &'static [(&'static str, T)]) -> Kind<T> {
    kind(None, Form::Words(words))
}

/// Creates the type of a value that is one of these words, with a name for the page.
pub(super) const fn named_words<T>(name: &'static str, words: &'static [(&'static str, T)]) -> Kind<T> {
    kind(Some(name), Form::Words(words))
}

/// Creates the type of a value that `read` accepts. `read` reports its errors itself.
pub(super) const fn value<T>(
    name: &'static str,
    expected: &'static str,
    read: fn(&Value<'_>) -> Option<T>,
) -> Kind<T> {
    kind(Some(name), Form::Value { expected, read })
}

const fn kind<T>(name: Option<&'static str>, form: Form<T>) -> Kind<T> {
    #[cfg(not(test))]
    let _ = name;
    Kind {
        form,
        disclosure: Disclosure::Open,
        below: None,
        #[cfg(test)]
        name,
    }
}

impl<T> Kind<T> {
    /// Returns this type with another disclosure than [`Disclosure::Open`].
    pub(super) const fn disclosed(self, disclosure: Disclosure) -> Kind<T> {
        Kind { disclosure, ..self }
    }

    /// Returns this type for a value that may be an inline table, in which others may see only the values of
    /// these keys.
    pub(super) const fn with_table(
        self,
        section: &'static Section,
        words: &'static [&'static str],
    ) -> Kind<T> {
        Kind { below: Some(section), disclosure: Disclosure::Words(words), ..self }
    }
}

impl<T: Clone> Kind<T> {
    /// Reads a value; `None` after an error, which this function has reported.
    pub(super) fn read(&self, value: &Value<'_>) -> Option<T> {
        self.form.read(value)
    }
}

impl<T> Form<T> {
    /// Returns the text after "expected" in the error message for a wrong value.
    pub(super) fn expected(&self) -> String {
        match self {
            Form::Text { expected, .. } | Form::Value { expected, .. } => (*expected).to_owned(),
            Form::Integer { low, high, .. } => format!("an integer from {low} to {high}"),
            Form::Words(words) => words_in_quotes(&names_of(words)),
        }
    }

    /// Returns the name on the page.
    #[cfg(test)]
    fn type_name(&self) -> String {
        match self {
            Form::Integer { low, high, .. } => format!("integer, {low} to {high}"),
            _ => self.expected(),
        }
    }
}

impl<T: Clone> Form<T> {
    /// Reads a value; `None` after an error, which this function has reported.
    pub(super) fn read(&self, value: &Value<'_>) -> Option<T> {
        match self {
            Form::Text { expected, parse } => value.accept(parse(value.text(expected)?)),
            Form::Integer { low, high, convert } => convert(value.integer(*low, *high)?),
            Form::Words(words) => words.get(value.word(&names_of(words))?).map(|(_, word)| word.clone()),
            Form::Value { read, .. } => read(value),
        }
    }
}

fn names_of<T>(words: &'static [(&'static str, T)]) -> Vec<&'static str> {
    words.iter().map(|(word, _)| *word).collect()
}

/// A key that has a value in every config.
pub(super) struct Key<T: 'static> {
    declaration: Declaration,
    form: Form<T>,
}

/// A key that may be absent from a config.
pub(super) struct Optional<T: 'static>(Key<T>);

/// A key whose value is a table or an array of tables.
pub(super) struct Tables {
    declaration: Declaration,
    section: &'static Section,
    /// Text after "expected" in the error message if the required table is missing.
    expected: &'static str,
}

/// Declares a required key.
pub(super) const fn required<T>(name: &'static str, kind: Kind<T>, meaning: &'static str) -> Key<T> {
    key(name, kind, Absent::Required, meaning)
}

/// Declares a key with a default, in TOML.
pub(super) const fn with_default<T>(
    name: &'static str,
    kind: Kind<T>,
    default: &'static str,
    meaning: &'static str,
) -> Key<T> {
    key(name, kind, Absent::Default(default), meaning)
}

/// Declares a key that may be absent.
pub(super) const fn optional<T>(name: &'static str, kind: Kind<T>, meaning: &'static str) -> Optional<T> {
    Optional(key(name, kind, Absent::Nothing, meaning))
}

/// Declares a key whose default its section computes.
pub(super) const fn computed<T>(
    name: &'static str,
    kind: Kind<T>,
    default: &'static str,
    meaning: &'static str,
) -> Optional<T> {
    Optional(key(name, kind, Absent::Computed(default), meaning))
}

/// Declares a key that opens a table.
pub(super) const fn table(name: &'static str, section: &'static Section, meaning: &'static str) -> Tables {
    tables_of(name, section, Absent::Nothing, "", false, meaning)
}

/// Declares a key that opens a required table.
pub(super) const fn required_table(
    name: &'static str,
    section: &'static Section,
    expected: &'static str,
    meaning: &'static str,
) -> Tables {
    tables_of(name, section, Absent::Required, expected, false, meaning)
}

/// Declares a key that opens several tables.
pub(super) const fn tables(name: &'static str, section: &'static Section, meaning: &'static str) -> Tables {
    tables_of(name, section, Absent::Nothing, "", true, meaning)
}

/// Declares a key that opens at least one table.
pub(super) const fn required_tables(
    name: &'static str,
    section: &'static Section,
    expected: &'static str,
    meaning: &'static str,
) -> Tables {
    tables_of(name, section, Absent::Required, expected, true, meaning)
}

const fn key<T>(name: &'static str, kind: Kind<T>, absent: Absent, meaning: &'static str) -> Key<T> {
    let declaration = Declaration {
        name,
        absent,
        disclosure: kind.disclosure,
        below: kind.below,
        #[cfg(test)]
        meaning,
        #[cfg(test)]
        type_name: kind.name,
    };
    #[cfg(not(test))]
    let _ = meaning;
    Key { declaration, form: kind.form }
}

const fn tables_of(
    name: &'static str,
    section: &'static Section,
    absent: Absent,
    expected: &'static str,
    is_repeated: bool,
    meaning: &'static str,
) -> Tables {
    let declaration = Declaration {
        name,
        absent,
        disclosure: Disclosure::Words(&[]),
        below: Some(section),
        #[cfg(test)]
        meaning,
        #[cfg(test)]
        type_name: Some(if is_repeated { "tables" } else { "table" }),
    };
    #[cfg(not(test))]
    let _ = (meaning, is_repeated);
    Tables { declaration, section, expected }
}

impl<T: Sync> Declared for Key<T> {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.declaration.type_name.map_or_else(|| self.form.type_name(), str::to_owned)
    }
}

impl<T: Sync> Declared for Optional<T> {
    fn declaration(&self) -> &Declaration {
        &self.0.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.0.type_name()
    }
}

impl Declared for Tables {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.declaration.type_name.unwrap_or_default().to_owned()
    }
}

impl<T> Key<T> {
    /// Returns the form of the value.
    pub(super) fn form(&self) -> &Form<T> {
        &self.form
    }
}

impl<T> Optional<T> {
    /// Returns the form of the value.
    pub(super) fn form(&self) -> &Form<T> {
        &self.0.form
    }
}

impl Tables {
    /// Returns the section of the tables.
    pub(super) fn section(&self) -> &'static Section {
        self.section
    }

    /// Returns whether a table is required.
    pub(super) fn is_required(&self) -> bool {
        self.declaration.absent == Absent::Required
    }

    /// Returns the text after "expected" in the error message if the table is missing.
    pub(super) fn expected(&self) -> &'static str {
        self.expected
    }
}
