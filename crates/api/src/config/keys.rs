//! Declarations of config keys.
//!
//! The module of each table declares its keys once: name, type, default, and the sentence in
//! `docs/config.md`. [Tables](super::table) read values and defaults according to the declarations. The
//! [disclosure](super::disclosure) reads from them which values others may see. A test writes the rows of
//! `docs/config.md` from them.

use super::reader::{LocatedValue, words_in_quotes};

/// A table of the config file.
pub(super) struct Section {
    /// Header as an operator writes it: `[station]`, `[[mobile_router.uplink]]`, or `auth` for the inline
    /// table.
    pub header: &'static str,
    /// Dotted path before a key in messages; empty at the top.
    pub path: &'static str,
    /// Keys, in the order of `docs/config.md`.
    pub declared_keys: &'static [&'static dyn DeclaredKey],
    /// Sentences in `docs/config.md` that replace the sentence of a key's declaration, each with the key's
    /// name.
    #[cfg(test)]
    pub replaced_meanings: &'static [(&'static str, &'static str)],
}

impl Section {
    /// Creates a table with these keys.
    pub(super) const fn new(
        header: &'static str,
        path: &'static str,
        keys: &'static [&'static dyn DeclaredKey],
    ) -> Section {
        Section {
            header,
            path,
            declared_keys: keys,
            #[cfg(test)]
            replaced_meanings: &[],
        }
    }

    /// Creates a table with the keys of another table. `meanings` has the sentences of `docs/config.md` that
    /// differ.
    pub(super) const fn with_meanings(self, meanings: &'static [(&'static str, &'static str)]) -> Section {
        #[cfg(not(test))]
        let _ = meanings;
        Section {
            #[cfg(test)]
            replaced_meanings: meanings,
            ..self
        }
    }

    /// Returns the declaration of a key.
    pub(super) fn declaration_of(&self, name: &str) -> Option<&KeyDeclaration> {
        self.declared_keys.iter().map(|key| key.declaration()).find(|key| key.name == name)
    }

    /// Returns the dotted path of a key.
    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

/// Declaration of a key, without the type of its value.
pub(super) struct KeyDeclaration {
    /// Name of the key.
    pub name: &'static str,
    /// Value of an absent key.
    pub absent_value: AbsentValue,
    /// Part of the value that others may see.
    pub disclosure: Disclosure,
    /// Table that the value of the key contains.
    pub subsection: Option<&'static Section>,
    /// Sentences about the key for `docs/config.md`. Only the test of this page uses them.
    #[cfg(test)]
    pub meaning: &'static str,
    /// Name of the type in `docs/config.md`; `None` if the form of the value determines the name.
    #[cfg(test)]
    type_name: Option<&'static str>,
}

/// Value of an absent key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentValue {
    /// An absent key is an error.
    Required,
    /// An absent key has no value.
    Nothing,
    /// An absent key has this value, written in TOML and read like a value of the file.
    Default(&'static str),
    /// The value of an absent key depends on other keys; the string describes it in `docs/config.md`.
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
pub(super) trait DeclaredKey: Sync {
    /// Returns the declaration.
    fn declaration(&self) -> &KeyDeclaration;

    /// Returns the name of the type as in `docs/config.md`.
    #[cfg(test)]
    fn type_name(&self) -> String;
}

/// The type of a config value: its form (string, number, array) with a check, and its name in
/// `docs/config.md`.
pub(super) struct ValueKind<T: 'static> {
    value_form: ValueForm<T>,
    disclosure: Disclosure,
    subsection: Option<&'static Section>,
    /// Name in `docs/config.md`; `None` if the form determines the name.
    #[cfg(test)]
    name: Option<&'static str>,
}

/// The form of a value.
pub(super) enum ValueForm<T: 'static> {
    /// A string.
    Text { expected: &'static str, parse: fn(&str) -> Result<T, String> },
    /// An integer within bounds.
    Integer { low: i64, high: i64, convert: fn(i64) -> Option<T> },
    /// One of these words.
    Words(&'static [(&'static str, T)]),
    /// Any other value.
    Value { expected: &'static str, read: fn(&LocatedValue<'_>) -> Option<T> },
}

