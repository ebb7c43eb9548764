//! Makes the program small if it is built without the feature `backtrace`, as for OpenWrt. Builds with this
//! feature link without these options.
//!
//! - Packed relative relocations take almost no space; in a position-independent program, plain relocations
//!   take 140 kB. The dynamic loader has to support packed ones: glibc 2.36 (Debian 12), musl 1.2.4 (OpenWrt
//!   23.05).
//! - `--icf` merges functions with equal octets. Only LLVM's linker has this option: rustc includes this
//!   linker for x86-64 with glibc, and for musl by request. The program compares no addresses of functions,
//!   so the merge is safe.
//! - Unwind tables take 600 kB. If a panic aborts without a backtrace, the program never reads them, so
//!   `discard-unwind-tables.ld` removes them.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=discard-unwind-tables.ld");
    if std::env::var_os("CARGO_FEATURE_BACKTRACE").is_some() {
        return;
    }
    let cargo = |name: &str| std::env::var(name).unwrap_or_default();
    let library = cargo("CARGO_CFG_TARGET_ENV");
    if cargo("CARGO_CFG_TARGET_OS") != "linux" || !matches!(library.as_str(), "gnu" | "musl") {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    let chosen = std::env::var("RUSTC_LINKER").is_ok() || cargo("CARGO_ENCODED_RUSTFLAGS").contains("link");
    if cargo("TARGET") == "x86_64-unknown-linux-gnu" && cargo("HOST") == cargo("TARGET") && !chosen {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    if library == "musl"
        && !chosen
        && let Some(folder) = linker_of_llvm(&cargo("HOST"))
    {
        println!("cargo::rustc-link-arg-bins=-fuse-ld=lld");
        println!("cargo::rustc-link-arg-bins=-B{}", folder.display());
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
    // Cargo does not tell this script whether a panic unwinds or aborts. The profile "release" stands for all
    // profiles that are derived from it.
    if cargo("PROFILE") == "release" {
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        println!(
            "cargo::rustc-link-arg-bins=-Wl,-T,{}/discard-unwind-tables.ld",
            cargo("CARGO_MANIFEST_DIR")
        );
    }
}

/// Returns the folder of rustc's copy of LLVM's linker, in which the linker has a name that C compilers look
/// for; `None` if rustc has no such copy.
fn linker_of_llvm(host: &str) -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC")?;
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let folder = sysroot.join("lib/rustlib").join(host).join("bin/gcc-ld");
    folder.join("ld.lld").is_file().then_some(folder)
}
