/* Gives everything its place, and statements their actions. */
#include "tests/ptx/ptx_kernel.h"

#include "tests/ptx/ptx_memory.h"
#include "tests/ptx/ptx_table.h"

#include <algorithm>
#include <cstring>

namespace ptx
{

namespace
{

constexpr unsigned LANES = 32, PREDICATE_BYTES = 4, ALIGNED = 32;
constexpr unsigned GAP = 64; /* behind a shared variable */

uint64_t align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

struct decoder {
    kernel *out;
    const module_text &module;
    std::vector<uint32_t> places; /* of the registers */
    std::map<std::pair<unsigned, uint64_t>, uint32_t> constants;
    std::map<std::string_view, uint32_t> specials;
    uint64_t shared_end = shared_base, local_end = local_base;
    std::string trouble; /* why the form at hand does not fit */

    [[noreturn]] void fail(const statement &at, const std::string &why)
    {
        text_error(module.name, at.line, "%s: \"%.*s\"", why.c_str(), static_cast<int>(at.text.size()),
                   at.text.data());
    }

    /* ---- places ---- */

    uint32_t take(unsigned bytes)
    {
        const uint32_t place = out->file_bytes;
        out->file_bytes += static_cast<uint32_t>(align_up(bytes ? bytes * LANES : PREDICATE_BYTES, ALIGNED));
        return place;
    }

    uint32_t constant_place(unsigned bytes, uint64_t bits)
    {
        if (bytes && bytes < 8)
            bits &= (uint64_t{1} << 8 * bytes) - 1;
        auto found = constants.find({bytes, bits});
        if (found != constants.end())
            return found->second;
        const uint32_t place = take(bytes);
        out->constants.push_back({place, bytes, bits});
        return constants[{bytes, bits}] = place;
    }

