# The only command list; .ci/run calls it. Build output goes to a cache folder outside the checkout.
export CARGO_TARGET_DIR ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/sluice/target
SHELL := /bin/bash
FUZZ_SECONDS ?= 600

.PHONY: run test test-long lint build print-binary bench bench-tables ci tools kill-cycles fuzz clean-lab

run: tools ## start the server on the default ports, data in ./sluice-data
	cargo run --bin sluice -- serve

tools: ## install what a build needs, or say exactly what to install
	@compat-tests/lab/tools.sh

test: tools ## every test's short form, foreign clients included
	cargo build --bin sluice
	cargo test --workspace --lib --bins --tests

test-long: tools ## kills, seeds, fuzzing, whole foreign suites: hours
	cargo build --bin sluice
	SLUICE_TEST_SEEDS=20000 R4_SEEDS=20000 cargo test -p sluice-engine --test suite -- --nocapture
	SLUICE_TEST_KILLS=200 cargo test -p sluice-compat-tests --test suite crash -- --nocapture
	SLUICE_TEST_KILLS=200 SLUICE_TEST_LONG=1 cargo test -p sluice-compat-tests --test suite tables -- --nocapture --test-threads 1
	SLUICE_TEST_LONG=1 cargo test -p sluice-compat-tests --test suite -- --nocapture
	$(MAKE) fuzz

fuzz: ## each parser for FUZZ_SECONDS; needs a nightly toolchain and cargo-fuzz
	protocol/fuzz/run.sh $(FUZZ_SECONDS)

lint: tools
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

build: tools ## the release binary
	cargo build --release --bin sluice

print-binary: ## path of the release binary
	@echo $(CARGO_TARGET_DIR)/release/sluice

bench: build ## Sluice and Apache Kafka 4.4 in turn; about 40 minutes on an otherwise idle machine
	cargo build --release -p sluice-compat-tests --example bench
	SLUICE_BIN=$(CARGO_TARGET_DIR)/release/sluice BENCH_BIN=$(CARGO_TARGET_DIR)/release/examples/bench compat-tests/lab/bench.sh

bench-tables: build ## PK tables on Sluice and on Apache Fluss 0.9.1 in turn; about ten minutes
	cargo build --release -p sluice-compat-tests --example tables_bench
	SLUICE_BIN=$(CARGO_TARGET_DIR)/release/sluice BENCH_BIN=$(CARGO_TARGET_DIR)/release/examples/tables_bench compat-tests/lab/bench-tables.sh

ci: lint test
