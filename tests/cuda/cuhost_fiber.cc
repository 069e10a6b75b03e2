/* Fibers: see the header. */
#include "tests/cuda/cuhost_fiber.h"

#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuhost
{

#ifdef CUHOST_UCONTEXT

static void set_up(fiber *fiber, void *stack, size_t bytes, void (*entry)())
{
    getcontext(&fiber->saved);
    fiber->saved.uc_stack.ss_sp = stack;
    fiber->saved.uc_stack.ss_size = bytes;
    fiber->saved.uc_link = nullptr;
    makecontext(&fiber->saved, entry, 0);
}

static void change(fiber *from, fiber *to)
{
    swapcontext(&from->saved, &to->saved);
}

#else

extern "C" void cuhost_change_stack(void **save, void *load);

/* Keeps the six registers that the System V ABI gives to the caller, and the stack pointer. */
asm(R"(
    .text
    .type cuhost_change_stack, @function
    .hidden cuhost_change_stack
cuhost_change_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuhost_change_stack, . - cuhost_change_stack
)");

/* The stack as cuhost_change_stack() leaves it: six registers, then where to return to; entry finds it as after a call. */
static void set_up(fiber *fiber, void *stack, size_t bytes, void (*entry)())
{
    enum { REGISTERS = 6 };
    void **top = reinterpret_cast<void **>(static_cast<char *>(stack) + bytes - 64);
    *--top = nullptr; /* the return address of entry, which does not return */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < REGISTERS; i++)
        *--top = nullptr;
    fiber->saved = top;
}

static void change(fiber *from, fiber *to)
{
    cuhost_change_stack(&from->saved, to->saved);
}

#endif

void fiber_prepare(fiber *fiber, void *stack, size_t stack_bytes, void (*entry)())
{
    fiber->stack = stack;
    fiber->stack_bytes = stack_bytes;
    fiber->shadow = nullptr;
    set_up(fiber, stack, stack_bytes, entry);
}

void fiber_enter(fiber *from)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &from->stack, &from->stack_bytes);
#else
    (void)from;
#endif
}

void fiber_switch(fiber *from, fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#endif
    change(from, to);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->shadow, nullptr, nullptr);
#endif
}

void fiber_leave(fiber *from, fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(nullptr, to->stack, to->stack_bytes);
#endif
    change(from, to);
    abort();
}

} // namespace cuhost
