/* Finds the forms of an opcode in the lists. */
#include "tests/ptx/ptx_table.h"

namespace ptx
{

using table = std::map<std::string_view, std::vector<const form *>>;

static table make_table()
{
    table all;
    for (forms list : {integer_forms(), real_forms(), choice_forms(), convert_forms(), transfer_forms(),
                       meeting_forms(), matrix_forms()})
        for (size_t i = 0; i < list.count; i++)
            all[list.first[i].opcode].push_back(&list.first[i]);
    return all;
}

const std::vector<const form *> &find_forms(std::string_view opcode)
{
    static const table all = make_table();
    static const std::vector<const form *> none;
    auto found = all.find(opcode);
    return found == all.end() ? none : found->second;
}

} // namespace ptx
