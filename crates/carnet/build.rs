//! What the linker may leave out of the program.
//!
//! - Relative relocations take 140 kB in a position-independent program; packed, next to nothing
//!   (the dynamic loader has to know them: glibc 2.36, as in Debian 12).
//! - Functions that have become the same octets are one (`--icf`, which only LLVM's linker has: rustc brings it for this
//!   target). Nothing here compares addresses of functions.
//! - Tables for unwinding take 600 kB, and nobody reads them where a panic aborts:
//!   `discard-unwind-tables.ld`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=discard-unwind-tables.ld");
    let cargo = |name: &str| std::env::var(name).unwrap_or_default();
    if cargo("CARGO_CFG_TARGET_OS") != "linux" || cargo("CARGO_CFG_TARGET_ENV") != "gnu" {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    let chosen = std::env::var("RUSTC_LINKER").is_ok() || cargo("CARGO_ENCODED_RUSTFLAGS").contains("link");
    if cargo("TARGET") == "x86_64-unknown-linux-gnu" && cargo("HOST") == cargo("TARGET") && !chosen {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    // Cargo does not say what a panic does; "release" stands for all profiles derived from it.
    if cargo("PROFILE") == "release" {
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        println!(
            "cargo::rustc-link-arg-bins=-Wl,-T,{}/discard-unwind-tables.ld",
            cargo("CARGO_MANIFEST_DIR")
        );
    }
}
