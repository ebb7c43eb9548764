//! Tests signals from files, as measuring programs write them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use carnet_linux::signal_strength::{SignalReader, SignalReport, SignalSource};
use tokio::time::timeout;

/// A folder of the test, which is removed at the end.
struct SignalFolder(PathBuf);

impl SignalFolder {
    fn new(name: &str) -> SignalFolder {
        let folder = std::env::temp_dir().join(format!("carnet-signal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        SignalFolder(folder)
    }

    fn source_for(&self, interface: &str) -> SignalSource {
        SignalSource { interface: interface.into(), file: Some(self.0.join(interface)) }
    }
}

impl Drop for SignalFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the next signal. Fails after a time that is far longer than an event takes.
async fn next_signal(signals: &mut SignalReader) -> (String, i32) {
    match timeout(Duration::from_secs(10), signals.next()).await.expect("comes") {
        SignalReport::Strength { interface, dbm } => (interface, dbm),
        other @ SignalReport::Roaming { .. } => panic!("{other:?}: there is no modem"),
    }
}

#[tokio::test]
async fn growing_or_replaced_signal_file_is_followed() {
    let folder = SignalFolder::new("grows");
    // When the reader is opened, neither the folder nor the file exists.
    let mut signals = SignalReader::open(vec![folder.source_for("wlan0"), folder.source_for("wwan0")]);
    assert!(timeout(Duration::from_millis(50), signals.next()).await.is_err());
    fs::create_dir_all(&folder.0).expect("a folder");
    let mut file = OpenOptions::new().append(true).create(true).open(folder.0.join("wlan0")).expect("a file");
    file.write_all(b"-49\n").expect("writes");
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -49));
    file.write_all(b"-55.4\n-6").expect("writes");
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -55));
    file.write_all(b"9\n").expect("writes");
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -69));
    // A program writes a new file and renames it to the old name.
    fs::write(folder.0.join("new"), "-101\n").expect("writes");
    fs::rename(folder.0.join("new"), folder.0.join("wwan0")).expect("renames");
    assert_eq!(next_signal(&mut signals).await, ("wwan0".into(), -101));
    // An equal value causes no event. An invalid line causes no event either.
    file.write_all(b"-69\nrubbish\n").expect("writes");
    assert!(timeout(Duration::from_millis(700), signals.next()).await.is_err());
}

#[tokio::test]
async fn changed_signal_file_is_read_at_once() {
    let folder = SignalFolder::new("once");
    fs::create_dir_all(&folder.0).expect("a folder");
    fs::write(folder.0.join("wlan0"), "-40\n").expect("writes");
    let mut signals = SignalReader::open(vec![folder.source_for("wlan0")]);
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -40));
    // At least one change must be reported long before the reader would read the file by its interval, even
    // on a busy machine.
    let mut fastest = Duration::MAX;
    for dbm in 41..=60 {
        let begin = std::time::Instant::now();
        fs::write(folder.0.join("wlan0"), format!("-{dbm}\n")).expect("writes");
        assert_eq!(next_signal(&mut signals).await.1, -dbm);
        fastest = fastest.min(begin.elapsed());
    }
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
}

#[tokio::test]
async fn rewritten_equal_signal_is_reported_again() {
    let folder = SignalFolder::new("again");
    fs::create_dir_all(&folder.0).expect("a folder");
    let write = || fs::write(folder.0.join("wlan0"), "-40\n").expect("writes");
    write();
    let mut signals = SignalReader::open(vec![folder.source_for("wlan0")]);
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -40));
    assert!(timeout(Duration::from_millis(3000), signals.next()).await.is_err(), "nobody has written");
    write();
    assert_eq!(next_signal(&mut signals).await, ("wlan0".into(), -40));
}

#[tokio::test]
async fn interface_without_signal_source_causes_no_work() {
    let mut signals = SignalReader::open(vec![SignalSource { interface: "lo".into(), file: None }]);
    assert!(timeout(Duration::from_millis(700), signals.next()).await.is_err());
}
