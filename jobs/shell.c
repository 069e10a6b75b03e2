/* Commands of a script, from its first character to its last. Conditions that cannot be decided, and loops, are walked over, each
 * line once, so that a launch inside of one is found; what they assign is unknown from then on. */
#include "jobs/shell_parse.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COMMANDS = 20000 };
#define GLYPH_BUDGET 2000000

/* ---- what a command adds ---- */

static void add_skipped(struct parser *p, const struct words *w, const char *why)
{
    struct text line = {0};
    for (int i = 0; i < w->count && i < 4; i++)
        text_printf(&line, i ? " %s" : "%s", w->list[i].text);
    struct shell_script *out = p->out;
    out->skipped = shell_grown(p->scope->arena, out->skipped, out->skipped_count, &p->rooms->skipped,
                               sizeof *out->skipped);
    out->skipped[out->skipped_count++] = (struct word){.text = arena_strdup(p->scope->arena, line.data),
                                                       .file = w->list[0].file,
                                                       .line = w->list[0].line,
                                                       .unknown = why};
    text_free(&line);
}

/* Whether words[i] and the next are `bash -c`; then words[i + 2] is a script. */
static bool is_inner_script(const struct words *w, int i)
{
    const char *slash = strrchr(w->list[i].text, '/'), *name = slash ? slash + 1 : w->list[i].text;
    if (i + 2 >= w->count || (strcmp(name, "bash") && strcmp(name, "sh")))
        return false;
    const char *option = w->list[i + 1].text;
    return option[0] == '-' && option[1] != '-' && option[strlen(option) - 1] == 'c';
}

int shell_read_inner(struct parser *p, const struct words *prefix, const struct word *text)
{
    /* parse_one() looks at the character before the first. */
    const char *script = arena_printf(p->scope->arena, "\n%s", text->text) + 1;
    struct parser in = shell_nested(p, script, script + strlen(script), shell_line_of_word(p->scope, text));
    in.prefix = prefix;
    if (in.nested > SHELL_MOST_NESTED)
        return shell_broken(p, "scripts inside of scripts are nested too deep");
    in.prefix_unknown = text->unknown;
    return shell_parse(&in);
}

static int add_command(struct parser *p, struct command *c)
{
    struct shell_script *out = p->out;
    for (int i = 0; i < c->words.count; i++)
        if (is_inner_script(&c->words, i))
            return shell_read_inner(p, &(struct words){c->words.list, i}, &c->words.list[i + 2]);
    int status = shell_start_script(p, &c->words);
    if (status <= 0)
        return status;
    if (out->command_count == MOST_COMMANDS)
        return shell_broken(p, "there are too many commands");
    if (p->prefix && p->prefix->count) {
        struct word *all =
            arena_array(p->scope->arena, (size_t)(p->prefix->count + c->words.count), sizeof *all);
        memcpy(all, p->prefix->list, (size_t)p->prefix->count * sizeof *all);
        memcpy(all + p->prefix->count, c->words.list, (size_t)c->words.count * sizeof *all);
        c->words = (struct words){all, c->words.count + p->prefix->count};
    }
    out->commands = shell_grown(p->scope->arena, out->commands, out->command_count, &p->rooms->commands,
                                sizeof *out->commands);
    out->commands[out->command_count++] =
        (struct shell_command){c->words, shell_line_in_file(c->line), shell_inside(p)};
    return 0;
}

static const char *const declaring[] = {"export", "declare", "local", "readonly", "typeset", NULL};
static const char *const reading[] = {"read", "mapfile", "readarray", "getopts", "let", NULL};
static const char *const running[] = {"source", ".", NULL};

static const char *const local[] = {"local", "declare", "typeset", NULL};

/* `local A B=1` */
static int keep_locals(struct parser *p, const struct command *c)
{
    for (int i = 0; i < c->assigned_count; i++) {
        const char *from = c->assigned[i].from;
        if (shell_keep_local(p, from, shell_name_length(from, c->assigned[i].end)))
            return -1;
    }
    for (int i = 1; i < c->words.count; i++) {
        const char *text = c->words.list[i].text;
        size_t length = shell_name_length(text, text + strlen(text));
        if (length && !text[length] && shell_keep_local(p, text, length))
            return -1;
    }
    return 0;
}

/* `eval WORDS`: a script of their own. */
static int read_eval(struct parser *p, struct command *c)
{
    struct text script = {0};
    struct word joined = c->words.list[0];
    for (int i = 1; i < c->words.count; i++) {
        const struct word *word = &c->words.list[i];
        text_printf(&script, i > 1 ? " %s" : "%s", word->text);
        joined.unknown = joined.unknown ? joined.unknown : word->unknown;
    }
    joined.text = arena_strdup(p->scope->arena, script.data ? script.data : "");
    text_free(&script);
    if (joined.unknown)
        add_skipped(p, &c->words, "not executed");
    return shell_read_inner(p, &(struct words){0}, &joined);
}

