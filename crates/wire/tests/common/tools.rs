//! Finding the tools that serve as independent witnesses.
//!
//! A test whose tool is missing prints `SKIPPED: reason` and passes, so that the suite runs anywhere. With
//! `CARNET_REQUIRE_TOOLS=1` it fails instead, so that a run that counts cannot skip in silence.
#![allow(clippy::disallowed_methods, reason = "a test may ask its environment which tools there are")]

use std::process::Command;

/// Says why a test does not run, or fails when tools are required.
fn skip(reason: &str) {
    assert!(
        std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"),
        "CARNET_REQUIRE_TOOLS=1, but {reason}"
    );
    println!("SKIPPED: {reason}");
}

/// A Python that has scapy: the one of `CARNET_PYTHON`, else `python3`.
pub fn scapy() -> Option<Command> {
    let python = std::env::var("CARNET_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&python).args(["-c", "import scapy.layers.inet6"]).output();
    match found {
        Ok(output) if output.status.success() => Some(Command::new(python)),
        Ok(_) => {
            skip(&format!("{python} has no scapy (set CARNET_PYTHON to one that has)"));
            None
        }
        Err(error) => {
            skip(&format!("{python} cannot be run: {error}"));
            None
        }
    }
}

/// tshark.
pub fn tshark() -> Option<Command> {
    match Command::new("tshark").arg("--version").output() {
        Ok(output) if output.status.success() => Some(Command::new("tshark")),
        Ok(output) => {
            skip(&format!("tshark --version ends with {}", output.status));
            None
        }
        Err(error) => {
            skip(&format!("tshark cannot be run: {error}"));
            None
        }
    }
}
