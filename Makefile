# The tasks of the project. bin/uv is uv, fetched on first use where it is missing.
.DEFAULT_GOAL := help
# Tests start thousands of processes: without compiled modules each takes 5.5 s of processor time to
# open a store, with them 1.4. The demo starts a few, and compiling all that is installed takes longer.
quick quick-types quick-tests test nightly defects exhaustion exits power races soak: export PYTHONDONTWRITEBYTECODE =
quick quick-types quick-tests test nightly defects exhaustion exits power races soak: export UV_COMPILE_BYTECODE = 1
.PHONY: help jar dist release demo demo-spark quick quick-types quick-tests test ranges nightly check docs format lock address bench defects exhaustion exits power races soak hooks

help:  ## list the tasks
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

jar:  ## compile the jar of Spark's catalog, for the wheel (any Java; about 15 s)
	@bin/uv run --locked --no-dev --extra spark siltstone spark jar --into src/siltstone/spark/jars

dist: jar  ## build the wheel, with the jar, and the source distribution
	@bin/uv build --quiet

release:  ## build a release in dist/, and try it in empty environments; uploads nothing
	@bin/uv run --locked --all-extras --group release python -m release

demo:  ## a first look at siltstone, on flight data (no Spark, no Java)
	@bin/uv run --locked --no-dev --extra demo siltstone demo

demo-spark:  ## TPC-H as a pipeline on Spark; fetches a Java where there is none
	@bin/uv run --locked --no-dev --extra demo --extra spark siltstone demo --spark

# One worker more than there are cores: much of a crash test is waiting for syncs and processes.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
WORKERS := $(shell echo $$(($(CORES) < 3 ? $(CORES) + 1 : 4)))

quick:  ## before each commit: lint, types, layers, some tests of each part; about a minute
	@bin/uv run --locked --all-extras ruff check
	@bin/uv run --locked --all-extras ruff format --check --quiet
	@bin/uv run --locked --all-extras lint-imports
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target quick-types quick-tests

quick-types:
	@bin/uv run --locked --all-extras pyright

quick-tests:
	@HYPOTHESIS_PROFILE=quick bin/uv run --locked --all-extras pytest --quiet -n 2 \
		--dist loadfile --no-loadscope-reorder $$(sed 's/#.*//' tests/quick.txt)

# The stores of tests are in memory where there is room (8 GB): most of their time is waiting for a
# disk to sync, and no test asks a disk what it kept. `make test ON_DISK=1` is the longer form.
ROOM := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')
SCRATCH := $(if $(ON_DISK),,$(ROOM))

# A file at a time, as tests/conftest.py groups them; Spark's tests share one session, and begin.
test:  ## all tests but those of tests/nightly.txt, in a few processes (four at most)
	@$(if $(SCRATCH),at=$$(mktemp -d $(SCRATCH)/tests-XXXXXX) && trap 'rm -rf "$$at"' EXIT && export TMPDIR="$$at" &&) \
		bin/uv run --locked --all-extras pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

ranges:  ## some tests with the lowest and the newest versions of other packages, about two minutes
	@bin/ranges

nightly:  ## all tests, and five times as many crashes of each scenario
	@SILTSTONE_NIGHTLY=1 $(MAKE) --no-print-directory test

hooks:  ## let git check the messages of your commits (bin/hooks)
	@git config core.hooksPath bin/hooks

check:  ## what CI runs
	@.ci/run

docs:  ## build the site into build/site, strictly; look: python -m http.server -d build/site
	@bin/uv run --locked --only-group docs python -m pages

format:  ## rewrite the sources in the house format
	@bin/uv run --locked ruff check --fix --exit-zero
	@bin/uv run --locked ruff format

lock:  ## resolve the dependencies again, and let `make ranges` see what is published by today
	@bin/uv lock
	@bin/check-lock
	@sed -i.old "s/^as of .*/as of $$(date -u +%Y-%m-%d)T00:00:00Z/" tests/ranges.txt && rm tests/ranges.txt.old

# The public address stands in pyproject.toml; pages that spell it out follow it (tests/test_package.py).
HOME_PAGE = $(shell sed -n 's/^Homepage = "\([^"]*\)".*/\1/p' pyproject.toml)

address:  ## give the project another public address, everywhere: make address TO=https://...
	@case '$(TO)' in https://*[!/]) ;; *) echo 'make address TO=https://..., without a slash at its end' >&2; exit 2;; esac
	@git grep -lF '$(HOME_PAGE)' | xargs sed -i 's#$(subst .,\.,$(HOME_PAGE))#$(TO)#g'

bench:  ## measure all of docs/benchmarks.md again, in about an hour
	@bin/uv run --locked --all-extras --group bench python -m bench --seconds 0.5 --record \
		--rounds 9 --workloads CPU,W1,W3,W4,W7,W9
	@bin/uv run --locked --all-extras --group bench python -m bench --seconds 0.5 --record \
		--workloads W2,W5,W6,W8,W10,W11,W12,W13,W14,index,memory,http,versions
	@bin/uv run --locked --all-extras --group bench python -m bench --seconds 0.5 --record \
		--peers siltstone --workloads writes,many,reach
	@bin/uv run --locked --all-extras --group bench python -m bench curves --rows-max 1e8 --limit 600
	@bin/uv run --locked --all-extras --group bench python -m bench.spark
	@bin/uv run --locked --all-extras --group bench python -m bench report

defects:  ## plant each defect, see that its suite catches it, about 20 minutes
	@bin/uv run --locked --all-extras python -m proof.defects --report docs/defects.md

exhaustion:  ## run out of disk, descriptors, memory, threads and time 10,000 times, about ten minutes
	@bin/uv run --locked --all-extras --all-groups python -m proof.exhaustion --cycles 10000

exits:  ## end 200 busy processes that never close their store, about ten minutes
	@bin/uv run --locked --all-extras --all-groups python -m proof.exits --exits 200

power:  ## cut the power of real processes wherever it matters, for hours
	@bin/uv run --locked --all-extras --all-groups python -m proof.power --images 2000 --report docs/power-loss.md

races:  ## every pair of operations at every stage, every one killed at each failpoint
	@SILTSTONE_RACES=all bin/uv run --locked --all-extras pytest --quiet tests/races tests/isolation

soak:  ## everything at once over one store, and kills at random, for 30 minutes
	@bin/uv run --locked --all-extras python -m proof.soak --minutes 30
