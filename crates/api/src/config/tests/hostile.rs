//! Random configs: the reader accepts each, or refuses it with a position and a message. Nothing panics.

use super::{CONFIG_WITH_EVERY_KEY, Config};

/// Number of configs; `CARNET_ROUNDS` overrides it.
const CONFIG_COUNT: usize = match option_env!("CARNET_ROUNDS") {
    Some(text) => match usize::from_str_radix(text, 10) {
        Ok(rounds) => rounds,
        Err(_) => panic!("CARNET_ROUNDS is no number"),
    },
    None => 3000,
};

/// Pseudorandom numbers of xorshift64*, the same on every run.
struct RepeatableNumbers(u64);

impl RepeatableNumbers {
    fn number_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }
}

/// Parts of configs, and mistakes that people and config generators make.
const CONFIG_PIECES: [&str; 28] = [
    "0",
    "-1",
    "1e308",
    "18446744073709551616",
    "nan",
    "\"\"",
    "\"::\"",
    "\"ff02::1\"",
    "\"::/0\"",
    "\"2001:db8::/129\"",
    "\"10s\"",
    "\"1000000h\"",
    "\"99999999999999999999s\"",
    "\"h\"",
    "\"5m5m\"",
    "\"4294967296\"",
    "\"\u{fc}\u{1f68c}\"",
    "true",
    "[]",
    "[[]]",
    "{}",
    "[[mobile_router.uplink]]",
    "\u{0}",
    "\n",
    "\"",
    "= =",
    "'''",
    "2026-01-01",
];

fn build_mutated_config(numbers: &mut RepeatableNumbers) -> String {
    let mut lines: Vec<String> = CONFIG_WITH_EVERY_KEY.lines().map(str::to_owned).collect();
    for _ in 0..=numbers.number_below(3) {
        let at = numbers.number_below(lines.len());
        let other = lines[numbers.number_below(lines.len())].clone();
        let piece = CONFIG_PIECES[numbers.number_below(CONFIG_PIECES.len())];
        match numbers.number_below(7) {
            0 => lines[at] = other,
            1 => lines.insert(at, other),
            2 if lines.len() > 1 => drop(lines.remove(at)),
            // Replaces the value of a key.
            3 => {
                let key = lines[at].split('=').next().unwrap_or_default().to_owned();
                lines[at] = format!("{key}= {piece}");
            }
            4 => {
                let value = other.split_once('=').map_or("", |(_, value)| value);
                let key = lines[at].split('=').next().unwrap_or_default();
                lines[at] = format!("{key}={value}");
            }
            // Removes some characters.
            5 => {
                let begin = numbers.number_below(lines[at].chars().count());
                let end = begin + 1 + numbers.number_below(4);
                let kept = lines[at].chars().enumerate().filter(|(place, _)| !(begin..end).contains(place));
                lines[at] = kept.map(|(_, character)| character).collect();
            }
            _ => {
                let line = &mut lines[at];
                let places: Vec<usize> = line.char_indices().map(|(place, _)| place).collect();
                let place = places.get(numbers.number_below(places.len())).copied().unwrap_or_default();
                line.insert_str(place, piece);
            }
        }
    }
    lines.join("\n")
}

#[test]
fn parser_accepts_mutated_config_or_names_line_of_error() {
    let mut numbers = RepeatableNumbers(0x5eed_0000_ca12_4e70);
    let mut taken = 0;
    for _ in 0..CONFIG_COUNT {
        let text = build_mutated_config(&mut numbers);
        match Config::parse(&text, "c.toml") {
            Ok(config) => {
                taken += 1;
                let _ = config.warnings();
            }
            Err(errors) => {
                let errors = errors.to_string();
                assert!(!errors.is_empty(), "{text}");
                assert!(errors.starts_with("c.toml"), "{errors}\n{text}");
            }
        }
    }
    // If the reader refused or accepted all random configs, this test would find nothing.
    assert!(taken > CONFIG_COUNT / 100 && taken < CONFIG_COUNT / 2, "{taken} of {CONFIG_COUNT} were taken");
}
