# make demo    sets everything up and shows the three-node hybrid network on real packets (root)
# make check   sets everything up and runs the loop of every day: lint, types, unit
# make test    sets everything up and proves it: lint, types, unit, integration, scenario, radio, packaging (root)
# make nightly the same with more examples of each law, and with what takes minutes (root)
SHELL := /bin/bash
PYTHON := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: mutants gallery sbom audit hashes help setup setup-dev demo check test nightly lint docs types unit rust-test integration scenario radio packaging fuzz bench clean

help:
	@sed -n 's/^# make /make /p' Makefile
	@echo "make lint|docs|types|unit|rust-test|integration|scenario|radio|packaging|fuzz    the parts of 'make test'"
	@echo "make bench    all benchmarks; make clean    removes what was built"
	@echo "make mutants  small faults put into some modules, and how many of them the nearest unit tests find"
	@echo "make gallery  all studies, quickly, for the gallery of the documentation"
	@echo "make sbom     build/sbom.json, what HyRoads is made of (CycloneDX); make audit    known weaknesses of that"
	@echo "make hashes   the hashes of requirements*.txt anew, after a change of versions (needs uv)"

setup:
	@scripts/bootstrap.sh

setup-dev:
	@scripts/bootstrap.sh --dev

demo: setup
	@.venv/bin/hyroads demo triangle

test: setup-dev
	@scripts/test.sh all

check nightly lint docs types unit rust-test integration scenario radio packaging fuzz: setup-dev
	@scripts/test.sh $@

mutants: setup-dev
	@$(PYTHON) scripts/mutate.py

gallery: setup-dev
	@.venv/bin/hyroads study all --quick --out build/studies || [ $$? -eq 3 ]  # 3: a reference is missed, a result

bench: setup-dev
	@for f in benchmarks/*.py; do echo "== $$f"; $(PYTHON) $$f || exit 1; done

sbom:
	@python3 scripts/sbom.py --out build/sbom.json

audit:
	@scripts/audit.sh

hashes:
	@$(PYTHON) scripts/pins.py --remake

clean:
	rm -rf build dist .venv dataplane/target *.egg-info
