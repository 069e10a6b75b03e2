/* Fibers: several stacks of one operating-system thread, of which one runs at a time. On x86-64 a switch is a dozen
 * instructions (7 ns); elsewhere, or with CUHOST_UCONTEXT defined, it is swapcontext(), which takes thirty times as long
 * because it saves the signal mask too. The address sanitizer is told of every switch. */
#ifndef MEMPLAN_TESTS_CUDA_CUHOST_FIBER_H
#define MEMPLAN_TESTS_CUDA_CUHOST_FIBER_H

#include <cstddef>

#if !defined(__x86_64__) && !defined(CUHOST_UCONTEXT)
#define CUHOST_UCONTEXT
#endif

#ifdef CUHOST_UCONTEXT
#include <ucontext.h>
#endif

namespace cuhost
{

struct fiber {
#ifdef CUHOST_UCONTEXT
    ucontext_t saved;
#else
    void *saved; /* its stack pointer, with the registers that a call keeps on top of the stack */
#endif
    const void *stack; /* the lowest address; of the first fiber known once another has run */
    size_t stack_bytes;
    void *shadow; /* the address sanitizer's */
};

/* A fiber that will call `entry` on this stack; entry must end in fiber_leave(). */
void fiber_prepare(fiber *fiber, void *stack, size_t stack_bytes, void (*entry)());

/* First call of every entry: `from` is who switched to it. */
void fiber_enter(fiber *from);

/* Goes on with `to`; returns when another switches back to `from`, where the caller is. */
void fiber_switch(fiber *from, fiber *to);

/* The same for good: the stack of `from` may be used again. */
[[noreturn]] void fiber_leave(fiber *from, fiber *to);

} // namespace cuhost

#endif