/* Builtins that change what comes after. 1: it is none of them. */
static int run_builtin(struct parser *p, struct command *c, const char *name)
{
    struct scope *s = p->scope;
    if (shell_is_one_of(name, reading))
        return shell_forget_words(p, &c->words);
    if (!strcmp(name, "eval"))
        return read_eval(p, c);
    if (shell_is_one_of(name, running)) {
        const char *why = shell_read_source(p, &c->words);
        if (why)
            add_skipped(p, &c->words, why);
    } else if (!strcmp(name, "unset")) {
        shell_unset_words(p, &c->words);
    } else if (!strcmp(name, "shift")) {
        int count = c->words.count > 1 ? atoi(c->words.list[1].text) : 1;
        bool enough = count >= 0 && count <= s->argument_count;
        s->arguments += enough ? count : 0;
        s->argument_count -= enough ? count : 0;
    } else {
        return 1;
    }
    return 0;
}

/* How a command ends. */
static enum shell_truth truth_of(struct parser *p, const struct command *c)
{
    const char *name = c->words.count ? c->words.list[0].text : ":";
    for (int i = 0; i < c->assigned_count; i++)
        for (const char *at = c->assigned[i].from; !c->words.count && at < c->assigned[i].end; at++)
            if (*at == '`' || (*at == '(' && at[-1] == '$'))
                return SHELL_LIKELY;
    bool bracket = !strcmp(name, "[");
    if (bracket || !strcmp(name, "test"))
        return shell_test(p, &c->words, bracket);
    if (!strcmp(name, ":") || !strcmp(name, "true"))
        return SHELL_TRUE;
    if (!strcmp(name, "false") || (!strcmp(name, "getopts") && !p->scope->argument_count))
        return SHELL_FALSE;
    return SHELL_LIKELY;
}

static int run_command(struct parser *p, struct command *c)
{
    static const char *const silent[] = {"[", "test", ":", "true", "false", NULL};
    const char *name = c->words.count ? c->words.list[0].text : "";
    if (shell_is_passed(p))
        return 0;
    if (p->called && c->declares && shell_is_one_of(name, local) && keep_locals(p, c))
        return -1;
    for (int i = 0; i < c->assigned_count; i++)
        if ((!c->words.count || c->declares || shell_is_setting(c->assigned[i])) &&
            shell_assign(p, c->assigned[i]))
            return -1;
    if (!c->words.count || c->declares || shell_is_one_of(name, silent))
        return 0;
    int status = run_builtin(p, c, name);
    if (status > 0)
        status = shell_call_function(p, c);
    return status > 0 ? add_command(p, c) : status;
}

static int finish_command(struct parser *p, struct command *c)
{
    enum shell_truth truth = truth_of(p, c);
    if (run_command(p, c))
        return -1;
    shell_settle(p, truth);
    return 0;
}

/* ---- commands ---- */

/* A word of the command, or an assignment before it. */
static int read_word(struct parser *p, struct command *c)
{
    const char *from = p->at, *value = NULL, *stop = shell_word_end(p);
    bool append = false;
    if (!stop)
        return -1;
    size_t length = shell_assigned_name(from, stop, &value, &append);
    if (length && value == stop && stop < p->end && *stop == '(' && !(stop = shell_array_end(p, stop + 1)))
        return -1;
    if (length && (!c->words.count || c->declares)) {
        if (c->assigned_count == SHELL_MOST_ASSIGNED)
            return shell_broken(p, "there are too many assignments on a line");
        c->assigned[c->assigned_count++] = (struct span){from, stop, p->line};
        shell_advance(p, stop);
        return 0;
    }
    struct glyphs text = {0};
    if (shell_expand(p->scope, from, stop, p->line, SHELL_WORD, 0, &text, p->err))
        return -1;
    int first = c->words.count;
    shell_split(p->scope, &text, false, &c->words, &c->room);
    for (int i = first; p->prefix_unknown && i < c->words.count; i++)
        if (strchr(c->words.list[i].text, '$'))
            c->words.list[i].unknown = p->prefix_unknown;
    if (!first && c->words.count)
        c->declares = shell_is_one_of(c->words.list[0].text, declaring);
    shell_advance(p, stop);
    return 0;
}

static bool at_end_of_command(const struct parser *p)
{
    return p->at == p->end || (strchr("\n;|()", *p->at) != NULL) ||
           (*p->at == '&' && !shell_at_redirection(p));
}

static int read_simple(struct parser *p)
{
    struct command c = {.line = p->line};
    int here_before = p->here_count;
    for (shell_skip_blanks(p); !at_end_of_command(p); shell_skip_blanks(p)) {
        if (*p->at == '#') {
            if (shell_skip_comment(p))
                return -1;
        } else if (shell_at_redirection(p)) {
            while (isdigit((unsigned char)*p->at) || *p->at == '&')
                p->at++;
            if (shell_read_redirection(p, &c))
                return -1;
        } else if (*p->at == '\\' && p->at + 1 == p->end) {
            p->at++;
        } else if (read_word(p, &c)) {
            return -1;
        }
    }
    for (int i = here_before; i < p->here_count; i++)
        p->here[i].target = shell_is_passed(p) ? (struct glyphs){0} : c.target;
    for (int i = here_before; i < p->here_count; i++)
        p->here[i].script = !shell_is_passed(p) && shell_reads_here(&c.words);
    return finish_command(p, &c);
}

