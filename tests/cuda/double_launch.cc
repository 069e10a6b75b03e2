/* Kernels that are launched by emulation (cuhost.h) go to the streams of the CUDA double, so that they are captured, done
 * again, and their order checked. */
#include "tests/cuda/cuhost.h"

#include "tests/cuda/double_runtime.h"

using work_function = std::function<void()>;

static void run_work(void *work)
{
    (*static_cast<work_function *>(work))();
}

static void discard_work(void *work)
{
    delete static_cast<work_function *>(work);
}

static void submit(void *stream, const char *kernel, work_function work)
{
    std::vector<order_access> accesses;
    for (const cuhost::memory_use &use : cuhost::launch_uses())
        accesses.push_back({use.start, 0, use.writes, kernel});
    double_submit(static_cast<cudaStream_t>(stream), accesses.data(), static_cast<int>(accesses.size()), run_work,
                  discard_work, new work_function(std::move(work)));
}

/* Where there are no streams kernels run at once, as cuhost.h has it. */
extern "C" void double_take_launches(void)
{
    cuhost::set_submit_hook(submit);
}
