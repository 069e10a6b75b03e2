/* The instructions that are known: one list for each file that has their actions. What is in none of them ends the program
 * with its text, so nothing is skipped. */
#ifndef MEMPLAN_TESTS_PTX_PTX_TABLE_H
#define MEMPLAN_TESTS_PTX_PTX_TABLE_H

#include "tests/ptx/ptx_kernel.h"

namespace ptx
{

struct forms {
    const form *first;
    size_t count;
};

forms integer_forms();  /* ptx_integer.cc: arithmetic and bits */
forms real_forms();     /* ptx_real.cc: arithmetic of f32 and f64 */
forms choice_forms();   /* ptx_choice.cc: predicates, moves */
forms convert_forms();  /* ptx_convert.cc */
forms transfer_forms(); /* ptx_transfer.cc: memory */
forms meeting_forms();  /* ptx_meeting.cc: what lanes of a warp do together */
forms matrix_forms();   /* ptx_matrix.cc: tensor cores */

/* None: unknown. */
const std::vector<const form *> &find_forms(std::string_view opcode);

} // namespace ptx

#endif
