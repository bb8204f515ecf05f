# The two commands: make demo, make test. `make help` lists the rest.
BIN := .venv/bin

.PHONY: help demo quick test check lint types imports mutants faults deploy-test image bench wheel clean

help:
	@echo "make demo    crawl the bundled demo site: live progress, a dashboard, records at the end"
	@echo "make quick   lint, types, import rules, unit tests and the queue contract on SQLite: the daily loop"
	@echo "make test    set up everything the tests need and run them"
	@echo "make check   tests, lint, types, import rules and the built wheel: what CI runs"
	@echo "make mutants plant known mistakes in a copy of the source, and see that a test catches each (ONLY=words)"
	@echo "make faults  slow fault injection and soak runs"
	@echo "make image   the container image, built without a network from wheels"
	@echo "make deploy-test  containers, compose and swarm on a Docker engine, as root with one of its own"
	@echo "make bench   measure what we claim, beside the peers"

.venv/ready: pyproject.toml tools/environment
	@sh tools/environment .
	@touch $@

.venv/ready-dev: .venv/ready
	@sh tools/environment '.[dev]'
	@touch $@

demo: .venv/ready
	@$(BIN)/shoal demo --crawl

test: .venv/ready-dev
	@sh tools/servers
	@$(BIN)/pytest -n $${SHOAL_TEST_PROCESSES:-3} --dist worksteal $(if $(CI),--durations=25)

quick: .venv/ready-dev lint types imports
	@SHOAL_QUICK=1 $(BIN)/pytest -n $${SHOAL_TEST_PROCESSES:-3} --dist worksteal tests/unit
	@$(BIN)/pytest -n $${SHOAL_TEST_PROCESSES:-3} --dist worksteal -k "model or sqlite" tests/conformance/test_contract_*.py

check: .venv/ready-dev lint types imports test wheel

lint: .venv/ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/ready-dev
	@$(BIN)/mypy

imports: .venv/ready-dev
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache

wheel: .venv/ready-dev
	@sh tools/try-wheel

mutants: .venv/ready-dev
	@PYTHONPATH=tests $(BIN)/python -m mutants $(ONLY)

faults: .venv/ready-dev
	@sh tools/servers
	@$(BIN)/pytest -m faults --timeout 3600 --ignore tests/deploy
	@$(MAKE) --no-print-directory deploy-test SELECT=faults

image: .venv/ready-dev
	@sh tools/image wheels
	@sh tools/image build

# Where no engine can be had (77), the reason is said, and that is all.
deploy-test: .venv/ready-dev
	@sh tools/image wheels
	@sh tools/engine run $(BIN)/pytest -m $(or $(SELECT),deploy) --timeout 1800 tests/deploy || [ $$? = 77 ]

bench: .venv/ready-dev
	@sh bench/all.sh

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
