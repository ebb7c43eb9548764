//! Compares the generated header with the sources. `CARNET_UPDATE=1` writes the header again.

use std::fs;
use std::path::Path;

#[test]
fn c_header_matches_the_rust_interface() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut made = Vec::new();
    let sources = ["src/types.rs", "src/ffi.rs"].map(|file| folder.join(file));
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |b, it| b.with_src(it));
    builder.generate().expect("a header").write(&mut made);
    let header = folder.join("include/carnet_sim.h");
    if std::env::var_os("CARNET_UPDATE").is_some() {
        fs::write(&header, &made).expect("writable");
    }
    let there = fs::read_to_string(&header).unwrap_or_default();
    let made = String::from_utf8(made).expect("UTF-8");
    assert!(there == made, "include/carnet_sim.h is old; CARNET_UPDATE=1 writes it anew");
}
