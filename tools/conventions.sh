#!/bin/sh
# What the compiler and clippy cannot check: where unsafe may be, which crate and which module may know which, and that no
# protocol crate depends on anything that does I/O or draws randomness by itself.
set -eu
cd "$(dirname "$0")/.."
bad=0
complain() { echo "conventions: $*" >&2; bad=1; }

# unsafe lives where the kernel or C is on the other side.
for root in crates/*/src/lib.rs crates/*/src/main.rs; do
  [ -f "$root" ] || continue
  case $root in crates/linux/* | crates/sim-ffi/*) continue ;; esac
  grep -q '^#!\[forbid(unsafe_code)\]' "$root" || complain "$root: expected #![forbid(unsafe_code)]"
done

# Every crate takes the workspace's lints, every protocol crate the protocol rules.
for manifest in crates/*/Cargo.toml; do
  grep -q '^\[lints\]' "$manifest" || complain "$manifest: expected [lints] workspace = true"
done
for crate in base wire mobility nemo geonet its security cits fleet lan station virtual; do
  [ -f "crates/$crate/clippy.toml" ] || complain "crates/$crate/clippy.toml: missing"
done

# Arrows point down only (docs/architecture.md), and protocol crates know no runtime.
may() { # CRATE ALLOWED...
  crate=$1; shift
  tree=$(cargo tree --offline --package "$crate" --edges normal --depth 1 --prefix none --format '{p}' 2>/dev/null |
    tail -n +2 | cut -d' ' -f1 | sort -u)
  for found in $tree; do
    case " $* " in *" $found "*) ;; *) complain "$crate depends on $found, expected only: $*" ;; esac
  done
}
may carnet-base ipnet rand_chacha serde zeroize
may carnet-wire carnet-base ipnet serde thiserror
may carnet-mobility carnet-base carnet-wire foldhash hmac sha1 ipnet serde thiserror zeroize
may carnet-geonet carnet-base carnet-wire serde thiserror
may carnet-its carnet-base carnet-geonet carnet-wire foldhash thiserror
may carnet-security aws-lc-rs bp256 bp384 carnet-base carnet-geonet carnet-its carnet-wire ecdsa p256 p384 sha2 thiserror zeroize
may carnet-fleet carnet-base serde serde_json
may carnet-lan carnet-base carnet-wire ipnet serde
# The library of the sessions has its time and its seed handed in.
may carnet-wireguard base64 carnet-base sanstun thiserror zeroize
may carnet-nemo carnet-base carnet-mobility carnet-wire foldhash hashbrown ipnet serde
may carnet-cits carnet-base carnet-geonet carnet-its carnet-security carnet-wire ipnet serde thiserror
may carnet-station carnet-base carnet-cits carnet-geonet carnet-mobility carnet-nemo carnet-wire serde
may carnet-api base64 carnet-base carnet-cits carnet-geonet carnet-mobility carnet-nemo carnet-wire ipnet serde serde_json thiserror toml
may carnet-settings carnet-api carnet-base carnet-cits carnet-geonet carnet-its carnet-mobility carnet-station carnet-wire ipnet serde serde_json thiserror
may carnet-sim-ffi carnet-api carnet-base carnet-geonet carnet-settings carnet-station serde_json
may carnet-virtual carnet-base carnet-wire ipnet
# The testbed plays scenarios without the other parts of the lab.
may carnet-testbed anyhow carnet-base carnet-linux carnet-security clap nix serde serde_json socket2 toml
may carnet-bench anyhow aya carnet-base carnet-bpf carnet-linux carnet-nemo carnet-testbed carnet-wireguard clap hmac libc nix \
  sanstun serde serde_json sha1 socket2 tokio zeroize
may carnet-papers anyhow carnet-bench carnet-testbed clap nix serde serde_json toml
may carnet-lab anyhow carnet-bench carnet-papers carnet-testbed clap

# Each wing of a station has the same file names (docs/architecture.md, "Wings"), and the host stays small.
for wing in crates/nemo/src crates/cits/src/geonetworking crates/cits/src/facilities crates/cits/src/security; do
  for file in command plane status; do
    [ -f "$wing/$file.rs" ] || complain "$wing: expected $file.rs, as in every wing"
  done
  for file in "$wing"/*.rs; do
    case ${file##*/} in
    command.rs | config.rs | drop_reason.rs | input.rs | output.rs | plane.rs | status.rs | lib.rs | mod.rs) ;;
    # Beside them: state on the disk, and messages to a fast path.
    persistent_state.rs | acceleration.rs) ;;
    *) complain "$file: no file name of a wing, expected it in plane/" ;;
    esac
  done
done
host=$(cat crates/station/src/*.rs | grep -cvE '^ *(//|$)')
[ "$host" -le 1200 ] || complain "crates/station/src has $host lines of code, expected at most 1200"

# Virtual worlds are for tests: no crate has them as a normal dependency.
users=$(cargo tree --offline --workspace --all-features --target all --edges normal,build --invert carnet-virtual \
  --prefix none --format '{p}' 2>/dev/null | tail -n +2 | cut -d' ' -f1)
[ -z "$users" ] || complain "carnet-virtual is for tests, found it as a dependency of:" $users

# No new circle among sibling modules; BPF headers include downwards.
tools/circles || bad=1

# The methods of a type lie in at most six files (docs/architecture.md, "Wings").
for crate in nemo cits mobility station; do
  for type in $(grep -rhoE '^impl(<[^>]*>)? [A-Z][A-Za-z]*' "crates/$crate/src" | sed 's/.* //' | sort -u); do
    files=$(grep -rlE "^impl(<[^>]*>)? $type(<[^>]*>)? \{" "crates/$crate/src" | wc -l)
    [ "$files" -le 6 ] || complain "crates/$crate: the methods of $type lie in $files files, expected at most 6"
  done
done

# Lines of at most 110 columns.
long=$(git ls-files -- '*.rs' '*.c' '*.h' ':!crates/its/src/asn1' | python3 -c '
import os, sys
paths = filter(os.path.exists, sys.stdin.read().split())
for path in paths:
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if len(line.rstrip("\n")) > 110:
            print(f"{path}:{number}")')
[ -z "$long" ] || complain "lines are longer than 110 columns:" $long

# Files have a head that says what they are for.
for file in $(git ls-files 'crates/*/src/*.rs' 'crates/*/src/**/*.rs'); do
  [ -f "$file" ] || continue
  head -n 1 "$file" | grep -q '^//!' || complain "$file: expected to begin with a //! head"
done
# Tests that the page about threats names are there.
there=$(grep -rhoE '\bfn [a-z0-9_]+' crates --include='*.rs' | cut -d' ' -f2 | sort -u)
for test in $(grep -oE '`([a-z0-9_]+::)?[a-z0-9]+(_[a-z0-9]+)+`' docs/threats.md | tr -d '`' | sed 's/.*:://' | sort -u); do
  case $test in care_of_test | key_file | io_uring | max_neighbours | max_other_stations | ldm_*) continue ;; esac
  echo "$there" | grep -qx "$test" || complain "docs/threats.md: there is no test $test"
done
# Links of the pages lead somewhere, and each block of code says how it is tested.
python3 -B tools/book/test --links >/dev/null || { python3 -B tools/book/test --links; bad=1; }
# The page that maps clauses to files says what is there.
python3 -B conformance/clauses --check || bad=1

exit $bad
