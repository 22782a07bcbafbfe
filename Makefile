# The commands people type. Each starts from whatever is there, also from a
# fresh clone on a fresh machine.
#
#   make build      the package in .venv, hotcount-load on .venv/bin
#   make demo       the main job on the embedded default: no server needed
#   make test       C++ and Python tests, with private servers they start; those on MySQL where
#                   `scripts/setup mysql` brought it, and the last line says so where it did not
#   make test-all   adds the long ones, and brings Chromium and MySQL
#   make sanitize   C++ tests under ASan + UBSan and TSan, the client's Python tests under ASan + UBSan
#   make faults     every fault of tests/faults/rows.py, with proof that it took place, as a table
#   make lint       format, static checks, types
#   make surface    writes the public names and signatures again: tests/codebase/surface
#   make docs       the documents and the reference as a site: build/docs/html/index.html
#   make pictures   the pictures of README and docs, from the figures in docs/_pictures
#   make bench      micro benchmarks of the inner loops, and what a call costs in Python
#   make peers      counters beside other Redis clients, on a private Redis, as ratios
#   make peers-cluster  the same on a cluster of three primaries
#   make web-limits  what a limit costs FastAPI, Flask and Django, beside other limiters
#   make votes      votes on private PostgreSQL, MariaDB, MySQL and SQLite: the strategies, web
#                   workers, a held item
#   make failover   a standby is promoted under votes: time without a success, calls unknown, votes
#                   lost or doubled
#   make notebooks  runs the notebooks in full and keeps their outputs; needs Chromium
#   make compare-builds BEFORE=../other   this build beside that of another work tree, as ratios
#   make wheel      sdist and wheels of HEAD in dist/, with licences and SBOM
#   make wheel-check  a fresh Debian 12 and 13, the wheel, a first vote, and how long that took
#   make mutants    which of 40 faults the tests find: hours; in a work tree of its own

# PYTHON chooses the interpreter that .venv is made of.
PYTHON ?= python3
JOBS ?= $(shell nproc)
BUILD := build/release
# Extra arguments for pytest: make test PYTEST_ARGS="-k counter"
PYTEST_ARGS ?=

export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: all setup build demo test test-all sanitize lint surface docs bench peers peers-cluster rates
.PHONY: peers-libraries web-limits pictures
.PHONY: votes failover adoption notebooks compare-builds mutants faults wheel wheel-check clean
# The targets use one build tree and one .venv: `make -j lint test` must not
# run two installs at once. The parallel part is inside the build.
.NOTPARALLEL:

all: build

setup:
	@scripts/setup

# One build tree for the extension, the load generator, the benchmarks and the
# C++ tests, so that the core compiles once. It is kept, so a second run compiles
# what changed. No build isolation: an environment with another path each time
# would make every compile command differ, and so compile everything again.
#
# A folder of sources is one unit, as in the wheel: users run what the tests ran, and a build from
# nothing takes a third less. With UNITY=OFF a changed file compiles alone; the tree keeps that choice
# for `make demo`, and `make build` without it compiles everything again.
#
# -v: pip shows what ninja does; without it minutes pass in silence.
UNITY ?= ON
build: setup
	.venv/bin/python -m pip install -v --no-build-isolation --no-deps --disable-pip-version-check \
	    --config-settings=build-dir=$(BUILD) --config-settings=build.verbose=false \
	    --config-settings=cmake.define.HOTCOUNT_LOADTEST=ON \
	    --config-settings=cmake.define.HOTCOUNT_MICRO=ON \
	    --config-settings=cmake.define.HOTCOUNT_TESTS=ON \
	    --config-settings=cmake.define.HOTCOUNT_WERROR=ON \
	    --config-settings=cmake.define.HOTCOUNT_HARDENING=ON \
	    --config-settings=cmake.define.HOTCOUNT_UNITY=$(UNITY) \
	    .

# The load generator and the core alone, in the tree that `make build` uses: neither compiles again
# what the other has compiled. A tree that is there keeps its options.
# DEMO_ARGS="-d 5s --rounds 9"
DEMO_ARGS ?=
demo:
	@scripts/setup demo
	@test -f $(BUILD)/build.ninja || cmake --preset demo -DHOTCOUNT_UNITY=$(UNITY)
	cmake --build $(BUILD) --target hotcount-load
	$(BUILD)/loadtest/hotcount-load $(DEMO_ARGS)

