# carnet: what people do with it. `make demo` shows the main job, `make test` proves it.

CARGO ?= cargo
OUT ?= out
# For instance BENCH_ARGS=--quick
BENCH_ARGS ?=
# The interpreter for which the distribution packages scapy.
CARNET_PYTHON ?= /usr/bin/python3
export CARNET_PYTHON

.PHONY: bench-sessions fuzz faults test-api test-web evaluation evaluation-kernel evaluation-page help demo figures test test-kernel test-radio conformance lint build bench bench-figures bench-registrations bench-attack bench-takeover bench-geonet bench-micro bench-messages bench-security security sim sim-smoke sim-paper sim-all deb test-deb clean

help:
	@echo 'make demo    a mobile router moves between two access networks; shows what its host feels (1 minute)'
	@echo 'make test    everything that is claimed, tested (needs root for the network namespaces)'
	@echo 'make conformance  the program against the clauses of the RFCs and the test purposes of ETSI (two minutes; part of make test)'
	@echo 'make test-kernel   the program on a stock Debian kernel in an emulated machine, over every data path (an hour)'
	@echo 'make test-radio    GeoNetworking over 802.11p there, on radios of mac80211_hwsim (5 minutes; part of make test-kernel)'
	@echo 'make test-api  made-up requests against a real station, by docs/openapi.json (schemathesis; half a minute)'
	@echo 'make test-web  the dashboard in Chromium, against real stations (pictures in out/web; half a minute)'
	@echo 'make test-fleet  the dashboard with 200 routers: how soon it is there, how long an update takes (pictures in out/web; half a minute)'
	@echo 'make fuzz    every parser and whole stations, guided by coverage (FUZZ_SECONDS=60 of a processor each; 1440 over night)'
	@echo 'make fuzz-coverage  what the corpora of make fuzz reach: out/fuzz-coverage'
	@echo 'make mutations  millions of packets and configs that were right once (FUZZ_ROUNDS=1000000 of each kind)'
	@echo 'make faults  10,000 bad days of routers and home agents, and 10,000 of their kernels and disks, in virtual time (15 minutes)'
	@echo 'make test-managers  carnet beside systemd-networkd, NetworkManager, dhcpcd and firewalld (needs root and debootstrap; 25 minutes)'
	@echo 'make test-eval  the Python package of the evaluation: installed, its types, a session as in a notebook (10 seconds)'
	@echo 'make lint    format, clippy, documentation, advisories about dependencies, conventions, words'
	@echo 'make bench   how fast the data paths are (needs root; 15 minutes, BENCH_ARGS=--quick 2 minutes)'
	@echo 'make bench-registrations  100,000 mobile routers register at one home agent, without and with an IPv4 prefix each; then it is killed (10 minutes)'
	@echo 'make bench-sessions  TCP through encrypted tunnels beside the library alone; 10,000 routers with sessions; floods of handshakes (10 minutes)'
	@echo 'make bench-attack  a home agent that strangers flood with 200,000 frames a second (4 minutes)'
	@echo 'make bench-takeover  one of three home agents is killed under the traffic of 1000 routers; 200 random faults of them (with etcd; 40 minutes)'
	@echo 'make bench-geonet   how fast the real program forwards GeoNetworking packets (5 minutes)'
	@echo 'make bench-micro    how fast the pieces of the program are'
	@echo 'make bench-messages CAMs to octets and back beside the crate c-its-parser, which has to understand them'
	@echo 'make evaluation   what four papers about mobile routers measured, measured here (docs/evaluation.md; 25 minutes)'
	@echo 'make evaluation-kernel  the first of them on a stock Debian kernel in an emulated machine, for function'
	@echo 'make bench-figures  docs/figures/bench.md of the last make bench'
	@echo 'make security       10,000 messages that nobody may believe (a minute)'
	@echo 'make bench-security how many signatures a second, by each back end'
	@echo 'make sim     the simulator: ns-3 with the station in every node (ns3/README.md)'
	@echo 'make sim-smoke   a few runs that show that it works (2 minutes)'
	@echo 'make sim-paper   the figures of "TCP over Geo-routing for High Mobility" (45 minutes on two cores)'
	@echo 'make build   target/release/carnet, carnet-fleet and carnet-lab'
	@echo 'make book    the pages as a book: out/book/html/index.html'
	@echo 'make test-book  every command, config and link of the pages (part of make test)'
	@echo 'make deb     a Debian package in out/deb'
	@echo 'make test-deb  that package in a clean Debian: installed, run, removed (needs root and debootstrap)'
	@echo 'make openwrt-mipsel  the program for OpenWrt on a small MIPS processor: builds it, and checks its size'
	@echo 'make test-openwrt  the package for OpenWrt in a root made of BusyBox: UCI, init script, hook (part of make test); size of its program'
	@echo 'make container  an image for podman (or BUILDER=buildah), of the program linked with musl'
	@echo 'make test-container  that image: built, run as a home agent, killed, stopped (needs root; make test does it with another build)'

