/* Reads PTX. One pass over the characters; names and texts are views into the module. */
#include "tests/ptx/ptx_text.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace ptx
{

void text_error(const std::string &name, unsigned line, const char *format, ...)
{
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "ptx: %s:%u: %s\n", name.c_str(), line, text);
    abort();
}

/* ---- characters and words ---- */

namespace
{

struct reader {
    const std::string &name;
    std::string_view text;
    unsigned line;
    size_t at = 0;

    [[noreturn]] void fail(const char *wanted)
    {
        std::string_view rest = text.substr(at, text.substr(at).find('\n'));
        text_error(name, line, "expected %s at \"%.*s\"", wanted, static_cast<int>(rest.size()), rest.data());
    }

    void skip_line()
    {
        while (at < text.size() && text[at] != '\n')
            at++;
    }

    /* Spaces and comments. */
    void skip()
    {
        for (; at < text.size(); at++) {
            if (text.compare(at, 2, "//") == 0)
                skip_line();
            if (at == text.size() || !isspace(static_cast<unsigned char>(text[at])))
                return;
            line += text[at] == '\n';
        }
    }

    bool done()
    {
        skip();
        return at == text.size();
    }

    char peek()
    {
        skip();
        return at < text.size() ? text[at] : '\0';
    }

    bool take(char wanted)
    {
        if (peek() != wanted)
            return false;
        at++;
        return true;
    }

    void want(char wanted)
    {
        const char words[] = {'a', ' ', wanted, '\0'};
        if (!take(wanted))
            fail(words);
    }

    /* Letters, digits, dots and the signs that names have; perhaps none. */
    std::string_view word()
    {
        skip();
        const size_t start = at;
        while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || is_sign(text[at])))
            at++;
        return text.substr(start, at - start);
    }

    static bool is_sign(char c)
    {
        return c == '_' || c == '$' || c == '.' || c == '%';
    }

    bool take(std::string_view wanted)
    {
        skip();
        const size_t start = at;
        if (word() == wanted)
            return true;
        at = start;
        return false;
    }

    std::string_view name_word(const char *wanted)
    {
        std::string_view found = word();
        if (found.empty())
            fail(wanted);
        return found;
    }

    /* An integer, with a sign or without. */
    uint64_t number()
    {
        const bool negative = take('-');
        skip();
        char *end;
        const uint64_t value = strtoull(text.data() + at, &end, 0);
        if (end == text.data() + at)
            fail("a number");
        at = static_cast<size_t>(end - text.data());
        if (at < text.size() && text[at] == 'U')
            at++;
        return negative ? -value : value;
    }

    std::string_view string()
    {
        want('"');
        const size_t start = at;
        at = text.find('"', at);
        if (at == text.npos)
            fail("a \"");
        return text.substr(start, at++ - start);
    }
};

/* ---- types and variables ---- */

