# The CUDA back end, in three ways: libmemplan_cuda.so for GPUs, its kernels by nvcc; libmemplan_cuda_emulated.so for tests
# on the host, where the kernels are compiled behind tests/cuda/cuhost.h and doubles stand in for CUDA's libraries; and
# libmemplan_cuda_ptx.so, the same with the PTX that nvcc makes of the kernels, interpreted (tests/ptx).
# Included by the Makefile, whose settings and rules it uses.

NVCC      ?= $(or $(wildcard $(CUDA_HOME)/bin/nvcc),$(shell command -v nvcc))
# One architecture is enough while a kernel is written: make cuda CUDA_CODE="-arch=sm_90"
CUDA_CODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
CXX       ?= g++
# Where NCCL is, when neither the toolkit nor the system has it: the folder with its include and lib.
NCCL_HOME ?=
export NCCL_HOME NVCC

CUDA_KERNELS := $(sort $(wildcard kernels/cuda/*.cu))
# What is missing to compile against NVIDIA's headers, in one sentence; empty: nothing.
CUDA_LACKS   := $(shell CUDA_HOME='$(CUDA_HOME)' NCCL_HOME='$(NCCL_HOME)' make/cuda_lacks.sh headers)
# CUPTI's are among the others, or in a folder of their own.
CUDA_HEADERS := $(if $(CUDA_LACKS),,-isystem $(CUDA_HOME)/include -isystem $(CUDA_HOME)/extras/CUPTI/include $(NCCL_HOME:%=-isystem %/include))
# Where the libraries are found again when they run: NVIDIA's, and CUPTI, which is opened by its name.
CUDA_LINK    := -L$(CUDA_HOME)/lib64 $(NCCL_HOME:%=-L%/lib -Wl,-rpath,%/lib) -Wl,-rpath,$(CUDA_HOME)/lib64:$(CUDA_HOME)/extras/CUPTI/lib64
CUDA_COMPILE  = $(NVCC) -std=c++17 -O3 -lineinfo -Werror all-warnings -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Xptxas -v $(CUDA_CODE) -I.

# What of the program's own the library has a copy of.
CUDA_COPIES  := $(wildcard base/*.c) device/device.c device/blocks.c device/placements.c comm/comm.c comm/family.c comm/cursor.c
CUDA_PIC     := $(CUDA_C:%.c=$(BUILD)/pic/%.o) $(filter-out %/json.o %/options.o %/manual.o,$(CUDA_COPIES:%.c=$(BUILD)/pic/%.o))

# ---- for GPUs ----

## cuda: the CUDA back end, for sm_80, sm_90 and newer; skipped where there is no nvcc
cuda: $(if $(NVCC),$(BUILD)/libmemplan_cuda.so)
	$(if $(NVCC),@make/check_spills.sh $(CUDA_KERNELS:%.cu=$(BUILD)/cuda/%.log) && make/check_sass.sh $(CUDA_KERNELS:%.cu=$(BUILD)/cuda/%.o) || { echo "cuda: $< is built and can be used; with this compiler and architecture the kernels named above are slower than they should be" >&2; exit 1; },@echo "skip  cuda: no nvcc on the PATH or in $(CUDA_HOME)/bin; install the CUDA toolkit or set CUDA_HOME")

# Says nothing of its own symbols to the program, which has some of the same objects.
$(BUILD)/libmemplan_cuda.so: $(CUDA_KERNELS:%.cu=$(BUILD)/cuda/%.o) $(CUDA_PIC)
	@echo "LINK $@"
	$(Q)$(CXX) $(LDFLAGS) -shared -Wl,-z,defs -o $@ $^ $(CUDA_LINK) -lcublasLt -lnccl -lcudart -lpthread -lm

# Stops a build that cannot work with one sentence, before minutes of compiling.
$(BUILD)/cuda.found:
	@lacks=$$(make/cuda_lacks.sh all); [ -z "$$lacks" ] || { echo "cuda: $$lacks" >&2; exit 1; }
	@mkdir -p $(@D) && touch $@

$(BUILD)/pic/%.o: %.c $(BUILD)/flags.stamp | $(if $(filter cuda gpu-tests,$(MAKECMDGOALS)),$(BUILD)/cuda.found)
	@mkdir -p $(@D) && echo "CC   $< (CUDA)"
	$(Q)$(COMPILE) $(CUDA_HEADERS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

# What ptxas says of registers and spills goes to a log of its own.
$(BUILD)/cuda/%.o: %.cu $(BUILD)/cuda.stamp | $(BUILD)/cuda.found
	@mkdir -p $(@D) && echo "NVCC $<"
	$(Q)$(CUDA_COMPILE) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< 2> $(@:.o=.log) || { cat $(@:.o=.log) >&2; exit 1; }

$(BUILD)/cuda.stamp: TEXT = $(CUDA_COMPILE)

# ---- tests on a GPU ----

# Tests of tests/cuda that ask for nothing which only doubles have (tests/cuda/machine.h), with NVIDIA's own libraries.
GPU_TEST_SRC := tests/main.c $(addprefix tests/cuda/,machine.c test_cuda_attention.c test_cuda_device.c test_cuda_kernels.c test_cuda_matmul.c) tests/cuda/gpu/machine_gpu.c
GPU_TEST_OBJ := $(call obj,$(GPU_TEST_SRC) $(wildcard device/device_cuda*.c kernels/cuda/*.c))

## gpu-tests: the tests that check-gpu runs on a GPU; building them takes nvcc, and no GPU
gpu-tests: $(if $(NVCC),$(BUILD)/run-gpu-tests)

$(BUILD)/run-gpu-tests: $(GPU_TEST_OBJ) $(CUDA_KERNELS:%.cu=$(BUILD)/cuda/%.o) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(CXX) -fopenmp $(LDFLAGS) -o $@ $^ $(CUDA_LINK) -lcublasLt -lcudart -lcheck -lsubunit -lrt $(LDLIBS)

## check-gpu: all that only a GPU shows, in six minutes, into bench/results; skipped with a reason where there is none
# It builds what it needs by itself. EMULATED=1: the same script over the doubles, with tiny models, to see that it runs.
check-gpu: $(if $(EMULATED),$(if $(CUDA_HEADERS),$(BUILD)/memplan $(BUILD)/libmemplan_cuda_emulated.so $(BUILD)/run-cuda-tests))
	$(if $(shell command -v python3),@BUILD=$(BUILD) tests/cuda/check_gpu.py,@echo "skip  check-gpu: no python3 on the PATH" && echo "0 passed, 0 failed, 1 skipped")

# ---- for tests on the host ----

# The thread sanitizer cannot follow fibers: with it their code is left as it is. The address sanitizer would give each of them
# megabytes of its own to find uses after return, which makes tests of seconds take minutes.
EMULATE  = $(CXX) -std=c++17 -D_GNU_SOURCE -g $(OPT) -Wall -Wextra -Wno-unknown-pragmas $(WERROR) -fopenmp -fPIC -fvisibility=hidden -I. $(CUDA_HEADERS) $(filter-out -fsanitize=thread,$(SANITIZE)) \
	$(if $(findstring =address,$(SANITIZE)),--param asan-use-after-return=0)
EMULATED_SRC := $(CUDA_KERNELS) $(sort $(wildcard tests/cuda/*.cc))
EMULATED_OBJ := $(EMULATED_SRC:%=$(BUILD)/emulated/%.o)
CUDA_TEST_OBJ := $(call obj,tests/main.c $(sort $(wildcard tests/cuda/*.c)) $(CUDA_C))
CUDA_DOUBLES  := $(patsubst %.c,$(BUILD)/pic/%.o,$(wildcard tests/cuda/double_*.c))
CUDA_SCRIPTS  := $(filter check-cuda_%,$(SCRIPT_CHECKS))
CUDA_TESTS := $(if $(CUDA_HEADERS),$(BUILD)/run-cuda-tests)

## check-cuda-emulated: the CUDA back end on the host, kernels and training; skipped without CUDA's headers
# Under a sanitizer without the scripts: the driver would be called by its library, Open MPI keeps memory, and ranks take minutes.
check-cuda-emulated: $(CUDA_TESTS)
	$(if $(CUDA_TESTS),+@OMP_WAIT_POLICY=passive make/tally.sh "$< $(if $(QUICK),--quick) --jobs $(TEST_JOBS) $(FILTER)" $(if $(SANITIZE),,$(CUDA_SCRIPTS:%="$(MAKE) %")) "$(MAKE) check-gpu EMULATED=1",@echo "skip  check-cuda-emulated: $(CUDA_LACKS)" && echo "0 passed, 0 failed, 1 skipped")

$(BUILD)/libmemplan_cuda_emulated.so: $(filter-out $(BUILD)/emulated/tests/cuda/test_%,$(EMULATED_OBJ)) $(CUDA_PIC) $(CUDA_DOUBLES)
	@echo "LINK $@"
	$(Q)$(CXX) -fopenmp $(SANITIZE) $(LDFLAGS) -shared $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -o $@ $^ -lpthread -lm

$(CUDA_SCRIPTS): $(if $(CUDA_HEADERS),$(BUILD)/libmemplan_cuda_emulated.so)
check-cuda_processes: $(MPI_LIB)

$(sort $(CUDA_TEST_OBJ) $(GPU_TEST_OBJ)): private COMPILE += $(CUDA_HEADERS)

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

# ---- nvcc's PTX, interpreted ----

# As it is for GPUs, but PTX for both architectures, which the interpreter can read; and no assembling, so it is quick.
PTX_NVCC = $(NVCC) -std=c++17 -O3 -lineinfo -Werror all-warnings -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra --no-compress \
	-gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=compute_90 -I.
# Every operation's own rounding counts: nothing contracted, nothing fast.
PTX_CXX  = $(CXX) -std=c++17 -D_GNU_SOURCE -g -O3 -march=native -ffp-contract=off -Wall -Wextra $(WERROR) -fPIC -I. $(CUDA_HEADERS) $(SANITIZE)
PTX_KERNELS  := $(CUDA_KERNELS:%.cu=$(BUILD)/ptx/%.cu.o)
PTX_OBJ      := $(patsubst %.cc,$(BUILD)/ptx/%.cc.o,$(wildcard tests/ptx/ptx_*.cc))
PTX_TEST_OBJ := $(patsubst %.cc,$(BUILD)/ptx/%.cc.o,$(wildcard tests/ptx/test_*.cc)) \
	$(call obj,$(filter-out %/gpu/machine_gpu.c,$(GPU_TEST_SRC)) $(wildcard tests/cuda/double_*.c tests/ptx/*.c) $(CUDA_C))
PTX_TESTS    := $(if $(and $(NVCC),$(CUDA_HEADERS)),$(BUILD)/run-ptx-tests $(BUILD)/libmemplan_cuda_ptx.so)

## check-ptx: the PTX that nvcc makes of every kernel, interpreted and compared; skipped where there is no nvcc
check-ptx: $(PTX_TESTS)

$(BUILD)/run-ptx-tests: $(PTX_TEST_OBJ) $(PTX_OBJ) $(PTX_KERNELS) $(BUILD)/libmemplan.a
	@echo "LINK $@"
	$(Q)$(CXX) -fopenmp $(SANITIZE) $(LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LDLIBS)

$(BUILD)/libmemplan_cuda_ptx.so: $(PTX_OBJ) $(PTX_KERNELS) $(BUILD)/pic/tests/ptx/ptx_doubles.o $(CUDA_PIC) $(CUDA_DOUBLES)
	@echo "LINK $@"
	$(Q)$(CXX) -fopenmp $(SANITIZE) $(LDFLAGS) -shared $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -o $@ $^ -lpthread -lm

$(BUILD)/ptx/%.cu.o: %.cu $(BUILD)/ptx.stamp
	@mkdir -p $(@D) && echo "NVCC $< (PTX)"
	$(Q)$(PTX_NVCC) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(BUILD)/ptx/%.cc.o: %.cc $(BUILD)/ptx.stamp $(BUILD)/native.stamp
	@mkdir -p $(@D) && echo "CXX  $<"
	$(Q)$(PTX_CXX) -MMD -MP -c -o $@ $<

$(BUILD)/ptx.stamp: TEXT = $(PTX_NVCC) $(PTX_CXX)

$(call obj,$(wildcard tests/ptx/*.c)): private COMPILE += $(CUDA_HEADERS)

comma := ,

-include $(CUDA_PIC:.o=.d) $(CUDA_DOUBLES:.o=.d) $(CUDA_KERNELS:%.cu=$(BUILD)/cuda/%.d) $(EMULATED_OBJ:.o=.d) $(CUDA_TEST_OBJ:.o=.d) $(GPU_TEST_OBJ:.o=.d) \
	$(PTX_TEST_OBJ:.o=.d) $(PTX_OBJ:.o=.d) $(PTX_KERNELS:.o=.d)

.PHONY: cuda gpu-tests check-cuda-emulated check-gpu