/// Creates the type of a string that `parse` accepts. Its error is "what is wrong, what was expected".
pub(super) const fn text_kind<T>(
    name: &'static str,
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> ValueKind<T> {
    new_kind(Some(name), ValueForm::Text { expected, parse })
}

/// Creates the type of an integer within bounds that `T` can represent.
pub(super) const fn integer_kind<T: TryFrom<i64>>(low: i64, high: i64) -> ValueKind<T> {
    fn convert_integer<T: TryFrom<i64>>(integer: i64) -> Option<T> {
        T::try_from(integer).ok()
    }
    new_kind(None, ValueForm::Integer { low, high, convert: convert_integer::<T> })
}

/// Creates the type of a value that is one of these words.
pub(super) const fn words_kind<T>(words: &'static [(&'static str, T)]) -> ValueKind<T> {
    new_kind(None, ValueForm::Words(words))
}

/// Creates the type of a value that is one of these words, with the type's name in `docs/config.md`.
pub(super) const fn named_words_kind<T>(
    name: &'static str,
    words: &'static [(&'static str, T)],
) -> ValueKind<T> {
    new_kind(Some(name), ValueForm::Words(words))
}

/// Creates the type of a value that `read` accepts. `read` reports its errors itself.
pub(super) const fn value_kind<T>(
    name: &'static str,
    expected: &'static str,
    read: fn(&LocatedValue<'_>) -> Option<T>,
) -> ValueKind<T> {
    new_kind(Some(name), ValueForm::Value { expected, read })
}

const fn new_kind<T>(name: Option<&'static str>, form: ValueForm<T>) -> ValueKind<T> {
    #[cfg(not(test))]
    let _ = name;
    ValueKind {
        value_form: form,
        disclosure: Disclosure::Open,
        subsection: None,
        #[cfg(test)]
        name,
    }
}

impl<T> ValueKind<T> {
    /// Returns this type with another disclosure than [`Disclosure::Open`].
    pub(super) const fn with_disclosure(self, disclosure: Disclosure) -> ValueKind<T> {
        ValueKind { disclosure, ..self }
    }

    /// Returns this type for a value that may be an inline table, in which others may see only the values of
    /// these keys.
    pub(super) const fn with_table(
        self,
        section: &'static Section,
        words: &'static [&'static str],
    ) -> ValueKind<T> {
        ValueKind { subsection: Some(section), disclosure: Disclosure::Words(words), ..self }
    }
}

impl<T: Clone> ValueKind<T> {
    /// Reads a value; `None` after an error, which this function has reported.
    pub(super) fn read_value(&self, value: &LocatedValue<'_>) -> Option<T> {
        self.value_form.read_value(value)
    }
}

impl<T> ValueForm<T> {
    /// Returns the text after "expected" in the error message for a wrong value.
    pub(super) fn expected_text(&self) -> String {
        match self {
            ValueForm::Text { expected, .. } | ValueForm::Value { expected, .. } => (*expected).to_owned(),
            ValueForm::Integer { low, high, .. } => format!("an integer from {low} to {high}"),
            ValueForm::Words(words) => words_in_quotes(&names_of(words)),
        }
    }

    /// Returns the name of the type in `docs/config.md`.
    #[cfg(test)]
    fn type_name(&self) -> String {
        match self {
            ValueForm::Integer { low, high, .. } => format!("integer, {low} to {high}"),
            _ => self.expected_text(),
        }
    }
}

impl<T: Clone> ValueForm<T> {
    /// Reads a value; `None` after an error, which this function has reported.
    pub(super) fn read_value(&self, value: &LocatedValue<'_>) -> Option<T> {
        match self {
            ValueForm::Text { expected, parse } => value.accept_parsed(parse(value.read_text(expected)?)),
            ValueForm::Integer { low, high, convert } => convert(value.read_integer(*low, *high)?),
            ValueForm::Words(words) => {
                words.get(value.read_word(&names_of(words))?).map(|(_, word)| word.clone())
            }
            ValueForm::Value { read, .. } => read(value),
        }
    }
}

fn names_of<T>(words: &'static [(&'static str, T)]) -> Vec<&'static str> {
    words.iter().map(|(word, _)| *word).collect()
}

/// A key that has a value in every config.
pub(super) struct Key<T: 'static> {
    declaration: KeyDeclaration,
    value_form: ValueForm<T>,
}

/// A key that may be absent from a config.
pub(super) struct OptionalKey<T: 'static>(Key<T>);

/// A key whose value is a table or an array of tables.
pub(super) struct TableKey {
    declaration: KeyDeclaration,
    section: &'static Section,
    /// Text after "expected" in the error message if the required table is missing.
    expected_text: &'static str,
}

/// Declares a required key.
pub(super) const fn required_key<T>(name: &'static str, kind: ValueKind<T>, meaning: &'static str) -> Key<T> {
    new_key(name, kind, AbsentValue::Required, meaning)
}