demo:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab run two-uplinks --pcap --out $(OUT)/demo

# The picture and the numbers that the README shows.
figures: demo
	@mkdir -p docs/figures
	target/release/carnet-lab figures $(OUT)/demo/results.json docs/figures

build:
	$(CARGO) build --release --bin carnet --bin carnet-fleet --bin carnet-lab

# The dashboard in a browser, against real stations; pictures in out/web
test-web:
	@tools/setup.sh test
	$(CARGO) build --release --bin carnet
	$(CARNET_PYTHON) web/test/run target/release/carnet --out $(OUT)/web

# How fast the page of a home agent with 200 mobile routers is; pictures in out/web
.PHONY: test-fleet
test-fleet:
	@tools/setup.sh test
	$(CARGO) build --release --bin carnet
	$(CARNET_PYTHON) web/test/fleet target/release/carnet --targets --out $(OUT)/web

# A million packets of strangers at the port of encrypted sessions: the home agent answers none (a minute)
.PHONY: test-strangers
test-strangers:
	CARNET_STRANGER_ROUNDS=125000 CARNET_REQUIRE_ROOT=1 $(CARGO) test --package carnet \
	  --features carnet/upper-tester --test program -- --nocapture sessions::home_agent_gives_strangers_no_answer

# The managers of another Debian: MANAGERS_ARGS='--debian 13'; one alone: MANAGERS_ARGS=NetworkManager
MANAGERS_ARGS ?=

.PHONY: test-managers
test-managers:
	@tools/setup.sh test
	$(CARGO) build --release --bin carnet
	$(CARNET_PYTHON) tools/managers/run target/release/carnet --out $(OUT)/managers $(MANAGERS_ARGS)

# A real station against docs/openapi.json
test-api:
	@tools/setup.sh test
	$(CARGO) build --release --bin carnet
	tools/test-api.sh target/release/carnet

# As somebody has it who installed it: not from the folder of its source
.PHONY: test-eval
test-eval:
	@tools/setup.sh test
	tools/test-eval.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features carnet/upper-tester --quiet -- --deny warnings
	$(CARGO) clippy --package carnet --no-default-features --features bpf,geonet,replay --quiet -- --deny warnings
	$(CARGO) clippy --package carnet --package carnet-lab --no-default-features --quiet -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' $(CARGO) doc --workspace --no-deps --document-private-items --quiet
	$(CARGO) xtask gen-asn1 --check
	$(CARGO) xtask advisories
	tools/conventions.sh
	$(CARNET_PYTHON) -B tools/prose

test:
	@tools/setup.sh test
	$(MAKE) lint
	$(CARGO) build --release --bin carnet
	$(CARNET_PYTHON) tools/test

# The program from outside: conformance/nemo/README.md, conformance/geonetworking/README.md
conformance:
	@tools/setup.sh test
	$(CARGO) build --bin carnet --features carnet/upper-tester
	$(CARNET_PYTHON) conformance/geonetworking/run --carnet target/debug/carnet --out $(OUT)/conformance
	$(CARNET_PYTHON) conformance/nemo/run --carnet target/debug/carnet --out $(OUT)/conformance-nemo
	$(CARNET_PYTHON) conformance/nemo/run --silent
	$(CARNET_PYTHON) conformance/nemo/run --yes-man

