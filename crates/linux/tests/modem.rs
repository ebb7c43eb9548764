//! Tests signals of cellular modems over a real D-Bus. Test machines have no modem, so a service replaces
//! ModemManager. The service uses another implementation of D-Bus, and has the objects and types of
//! ModemManager's API reference (1.20).
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use carnet_linux::signal_strength::{SignalReader, SignalReport, SignalSource};
use tokio::time::{sleep, timeout};
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};

/// A D-Bus daemon for the test, and the folder of its socket.
struct PrivateBus {
    daemon: Child,
    folder: PathBuf,
    socket: PathBuf,
}

impl PrivateBus {
    fn start(name: &str) -> Option<PrivateBus> {
        let folder = std::env::temp_dir().join(format!("carnet-bus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("bus");
        let daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nosyslog", "--nopidfile"])
            .arg(format!("--address=unix:path={}", socket.display()))
            .stderr(Stdio::null())
            .spawn();
        match daemon {
            Ok(daemon) => Some(PrivateBus { daemon, folder, socket }),
            Err(error) => {
                let reason = format!("no dbus-daemon here (Debian package dbus-daemon): {error}");
                assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
                println!("\nSKIPPED: {reason}");
                let _ = std::fs::remove_dir_all(&folder);
                None
            }
        }
    }
}

impl Drop for PrivateBus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct SimulatedModem {
    ports: Vec<(String, u32)>,
    bearers: Vec<OwnedObjectPath>,
    signal_quality_percent: u32,
}

#[zbus::interface(name = "org.freedesktop.ModemManager1.Modem")]
impl SimulatedModem {
    #[zbus(property)]
    fn ports(&self) -> Vec<(String, u32)> {
        self.ports.clone()
    }
    #[zbus(property)]
    fn bearers(&self) -> Vec<OwnedObjectPath> {
        self.bearers.clone()
    }
    #[zbus(property)]
    fn signal_quality(&self) -> (u32, bool) {
        (self.signal_quality_percent, true)
    }
}

/// The interface `Modem.Signal` of a modem, which measures only after it was ordered to.
struct SignalMeasurement {
    rate: u32,
    rsrp_dbm: f64,
}

#[zbus::interface(name = "org.freedesktop.ModemManager1.Modem.Signal")]
impl SignalMeasurement {
    fn setup(&mut self, rate: u32) {
        self.rate = rate;
    }
    #[zbus(property)]
    fn rate(&self) -> u32 {
        self.rate
    }
    #[zbus(property)]
    fn lte(&self) -> HashMap<String, OwnedValue> {
        let values = [("rsrp", self.rsrp_dbm), ("snr", 7.0)].into_iter().filter(|_| self.rate > 0);
        values.map(|(name, value)| (name.to_owned(), Value::from(value).try_into().unwrap())).collect()
    }
    #[zbus(property)]
    fn gsm(&self) -> HashMap<String, OwnedValue> {
        HashMap::new()
    }
}

/// The interface `Modem.Modem3gpp` of a modem, with its registration state.
struct RegistrationState(u32);

#[zbus::interface(name = "org.freedesktop.ModemManager1.Modem.Modem3gpp")]
impl RegistrationState {
    #[zbus(property)]
    fn registration_state(&self) -> u32 {
        self.0
    }
}

struct ModemBearer(String);

#[zbus::interface(name = "org.freedesktop.ModemManager1.Bearer")]
impl ModemBearer {
    #[zbus(property)]
    fn interface(&self) -> String {
        self.0.clone()
    }
}

const MODEM_PATHS: [&str; 3] = [
    "/org/freedesktop/ModemManager1/Modem/0",
    "/org/freedesktop/ModemManager1/Modem/1",
    "/org/freedesktop/ModemManager1/Modem/2",
];

/// Starts the service with three modems: one that measures, one that reports only percent, and one whose
/// connection has a separate interface.
async fn start_modem_manager(socket: &Path) -> zbus::Connection {
    let address = format!("unix:path={}", socket.display());
    let bearer = "/org/freedesktop/ModemManager1/Bearer/0";
    let modem = |name: &str, quality| SimulatedModem {
        ports: vec![("cdc-wdm0".into(), 6), (name.into(), 2)],
        bearers: vec![bearer.try_into().unwrap()],
        signal_quality_percent: quality,
    };
    zbus::connection::Builder::address(address.as_str())
        .unwrap()
        .serve_at("/org/freedesktop/ModemManager1", zbus::fdo::ObjectManager)
        .unwrap()
        .serve_at(MODEM_PATHS[0], modem("wwan0", 90))
        .unwrap()
        .serve_at(MODEM_PATHS[0], SignalMeasurement { rate: 0, rsrp_dbm: -97.4 })
        .unwrap()
        .serve_at(MODEM_PATHS[0], RegistrationState(1))
        .unwrap()
        .serve_at(MODEM_PATHS[1], modem("wwan1", 50))
        .unwrap()
        .serve_at(MODEM_PATHS[2], modem("wwan2", 100))
        .unwrap()
        .serve_at(bearer, ModemBearer("qmapmux0.0".into()))
        .unwrap()
        .name("org.freedesktop.ModemManager1")
        .unwrap()
        .build()
        .await
        .unwrap()
}

async fn wait_for_signals(signals: &mut SignalReader, wanted: &[(&str, i32)]) {
    let mut now = HashMap::new();
    let comes = timeout(Duration::from_secs(20), async {
        while !wanted.iter().all(|(name, dbm)| now.get(*name) == Some(dbm)) {
            if let SignalReport::Strength { interface, dbm } = signals.next().await {
                now.insert(interface, dbm);
            }
        }
    });
    assert!(comes.await.is_ok(), "expected {wanted:?}");
}

/// A modem whose signal comes from a file reports whether it is roaming, too.
#[tokio::test]
async fn modem_reports_roaming() {
    let Some(bus) = PrivateBus::start("roaming") else { return };
    while !bus.socket.exists() {
        sleep(Duration::from_millis(10)).await;
    }
    let manager = start_modem_manager(&bus.socket).await;
    let source = SignalSource { interface: "wwan0".into(), file: Some(bus.folder.join("wwan0.signal")) };
    let mut signals = SignalReader::open_with_bus(vec![source], &bus.socket);
    let modem = manager.object_server().interface::<_, RegistrationState>(MODEM_PATHS[0]).await.unwrap();
    // The states are HOME, ROAMING, SEARCHING, ROAMING_SMS_ONLY, HOME.
    for (state, expected) in [(1, Some(false)), (5, Some(true)), (2, None), (7, Some(true)), (1, Some(false))]
    {
        modem.get_mut().await.0 = state;
        let told = timeout(Duration::from_secs(20), signals.next()).await.unwrap();
        assert_eq!(
            told,
            SignalReport::Roaming { interface: "wwan0".into(), roaming: expected },
            "state {state}"
        );
    }
}

#[tokio::test]
async fn modem_is_found_by_port_and_signal_polling_set_up() {
    let Some(bus) = PrivateBus::start("modem") else { return };
    while !bus.socket.exists() {
        sleep(Duration::from_millis(10)).await;
    }
    let manager = start_modem_manager(&bus.socket).await;
    let source = |name: &str| SignalSource { interface: name.into(), file: None };
    let uplinks = ["wwan0", "wwan1", "qmapmux0.0", "eth0"].map(source).to_vec();
    let mut signals = SignalReader::open_with_bus(uplinks, &bus.socket);
    // -82 dBm is 50 %, -51 dBm is 100 %. carnet finds the third modem by its bearer, because the modem's
    // ports are no uplinks.
    wait_for_signals(&mut signals, &[("wwan0", -97), ("wwan1", -82), ("qmapmux0.0", -51)]).await;

    let measuring = manager.object_server().interface::<_, SignalMeasurement>(MODEM_PATHS[0]).await.unwrap();
    measuring.get_mut().await.rsrp_dbm = -110.0;
    wait_for_signals(&mut signals, &[("wwan0", -110)]).await;
    // When the bus vanishes, the signals of other interfaces still arrive.
    drop((measuring, manager, bus));
    let silence = async { while timeout(Duration::from_secs(3), signals.next()).await.is_ok() {} };
    assert!(timeout(Duration::from_secs(20), silence).await.is_ok(), "nobody measures any more");
}
