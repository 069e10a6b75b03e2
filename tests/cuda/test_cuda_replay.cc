/* A step that is captured once and then replayed: the kernels' arguments stay what they were, and the learning rate and the
 * bias corrections must change all the same. */
#include "tests/cuda/cuhost.h"

extern "C" {
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_table.h"
#include "tests/kernels/fill.h"
#include "tests/test.h"
}

#include <cstdlib>
#include <string>
#include <vector>

enum { COUNT = 1001, STEPS = 4 };

/* The launches of one step, as a graph keeps them. */
static std::vector<std::function<void()>> graph;
static std::vector<std::string> launched;
static bool capturing;

static void on_launch(void *, const char *kernel, std::function<void()> work)
{
    launched.push_back(kernel);
    if (capturing)
        graph.push_back(work);
    else
        work();
}

struct state {
    std::vector<float> w, m, v, g;

    state() : w(COUNT), m(COUNT), v(COUNT), g(COUNT)
    {
        random_fill(1, DTYPE_F32, w.data(), COUNT);
        random_fill(2, DTYPE_F32, g.data(), COUNT);
    }

    adamw_args arguments(int64_t t)
    {
        adamw_args args = {};
        args.count = COUNT;
        args.dtype = DTYPE_F32;
        args.w = w.data(), args.g = g.data(), args.m = m.data(), args.v = v.data();
        args.lr = 1e-2 / static_cast<double>(t);
        args.beta1 = 0.9, args.beta2 = 0.95, args.eps = 1e-8, args.decay = 0.1, args.t = t;
        return args;
    }
};

static cuda_step step_of(const adamw_args &args)
{
    return {args.lr, args.beta1, args.beta2, args.t};
}

TEST(cuda_replay_adamw,
     "four steps by replay of the first one's launch are the four steps of direct calls, to the bit")
{
    struct error err = {};
    cuda_step_values values = {};
    cuda_context device = {};
    device.step = &values;
    const kernel_context context = {1, &device};
    state direct, replayed;
    for (int64_t t = 1; t <= STEPS; t++) {
        adamw_args args = direct.arguments(t);
        ASSERT_OK(cuda_adamw(&context, &args, &err));
    }
    cuhost::set_submit_hook(on_launch);
    for (int64_t t = 1; t <= STEPS; t++) {
        adamw_args args = replayed.arguments(t);
        cuda_step step = step_of(args);
        ASSERT_OK(cuda_set_step(&device, &step, &err));
        if (t == 1) {
            capturing = true;
            ASSERT_OK(cuda_adamw(&context, &args, &err));
            capturing = false;
            ASSERT_INT(graph.size(),
                       1); /* the step's values were set before: setting them is no part of the graph */
        }
        for (const auto &work : graph)
            work();
    }
    ASSERT_INT(launched.size(), STEPS + 1);
    ASSERT(memcmp(direct.w.data(), replayed.w.data(), COUNT * sizeof(float)) == 0);
    ASSERT(memcmp(direct.v.data(), replayed.v.data(), COUNT * sizeof(float)) == 0);
}

TEST(cuda_replay_set_once, "the parameters of a step share one setting of its values")
{
    struct error err = {};
    cuda_step_values values = {};
    cuda_context device = {};
    device.step = &values;
    const kernel_context context = {1, &device};
    state first, second;
    cuhost::set_submit_hook(on_launch);
    for (int64_t t = 1; t <= 2; t++)
        for (state *of : {&first, &second}) {
            adamw_args args = of->arguments(t);
            ASSERT_OK(cuda_adamw(&context, &args, &err));
        }
    /* Of each step: one setting, two updates. */
    ASSERT_INT(launched.size(), 6);
    ASSERT_STR(launched[0].c_str(), "set_step_kernel");
    ASSERT_STR(launched[3].c_str(), "set_step_kernel");
}
