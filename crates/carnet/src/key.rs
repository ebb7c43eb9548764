//! `carnet key`: makes a key pair for the encrypted tunnel (X25519), as `wg genkey` and `wg pubkey` do.
//!
//! Only one of the two keys goes to standard output, so that a script can use it. The public key goes there
//! if a file takes the private key.

use std::path::Path;

use anyhow::Context;
use carnet_linux::{clock, key_file};
use carnet_wireguard::PrivateKey;
use zeroize::Zeroizing;

/// Makes a key pair, and writes the private key into a new file, or to standard output without one.
///
/// # Errors
/// Returns an error if the file exists or cannot be written, or if the kernel has no random numbers.
pub fn make(out: Option<&Path>) -> anyhow::Result<()> {
    let random = clock::random_octets().context("cannot get randomness from the kernel")?;
    let private_key = PrivateKey::from_random(random);
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str(&private_key.to_text());
    text.push('\n');
    let public_key = private_key.public_key();
    match out {
        Some(path) => {
            let written = key_file::write_key_file(path, text.as_bytes());
            written.with_context(|| format!("cannot write the private key to {}", path.display()))?;
            crate::print(&format!("{public_key}\n"))
        }
        None => {
            crate::print(&text)?;
            eprintln!("public key: {public_key}");
            Ok(())
        }
    }
}
