/* PTX as text: what a module declares, and a kernel's statements with their operands. Nothing here knows what an instruction
 * does (ptx_table.h); what cannot be read ends the program with the line.
 *
 * Only what nvcc emits for kernels is read: no functions but entries, no calls, no textures.
 *
 * Reading order of this folder: ptx_text, ptx_kernel (registers, constants, places of variables; instructions decoded through
 * the table), ptx_execute (grids, blocks, warps, lanes), then the files that the table is made of. ptx_memory and ptx_shadow
 * are what an access is checked against; ptx_runtime is where CUDA's host side comes in. */
#ifndef MEMPLAN_TESTS_PTX_PTX_TEXT_H
#define MEMPLAN_TESTS_PTX_PTX_TEXT_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptx
{

enum class space { generic, param, global, constant, shared, local };

struct variable {
    std::string_view name;
    enum space space;
    size_t alignment, bytes; /* 0 bytes: as many as the launch says */
    std::vector<uint64_t> values;
    unsigned value_bytes; /* of each */
};

struct operand {
    enum class kind {
        reg,
        number,  /* an integer, or the bits of a real number of `bytes` bytes */
        name,    /* of a variable or a special register, with its dot: %tid.x */
        address, /* parts[0], a register or a name, and `number` bytes further on */
        vector,  /* {parts} */
        pair,    /* parts[0] | parts[1] */
    } kind;
    unsigned reg = 0; /* its number in the function */
    uint64_t number = 0;
    unsigned bytes = 0; /* 0: an integer */
    std::string_view name = {};
    std::vector<operand> parts = {};
};

struct statement {
    std::string_view text, opcode;
    unsigned line; /* of the module */
    unsigned file, source_line; /* where the compiler says that it comes from */
    int guard = -1; /* the number of a predicate */
    bool unless = false;
    std::string_view target = {}; /* of a branch */
    std::vector<operand> operands = {};
};

struct function_text {
    std::vector<unsigned> registers; /* bytes of each; 0: a predicate */
    std::vector<variable> variables; /* its own: shared and local */
    std::vector<statement> statements;
    std::map<std::string_view, size_t> labels; /* the number of the statement behind */
};

struct entry_text {
    std::string_view name, body;
    unsigned line;
    std::vector<variable> parameters;
    unsigned most_threads; /* .maxntid; 0: no word of it */
};

struct module_text {
    std::string name; /* for messages */
    std::string_view text;
    unsigned target; /* 80 of sm_80 */
    std::vector<variable> variables;
    std::vector<entry_text> entries;
    std::map<unsigned, std::string_view> files;
};

/* Declarations; of entries only the heads. `text` outlives what comes back. */
module_text read_module(const std::string &name, std::string_view text);

function_text read_body(const module_text &module, const entry_text &entry);

/* Ends the program with "ptx: NAME:LINE: " and this sentence. */
[[noreturn]] void text_error(const std::string &name, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

} // namespace ptx

#endif
