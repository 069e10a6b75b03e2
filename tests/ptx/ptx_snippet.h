/* Kernels of a few lines for the tests of the interpreter. A snippet finds
 *
 *     %rd1, %rd2, %rd3   its three buffers, as generic and global addresses
 *     %r1, %r2, %r3      %tid.x, %ctaid.x, %laneid
 *     registers          %p<40>, %rs<40>, %r<80>, %f<40>, %rd<40>, %fd<20>; 32-bit ones beyond %r3 are its own */
#ifndef MEMPLAN_TESTS_PTX_PTX_SNIPPET_H
#define MEMPLAN_TESTS_PTX_PTX_SNIPPET_H

#include "tests/ptx/ptx_execute.h"

extern "C" {
#include "tests/cuda/machine.h"
}

#include <string>

namespace ptx
{

struct snippet {
    std::string text;
    std::unique_ptr<module> opened;
    size3 grid = {1, 1, 1}, block = {32, 1, 1};
    size_t dynamic_bytes = 0;

    /* `variables` stand before the kernel, `head` between its parameters and its body. */
    explicit snippet(const std::string &body, const std::string &variables = "", const std::string &head = "")
        : text(".version 9.0\n.target sm_90\n.address_size 64\n" + variables +
               "\n.visible .entry snippet(.param .u64 first, .param .u64 second, .param .u64 third)\n" + head +
               "{\n.reg .pred %p<40>;\n.reg .b16 %rs<40>;\n.reg .b32 %r<80>;\n.reg .f32 %f<40>;\n.reg .b64 %rd<40>;\n"
               ".reg .f64 %fd<20>;\nld.param.u64 %rd1, [first];\nld.param.u64 %rd2, [second];\n"
               "ld.param.u64 %rd3, [third];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %laneid;\n" +
               body + "\nret;\n}\n")
    {
    }

    void run(void *first, void *second = nullptr, void *third = nullptr)
    {
        if (!opened)
            opened = open_module("snippet", text);
        void *const arguments[] = {&first, &second, &third};
        run_launch(make_launch(find_kernel(opened.get(), "snippet"), grid, block, dynamic_bytes, arguments));
    }
};

/* Zeros that kernels may touch. */
template <typename T> T *buffer(size_t count)
{
    return static_cast<T *>(machine_alloc(count * sizeof(T)));
}

} // namespace ptx

#endif
