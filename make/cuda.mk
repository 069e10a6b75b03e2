# The CUDA kernels, in two ways: by nvcc for GPUs, and by the C++ compiler behind tests/cuda/cuhost.h for tests on the host.
# Included by the Makefile, whose settings and rules it uses.

NVCC      ?= $(or $(wildcard $(CUDA_HOME)/bin/nvcc),$(shell command -v nvcc))
# One architecture is enough while a kernel is written: make cuda CUDA_CODE="-arch=sm_90"
CUDA_CODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
CXX       ?= g++

CUDA_SRC     := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_HEADERS := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime.h),-isystem $(CUDA_HOME)/include)
CUDA_COMPILE  = $(NVCC) -std=c++17 -O3 -lineinfo -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra -Xptxas -v $(CUDA_CODE) -I.

# ---- for GPUs ----

## cuda: the CUDA kernels by nvcc, for sm_80, sm_90 and newer; skipped where there is no nvcc
cuda: $(if $(NVCC),$(CUDA_SRC:%.cu=$(BUILD)/cuda/%.o))
	$(if $(NVCC),@make/check_spills.sh $(CUDA_SRC:%.cu=$(BUILD)/cuda/%.log),@echo "skip  cuda: no nvcc on the PATH or in $(CUDA_HOME)/bin; install the CUDA toolkit or set CUDA_HOME")

# What ptxas says of registers and spills goes to a log of its own.
$(BUILD)/cuda/%.o: %.cu $(BUILD)/cuda.stamp
	@mkdir -p $(@D) && echo "NVCC $<"
	$(Q)$(CUDA_COMPILE) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< 2> $(@:.o=.log) || { cat $(@:.o=.log) >&2; exit 1; }

$(BUILD)/cuda.stamp: TEXT = $(CUDA_COMPILE)

# ---- for tests on the host ----

# The thread sanitizer cannot follow fibers: with it their code is left as it is.
EMULATE  = $(CXX) -std=c++17 -D_GNU_SOURCE -g $(OPT) -Wall -Wextra $(WERROR) -fopenmp -fPIC -I. $(CUDA_HEADERS) $(filter-out -fsanitize=thread,$(SANITIZE))
EMULATED_SRC := $(CUDA_SRC) $(sort $(wildcard tests/cuda/*.cc))
EMULATED_OBJ := $(EMULATED_SRC:%=$(BUILD)/emulated/%.o)
CUDA_TEST_OBJ := $(call obj,tests/main.c $(sort $(wildcard tests/cuda/*.c kernels/cuda/*.c)))
CUDA_TESTS := $(if $(CUDA_HEADERS),$(BUILD)/run-cuda-tests)

## check-cuda-emulated: the CUDA kernels on the host, against the reference; skipped without CUDA's headers
check-cuda-emulated: $(CUDA_TESTS)
	$(if $(CUDA_TESTS),@OMP_WAIT_POLICY=passive $< $(if $(QUICK),--quick) --jobs $(TEST_JOBS) $(FILTER),@echo "skip  check-cuda-emulated: no CUDA headers in $(CUDA_HOME)/include; set CUDA_HOME" && echo "0 passed, 0 failed, 1 skipped")

$(BUILD)/run-cuda-tests: $(CUDA_TEST_OBJ) $(EMULATED_OBJ) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(CXX) -fopenmp $(SANITIZE) $(LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LDLIBS)

$(BUILD)/emulated/%.cu.o: %.cu $(BUILD)/emulated.stamp
	@mkdir -p $(@D) && echo "CXX  $< (emulated)"
	$(Q)$(EMULATE) -include tests/cuda/cuhost.h -x c++ -MMD -MP -c -o $@ $<

$(BUILD)/emulated/%.cc.o: %.cc $(BUILD)/emulated.stamp
	@mkdir -p $(@D) && echo "CXX  $<"
	$(Q)$(EMULATE) -MMD -MP -c -o $@ $<

$(BUILD)/emulated.stamp: TEXT = $(EMULATE)

-include $(CUDA_SRC:%.cu=$(BUILD)/cuda/%.d) $(EMULATED_OBJ:.o=.d) $(CUDA_TEST_OBJ:.o=.d)

.PHONY: cuda check-cuda-emulated
