//! Builds every `*.bpf.c` beside this file with clang.
//!
//! The environment variable `CLANG` can name another clang than the first one in `PATH`. The objects keep
//! their BTF, which describes maps and functions. An `llvm-strip`, if found, removes their debug information
//! and the names of jump targets. Then the script removes the line numbers (`src/types.rs`) and packs the
//! objects to a third of their size (`src/packed.rs`). Of `steering.bpf.c` it keeps only the
//! instructions (`src/instructions.rs`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

#[path = "src/instructions.rs"]
mod instructions;
#[path = "src/packed.rs"]
mod packed;
#[path = "src/types.rs"]
mod types;

const NO_CLANG: &str = "clang builds carnet's BPF programs and cannot be run; expected version 14 or newer \
                        (Debian and Ubuntu: apt-get install clang), or its path in CLANG";

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=.");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let strip = strip_of(&clang);
    let mut sources: Vec<PathBuf> =
        fs::read_dir(".").expect("this folder").flatten().map(|e| e.path()).collect();
    sources.retain(|path| path.to_string_lossy().ends_with(".bpf.c"));
    sources.sort();
    for source in sources {
        let object = out.join(source.file_name().expect("a name")).with_extension("o");
        let mut command = Command::new(&clang);
        command
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
            // Without this option, Clang writes the text of its sources into BTF. With it, Clang does not
            // find the sources, and leaves their text out.
            .arg("-fdebug-compilation-dir=/nowhere")
            // Path of the kernel's <asm/...> headers on distributions that keep them by architecture.
            .arg(format!(
                "-I/usr/include/{}-linux-gnu",
                env::var("HOST").expect("cargo sets HOST").split('-').next().unwrap_or("")
            ))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&object);
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("clang cannot build {} ({status}): see above", source.display()),
            Err(error) => panic!("{NO_CLANG}: {error}"),
        }
        if let Some(strip) = &strip {
            // Ignore a failure: the kernel does not need debug information, and the object is only larger
            // with it.
            let _ = Command::new(strip)
                .args(["-g", "--remove-section=.rel.BTF.ext"])
                .args(["--wildcard", "--strip-symbol=LBB*"])
                .arg(&object)
                .status();
        }
        let mut octets = fs::read(&object).expect("clang has written it");
        if source.ends_with("steering.bpf.c") {
            let linked = instructions::link_instructions(&octets, "socket", &instructions::STEERING_MAPS)
                .unwrap_or_else(|| panic!("no instructions in {}", object.display()));
            fs::write(object.with_extension("instructions"), linked).expect("the folder for results");
            continue;
        }
        types::remove_line_numbers(&mut octets)
            .unwrap_or_else(|| panic!("no types of functions in {}", object.display()));
        fs::write(&object, &octets).expect("the folder for results");
        fs::write(object.with_extension("packed"), packed::pack(&octets)).expect("the folder for results");
    }
}

/// Returns the `llvm-strip` of this clang, if any.
fn strip_of(clang: &str) -> Option<PathBuf> {
    let output =
        Command::new(clang).arg("-print-prog-name=llvm-strip").stderr(Stdio::null()).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    Path::new(&path).is_absolute().then_some(path)
}