/* Bytes of ".f32" and the like; 0 for .pred. */
unsigned bytes_of_type(reader &in, std::string_view type)
{
    static const std::map<std::string_view, unsigned> known = {
        {".pred", 0}, {".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2},
        {".s16", 2},  {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4},
        {".b64", 8},  {".u64", 8}, {".s64", 8}, {".f64", 8},
    };
    auto found = known.find(type);
    if (found == known.end())
        in.fail("a type that is known");
    return found->second;
}

/* What follows ".shared" and the like: [.align N] .TYPE NAME [[COUNT]] [= {VALUES}]. */
variable read_variable(reader &in, enum space space)
{
    variable it = {{}, space, 0, 0, {}, 0};
    if (in.take(".align"))
        it.alignment = in.number();
    it.value_bytes = bytes_of_type(in, in.word());
    it.name = in.name_word("a name");
    it.bytes = it.value_bytes;
    if (in.take('[')) {
        it.bytes = in.peek() == ']' ? 0 : in.number() * it.value_bytes;
        in.want(']');
    }
    if (!it.alignment)
        it.alignment = it.value_bytes;
    if (in.take('=')) {
        in.want('{');
        do
            it.values.push_back(in.number());
        while (in.take(','));
        in.want('}');
    }
    return it;
}

bool space_of(std::string_view directive, enum space *out)
{
    static const std::map<std::string_view, enum space> known = {{".param", space::param},
                                                                 {".global", space::global},
                                                                 {".const", space::constant},
                                                                 {".shared", space::shared},
                                                                 {".local", space::local}};
    auto found = known.find(directive);
    if (found == known.end())
        return false;
    *out = found->second;
    return true;
}

/* ---- modules ---- */

/* From a '{' to behind its '}'; no strings with braces in nvcc's kernels. */
std::string_view read_braces(reader &in)
{
    const size_t start = in.at;
    int depth = 0;
    do {
        if (in.at == in.text.size())
            in.fail("a }");
        const char c = in.text[in.at++];
        depth += (c == '{') - (c == '}');
        in.line += c == '\n';
    } while (depth);
    return in.text.substr(start, in.at - start);
}

entry_text read_entry(reader &in)
{
    entry_text entry = {in.name_word("a kernel's name"), {}, 0, {}, 0};
    in.want('(');
    while (!in.take(')')) {
        if (!in.take(".param"))
            in.fail("a parameter");
        entry.parameters.push_back(read_variable(in, space::param));
        in.take(',');
    }
    while (in.peek() != '{') {
        std::string_view directive = in.name_word("a kernel's body");
        uint64_t product = in.number();
        while (in.take(','))
            product *= in.number();
        if (directive == ".maxntid")
            entry.most_threads = static_cast<unsigned>(product);
        else if (directive != ".minnctapersm" && directive != ".maxnreg")
            in.fail("a directive of a kernel that is known");
    }
    entry.line = in.line;
    entry.body = read_braces(in);
    return entry;
}

void read_top(reader &in, module_text *module)
{
    enum space space;
    std::string_view directive = in.name_word("a directive");
    if (directive == ".visible" || directive == ".extern" || directive == ".weak")
        return;
    if (directive == ".version") {
        in.skip_line();
    } else if (directive == ".address_size") {
        if (in.number() != 64)
            in.fail("addresses of 64 bits");
    } else if (directive == ".target") {
        std::string_view target = in.word();
        module->target = static_cast<unsigned>(strtoul(target.substr(3).data(), nullptr, 10));
        in.skip_line();
    } else if (directive == ".file") {
        const unsigned number = static_cast<unsigned>(in.number());
        module->files[number] = in.string();
        in.skip_line();
    } else if (directive == ".section") {
        in.word();
        in.skip();
        read_braces(in);
    } else if (directive == ".entry") {
        module->entries.push_back(read_entry(in));
    } else if (space_of(directive, &space)) {
        module->variables.push_back(read_variable(in, space));
        in.want(';');
    } else {
        in.fail("a directive that is known");
    }
}

/* ---- bodies ---- */

/* Registers of a block: one, or a row of %r0, %r1 ... */
struct declared {
    std::string_view name;
    unsigned count; /* 0: one, of exactly this name */
    unsigned first;
};

struct body_reader {
    reader in;
    function_text out;
    std::vector<std::vector<declared>> blocks; /* the innermost last */
    unsigned file, source_line;

    void declare(std::string_view name, unsigned count, unsigned bytes)
    {
        blocks.back().push_back({name, count, static_cast<unsigned>(out.registers.size())});
        out.registers.insert(out.registers.end(), count ? count : 1, bytes);
    }

    void read_registers()
    {
        const unsigned bytes = bytes_of_type(in, in.word());
        do {
            std::string_view name = in.name_word("a register");
            unsigned count = 0;
            if (in.take('<')) {
                count = static_cast<unsigned>(in.number());
                in.want('>');
            }
            declare(name, count, bytes);
        } while (in.take(','));
        in.want(';');
    }

    static bool names(const declared &it, std::string_view name, unsigned *number)
    {
        if (!it.count) {
            *number = it.first;
            return it.name == name;
        }
        if (name.size() <= it.name.size() || name.compare(0, it.name.size(), it.name) != 0)
            return false;
        unsigned place = 0;
        for (char c : name.substr(it.name.size())) {
            if (!isdigit(static_cast<unsigned char>(c)))
                return false;
            place = place * 10 + static_cast<unsigned>(c - '0');
        }
        *number = it.first + place;
        return place < it.count;
    }

    bool find_register(std::string_view name, unsigned *number) const
    {
        for (size_t i = blocks.size(); i-- > 0;)
            for (const declared &it : blocks[i])
                if (names(it, name, number))
                    return true;
        return false;
    }

    operand read_real(std::string_view word)
    {
        char *end;
        const std::string digits(word.substr(2));
        operand it = {operand::kind::number};
        it.bytes = word[1] == 'f' ? 4 : 8;
        it.number = strtoull(digits.c_str(), &end, 16);
        if (*end || digits.size() != 2 * it.bytes)
            in.fail("the bits of a real number");
        return it;
    }

    operand read_atom()
    {
        const char first = in.peek();
        if (first == '-' || isdigit(static_cast<unsigned char>(first))) {
            const size_t start = in.at;
            std::string_view word = in.word();
            if (word.size() > 2 && word[0] == '0' && (word[1] == 'f' || word[1] == 'd'))
                return read_real(word);
            in.at = start;
            operand it = {operand::kind::number};
            it.number = in.number();
            return it;
        }
        operand it = {operand::kind::name};
        it.name = in.name_word("an operand");
        if (find_register(it.name, &it.reg))
            it.kind = operand::kind::reg;
        return it;
    }

    operand read_operand()
    {
        operand it = {operand::kind::address};
        if (in.take('[')) {
            it.parts.push_back(read_atom());
            if (in.take('+'))
                it.number = in.number();
            in.want(']');
        } else if (in.take('{')) {
            it.kind = operand::kind::vector;
            do
                it.parts.push_back(read_atom());
            while (in.take(','));
            in.want('}');
        } else {
            operand first = read_atom();
            if (!in.take('|'))
                return first;
            it.kind = operand::kind::pair;
            it.parts = {first, read_atom()};
        }
        return it;
    }

    void read_guard(statement *it)
    {
        it->unless = in.take('!');
        std::string_view name = in.name_word("a predicate");
        unsigned number;
        if (!find_register(name, &number) || out.registers[number] != 0)
            in.fail("a predicate before this");
        it->guard = static_cast<int>(number);
    }

    void read_statement(std::string_view opcode, size_t start, statement it)
    {
        it.opcode = opcode;
        it.line = in.line;
        it.file = file;
        it.source_line = source_line;
        if (opcode == "bra" || opcode == "bra.uni")
            it.target = in.name_word("a label");
        else if (in.peek() != ';')
            do
                it.operands.push_back(read_operand());
            while (in.take(','));
        in.want(';');
        it.text = in.text.substr(start, in.at - start);
        out.statements.push_back(it);
    }

    /* .loc FILE LINE COLUMN, and what was inlined where up to the end of the line. */
    void read_place()
    {
        file = static_cast<unsigned>(in.number());
        source_line = static_cast<unsigned>(in.number());
        in.skip_line();
    }

    void read_directive(std::string_view directive)
    {
        enum space space;
        if (directive == ".reg") {
            read_registers();
        } else if (directive == ".loc") {
            read_place();
        } else if (directive == ".pragma") {
            in.string();
            in.want(';');
        } else if (space_of(directive, &space) && (space == space::shared || space == space::local)) {
            out.variables.push_back(read_variable(in, space));
            in.want(';');
        } else {
            in.fail("a directive of a body that is known");
        }
    }

    void read()
    {
        statement next = {{}, {}, 0, 0, 0};
        do {
            if (in.take('{')) {
                blocks.emplace_back();
            } else if (in.take('}')) {
                blocks.pop_back();
            } else if (in.take(';')) {
                continue; /* inline assembly may end with one of its own */
            } else if (in.take('@')) {
                read_guard(&next);
                const size_t start = in.at;
                read_statement(in.name_word("an instruction"), start, next);
                next.guard = -1;
            } else {
                in.skip();
                const size_t start = in.at;
                std::string_view word = in.name_word("an instruction");
                if (in.take(':'))
                    out.labels[word] = out.statements.size();
                else if (word[0] == '.')
                    read_directive(word);
                else
                    read_statement(word, start, next);
            }
        } while (!blocks.empty());
    }
};

} // namespace

module_text read_module(const std::string &name, std::string_view text)
{
    module_text module = {name, text, 0, {}, {}, {}};
    reader in = {module.name, text, 1};
    while (!in.done())
        read_top(in, &module);
    return module;
}

function_text read_body(const module_text &module, const entry_text &entry)
{
    body_reader body = {{module.name, entry.body, entry.line}, {}, {}, 0, 0};
    body.read();
    return body.out;
}

} // namespace ptx