# What make test does with fewer. Arithmetic that overflows and broken assertions count, so it is no release.
FUZZ_ROUNDS ?= 1000000
FUZZ = CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_TARGET_DIR=$(abspath $(OUT))/fuzz $(CARGO) test

# Seconds of a processor for each target; FUZZ_TARGETS: these alone.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=

.PHONY: mutations fuzz-figures fuzz-coverage fuzz-merge
fuzz:
	$(CARNET_PYTHON) tools/fuzz run --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# All runs so far: docs/figures/fuzz.md
fuzz-figures:
	$(CARNET_PYTHON) tools/fuzz figures

# What was found so far, by file.
fuzz-coverage:
	$(CARNET_PYTHON) tools/fuzz coverage $(FUZZ_TARGETS)

# What was found so far, as little as reaches the same, into fuzz/corpus.
fuzz-merge:
	$(CARNET_PYTHON) tools/fuzz merge $(FUZZ_TARGETS)

mutations:
	CARNET_ROUNDS=$(FUZZ_ROUNDS) $(FUZZ) --package carnet-wire --test hostile mutations
	CARNET_ROUNDS=$(FUZZ_ROUNDS) $(FUZZ) --package carnet-mobility --test suite hostile::
	CARNET_ROUNDS=$(FUZZ_ROUNDS) $(FUZZ) --package carnet-geonet --test suite ipv6_hostile::
	CARNET_ROUNDS=$(FUZZ_ROUNDS) $(FUZZ) --package carnet-api hostile::

faults:
	CARNET_DAYS=5000 $(FUZZ) --package carnet-mobility --test suite faults::
	CARNET_SCHEDULES=3000 $(FUZZ) --package carnet-fleet --test suite faults::
	CARNET_SCHEDULES=10000 $(FUZZ) --package carnet --bin carnet faults::

test-kernel:
	@tools/setup.sh test-kernel
	tools/test-kernel.sh

test-radio:
	@tools/setup.sh test-kernel
	tools/test-kernel.sh radio

bench:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab bench --out $(OUT)/bench $(BENCH_ARGS)

bench-registrations:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab bench --only registrations --out $(OUT)/bench-registrations $(BENCH_ARGS)

bench-sessions:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab bench --only sessions,handshakes,session-floods --out $(OUT)/bench-sessions $(BENCH_ARGS)

bench-attack:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab bench --only attack --out $(OUT)/bench-attack $(BENCH_ARGS)

# The seed of the faults is printed; the same again: BENCH_ARGS='--seed NUMBER'
bench-takeover:
	@tools/setup.sh takeover
	$(CARGO) build --release --bin carnet --bin carnet-fleet --bin carnet-lab
	target/release/carnet-lab bench --only takeover --out $(OUT)/bench-takeover $(BENCH_ARGS)

# Of what was not measured anew the figures stay that were there.
bench-figures:
	@mkdir -p docs/figures
	target/release/carnet-lab bench-table $(firstword $(wildcard $(OUT)/bench/bench.json docs/figures/bench.json)) docs/figures/bench.md \
	  $(addprefix --with ,$(wildcard $(foreach one,bindings ipv4 registrations attack sessions takeover,$(OUT)/bench-$(one)/bench.json)))

# Pages and all values: out/eval-papers. For instance EVALUATION_ARGS='--quick nemo-wimax'
EVALUATION_ARGS ?=

evaluation:
	@tools/setup.sh evaluation
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab eval --out $(OUT)/eval-papers $(EVALUATION_ARGS)

evaluation-page:
	target/release/carnet-lab eval --document $(OUT)/eval-papers/eval.json docs/evaluation.md

# A paper on Debian's kernel in an emulated machine, for function; pages in out/evaluation-kernel
evaluation-kernel:
	@tools/setup.sh test-kernel
	@tools/setup.sh evaluation
	CARNET_TEST_OUT=$(abspath $(OUT))/evaluation-kernel tools/test-kernel.sh eval

bench-micro:
	@tools/setup.sh demo
	$(CARGO) bench --package carnet-station --bench forwarder -- $(BENCH_ARGS)
	$(CARGO) bench --package carnet-mobility --bench registration -- $(BENCH_ARGS)
	$(CARGO) bench --package carnet-wireguard --bench sessions -- $(BENCH_ARGS)
	$(CARGO) bench --package carnet-its --bench messages -- $(BENCH_ARGS)
	$(CARGO) bench --package carnet-its --bench map -- $(BENCH_ARGS)