/// Declares a key with a default, in TOML.
pub(super) const fn key_with_default<T>(
    name: &'static str,
    kind: ValueKind<T>,
    default: &'static str,
    meaning: &'static str,
) -> Key<T> {
    new_key(name, kind, AbsentValue::Default(default), meaning)
}

/// Declares a key that may be absent.
pub(super) const fn optional_key<T>(
    name: &'static str,
    kind: ValueKind<T>,
    meaning: &'static str,
) -> OptionalKey<T> {
    OptionalKey(new_key(name, kind, AbsentValue::Nothing, meaning))
}

/// Declares a key whose default depends on other keys; the code of its table computes the default.
pub(super) const fn computed_key<T>(
    name: &'static str,
    kind: ValueKind<T>,
    default: &'static str,
    meaning: &'static str,
) -> OptionalKey<T> {
    OptionalKey(new_key(name, kind, AbsentValue::Computed(default), meaning))
}

/// Declares a key that opens a table.
pub(super) const fn optional_table(
    name: &'static str,
    section: &'static Section,
    meaning: &'static str,
) -> TableKey {
    new_table_key(name, section, AbsentValue::Nothing, "", false, meaning)
}

/// Declares a key that opens a required table.
pub(super) const fn required_table(
    name: &'static str,
    section: &'static Section,
    expected: &'static str,
    meaning: &'static str,
) -> TableKey {
    new_table_key(name, section, AbsentValue::Required, expected, false, meaning)
}

/// Declares a key that opens several tables.
pub(super) const fn table_array(
    name: &'static str,
    section: &'static Section,
    meaning: &'static str,
) -> TableKey {
    new_table_key(name, section, AbsentValue::Nothing, "", true, meaning)
}

/// Declares a key that opens at least one table.
pub(super) const fn required_table_array(
    name: &'static str,
    section: &'static Section,
    expected: &'static str,
    meaning: &'static str,
) -> TableKey {
    new_table_key(name, section, AbsentValue::Required, expected, true, meaning)
}

const fn new_key<T>(
    name: &'static str,
    kind: ValueKind<T>,
    absent: AbsentValue,
    meaning: &'static str,
) -> Key<T> {
    let declaration = KeyDeclaration {
        name,
        absent_value: absent,
        disclosure: kind.disclosure,
        subsection: kind.subsection,
        #[cfg(test)]
        meaning,
        #[cfg(test)]
        type_name: kind.name,
    };
    #[cfg(not(test))]
    let _ = meaning;
    Key { declaration, value_form: kind.value_form }
}

const fn new_table_key(
    name: &'static str,
    section: &'static Section,
    absent: AbsentValue,
    expected: &'static str,
    is_repeated: bool,
    meaning: &'static str,
) -> TableKey {
    let declaration = KeyDeclaration {
        name,
        absent_value: absent,
        disclosure: Disclosure::Words(&[]),
        subsection: Some(section),
        #[cfg(test)]
        meaning,
        #[cfg(test)]
        type_name: Some(if is_repeated { "tables" } else { "table" }),
    };
    #[cfg(not(test))]
    let _ = (meaning, is_repeated);
    TableKey { declaration, section, expected_text: expected }
}

impl<T: Sync> DeclaredKey for Key<T> {
    fn declaration(&self) -> &KeyDeclaration {
        &self.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.declaration.type_name.map_or_else(|| self.value_form.type_name(), str::to_owned)
    }
}

impl<T: Sync> DeclaredKey for OptionalKey<T> {
    fn declaration(&self) -> &KeyDeclaration {
        &self.0.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.0.type_name()
    }
}

impl DeclaredKey for TableKey {
    fn declaration(&self) -> &KeyDeclaration {
        &self.declaration
    }

    #[cfg(test)]
    fn type_name(&self) -> String {
        self.declaration.type_name.unwrap_or_default().to_owned()
    }
}

impl<T> Key<T> {
    /// Returns the form of the value.
    pub(super) fn value_form(&self) -> &ValueForm<T> {
        &self.value_form
    }
}

impl<T> OptionalKey<T> {
    /// Returns the form of the value.
    pub(super) fn value_form(&self) -> &ValueForm<T> {
        &self.0.value_form
    }
}

impl TableKey {
    /// Returns the section whose keys the tables have.
    pub(super) fn section(&self) -> &'static Section {
        self.section
    }

    /// Returns whether a table is required.
    pub(super) fn is_required(&self) -> bool {
        self.declaration.absent_value == AbsentValue::Required
    }

    /// Returns the text after "expected" in the error message if the table is missing.
    pub(super) fn expected_text(&self) -> &'static str {
        self.expected_text
    }
}
