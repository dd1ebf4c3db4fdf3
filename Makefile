# make demo | test | page | browser-test | bench | lint | docs | docs-check | site | sanitize | attack | fuzz | arm64 |
# wheels | compat | release | lock | gpu-check | gpu-resources: each sets up what it needs.
# VENV chooses the environment.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
NATIVE = CMakeLists.txt pyproject.toml constraints.txt $(wildcard csrc/*)
# -qq: errors, but no warnings about caches or package folders of this machine.
PIP = PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq
# Every file is compared with its hash, but for torch: docs/releasing.md says why.
LOCKED = $(PIP) --require-hashes --no-deps --requirement

.PHONY: setup demo test page browser-test bench lint sanitize attack fuzz arm64 wheels compat release docs docs-check site lock clean

setup: $(VENV)/.ready

# An editable install: Python changes count at once, changes of the kernels build them again.
$(VENV)/.demo: $(NATIVE) locks/demo.txt
	@echo "Installing kru and what it runs on into $(VENV), compiling its kernels: one to two minutes, once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(LOCKED) locks/demo.txt
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) --constraint constraints.txt --no-build-isolation --editable .
	@touch $@

$(VENV)/.ready: $(VENV)/.demo locks/test.txt
	@echo "Adding what the tests need to $(VENV) (pytest, mypy, ruff, optuna, onnx, ...): about a minute, once."
	@$(LOCKED) locks/test.txt
	@touch $@

demo: $(VENV)/.demo
	@echo "Training KRU and an LSTM side by side on copy memory: about two minutes on two cores."
	@$(BIN)/python -m kru.lab.demo

test: setup lint
	@echo "Running all tests: about eight minutes on two cores."
	$(BIN)/python -m pytest -n auto --maxprocesses 4

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One HTML file, which holds two trained networks and needs no server.
page: $(VENV)/.demo
	@$(BIN)/python examples/browser/build.py

$(VENV)/.browser: $(VENV)/.demo locks/browser.txt
	@echo "Adding Playwright to $(VENV): half a minute, once."
	@$(LOCKED) locks/browser.txt
	@touch $@

# `make test` skips these tests where Chromium or Playwright is missing.
browser-test: $(VENV)/.ready $(VENV)/.browser
	@command -v chromium chromium-browser google-chrome > /dev/null || { \
	  echo "make browser-test: no Chromium here; on Debian: apt-get install chromium" >&2; exit 1; }
	@echo "Running the page and exported models in Chromium: about a minute."
	$(BIN)/python -m pytest tests/browser

# The GPU kernels, without a GPU: all their numbers in Triton's interpreter, all their code for every kind of GPU.
IN_INTERPRETER = KRU_FULL=1 KRU_TRITON=cpu TRITON_INTERPRET=1
CPU_TESTS = test_scan.py test_kron.py test_registration.py
.PHONY: gpu-check gpu-resources
gpu-check: setup
	@echo "Checking the GPU kernels without a GPU: about an hour on two cores."
	$(IN_INTERPRETER) $(BIN)/python -m pytest -n auto --maxprocesses 4 tests/gpu
	$(IN_INTERPRETER) $(BIN)/python -m pytest -n auto --maxprocesses 4 $(CPU_TESTS:%=tests/ops/%)
	KRU_FULL=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 tests/gpu/test_compiled.py

# Records what the compiled GPU kernels need: limits for the tests, and the table of docs/gpu.md.
gpu-resources: setup
	$(BIN)/python tests/gpu/resources.py --write

bench: setup
	$(BIN)/python benchmarks/run.py

# Random kills, damaged files and kernel calls (docs/reliability.md); SEED=0 takes another seed each time. CASE=FOLDER
# repeats one that failed.
MINUTES ?= 20
SEED ?= 0
CASE ?=
attack: setup
	$(BIN)/python -m tests.attack $(if $(CASE),--case $(CASE),--minutes $(MINUTES) --seed $(SEED))

# The kernels' own test against literal loops, which needs no Python. The flags are those of CMakeLists.txt.
SELFTEST = csrc/selftest/main.cpp
SOURCES = $(wildcard csrc/*.h csrc/*.hpp csrc/*.cpp csrc/selftest/*)
CXXFLAGS_KERNELS = -std=gnu++17 -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi
JOBS ?= $(shell nproc)

# AddressSanitizer with UBSan, and ThreadSanitizer. At
# -O0 every access is made as it is written, and compiles soonest. The kernels of AVX-512 are compiled for AVX2 here, so
# that their 64-byte vectors run on machines without it.
SANITIZED = build/sanitize/address build/sanitize/thread
FLAGS_address = -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_thread = -fsanitize=thread
# Not thread: the reference's loops, most of the time, have no threads to watch.
FLAGS_main_address = $(FLAGS_address)
ifneq ($(findstring x86_64,$(shell $(CXX) -dumpmachine)),)
ISAS = baseline avx2 avx512
LEVELS = $(if $(shell grep -m1 avx2 /proc/cpuinfo),avx512 avx2) baseline
else
ISAS = $(if $(findstring aarch64,$(shell $(CXX) -dumpmachine)),neon,baseline)
LEVELS = $(ISAS)
endif
FLAGS_avx2 = -mavx2 -mfma
FLAGS_avx512 = -mavx2 -mfma -DKRU_VECTOR_BYTES=64

sanitize:
	$(MAKE) --no-print-directory -j$(JOBS) $(SANITIZED:=/selftest)
	@set -e; for build in $(SANITIZED); do for level in $(LEVELS); do \
	  echo "$$build, $$level:"; KRU_SIMD=$$level $$build/selftest 140; \
	done; done

# The kernels' self-test and exported C under libFuzzer with AddressSanitizer and UBSan, SECONDS for each of the two; on
# Debian: apt-get install clang libclang-rt-14-dev. What a fuzzer finds is in build/fuzz and fails again by
# `build/fuzz/kernels FILE`.
SECONDS ?= 300
FUZZ = build/fuzz
FLAGS_fuzz = -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
fuzz: setup
	@command -v clang++ > /dev/null || { echo "make fuzz: no clang++ here; on Debian: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
	$(MAKE) --no-print-directory -j$(JOBS) $(FUZZ)/kernels
	@for level in $(LEVELS); do mkdir -p $(FUZZ)/corpus; echo "kernels, $$level:"; \
	  KRU_SIMD=$$level $(FUZZ)/kernels -max_total_time=$$(( $(SECONDS) / $(words $(LEVELS)) )) -max_len=400 -timeout=60 \
	    -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 -artifact_prefix=$(FUZZ)/kernels- $(FUZZ)/corpus || exit 1; done
	$(BIN)/python -m tests.attack.fuzz_models $(FUZZ)/models
	@models=$$(wc -l < $(FUZZ)/models/names); for model in $$(cat $(FUZZ)/models/names); do \
	  here=$(FUZZ)/models/$$model; mkdir -p $$here/corpus; echo "$$model:"; \
	  clang -std=c99 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I$$here \
	    tests/attack/fuzz_export.c $$here/model.c -lm -o $$here/fuzz && \
	  $$here/fuzz -max_total_time=$$(( ($(SECONDS) + models - 1) / models )) -max_len=2000 -rss_limit_mb=2048 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix=$$here/ $$here/corpus || exit 1; done

$(FUZZ)/kernels: $(FUZZ)/fuzz.o $(FUZZ)/dispatch.o $(FUZZ)/threads.o $(ISAS:%=$(FUZZ)/kernels_%.o)
	clang++ -fsanitize=fuzzer,address,undefined -pthread $^ -o $@
$(FUZZ)/fuzz.o: $(SOURCES)
	@mkdir -p $(@D)
	clang++ -std=gnu++17 -O1 -g1 $(FLAGS_fuzz) -c csrc/selftest/fuzz.cpp -o $@
$(FUZZ)/dispatch.o $(FUZZ)/threads.o: $(FUZZ)/%.o: $(SOURCES)
	@mkdir -p $(@D)
	clang++ -std=gnu++17 -O1 -g1 $(FLAGS_fuzz) -DKRU_EVERY_LEVEL -c csrc/$*.cpp -o $@
$(FUZZ)/kernels_%.o: $(SOURCES)
	@mkdir -p $(@D)
	clang++ $(CXXFLAGS_KERNELS) -O0 -g1 $(FLAGS_fuzz) $(FLAGS_$*) -DKRU_ISA=$* -c csrc/kernels.cpp -o $@

define sanitized
$(1)/selftest: $(1)/main.o $(1)/dispatch.o $(1)/threads.o $(ISAS:%=$(1)/kernels_%.o)
	$$(CXX) $$(FLAGS_$$(notdir $(1))) -pthread $$^ -o $$@
$(1)/main.o: $(SOURCES)
	@mkdir -p $$(@D)
	$$(CXX) -std=gnu++17 -O1 -g1 $$(FLAGS_main_$$(notdir $(1))) -c $(SELFTEST) -o $$@
# Every level counts as present: LEVELS has picked those that this machine can run.
$(1)/dispatch.o: $(SOURCES)
	@mkdir -p $$(@D)
	$$(CXX) -std=gnu++17 -g1 $$(FLAGS_$$(notdir $(1))) -DKRU_EVERY_LEVEL -c csrc/dispatch.cpp -o $$@
$(1)/threads.o: $(SOURCES)
	@mkdir -p $$(@D)
	$$(CXX) -std=gnu++17 -g1 $$(FLAGS_$$(notdir $(1))) -c csrc/threads.cpp -o $$@
$(1)/kernels_%.o: $(SOURCES)
	@mkdir -p $$(@D)
	$$(CXX) $(CXXFLAGS_KERNELS) -O0 -g1 $$(FLAGS_$$(notdir $(1))) $$(FLAGS_$$*) -DKRU_ISA=$$* -c csrc/kernels.cpp -o $$@
endef
$(foreach build,$(SANITIZED),$(eval $(call sanitized,$(build))))

# The library and its test for ARM64, under an emulator, on the same cases as on this machine.
ARM64 = aarch64-linux-gnu-g++
QEMU = qemu-aarch64
arm64:
	@for tool in $(ARM64) $(QEMU); do command -v $$tool > /dev/null || { \
	  echo "make arm64: no $$tool here; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }; done
	$(MAKE) --no-print-directory -j$(JOBS) build/arm64/selftest
	$(QEMU) -L /usr/aarch64-linux-gnu build/arm64/selftest 140

build/arm64/libkru.so: $(SOURCES)
	@mkdir -p $(@D)
	$(ARM64) $(CXXFLAGS_KERNELS) -O3 -fPIC -shared -DKRU_ISA=neon csrc/kernels.cpp csrc/dispatch.cpp csrc/threads.cpp -o $@

build/arm64/selftest.o: $(SOURCES)
	@mkdir -p $(@D)
	$(ARM64) -std=gnu++17 -O2 -c $(SELFTEST) -o $@

build/arm64/selftest: build/arm64/selftest.o build/arm64/libkru.so
	$(ARM64) $^ -Wl,-rpath,'$$ORIGIN' -pthread -o $@

# The tools that build wheels, in an environment of their own: the compiler alone is 100 MB.
PACKAGING = build/packaging
$(PACKAGING)/.ready: locks/wheels.txt
	@echo "Installing the cross-compiler into $(PACKAGING): half a minute, once."
	@test -x $(PACKAGING)/bin/python || $(PYTHON) -m venv $(PACKAGING)
	@$(subst $(BIN)/,$(PACKAGING)/bin/,$(LOCKED)) locks/wheels.txt
	@touch $@

# Wheels for Linux, macOS and Windows and the source distribution, in dist/, each checked as far as this machine can.
WHEELS ?=
wheels: $(PACKAGING)/.ready
	@echo "Building and checking five wheels: about ten minutes on two cores."
	@$(PACKAGING)/bin/python packaging/wheels.py $(WHEELS)

# The documentation site, in build/docs/site. The examples of the gallery run only if they have changed.
DOCS = build/docs/site
$(VENV)/.docs: $(VENV)/.demo locks/docs.txt
	@echo "Adding what the documentation needs to $(VENV) (Sphinx, scikit-learn, ...): half a minute, once."
	@$(LOCKED) locks/docs.txt
	@touch $@

docs: $(VENV)/.docs
	@echo "Building the site; the examples of its gallery run the first time: about four minutes on two cores."
	@$(BIN)/python docs/site/build.py $(DOCS)
	@echo "Built: $(DOCS)/index.html"

# The site in Chromium, as a reader with a large screen and one with a phone sees it.
docs-check: docs $(VENV)/.browser
	@$(BIN)/python docs/site/check.py $(DOCS)

# The site on localhost:8000, with the page of examples/browser.
PORT ?= 8000
site: docs page
	@$(BIN)/python docs/site/serve.py $(DOCS) --port $(PORT)

# The wheel of this machine under other versions of Python and torch, as far as they can be had.
COMPAT ?=
compat:
	@echo "Checking the wheel under each Python and torch: about a minute each."
	@$(PYTHON) packaging/compat.py $(COMPAT)

# docs/releasing.md has the checklist.
release: test wheels compat
	@$(BIN)/python packaging/release.py

lock: $(PACKAGING)/.ready
	@$(PACKAGING)/bin/python packaging/lock.py

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache
