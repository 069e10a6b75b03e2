# memplan. `make help` lists the targets, `make config` says what was found on this machine.

# Settings: on the command line (`make CC=clang`) or in the environment.
ifeq ($(origin CC),default)
CC = gcc
endif
BUILD     ?= build
OPT       ?= -O2
# Empty for a compiler that warns of more than ours: make WERROR=
WERROR    ?= -Werror
SANITIZE  ?=
CFLAGS    ?=
LDFLAGS   ?=
PREFIX    ?= /usr/local
DESTDIR   ?=
CUDA_HOME ?= /usr/local/cuda
JOBS      ?= $(shell nproc)
# Tests at a time: few, because most of them use every core by themselves.
TEST_JOBS ?= $(if $(filter 1,$(JOBS)),1,2)
# Tests: those whose file or name contains FILTER; QUICK=1 leaves out the slow ones.
FILTER    ?=
QUICK     ?=
# V=1 shows whole commands.
V         ?=

# The fast kernels are built for the machine at hand; everything else runs anywhere.
NATIVE   := -O3 -march=native -ffast-math -fno-finite-math-only
# The sanitizers' own checks for NULL make gcc believe in formats that are NULL.
NOISE    := -Wno-format-truncation -Wno-format-overflow
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR) $(if $(SANITIZE),$(NOISE))
COMPILE  := $(CC) -std=c11 -D_GNU_SOURCE -g $(OPT) $(WARN) -fopenmp -I. $(SANITIZE) $(CFLAGS)
LINK     := $(CC) -fopenmp $(SANITIZE) $(LDFLAGS)
LDLIBS   := -lsqlite3 -ljansson -ldnnl -lm -lpthread -ldl