/* What an expression that is not evaluated assigns, is unknown from then on. */
static int forget_assigned(struct parser *p, const char *from, const char *end, int line)
{
    for (const char *at = from; at < end && !shell_is_passed(p); at++) {
        size_t length = shell_name_length(at, end);
        const char *name = at;
        if (!length)
            continue;
        at += length;
        if (shell_find(p->scope, name, length) &&
            shell_forget(p->scope, name, length,
                         arena_printf(p->scope->arena, "$%.*s is worked out on line %s", (int)length, name,
                                      shell_line_text(p->scope, line)),
                         line, p->err))
            return -1;
    }
    return 0;
}

/* Behind ((: up to its )), and behind that. */
static int read_arithmetic(struct parser *p)
{
    const char *from = p->at;
    int64_t value;
    int line = p->line;
    for (int open = 0; p->at < p->end && (open || !shell_starts(p, "))"));) {
        open += (*p->at == '(') - (*p->at == ')');
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            break;
        shell_advance(p, next);
    }
    if (!shell_starts(p, "))"))
        return shell_broken(p, "a condition is not closed");
    const char *end = p->at;
    p->at += 2;
    if (shell_arithmetic(p->scope, from, end, &value)) {
        shell_settle(p, value ? SHELL_TRUE : SHELL_FALSE);
        return 0;
    }
    if (forget_assigned(p, from, end, line))
        return -1;
    shell_settle(p, SHELL_UNDECIDED);
    return 0;
}

static int read_operator(struct parser *p)
{
    if (shell_starts(p, "((")) {
        p->at += 2;
        return read_arithmetic(p);
    }
    if (shell_starts(p, "&&") || shell_starts(p, "||")) {
        shell_join(p, *p->at == '&' ? "&&" : "||");
        p->at += 2;
        return 0;
    }
    char c = *p->at++;
    if (c == '|')
        shell_join(p, "|");
    else if (c == ';' || c == '&' || (c == '\n' && !p->list.waits))
        shell_fresh_list(p);
    if (c == '(')
        return p->function_next ? shell_open_function(p) : shell_open_block(p, '(');
    if (c == ')') {
        shell_close_function(p, p->at - 1);
        return shell_close_block(p, "(f", ")");
    }
    if (c == ';' && p->at < p->end && *p->at == ';') {
        p->at++;
        p->pattern = p->open_count && p->open[p->open_count - 1] == 'c';
    }
    if (c == '\n') {
        p->line++;
        return shell_read_here_documents(p);
    }
    return 0;
}

static int parse_one(struct parser *p)
{
    if (*p->at == '#')
        return shell_skip_comment(p);
    if (p->pattern && *p->at != '\n')
        return shell_read_pattern(p);
    if (strchr("\n;&|()", *p->at) && !shell_at_redirection(p))
        return read_operator(p);
    const char *stop = shell_word_end(p);
    if (!stop)
        return -1;
    if (shell_skip_function_name(p, stop))
        return 0;
    int status = shell_read_reserved(p, stop);
    return status > 0 ? read_simple(p) : status;
}

int shell_parse(struct parser *p)
{
    for (shell_skip_blanks(p); p->at < p->end; shell_skip_blanks(p))
        if (parse_one(p))
            return -1;
    if (p->open_count > p->open_base)
        return shell_broken(p, "the script ends inside a block");
    return p->here_count ? shell_broken(p, "a here-document does not end") : 0;
}

int shell_read(const struct shell_input *input, struct arena *arena, struct shell_script *out,
               struct error *err)
{
    struct scope scope = {
        .arena = arena, .file = input->file, .files = {input->file}, .file_count = 1, .budget = GLYPH_BUDGET};
    struct shell_functions functions = {.count = 0};
    struct shell_rooms rooms = {0};
    *out = (struct shell_script){0};
    if (memchr(input->text, 0, input->length))
        return error_set(err, "%s: not a script: it holds a zero byte; is it the right file?", input->file);
    /* A line's end before it, which changes nothing: whoever looks at the character before has one. */
    char *text = arena_alloc(arena, input->length + 2);
    text[0] = '\n';
    memcpy(text + 1, input->text, input->length);
    struct parser p = {.scope = &scope,
                       .at = text + 1,
                       .end = text + 1 + input->length,
                       .line = input->first_line,
                       .out = out,
                       .rooms = &rooms,
                       .list = {.branch = SHELL_RUNS},
                       .outer_branch = SHELL_RUNS,
                       .functions = &functions,
                       .err = err};
    if (shell_give_variables(&scope, input, err))
        return -1;
    if (shell_parse(&p))
        return -1;
    shell_find_settings(&scope, out);
    return 0;
}