bench-messages:
	@tools/setup.sh demo
	$(CARGO) test --manifest-path crates/its/oracle/Cargo.toml
	$(CARGO) bench --manifest-path crates/its/oracle/Cargo.toml

security:
	$(CARGO) test --package carnet-security --test suite -- --include-ignored --nocapture strict::

# Needs a C compiler, for AWS-LC.
bench-security:
	@tools/setup.sh demo
	$(CARGO) bench --package carnet-security --features aws-lc-rs --bench signatures -- $(BENCH_ARGS)

# Results and all values: out/bench-geonet.json
bench-geonet:
	@tools/setup.sh demo
	$(CARGO) build --release --bin carnet --bin carnet-lab
	target/release/carnet-lab bench-geonet --out $(OUT)/bench-geonet.json $(BENCH_ARGS)

# The station's library and ns-3's, put together. The environment is made by tools/setup.sh.
# For instance SIM_ARGS='fig5 fig8 --seeds 3 --duration 30'
SIM_ARGS ?=
CARNET_SIM_ENV ?= $(OUT)/sim-env
export CARNET_SIM_ENV
# Runs need no more than Python 3.11; SUMO's tracks and figures need the environment.
EVAL = PYTHONPATH=eval $(CARNET_PYTHON) -m carnet_eval
PAPER = PYTHONPATH=eval $(CARNET_SIM_ENV)/bin/python3 -m carnet_eval

sim:
	@tools/setup.sh sim
	$(CARGO) build --profile sim --package carnet-sim-ffi
	$(MAKE) --no-print-directory -C ns3 OUT=$(abspath $(OUT))/ns3 \
	  NS3=$$(echo $(abspath $(CARNET_SIM_ENV))/lib/python3*/site-packages/ns3)

sim-smoke: sim
	PYTHONPATH=eval $(CARNET_PYTHON) -m unittest discover --start-directory eval/tests
	$(EVAL) smoke --program $(OUT)/ns3/carnet-sim

# Both go on where they were left; out/eval/report.md
sim-paper: sim
	@tools/setup.sh sim-paper
	$(PAPER) run --program $(OUT)/ns3/carnet-sim --out $(OUT)/eval $(or $(SIM_ARGS),paper)
	$(PAPER) report --out $(OUT)/eval $(or $(SIM_ARGS),paper)

# And what is written down of it: the tables of docs/simulation.md, docs/figures.
sim-all: sim
	@tools/setup.sh sim-paper
	$(PAPER) run --program $(OUT)/ns3/carnet-sim --out $(OUT)/eval $(SIM_ARGS)
	$(PAPER) report --keep --out $(OUT)/eval $(SIM_ARGS)

.PHONY: book test-book
book:
	@tools/setup.sh book
	$(CARNET_PYTHON) tools/book/build

test-book:
	@tools/setup.sh test
	$(CARGO) build --bin carnet --bin carnet-fleet
	$(CARNET_PYTHON) tools/book/test

deb:
	@tools/setup.sh demo
	tools/deb.sh

test-deb:
	tools/test-deb.sh

test-openwrt:
	@tools/setup.sh test
	$(CARGO) build --bin carnet
	small=$$(tools/openwrt.sh) && $(CARNET_PYTHON) tools/test-openwrt target/debug/carnet "$$small"

# The size of the program for routers with a MIPS processor; it does not run here.
openwrt-mipsel:
	@tools/setup.sh test
	$(CARNET_PYTHON) tools/test-openwrt --size "$$(tools/openwrt.sh mipsel)"

# Of another program: CONTAINER_ARGS=PROGRAM
CONTAINER_ARGS ?=

.PHONY: container test-container test-openwrt openwrt-mipsel
container:
	@tools/setup.sh container
	tools/container.sh $(CONTAINER_ARGS)

test-container:
	@tools/setup.sh container
	tools/test-container.sh $(CONTAINER_ARGS)

clean:
	$(CARGO) clean
	rm -rf $(OUT)
