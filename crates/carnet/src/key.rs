//! `carnet key`: makes a key pair for the encrypted tunnel (X25519), as `wg genkey` and `wg pubkey` do.
//! `carnet key public`: prints the public key of a private key file.
//! `carnet key rotate`: changes the key of a running station (decision 0091).
//!
//! Only one of the two keys goes to standard output, so that a script can use it. It is the public key if the
//! private key goes into a file.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use carnet_api::config::{Config, SecretKey, next_key_file};
use carnet_api::model::Keys;
use carnet_linux::disk::{Disk, KernelDisk, directory_of};
use carnet_linux::{clock, key_file, run_with_secrets};
use carnet_wireguard::{PrivateKey, PublicKey};
use zeroize::Zeroizing;

use crate::cli::RotateArguments;
use crate::client::{ApiClient, SOCKET_DIRECTORY};

/// Interval between two queries to the station.
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of remote ends that an error message names.
const MAX_LISTED_PEERS: usize = 5;

/// Makes a key pair. Writes the private key into the new file `out`, or to standard output if `out` is
/// `None`.
///
/// # Errors
/// Returns an error if the file exists or cannot be written, or if the kernel has no random numbers.
pub fn make_key_pair(out: Option<&Path>) -> anyhow::Result<()> {
    let (private_key, text) = random_private_key()?;
    let public_key = private_key.public_key();
    match out {
        Some(path) => {
            let written = key_file::write_key_file(path, text.as_bytes());
            written.with_context(|| format!("cannot write the private key to {}", path.display()))?;
            crate::print_escaped(&format!("{public_key}\n"))
        }
        None => {
            crate::print_escaped(&text)?;
            eprintln!("public key: {public_key}");
            Ok(())
        }
    }
}

/// Prints the public key of the private key in a file.
///
/// # Errors
/// Returns an error if the file cannot be read, has another mode or contains no key.
pub fn print_public_key(file: &Path) -> anyhow::Result<()> {
    let public_key = run_with_secrets(|| {
        let mut secret = SecretKey::read(file)?;
        let private_key = PrivateKey::from_random(secret.octets());
        secret.wipe();
        Ok(private_key.public_key())
    });
    let public_key = public_key.map_err(|error: String| anyhow!(error))?;
    crate::print_escaped(&format!("{public_key}\n"))
}

/// Returns a random private key, and the content of its file.
fn random_private_key() -> anyhow::Result<(PrivateKey, Zeroizing<String>)> {
    let random = clock::random_octets().context("cannot get randomness from the kernel")?;
    let private_key = PrivateKey::from_random(random);
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str(&private_key.to_text());
    text.push('\n');
    Ok((private_key, text))
}

/// Changes the private key of a running station.
///
/// # Errors
/// Returns an error if a file cannot be written, or if the station does not run. Also returns an error if
/// other ends do not use the next key in time.
pub async fn rotate_key(mut config: Config, arguments: &RotateArguments) -> anyhow::Result<()> {
    let key = config.station.private_key.as_ref();
    let key = key.context("cannot change the key: the config has none, expected station.private_key_file")?;
    let (file, next) = (key.key_file.clone(), next_key_file(&key.key_file));
    let next_public = match &key.next_key {
        Some(key) => PrivateKey::from_random(key.octets()).public_key(),
        None => make_next_key(&file, &next)?,
    };
    config.wipe_keys();
    crate::print_escaped(&format!("next public key: {next_public}\n"))?;

    let client = ApiClient::find_station(Some(config.station.socket), Path::new(SOCKET_DIRECTORY))?;
    let read = client.post_json("/v1/keys/read", &()).await;
    read.with_context(|| {
        format!(
            "the station does not announce the key in {}: start it, and run this command again",
            next.display()
        )
    })?;
    let end = Instant::now() + arguments.timeout;
    let missing = loop {
        let keys: Keys = serde_json::from_value(client.get("/v1/keys").await?)
            .context("cannot understand the station's answer")?;
        if keys.public_keys.first() != Some(&next_public.to_string()) {
            bail!(
                "the running station does not use the key in {}: restart it, and run this command again",
                next.display()
            );
        }
        if keys.missing.is_empty() || Instant::now() >= end {
            break keys.missing;
        }
        tokio::time::sleep(QUERY_INTERVAL).await;
    };
    if !missing.is_empty() {
        let names = missing.iter().take(MAX_LISTED_PEERS).map(String::as_str).collect::<Vec<_>>().join(", ");
        let others = match missing.len().saturating_sub(MAX_LISTED_PEERS) {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let which = format!("{} remote ends have not used the next key: {names}{others}", missing.len());
        if !arguments.finish {
            bail!("both keys stay valid: {which}; run this command again");
        }
        eprintln!("carnet: {which}; their configs need it");
    }
    rename_durably(&next, &file)
        .with_context(|| format!("cannot put {} in place of {}", next.display(), file.display()))?;
    client.post_json("/v1/keys/read", &()).await?;
    crate::print_escaped(&format!("public key: {next_public}\n"))
}

/// Makes the next private key in a new file, whose owner is that of the present key's file. Returns the
/// public key. The file gets its name only when it is complete, because a station that starts meanwhile reads
/// it.
fn make_next_key(file: &Path, next: &Path) -> anyhow::Result<PublicKey> {
    let (private_key, text) = random_private_key()?;
    let mut part = next.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let written = || {
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => key_file::write_key_file(part, text.as_bytes())?,
        }
        let (of_file, of_part) = (fs::metadata(file)?, fs::metadata(part)?);
        if (of_file.uid(), of_file.gid()) != (of_part.uid(), of_part.gid()) {
            chown(part, Some(of_file.uid()), Some(of_file.gid()))?;
        }
        rename_durably(part, next)
    };
    written().with_context(|| format!("cannot write the next private key to {}", next.display()))?;
    Ok(private_key.public_key())
}

/// Gives a file another name, and writes its directory to the disk.
fn rename_durably(file: &Path, name: &Path) -> std::io::Result<()> {
    KernelDisk.rename(file, name)?;
    KernelDisk.sync_directory(directory_of(name))
}