# Tests of C++ wait for half of their time, so three run for each core.
CPP_TESTS = $(shell echo $$((3 * $(JOBS))))
test: build
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(CPP_TESTS)
	scripts/pytests $(JOBS) $(PYTEST_ARGS)

test-all: build
	@scripts/setup browser mysql
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(CPP_TESTS)
	scripts/pytests --long $(JOBS) $(PYTEST_ARGS)

# SANITIZE="python" for a part: asan, python, tsan.
sanitize: setup
	scripts/sanitize $(SANITIZE)

lint: build
	git ls-files -z '*.cpp' '*.hpp' | xargs -0 clang-format --dry-run -Werror
	scripts/tidy
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	scripts/docs

surface: build
	.venv/bin/python -m tests.codebase.surface

docs: build
	scripts/docs

# PICTURES_ARGS="--measured compare.json" takes the figures of another comparison.
PICTURES_ARGS ?=
pictures: setup
	.venv/bin/python scripts/pictures $(PICTURES_ARGS)

bench: build
	$(BUILD)/loadtest/micro/hotcount-micro
	.venv/bin/python -m loadtest.micro.call_cost

# Other libraries come into .venv for this alone, and Go's clients into build/peers where there is a
# Go. PEERS_ARGS="--only sync,batch --rounds 9 --json peers.json"
PEERS_ARGS ?=
peers: peers-libraries
	.venv/bin/python -m loadtest.peers.redis_counters $(PEERS_ARGS)
peers-cluster: peers-libraries
	.venv/bin/python -m loadtest.peers.cluster_counters $(PEERS_ARGS)

# FAILOVER_ARGS="--kind mariadb --end stop --runs 3"
FAILOVER_ARGS ?=
failover: build
	.venv/bin/python -m tests.support.failover $(FAILOVER_ARGS)

# WEB_ARGS="--only flask --rounds 9 --json web.json"
WEB_ARGS ?=
web-limits: peers-libraries
	.venv/bin/python -m loadtest.peers.web_limits $(WEB_ARGS)

peers-libraries: build
	.venv/bin/python scripts/pins peers >.venv/peers.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/peers.txt

# The highest rate that each strategy carries on each database, as tables, in 10 minutes at most.
# RATES_ARGS="-d 5s --max-time 3m" for longer trials.
RATES_ARGS ?=
rates: build
	scripts/rates .venv/bin/hotcount $(RATES_ARGS)

# VOTES_ARGS="--cases C++ --rounds 3"
VOTES_ARGS ?=
votes: build
	@scripts/setup mysql || echo "votes: going on without MySQL"
	.venv/bin/python -m loadtest.peers.sql_votes $(VOTES_ARGS)

# What adopting tables that exist costs: locks, and for how long. ADOPTION_ARGS="--only postgres"
ADOPTION_ARGS ?=
adoption: build
	.venv/bin/python -m loadtest.peers.adoption $(ADOPTION_ARGS)

# NOTEBOOKS="limiters counters" for some of them.
NOTEBOOKS ?=
notebooks: build
	.venv/bin/python scripts/pins pictures >.venv/pictures.txt
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/pictures.txt
	.venv/bin/python -m loadtest.peers.notebooks $(NOTEBOOKS)

# Each fault of tests/mutants costs a build and the tests of its room. It changes the work tree that it
# runs in, and takes the fault out again. MUTANTS_ARGS="--only 3,38 --results mutants.json"
MUTANTS_ARGS ?=
mutants: build
	@scripts/setup mysql
	.venv/bin/python -m tests.mutants.run $(MUTANTS_ARGS)

# Every row of tests/faults/rows.py with proof that its fault took place: what passed of what ran.
# FAULTS_ARGS="--rows 6,11-14 --json faults.json"
FAULTS_ARGS ?=
faults: build
	.venv/bin/python -m tests.faults.run $(FAULTS_ARGS)

# Where another commit was checked out and built. BUILDS_ARGS="--only sync --rounds 5"
BEFORE ?=
BUILDS_ARGS ?=
compare-builds: build
	.venv/bin/python -m loadtest.peers.builds $(BEFORE) $(BUILDS_ARGS)

# WHEEL_ARGS="python3.12 --again": for these interpreters, twice, and the hashes compared.
WHEEL_ARGS ?=
wheel:
	@scripts/setup wheel
	.venv/bin/python scripts/wheel $(WHEEL_ARGS)

wheel-check:
	@scripts/setup wheel
	scripts/wheel-check

clean:
	rm -rf build .venv
