/* A kernel that can run: its statements, decoded. Everything that an operand may be has a place in a warp's register file, so
 * that instructions need not ask what theirs are: registers, constants (32 times the same), special registers and addresses of
 * variables. A place is an offset in bytes; what is there is 32 values of 2, 4 or 8 bytes, lane after lane, or, of a predicate,
 * 32 bits.
 *
 * Shared variables lie at `shared_base` and behind, with a gap after each, so that what runs over one end meets nothing;
 * dynamic shared memory lies at `dynamic_base`. Neither is 0: a NULL that was converted is not the first variable. */
#ifndef MEMPLAN_TESTS_PTX_PTX_KERNEL_H
#define MEMPLAN_TESTS_PTX_PTX_KERNEL_H

#include "tests/ptx/ptx_text.h"

#include <memory>

namespace ptx
{

struct warp;
struct instruction;

/* Does it for the lanes of `active`. */
using action = void (*)(warp &, const instruction &, uint32_t active);

enum class step {
    plain,
    branch,
    leave,
    barrier, /* all threads of the block */
    meet,    /* all lanes of a mask, then the action once for them */
};

enum { MOST_PLACES = 16, ALL_LANES = -1 };

struct instruction {
    action run;
    enum step step;
    int guard = -1; /* place of a predicate */
    bool unless = false;
    uint32_t at[MOST_PLACES] = {}; /* places of the operands, in their order, vectors and pairs laid out */
    int64_t offsets[2] = {};       /* of the addresses */
    uint32_t number = 0;           /* of an operand that must be one; where a branch goes */
    unsigned width = 0;            /* bytes of the first operand that is no predicate */
    int mask = ALL_LANES;          /* place of a meeting's mask */
    const statement *source = nullptr;
};

struct constant {
    uint32_t place;
    unsigned bytes;
    uint64_t bits;
};

struct special {
    uint32_t place;
    std::string_view name;
};

/* A variable's place in its space. */
struct placed {
    const variable *what;
    uint64_t address;
};

constexpr uint32_t shared_base = 0x400, dynamic_base = 0x10000, local_base = 0x100;
/* Where shared and local memory begin among generic addresses: at none of the host's, and at such that the lower half of a generic
 * address is not that in its window. */
constexpr uint64_t shared_window = 0x7a00000001000000u, local_window = 0x7b00000001000000u;

struct module;

struct kernel {
    const ptx::module *module;
    const entry_text *entry;
    function_text text;
    std::vector<instruction> code; /* of which the last goes nowhere behind it */
    std::vector<constant> constants;
    std::vector<special> specials;
    std::vector<placed> shared, local;
    std::vector<uint32_t> parameter_offsets;
    uint32_t file_bytes, parameter_bytes, local_bytes;
    uint32_t shared_bytes; /* what a GPU would take for the static ones */
    bool has_dynamic;
    size_t dynamic_limit; /* the program may ask for more */
};

/* A module with its variables in memory, and the kernels that were asked for so far. */
struct module {
    module_text text;
    std::map<std::string_view, std::unique_ptr<uint64_t[]>> globals;
    std::map<std::string_view, std::unique_ptr<kernel>> kernels;
};

std::unique_ptr<module> open_module(const std::string &name, std::string_view text);

constexpr size_t shared_usual = 48 << 10; /* without asking, static and dynamic together */

/* Decoded at the first call; ends the program when there is none of this name, or an instruction in it is unknown. */
kernel *find_kernel(module *module, std::string_view name);

/* The file and line that the compiler says an instruction comes from, or "". */
std::string place_of(const kernel &kernel, const statement &source);

/* ---- for the table ---- */

/* What is known of an opcode; several forms may share it. `operands` says what they must be, in their order:
 *     p h w x   a predicate, or 2, 4 or 8 bytes: a register, or where it is only read a constant
 *     H W X     the same, or a register that is wider (loads extend, stores take the low bytes)
 *     m         4 bytes: the mask of a meeting
 *     =         stands behind the results, which are registers
 *     |         and the next may be left out, with its bar: "w|p" is "%r1" or "%r1|%p1"
 *     { }       a vector
 *     @         an address: a register of 4 or 8 bytes, or a variable, and an offset
 *     #         a number */
struct form {
    std::string_view opcode;
    const char *operands;
    action run;
    enum step step = step::plain;
};

} // namespace ptx

#endif
