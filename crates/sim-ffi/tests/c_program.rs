//! Compiles and runs a C program that uses only the header and the library of this crate.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Returns the path of the newest static library that cargo has built beside this test.
fn path_of_built_library() -> Option<PathBuf> {
    let beside = env::current_exe().ok()?;
    let folders = [beside.parent()?, beside.parent()?.parent()?];
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let libraries = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libcarnet_sim") && name.ends_with(".a")
    });
    libraries.max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok())
}

#[test]
fn c_program_runs_two_stations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = path_of_built_library().expect("the static library");
    let program = env::temp_dir().join(format!("carnet-two-stations-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(folder.join("include"))
        .arg(folder.join("tests/two_stations.c"))
        .arg(&library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output();
    let compiled = compiled.expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = || {
        let output = Command::new(&program).output().expect("the program");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // Run the program in two processes, and check that both print the same octets.
    assert_eq!(run(), run());
    fs::remove_file(&program).expect("to be removed");
}
