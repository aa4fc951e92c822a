# Every chore by one name; CI calls the same ones. `make help` lists them.
#
# Nothing here needs more than rustup and a C compiler to begin with: `setup` brings the rest.

CARGO ?= cargo
# Where cargo puts its output; the suites and the bench start the binary from there.
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
MIZAN := $(TARGET_DIR)/release/mizan
# Command-line arguments for `make lab`, for example `make lab ARGS=--drill`.
ARGS ?=
# Seconds for each target of `make fuzz`.
FUZZ_SECONDS ?= 60

.PHONY: help setup lab lint fmt clippy doc deny test test-rust test-long suites suites-short \
	fuzz deb fleet fleet-long fleet-short bench bench-full bench-readers bench-setup release release-lto

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 18

setup: ## what lint and test need beyond Rust and a C compiler; installs only what is missing
	@scripts/setup.sh

lab: ## the laboratory: three backends, the proxy, the drill to type (ARGS=--drill plays it)
	$(CARGO) build --release --locked -p mizan
	@exec $(MIZAN) lab $(ARGS)

release:
	$(CARGO) build --release --locked -p mizan

# What is measured and packaged: a fifth less user time a request than `release`, for minutes of compiling.
release-lto:
	$(CARGO) build --profile release-lto --locked -p mizan

lint: setup fmt clippy doc deny ## format, lints, docs, licences: no warning passes

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

deny:
	$(CARGO) deny --locked check licenses bans sources

test: setup test-rust fleet-short suites-short ## everything that CI runs: unit, property, socket, tidy, fuzz smoke, a fleet, short suites

# Five minutes of random edits and faults, and the release binary that the suites want is built meanwhile.
fleet-short:
	@mkdir -p $(TARGET_DIR)
	@python3 bench/fleet.py --mizan $(TARGET_DIR)/debug/mizan --seconds $(or $(FLEET_SECONDS),300) --faults-every 20 \
		>$(TARGET_DIR)/fleet.log 2>&1 & fleet=$$!; \
	nice -n 10 $(MAKE) release; release=$$?; \
	wait $$fleet; fleet=$$?; cat $(TARGET_DIR)/fleet.log; [ $$release -eq 0 ] && [ $$fleet -eq 0 ]

# The product by itself, with the features that it ships with: what other crates' tests need would be built into it, too.
test-rust:
	$(CARGO) test --workspace --exclude mizan --locked
	$(CARGO) test -p mizan --locked

test-long: setup release ## all tests in release mode with a hundred times the fuzz and 1,000 kills of the store, then all suites
	MIZAN_TORTURE_READS=1250000 MIZAN_STORE_ROUNDS=1000 MIZAN_STORE_STEPS=5000 \
		$(CARGO) test --workspace --exclude mizan --release --locked
	MIZAN_FUZZ_RUNS=3000000 $(CARGO) test -p mizan --release --locked
	MIZAN=$(MIZAN) suites/run.sh

suites: setup release ## the outside suites against the release binary: full marks or failure
	MIZAN=$(MIZAN) suites/run.sh

suites-short: release
	MIZAN=$(MIZAN) suites/run.sh --short

fuzz: ## coverage-guided fuzzing of the HTTP/1 parsers, FUZZ_SECONDS each
	fuzz/run.sh $(FUZZ_SECONDS)

deb: release-lto ## a Debian package, in target/
	packaging/debian/build.sh $(TARGET_DIR)/release-lto/mizan $(TARGET_DIR)

bench-setup:
	bench/setup.sh

bench: release-lto bench-setup ## Mizan beside nginx, HAProxy, Envoy, Caddy and a raw relay: under five minutes
	python3 bench/bench.py run --quick --mizan $(TARGET_DIR)/release-lto/mizan

fleet: setup release ## three nodes of etcd, eight balancers behind delays, edits and faults: how long, and none missed
	python3 bench/fleet.py --mizan $(MIZAN) --seconds $(or $(SECONDS_OF_EDITS),60)

fleet-long: setup release ## the same for an hour, with random edits and a fault each half minute
	python3 bench/fleet.py --mizan $(MIZAN) --seconds $(or $(SECONDS_OF_EDITS),3600) --faults-every 30

bench-readers: release ## what a program needs to look at the routing table, and to read one of 100 kB, in Rust and PHP
	python3 bench/readers/run.py --mizan $(MIZAN)

bench-full: release-lto bench-setup ## every point, in three rounds or five: about an hour
	python3 bench/bench.py run --full --mizan $(TARGET_DIR)/release-lto/mizan