FOLDERS  := base model device kernels/reference kernels/cpu comm trainer profiler planner planner/frameworks jobs reports
# The MPI transport is a library of its own, opened by the program where mpirun started it.
MPI_SRC  := comm/comm_mpi.c comm/mpi_carry.c comm/mpi_notices.c comm/exchange.c comm/family.c comm/reduce.c comm/cursor.c base/arena.c base/error.c
MPI_LIB  := $(if $(and $(wildcard comm/comm_mpi.c),$(shell command -v mpicc)),$(BUILD)/libmemplan_mpi.so)
# What needs CUDA is in a library of its own too (make/cuda.mk).
CUDA_C   := cli/cuda_exports.c $(sort $(wildcard device/device_cuda*.c kernels/cuda/*.c comm/comm_nccl*.c profiler/cupti*.c))
LIB_SRC  := $(sort $(filter-out comm/comm_mpi.c comm/mpi_%.c $(CUDA_C),$(wildcard $(addsuffix /*.c,$(FOLDERS)))))
PAGE_PARTS := $(sort $(wildcard reports/html/*))
PAGE_OBJ := $(if $(PAGE_PARTS),$(BUILD)/reports/html_assets.o)
CLI_SRC  := $(sort $(filter-out $(CUDA_C),$(wildcard cli/*.c)))
# One rank of what check-mpi runs, a program of its own.
LAUNCHED := tests/comm/launched_ranks
TEST_SRC := $(sort $(filter-out tests/torch/% tests/cuda/% tests/ptx/% $(LAUNCHED).c,$(wildcard tests/*.c tests/*/*.c)))
# What check-torch compares with PyTorch is made by a program of its own.
DUMP_STEP := tests/torch/dump_step
SCORE_SRC := $(sort $(wildcard bench/score/*.c))
# Measured cases that `make score` holds predictions against.
CASES    ?= ../shared/cases
BENCHES  := $(patsubst bench/%.c,%,$(sort $(wildcard bench/*.c)))
ALL_C    := $(sort $(filter-out $(BUILD)% build%,$(wildcard */*.c */*/*.c)))
SCRIPTS  := $(wildcard .ci/run make/*.sh examples/*.sh examples/*.sbatch tests/*/*.sh)
# tests/FOLDER/check_NAME.sh is `make check-NAME`.
SCRIPT_CHECKS := $(patsubst check_%.sh,check-%,$(notdir $(wildcard tests/*/check_*.sh)))
# Those of CUDA are part of check-cuda-emulated.
CHECKS   := check-layers check-unused check-format check-shell $(filter-out check-cuda_%,$(SCRIPT_CHECKS)) check-cuda-emulated
obj       = $(patsubst %.c,$(BUILD)/%.o,$(1))

# Parallel, except that `make clean all` must clean first.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += $(if $(filter clean,$(MAKECMDGOALS)),,-j$(JOBS)) --no-print-directory
endif
Q := $(if $(V),,@)
export CC CUDA_HOME

## all: build/memplan, and the MPI transport where there is MPI (what plain `make` does)
all: $(BUILD)/memplan $(MPI_LIB)

## programs: everything that is compiled: memplan, the tests and the benchmarks
programs: $(BUILD)/memplan $(BUILD)/run-tests $(BUILD)/$(DUMP_STEP) $(BUILD)/$(LAUNCHED) $(MPI_LIB) $(BENCHES:%=$(BUILD)/bench/%) $(BUILD)/bench/score/score

## help: this list
help:
	@echo "memplan: make TARGET [SETTING=value]; settings are the first lines of the Makefile"
	@awk -F ': ' '/^## / { sub("^## ", ""); printf "  %-14s %s\n", $$1, substr($$0, length($$1) + 3) }' Makefile make/cuda.mk

## config: what a build finds here, and the one command that installs the rest
config:
	@make/config.sh

## deps: install the Debian packages that building and testing need; nothing when they are there
deps:
	@make/deps.sh build test

## deps-torch: install PyTorch, which only `make check-torch` needs
deps-torch: deps
	@make/deps.sh torch

## deps-html: install Chromium, which only `make check-html` needs
deps-html: deps
	@make/deps.sh html

## check: everything that must pass: deps, build, tests, layers, format and every other check-*
check:
	+@TORCH_DEPS= HTML_DEPS= make/tally.sh "$(MAKE) deps" "$(MAKE) programs" "$(MAKE) test" $(CHECKS:%="$(MAKE) %")

## test: the unit tests; FILTER=arena runs some of them, QUICK=1 leaves out the slow ones
test: $(BUILD)/run-tests $(BUILD)/memplan
	@MEMPLAN=$(abspath $(BUILD)/memplan) OMP_WAIT_POLICY=passive $(RUN_WITH) $< $(if $(QUICK),--quick) --jobs $(TEST_JOBS) $(FILTER)

## asan: the tests under the address sanitizer, leaks included
asan: SANITIZER = address
asan: export ASAN_OPTIONS = detect_leaks=1:detect_stack_use_after_return=1
asan: export LSAN_OPTIONS = suppressions=$(CURDIR)/make/lsan.supp:print_suppressions=0

## ubsan: the tests under the undefined-behaviour sanitizer
ubsan: SANITIZER = undefined -fno-sanitize-recover=all
ubsan: export UBSAN_OPTIONS = print_stacktrace=1

## tsan: the tests under the thread sanitizer
tsan: SANITIZER = thread
tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/make/tsan.supp:ignore_noninstrumented_modules=1:history_size=7

asan ubsan tsan:
	+@$(MAKE) test $(if $(filter tsan,$@),,check-cuda-emulated) BUILD=$(BUILD)-$@ OPT=-O1 SANITIZE="-fsanitize=$(SANITIZER) -fno-omit-frame-pointer" \
		RUN_WITH="$(if $(filter tsan,$@),setarch -R)"

## bench: build every benchmark and run the main one; `make bench-gemm` runs another
bench: $(BENCHES:%=$(BUILD)/bench/%)
	$(if $(filter bench_train,$(BENCHES)),$(BUILD)/bench/bench_train,@echo "bench: built $(BENCHES); bench/bench_train.c is missing")

bench-%: $(BUILD)/bench/bench_%
	$<

## score: predictions against jobs that others measured, CASES=FOLDER (../shared/cases); writes score.json
score: $(BUILD)/bench/score/score
	$< $(CASES) score.json

## check-layers: the includes of every file against the table of docs/design.md
check-layers:
	@make/check_layers.sh

## check-unused: functions of the headers that nothing but tests uses
check-unused:
	@make/check_unused.sh

## check-format: is every .c file as clang-format writes it?
check-format:
	@make/check_format.sh $(ALL_C)

## check-shell: the shell scripts, read by shellcheck
check-shell:
	@make/check_shell.sh $(SCRIPTS)

## check-torch: compare the kernels and the trainer with PyTorch
# `make check` empties this: it compares where PyTorch is installed, and says so where it is not.
TORCH_DEPS ?= deps-torch
check-torch: $(TORCH_DEPS) $(BUILD)/$(DUMP_STEP)

## check-html: report pages in a headless browser; pictures of them in BUILD/pages
HTML_DEPS ?= deps-html
check-html: $(HTML_DEPS)

## check-mpi: ranks as processes under mpirun; skipped where there is no MPI
check-mpi: $(BUILD)/$(LAUNCHED) $(MPI_LIB)

## check-mpirun: training under mpirun, with and (check-mpirun_failures) without luck; skipped likewise
check-mpirun check-mpirun_failures: $(MPI_LIB)

## check-install: an installation in a scratch folder finds its libraries, pages and completion
check-install: $(MPI_LIB) man

## check-docs: every command of README.md and the pages in docs/, run and compared with what the page shows
## check-figures: every figure of an answer, in every format, against its JSON
## check-watch: live views and progress bars on pseudo terminals
check-watch: $(MPI_LIB)

## check-stop: training runs that get SIGINT or SIGTERM
## check-fuzz: the parsers of launches under libFuzzer, FUZZ_SECONDS=3 each; skipped without clang
## check-make: the tests of the build's own scripts
$(SCRIPT_CHECKS):
	@BUILD=$(BUILD) MEMPLAN=$(abspath $(BUILD)/memplan) make/run_check.sh $(@:check-%=%)
$(filter-out check-make,$(SCRIPT_CHECKS)): $(BUILD)/memplan

include make/cuda.mk

## format: rewrite the .c files with clang-format
format:
	clang-format -i $(ALL_C)

## demo: install, build and see it work, in under four minutes
demo:
	+@$(MAKE) deps
	+@$(MAKE) all
	@MEMPLAN=$(abspath $(BUILD)/memplan) examples/demo.sh

## gallery: draw the pictures of docs/gallery.md anew
gallery: $(BUILD)/memplan
	@MEMPLAN=$< make/gallery.sh

## man: man pages and bash completion in BUILD/man
man: $(BUILD)/man/memplan.1

$(BUILD)/man/memplan.1: $(BUILD)/memplan make/manuals.sh
	$(Q)make/manuals.sh $< $(@D)

## install: the program, its libraries, man pages, completion and docs to DESTDIR and PREFIX (/usr/local)
install: $(BUILD)/memplan $(MPI_LIB) man
	@make/install.sh install $(BUILD) $(DESTDIR)$(PREFIX)

## uninstall: take them away again
uninstall:
	@make/install.sh uninstall $(BUILD) $(DESTDIR)$(PREFIX)

## clean: remove everything that was built
clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-ubsan $(BUILD)-tsan

# How files are made. A stamp changes when its text does, and then what depends on it is rebuilt: other flags, another
# processor, another list of sources.
$(BUILD)/flags.stamp:   TEXT = $(COMPILE)
$(BUILD)/native.stamp:  TEXT = $(NATIVE) $(shell $(CC) -march=native -Q --help=target 2>/dev/null | cksum)
$(BUILD)/sources.stamp: TEXT = $(LINK) $(LIB_SRC) $(CLI_SRC) $(TEST_SRC)
$(BUILD)/%.stamp: FORCE
	@make/stamp.sh $@ '$(TEXT)'

# Packages that the same command line installs come first.
$(BUILD)/libraries.found: | $(filter deps deps-torch,$(MAKECMDGOALS:check-torch=$(TORCH_DEPS)))
	@make/libraries.sh && mkdir -p $(@D) && touch $@

$(BUILD)/%.o: %.c $(BUILD)/flags.stamp | $(BUILD)/libraries.found
	@mkdir -p $(@D) && echo "CC   $<"
	$(Q)$(COMPILE) -MMD -MP -c -o $@ $<

$(BUILD)/kernels/cpu/%.o: kernels/cpu/%.c $(BUILD)/flags.stamp $(BUILD)/native.stamp | $(BUILD)/libraries.found
	@mkdir -p $(@D) && echo "CC   $<"
	$(Q)$(COMPILE) $(NATIVE) -MMD -MP -c -o $@ $<

# The style sheets and the script of HTML reports, as strings.
$(BUILD)/reports/html_assets.c: reports/html_assets.h $(PAGE_PARTS) make/embed.sh
	@mkdir -p $(@D) && echo "EMBED $@"
	$(Q)make/embed.sh reports/html_assets.h $(PAGE_PARTS) > $@

$(BUILD)/reports/html_assets.o: $(BUILD)/reports/html_assets.c $(BUILD)/flags.stamp
	$(Q)$(COMPILE) -c -o $@ $<

$(BUILD)/libmemplan.a: $(call obj,$(LIB_SRC)) $(PAGE_OBJ) $(BUILD)/sources.stamp
	@rm -f $@ && echo "AR   $@"
	$(Q)ar rcsD $@ $(filter %.o,$^)

# Says nothing of its own symbols to the program, which has some of the same objects.
$(BUILD)/libmemplan_mpi.so: $(MPI_SRC:%.c=$(BUILD)/mpi/%.o)
	@echo "LINK $@"
	$(Q)OMPI_CC="$(CC)" mpicc -fopenmp $(SANITIZE) $(LDFLAGS) -shared -o $@ $^ -lpthread

$(BUILD)/mpi/%.o: %.c $(BUILD)/flags.stamp
	@mkdir -p $(@D) && echo "CC   $< (MPI)"
	$(Q)OMPI_CC="$(CC)" mpicc $(COMPILE:$(CC)%=%) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/memplan: $(call obj,$(CLI_SRC)) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)

$(BUILD)/run-tests: $(call obj,$(TEST_SRC)) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(LINK) -o $@ $^ -lcheck -lsubunit -lrt $(LDLIBS)

$(BENCHES:%=$(BUILD)/bench/%) $(BUILD)/$(DUMP_STEP) $(BUILD)/$(LAUNCHED): %: %.o $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(LINK) -o $@ $^ $(BENCH_LIBS) $(LDLIBS)
$(BUILD)/bench/score/score: $(call obj,$(SCORE_SRC)) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(LINK) -o $@ $^ $(LDLIBS)
$(BUILD)/bench/bench_gemm: private BENCH_LIBS = -lopenblas

-include $(patsubst %.o,%.d,$(call obj,$(LIB_SRC) $(CLI_SRC) $(TEST_SRC) $(SCORE_SRC)) $(BENCHES:%=$(BUILD)/bench/%.o) $(BUILD)/$(DUMP_STEP).o $(BUILD)/$(LAUNCHED).o $(MPI_SRC:%.c=$(BUILD)/mpi/%.o))

.PHONY: all programs score help config deps deps-torch check test asan ubsan tsan bench demo gallery format man install uninstall clean FORCE
.PHONY: $(CHECKS) check-torch
.SECONDARY:
.DELETE_ON_ERROR:
