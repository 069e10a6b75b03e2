/* Actions that do the same in every lane: lanes<f> makes one of a function of numbers. What the lanes that are not active would
 * get is computed too, and thrown away. */
#ifndef MEMPLAN_TESTS_PTX_PTX_LANES_H
#define MEMPLAN_TESTS_PTX_PTX_LANES_H

#include "tests/ptx/ptx_execute.h"

#include <type_traits>
#include <utility>

namespace ptx
{

template <auto F> struct lane_action;

/* Operands lie in their order behind the result. */
template <typename R, typename... A, R (*F)(A...)> struct lane_action<F> {
    template <size_t... I> static void over(warp &w, const instruction &it, uint32_t active, std::index_sequence<I...>)
    {
        R results[LANES];
        for (unsigned lane = 0; lane < LANES; lane++)
            results[lane] = F(w.at<std::decay_t<A>>(it.at[I + 1])[lane]...);
        put(w.at<R>(it.at[0]), results, active);
    }

    static void run(warp &w, const instruction &it, uint32_t active)
    {
        over(w, it, active, std::index_sequence_for<A...>());
    }
};

template <auto F> constexpr action lanes = lane_action<F>::run;

} // namespace ptx

#endif