    bool special_place(std::string_view name, uint32_t *place)
    {
        static const std::string_view known[] = {
            "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
            "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};
        for (std::string_view it : known) {
            if (it != name)
                continue;
            if (!specials.count(name)) {
                specials[name] = take(4);
                out->specials.push_back({specials[name], name});
            }
            *place = specials[name];
            return true;
        }
        return false;
    }

    /* ---- variables ---- */

    const variable *find_variable(std::string_view name)
    {
        const std::vector<variable> &own = out->text.variables;
        for (const std::vector<variable> *list : {&own, &module.variables})
            for (const variable &it : *list)
                if (it.name == name)
                    return &it;
        return nullptr;
    }

    uint64_t shared_address(const variable &it)
    {
        for (const placed &other : out->shared)
            if (other.what == &it)
                return other.address;
        if (!it.bytes) {
            out->has_dynamic = true;
            return dynamic_base;
        }
        const uint64_t address = align_up(shared_end, it.alignment);
        out->shared_bytes = static_cast<uint32_t>(align_up(out->shared_bytes, it.alignment) + it.bytes);
        shared_end = address + it.bytes + GAP;
        out->shared.push_back({&it, address});
        return address;
    }

    uint64_t local_address(const variable &it)
    {
        for (const placed &other : out->local)
            if (other.what == &it)
                return other.address;
        const uint64_t address = align_up(local_end, it.alignment);
        local_end = address + it.bytes;
        out->local.push_back({&it, address});
        return address;
    }

    bool address_of(std::string_view name, uint64_t *address)
    {
        const variable *it = find_variable(name);
        if (!it)
            return false;
        if (it->space == space::shared) {
            *address = shared_address(*it);
        } else if (it->space == space::local) {
            *address = local_address(*it);
        } else {
            auto found = out->module->globals.find(name);
            if (found == out->module->globals.end())
                return false;
            *address = reinterpret_cast<uint64_t>(found->second.get());
        }
        return true;
    }

    /* Where a parameter begins among the launch's. */
    bool parameter_address(std::string_view name, uint64_t *address)
    {
        for (size_t i = 0; i < out->entry->parameters.size(); i++)
            if (out->entry->parameters[i].name == name) {
                *address = out->parameter_offsets[i];
                return true;
            }
        return false;
    }

    /* ---- operands ---- */

    bool refuse(const char *why)
    {
        trouble = why;
        return false;
    }

    bool place_register(const operand &it, char want, instruction *to, uint32_t *place)
    {
        const unsigned bytes = out->text.registers[it.reg];
        const unsigned wanted = bytes_of(want);
        if (strchr("HWX", want) ? bytes < wanted : bytes != wanted)
            return refuse("a register of another width");
        if (!to->width)
            to->width = bytes;
        *place = places[it.reg];
        return true;
    }

    static unsigned bytes_of(char want)
    {
        return want == 'p' ? 0 : want == 'h' || want == 'H' ? 2 : want == 'x' || want == 'X' ? 8 : 4;
    }

    bool place_value(const operand &it, char want, instruction *to, uint32_t *place)
    {
        const unsigned bytes = bytes_of(want);
        uint64_t address;
        switch (it.kind) {
        case operand::kind::reg:
            return place_register(it, want, to, place);
        case operand::kind::number:
            if (it.bytes && it.bytes != bytes)
                return refuse("a number of another width");
            *place = constant_place(bytes, bytes ? it.number : it.number ? ~uint64_t{0} : 0);
            if (!to->width)
                to->width = bytes;
            return true;
        case operand::kind::name:
            if (want == 'w' && special_place(it.name, place))
                return true;
            if (bytes < 4 || !address_of(it.name, &address))
                return refuse("a name that is not known");
            *place = constant_place(bytes, address);
            return true;
        default:
            return refuse("an operand of another kind");
        }
    }

    bool place_address(const operand &it, instruction *to, unsigned which, uint32_t *place)
    {
        if (it.kind != operand::kind::address)
            return refuse("no address where one belongs");
        const operand &base = it.parts[0];
        uint64_t address;
        to->offsets[which] = static_cast<int64_t>(it.number);
        if (base.kind == operand::kind::reg) {
            const unsigned bytes = out->text.registers[base.reg];
            if (bytes != 4 && bytes != 8)
                return refuse("an address in a register of another width");
            *place = bytes == 8 ? places[base.reg] : widened(base.reg);
            return true;
        }
        if (base.kind != operand::kind::name)
            return refuse("an address that is a number");
        if (!parameter_address(base.name, &address) && !address_of(base.name, &address))
            return refuse("a name that is not known");
        *place = constant_place(8, address);
        return true;
    }

    /* Addresses of 4 bytes are told from those of 8 by the lowest bit: places are multiples of 32. */
    uint32_t widened(unsigned reg)
    {
        return places[reg] | 1;
    }

    /* ---- do the operands fit a form? ---- */

    struct matching {
        decoder &all;
        const statement &from;
        instruction *to;
        bool results; /* these come first */
        unsigned count = 0, addresses = 0;

        bool value(const operand &it, char want)
        {
            if (results && it.kind != operand::kind::reg)
                return all.refuse("a result that is no register");
            if (want == 'm')
                to->mask = static_cast<int>(count);
            return all.place_value(it, want == 'm' ? 'w' : want, to, &to->at[count++]);
        }

        /* Leaves `want` at the closing brace. */
        bool vector(const operand &it, const char **want)
        {
            size_t part = 0;
            if (it.kind != operand::kind::vector)
                return all.refuse("no vector where one belongs");
            while (*++*want != '}')
                if (part == it.parts.size() || !value(it.parts[part++], **want))
                    return all.refuse("a vector of another length or width");
            return part == it.parts.size() || all.refuse("a vector of another length");
        }

        /* Leaves `want` at what stands behind the bar. */
        bool pair(const operand &it, const char **want)
        {
            const bool both = it.kind == operand::kind::pair;
            if (!value(both ? it.parts[0] : it, **want))
                return false;
            *want += 2;
            if (both)
                return value(it.parts[1], **want);
            to->at[count++] = all.take(bytes_of(**want)); /* that nobody reads */
            return true;
        }

        bool number(const operand &it)
        {
            to->number = static_cast<uint32_t>(it.number);
            return (it.kind == operand::kind::number && !it.bytes) ||
                   all.refuse("no number where one belongs");
        }

        bool next(const operand &it, const char **want)
        {
            if (**want == '{')
                return vector(it, want);
            if (**want == '@')
                return all.place_address(it, to, addresses++, &to->at[count++]);
            if (**want == '#')
                return number(it);
            return (*want)[1] == '|' ? pair(it, want) : value(it, **want);
        }

        bool run(const char *want)
        {
            size_t given = 0;
            for (; *want; want++) {
                if (*want == '=') {
                    results = false;
                    continue;
                }
                if (given == from.operands.size())
                    return all.refuse("too few operands");
                if (!next(from.operands[given++], &want))
                    return false;
            }
            return given == from.operands.size() || all.refuse("too many operands");
        }
    };

    bool fit(const statement &from, const form &form, instruction *to)
    {
        *to = instruction{};
        to->run = form.run;
        to->step = form.step;
        return matching{*this, from, to, strchr(form.operands, '=') != nullptr}.run(form.operands);
    }

    /* ---- statements ---- */

    uint32_t target_of(const statement &it)
    {
        auto found = out->text.labels.find(it.target);
        if (found == out->text.labels.end() || found->second == out->text.statements.size())
            fail(it, "no such label before an instruction");
        return static_cast<uint32_t>(found->second);
    }

    instruction decode(const statement &from)
    {
        instruction it = {};
        if (!from.target.empty()) {
            it.step = step::branch;
            it.number = target_of(from);
        } else {
            const auto &known = find_forms(from.opcode);
            if (known.empty())
                fail(from, "an instruction that is not known");
            bool fits = false;
            for (size_t i = 0; i < known.size() && !fits; i++)
                fits = fit(from, *known[i], &it);
            if (!fits)
                fail(from, "no known form of the instruction: " + trouble);
        }
        if (from.guard >= 0)
            it.guard = static_cast<int>(places[static_cast<unsigned>(from.guard)]);
        it.unless = from.unless;
        it.source = &from;
        return it;
    }

    void place_parameters()
    {
        uint64_t end = 0;
        for (const variable &it : out->entry->parameters) {
            end = align_up(end, it.alignment);
            out->parameter_offsets.push_back(static_cast<uint32_t>(end));
            end += it.bytes;
        }
        out->parameter_bytes = static_cast<uint32_t>(end);
    }

    void run()
    {
        place_parameters();
        for (unsigned bytes : out->text.registers)
            places.push_back(take(bytes));
        if (out->text.statements.empty())
            text_error(module.name, out->entry->line, "a kernel without instructions");
        for (const statement &it : out->text.statements)
            out->code.push_back(decode(it));
        const instruction &last = out->code.back();
        if (last.guard >= 0 || (last.step != step::leave && last.step != step::branch))
            fail(*last.source, "a kernel that goes on behind its last instruction");
        out->dynamic_limit = shared_usual - std::min<size_t>(shared_usual, out->shared_bytes);
        out->local_bytes = static_cast<uint32_t>(local_end - local_base);
    }
};

/* Variables of a module, as they begin. */
void place_globals(module *module)
{
    for (const variable &it : module->text.variables) {
        if (it.space != space::global && it.space != space::constant)
            continue;
        auto memory = std::make_unique<uint64_t[]>(it.bytes / 8 + 1);
        for (size_t i = 0; i < it.values.size(); i++)
            memcpy(reinterpret_cast<char *>(memory.get()) + i * it.value_bytes, &it.values[i],
                   it.value_bytes);
        ptx_memory_add(memory.get(), it.bytes, it.space == space::constant);
        module->globals[it.name] = std::move(memory);
    }
}

} // namespace

std::unique_ptr<module> open_module(const std::string &name, std::string_view text)
{
    auto opened = std::make_unique<module>();
    opened->text = read_module(name, text);
    place_globals(opened.get());
    return opened;
}

kernel *find_kernel(module *module, std::string_view name)
{
    std::unique_ptr<kernel> &held = module->kernels[name];
    if (held)
        return held.get();
    for (const entry_text &entry : module->text.entries) {
        if (entry.name != name)
            continue;
        held = std::make_unique<kernel>();
        held->module = module;
        held->entry = &entry;
        held->text = read_body(module->text, entry);
        decoder{held.get(), module->text, {}, {}, {}, shared_base, local_base, {}}.run();
        return held.get();
    }
    text_error(module->text.name, 1, "no kernel of the name %.*s", static_cast<int>(name.size()),
               name.data());
}

std::string place_of(const kernel &kernel, const statement &source)
{
    auto found = kernel.module->text.files.find(source.file);
    if (found == kernel.module->text.files.end())
        return "";
    std::string_view path = found->second;
    const size_t slash = path.rfind('/');
    return std::string(path.substr(slash == path.npos ? 0 : slash + 1)) + ":" +
           std::to_string(source.source_line);
}

} // namespace ptx
