/* Where CUDA's host side comes in: what nvcc's host code calls to register its kernels and to launch them. Kernels' PTX is
 * taken from the objects that nvcc made, as the driver would take it (compiled with `--no-compress`, and PTX for each target).
 * Launches run at once, or, after double_take_launches(), in their streams of the double of the runtime.
 *
 *     PTX_TARGET=90       whose PTX is run, as in sm_90
 *     PTX_KERNELS=FILE    gets a line "registered NAME" for every kernel, and "launched NAME" when a process first launches it
 *
 * Takes the place of libcudart for launches, and of tests/cuda/cuhost.cc for tests. */
#include "tests/cuda/double_runtime.h"
#include "tests/ptx/ptx_execute.h"

#include <cuda_runtime_api.h>
#include <fatbinary_section.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace
{

/* ---- what an object has embedded ---- */

struct fat_header {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes; /* of the parts behind */
};

struct part_header {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t packed_bytes, unknown;
    uint16_t minor, major;
    uint32_t target; /* 80 of sm_80 */
    uint32_t name_offset, name_bytes;
};

enum { FAT_MAGIC = 0xba55ed50, PART_PTX = 1 };

/* One object's, opened when one of its kernels is first launched. */
struct binary {
    const unsigned char *data;
    std::unique_ptr<ptx::module> module;
};

struct host_function {
    binary *from;
    const char *name;
    ptx::kernel *kernel;
    bool launched;
};

/* Objects register before main(), and so what they register in is made at the first of them. */
struct registry {
    std::mutex lock;
    std::vector<std::unique_ptr<binary>> binaries;
    std::map<const void *, host_function> functions;
};

registry &all()
{
    static auto *made = new registry;
    return *made;
}

[[noreturn]] void give_up(const char *sentence)
{
    fprintf(stderr, "ptx: %s\n", sentence);
    abort();
}

void note_kernel(const char *what, const char *name)
{
    const char *path = getenv("PTX_KERNELS");
    FILE *file = path && *path ? fopen(path, "a") : nullptr;
    if (!file)
        return;
    fprintf(file, "%s %s\n", what, name);
    fclose(file);
}

unsigned wanted_target()
{
    const char *wanted = getenv("PTX_TARGET");
    return wanted && *wanted ? static_cast<unsigned>(atoi(wanted)) : 90;
}

void open_binary(binary *it)
{
    fat_header fat;
    memcpy(&fat, it->data, sizeof fat);
    if (fat.magic != FAT_MAGIC)
        give_up("what an object has embedded is no fat binary");
    const unsigned char *at = it->data + fat.header_bytes, *end = at + fat.bytes;
    while (at < end) {
        part_header part;
        memcpy(&part, at, sizeof part);
        const char *text = reinterpret_cast<const char *>(at + part.header_bytes);
        if (part.kind == PART_PTX && part.target == wanted_target()) {
            if (part.packed_bytes)
                give_up("embedded PTX is compressed; compile with --no-compress");
            std::string name(reinterpret_cast<const char *>(at) + part.name_offset, part.name_bytes);
            it->module = ptx::open_module(name.c_str(), {text, strnlen(text, part.bytes)});
            return;
        }
        at += part.header_bytes + part.bytes;
    }
    give_up("an object has no PTX for the target; set PTX_TARGET, or compile for it");
}

/* With the lock. */
ptx::kernel *kernel_of(host_function *function)
{
    if (!function->from->module)
        open_binary(function->from);
    if (!function->kernel)
        function->kernel = ptx::find_kernel(function->from->module.get(), function->name);
    return function->kernel;
}

/* ---- streams ---- */

bool streams_take_launches;

void run_work(void *work)
{
    ptx::run_launch(*static_cast<ptx::launch *>(work));
}

void discard_work(void *work)
{
    delete static_cast<ptx::launch *>(work);
}

/* What of the launch's parameters may be an address is one that the kernel may write to. */
void submit(cudaStream_t stream, const char *name, ptx::launch *work)
{
    std::vector<order_access> accesses;
    const std::vector<unsigned char> &parameters = work->parameters;
    for (size_t at = 0; at + sizeof(void *) <= parameters.size(); at += sizeof(void *)) {
        void *word;
        memcpy(&word, parameters.data() + at, sizeof word);
        accesses.push_back({word, 0, true, name});
    }
    double_submit(stream, accesses.data(), static_cast<int>(accesses.size()), run_work, discard_work, work);
}

} // namespace

extern "C" void cuhost_set_order(enum cuhost_order order)
{
    ptx::set_order(order);
}

extern "C" void double_take_launches(void)
{
    streams_take_launches = true;
}

/* ---- what nvcc's host code calls ---- */

extern "C" {

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit,
                            uint3 *, uint3 *, dim3 *, dim3 *, int *);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream);
}

void **__cudaRegisterFatBinary(void *wrapper)
{
    const auto *wrapped = static_cast<const __fatBinC_Wrapper_t *>(wrapper);
    std::lock_guard<std::mutex> hold(all().lock);
    if (wrapped->magic != FATBINC_MAGIC)
        give_up("an object registers no fat binary");
    all().binaries.push_back(std::make_unique<binary>());
    all().binaries.back()->data = reinterpret_cast<const unsigned char *>(wrapped->data);
    return reinterpret_cast<void **>(all().binaries.back().get());
}

void __cudaRegisterFatBinaryEnd(void **)
{
}

void __cudaUnregisterFatBinary(void **)
{
}

void __cudaRegisterFunction(void **handle, const char *host, char *, const char *name, int, uint3 *, uint3 *,
                            dim3 *, dim3 *, int *)
{
    std::lock_guard<std::mutex> hold(all().lock);
    note_kernel("registered", name);
    all().functions[host] = {reinterpret_cast<binary *>(handle), name, nullptr, false};
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    auto found = all().functions.find(host);
    if (found == all().functions.end())
        return cudaErrorInvalidDeviceFunction;
    *kernel = reinterpret_cast<cudaKernel_t>(&found->second);
    return cudaSuccess;
}

struct call_configuration {
    dim3 grid, block;
    size_t shared;
    void *stream;
};
static thread_local call_configuration configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
    configuration = {grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *static_cast<void **>(stream) = configuration.stream;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream)
{
    auto *function = reinterpret_cast<host_function *>(handle);
    auto work = std::make_unique<ptx::launch>();
    {
        std::lock_guard<std::mutex> hold(all().lock);
        if (!function->launched)
            note_kernel("launched", function->name);
        function->launched = true;
        *work = ptx::make_launch(kernel_of(function), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                                 shared, arguments);
    }
    if (streams_take_launches)
        submit(stream, function->name, work.release());
    else
        ptx::run_launch(*work);
    return cudaSuccess;
}

/* Static and dynamic shared memory of a block together: 163 KiB on sm_80, 227 on sm_90. */
cudaError_t cudaFuncSetAttribute(const void *host, cudaFuncAttribute attribute, int value)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto found = all().functions.find(host);
    if (found == all().functions.end())
        return cudaErrorInvalidDeviceFunction;
    ptx::kernel *kernel = kernel_of(&found->second);
    const int64_t most = (wanted_target() >= 90 ? 227 : 163) << 10;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value + kernel->shared_bytes > most)
        return cudaErrorInvalidValue;
    kernel->dynamic_limit = static_cast<size_t>(value);
    return cudaSuccess;
}
