# memplan. `make help` lists the targets.
CC      ?= gcc
BUILD   ?= build
OPT     ?= -O2
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
CFLAGS  += -std=c11 -D_GNU_SOURCE -g $(OPT) $(WARN) -fopenmp -MMD -MP -I. $(SANITIZE)
LDFLAGS += -fopenmp $(SANITIZE)
LDLIBS  += -lsqlite3 -ljansson -ldnnl -lm -lpthread

FOLDERS := base model device kernels/reference kernels/cpu comm trainer profiler planner reports
LIB_SRC := $(wildcard $(addsuffix /*.c,$(FOLDERS)))
CLI_SRC := $(wildcard cli/*.c)
TEST_SRC := $(wildcard tests/*.c tests/*/*.c)
obj      = $(patsubst %.c,$(BUILD)/%.o,$(1))

all: $(BUILD)/memplan

$(BUILD)/libmemplan.a: $(call obj,$(LIB_SRC))
	@rm -f $@; ar rcs $@ $^

$(BUILD)/memplan: $(call obj,$(CLI_SRC)) $(BUILD)/libmemplan.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/run-tests: $(call obj,$(TEST_SRC)) $(BUILD)/libmemplan.a
	$(CC) $(LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LDLIBS)

# The fast kernels are built for the machine at hand; everything else runs anywhere.
$(BUILD)/kernels/cpu/%.o: OPT = -O3 -march=native -ffast-math -fno-finite-math-only

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c -o $@ $<

test: $(BUILD)/run-tests
	$<

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all test
