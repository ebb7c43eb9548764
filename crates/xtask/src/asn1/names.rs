//! Converts names of ASN.1 to Rust's spelling.

/// ASN.1 names in which upper case does not show where a word begins. Each has a name that the function
/// `words` splits correctly.
const IRREGULAR_NAMES: [(&str, &str); 9] = [
    ("WMInumber", "WmiNumber"),
    ("wMInumber", "wmiNumber"),
    ("vDS", "vds"),
    ("sGNSS", "Sgnss"),
    ("dGNSS", "Dgnss"),
    ("sGNSSplusDR", "SgnssPlusDr"),
    ("dGNSSplusDR", "DgnssPlusDr"),
    ("dR", "Dr"),
    // ETSI's modules of release 1 spell the word wrongly.
    ("aquaplannning", "aquaplaning"),
];

fn split_words(name: &str) -> Vec<String> {
    let name = IRREGULAR_NAMES.iter().find(|(odd, _)| *odd == name).map_or(name, |(_, right)| right);
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (place, letter) in letters.iter().enumerate() {
        if matches!(letter, '-' | '_') {
            words.push(String::new());
            continue;
        }
        let before = place.checked_sub(1).and_then(|place| letters.get(place)).copied().unwrap_or('-');
        let after = letters.get(place + 1).copied().unwrap_or('-');
        let begins =
            letter.is_uppercase() && (!before.is_uppercase() || after.is_lowercase()) && before != '-';
        if begins {
            words.push(String::new());
        }
        words.last_mut().expect("there is one").extend(letter.to_lowercase());
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the name of a type or a variant: `speedValue`, `RSUContainer`, `alt-000-01` become `SpeedValue`,
/// `RsuContainer`, `Alt000_01`.
pub fn pascal_case(name: &str) -> String {
    split_words(name).iter().fold(String::new(), |mut all, word| {
        let digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
        if digit(all.chars().last()) && digit(word.chars().next()) {
            all.push('_');
        }
        let mut letters = word.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

/// Returns the name of a component.
pub fn snake_case(name: &str) -> String {
    let name = split_words(name).join("_");
    if ["type", "final", "move", "ref", "use", "match", "static", "where"].contains(&name.as_str()) {
        return format!("r#{name}");
    }
    name
}

/// Returns the name of a constant.
pub fn constant_case(name: &str) -> String {
    split_words(name).join("_").to_uppercase()
}
