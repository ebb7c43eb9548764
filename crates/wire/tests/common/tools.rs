//! Finds the external tools that check carnet's packets independently.
//!
//! A test whose tool is missing prints `SKIPPED: reason` and passes, so that the suite runs on any machine.
//! With `CARNET_REQUIRE_TOOLS=1` the test fails instead, so that a CI run cannot skip tests unnoticed.
#![allow(clippy::disallowed_methods, reason = "a test may ask its environment which tools there are")]

use std::process::Command;

/// Prints why a test does not run, or fails if `CARNET_REQUIRE_TOOLS` is set.
fn skip_test(reason: &str) {
    assert!(
        std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"),
        "CARNET_REQUIRE_TOOLS=1, but {reason}"
    );
    println!("SKIPPED: {reason}");
}

/// Returns a Python interpreter with scapy: `CARNET_PYTHON` if set, otherwise `python3`.
pub fn find_scapy() -> Option<Command> {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import scapy.layers.inet6"]).output();
    match found {
        Ok(output) if output.status.success() => Some(Command::new(python)),
        Ok(_) => {
            skip_test(&format!("{python} has no scapy (set CARNET_PYTHON to one that has)"));
            None
        }
        Err(error) => {
            skip_test(&format!("{python} cannot be run: {error}"));
            None
        }
    }
}

/// Returns tshark if it is installed.
pub fn find_tshark() -> Option<Command> {
    match Command::new("tshark").arg("--version").output() {
        Ok(output) if output.status.success() => Some(Command::new("tshark")),
        Ok(output) => {
            skip_test(&format!("tshark --version ends with {}", output.status));
            None
        }
        Err(error) => {
            skip_test(&format!("tshark cannot be run: {error}"));
            None
        }
    }
}
