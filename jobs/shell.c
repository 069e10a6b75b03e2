/* Commands of a script: where they begin and end, what they assign. Conditions and loops are walked over, each line once, so
 * that a launch inside of one is found; what they assign is unknown from then on. */
#include "jobs/shell.h"

#include "jobs/shell_expand.h"

#include "base/checked.h"
#include "base/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_OPEN = 64,
    MOST_HERE = 8,
    MOST_ASSIGNED = 64,
    MOST_COMMANDS = 20000,
    MOST_NESTED = 4,
    MOST_BATCH = 200
};
#define GLYPH_BUDGET 2000000

struct span {
    const char *from, *end;
    int line;
};

struct here {             /* a here-document whose body has not come yet */
    struct glyphs target; /* the file it is written to; nothing: none */
    const char *word;
    bool quoted, tabs;
};

struct parser {
    struct scope *scope;
    const char *at, *end;
    int line;
    struct shell_script *out;
    int *rooms; /* of commands, files, skipped, batch words */
    char open[MOST_OPEN];
    int open_count;
    struct here here[MOST_HERE];
    int here_count;
    bool pattern;       /* before a pattern of a case */
    bool function_next; /* the next { opens a function */
    bool tested;        /* what comes depends on a condition before && or || */
    const char *prefix_unknown;
    const struct words *prefix; /* of a script in `bash -c`: what stands before it */
    int nested;
    struct error *err;
};

/* One command while it is read. */
struct command {
    struct words words;
    int room, line;
    struct span assigned[MOST_ASSIGNED];
    int assigned_count;
    struct glyphs target; /* of > */
    bool declares;        /* export, local ...: its words are assignments */
};

static int broken(const struct parser *p, const char *what)
{
    return error_set(p->err, "%s:%d: %s; correct the script", p->scope->file, p->line, what);
}

static void advance(struct parser *p, const char *to)
{
    for (; p->at < to; p->at++)
        p->line += *p->at == '\n';
}

static void skip_blanks(struct parser *p)
{
    for (;;) {
        if (p->at + 1 < p->end && p->at[0] == '\\' && p->at[1] == '\n')
            advance(p, p->at + 2);
        else if (p->at + 2 < p->end && !strncmp(p->at, "\\\r\n", 3))
            advance(p, p->at + 3);
        else if (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r'))
            p->at++;
        else
            return;
    }
}

static bool starts(const struct parser *p, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(p->end - p->at) >= length && !strncmp(p->at, text, length);
}

static const char *inside(const struct parser *p)
{
    for (int i = p->open_count - 1; i >= 0; i--)
        switch (p->open[i]) {
        case 'i':
            return "an if";
        case 'l':
            return "a loop";
        case 'c':
            return "a case";
        case 'f':
            return "a function";
        }
    return NULL;
}

static int open_block(struct parser *p, char kind)
{
    if (p->open_count == MOST_OPEN)
        return broken(p, "blocks are nested too deep");
    p->open[p->open_count++] = kind;
    return 0;
}

static int close_block(struct parser *p, const char *kinds, const char *word)
{
    if (!p->open_count || !strchr(kinds, p->open[p->open_count - 1])) {
        char what[80];
        snprintf(what, sizeof what, "\"%s\" closes nothing", word);
        return broken(p, what);
    }
    p->open_count--;
    return 0;
}

/* ---- words ---- */

/* Past a raw word, NULL with err: it does not end. */
static const char *word_end(struct parser *p)
{
    const char *at = p->at;
    while (at < p->end && !strchr(" \t\r\n;&|()<>", *at)) {
        if (at + 1 < p->end && at[0] == '\\' && at[1] == '\n')
            return at;
        const char *next = shell_skip(at, p->end, 0);
        if (!next) {
            char what[80];
            snprintf(what, sizeof what, "%c is not closed", *at);
            broken(p, what);
            return NULL;
        }
        at = next;
    }
    return at;
}

/* The length of NAME, NAME[..] before = or +=; 0: no assignment. */
static size_t assigned_name(const char *from, const char *end, const char **value, bool *append)
{
    size_t length = shell_name_length(from, end);
    const char *at = from + length;
    if (!length || at == end)
        return 0;
    *append = *at == '+';
    at += *append;
    if (at == end || *at != '=')
        return 0;
    *value = at + 1;
    return length;
}

/* Past the ) of an array's values, which begin behind p->at. */
static const char *array_end(struct parser *p, const char *at)
{
    while (at && at < p->end && *at != ')') {
        if (*at == '#' && strchr(" \t\n(", at[-1])) {
            const char *newline = memchr(at, '\n', (size_t)(p->end - at));
            at = newline ? newline : p->end;
        } else {
            at = shell_skip(at, p->end, 0);
        }
    }
    if (at && at < p->end)
        return at + 1;
    broken(p, "an array's ( is not closed");
    return NULL;
}

/* ---- assignments ---- */

/* What "" leaves in a word is nothing in a value. */
static struct glyphs stripped(struct glyphs text)
{
    int count = 0;
    for (int i = 0; i < text.count; i++)
        if (!(text.list[i].flags & (GLYPH_EMPTY | GLYPH_BREAK)) || text.list[i].character)
            text.list[count++] = text.list[i];
    text.count = count;
    return text;
}

static int assign_array(struct parser *p, struct variable *v, const char *from, const char *end, int line)
{
    struct parser in = *p;
    in.at = from;
    in.end = end;
    in.line = line;
    v->array = true;
    for (;;) {
        while (in.at < in.end && (isspace((unsigned char)*in.at) || strchr("\\;&|()<>", *in.at)))
            advance(&in, in.at + 1);
        if (in.at == in.end)
            return 0;
        if (*in.at == '#') {
            while (in.at < in.end && *in.at != '\n')
                in.at++;
            continue;
        }
        const char *stop = word_end(&in);
        struct glyphs text = {0};
        struct words fields = {0};
        int room = 0;
        if (!stop || shell_expand(p->scope, in.at, stop, in.line, SHELL_WORD, 0, &text, p->err))
            return -1;
        /* Values are kept as glyphs, so that what is unknown in them stays so: cut here as shell_split() cuts. */
        shell_split(p->scope, &text, false, &fields, &room);
        for (int first = 0, i = 0; i <= text.count; i++) {
            const struct glyph *g = i < text.count ? &text.list[i] : NULL;
            if (g && !(g->flags & GLYPH_BREAK) && (g->flags || !isspace(g->character)))
                continue;
            if (i > first)
                shell_append_value(p->scope, v, stripped((struct glyphs){text.list + first, i - first, 0}));
            first = i + 1;
        }
        advance(&in, stop);
    }
}

/* `old`: what stands before it, NULL: nothing. */
static int assign_text(struct parser *p, struct variable *v, const struct glyphs *old, struct span value)
{
    struct glyphs text = {0};
    if (old)
        text = *old;
    text.room = 0; /* others may hold the old text */
    if (shell_expand(p->scope, value.from, value.end, value.line, SHELL_WORD, 0, &text, p->err))
        return -1;
    /* Of "${ARRAY[@]}" one value is made; it is cut where it is used. */
    for (int i = 0; i < text.count; i++)
        if (text.list[i].flags & GLYPH_BREAK)
            text.list[i].flags = 0;
    shell_append_value(p->scope, v, stripped(text));
    return 0;
}

static int assign(struct parser *p, struct span s)
{
    const char *value = s.end;
    bool append = false;
    size_t length = assigned_name(s.from, s.end, &value, &append);
    struct scope *scope = p->scope;
    const char *place = inside(p);
    if (!place && p->tested)
        place = "a condition";
    if (place)
        return shell_forget(scope, s.from, length,
                            arena_printf(scope->arena, "$%.*s is set inside %s on line %d", (int)length,
                                         s.from, place, s.line),
                            s.line, p->err);
    struct variable *v = shell_declare(scope, s.from, length, p->err);
    if (!v)
        return -1;
    if (v->fixed)
        return 0;
    /* The old value stands until the new one is complete: A="$A more". */
    struct variable fresh = {.name = v->name};
    bool array = value < s.end && *value == '(';
    if (append && array && v->array)
        for (int i = 0; i < v->count; i++)
            shell_append_value(scope, &fresh, v->values[i]);
    int status = array ? assign_array(p, &fresh, value + 1, s.end - 1, s.line)
                       : assign_text(p, &fresh, append && v->count ? &v->values[0] : NULL,
                                     (struct span){value, s.end, s.line});
    *v = fresh;
    return status;
}

/* ---- Slurm ---- */

static const struct {
    const char *option, *variables[3];
} batch_variables[] = {
    {"--nodes", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", NULL}},
    {"-N", {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", NULL}},
    {"--ntasks-per-node", {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL}},
    {"--ntasks", {"SLURM_NTASKS", "SLURM_NPROCS", NULL}},
    {"-n", {"SLURM_NTASKS", "SLURM_NPROCS", NULL}},
    {"--gpus-per-node", {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE", NULL}},
    {"--gres", {"SLURM_GPUS_ON_NODE", NULL, NULL}},
    {"--cpus-per-task", {"SLURM_CPUS_PER_TASK", NULL, NULL}},
};

static int set_number(struct parser *p, const char *name, int64_t number)
{
    struct variable *v = shell_declare(p->scope, name, strlen(name), p->err);
    struct glyphs value = {0};
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%lld", (long long)number);
    if (!v)
        return -1;
    if (v->fixed)
        return 0;
    for (int i = 0; i < count; i++)
        if (shell_glyphs_add(p->scope, &value, &(struct glyph){(unsigned char)digits[i], 0, 0, p->line}, 1,
                             p->err))
            return -1;
    v->count = 0;
    shell_append_value(p->scope, v, value);
    return 0;
}

/* What Slurm will set, of an option of #SBATCH and its value: "8", "gpu:8", "gpu:a100:8". */
static int set_batch_variable(struct parser *p, const char *option, size_t length, const char *value)
{
    const char *colon = strrchr(value, ':');
    int64_t number = strtoll(colon ? colon + 1 : value, NULL, 10);
    for (size_t i = 0; i < sizeof batch_variables / sizeof batch_variables[0]; i++) {
        if (strlen(batch_variables[i].option) != length || strncmp(batch_variables[i].option, option, length))
            continue;
        for (int k = 0; batch_variables[i].variables[k] && number > 0; k++)
            if (set_number(p, batch_variables[i].variables[k], number))
                return -1;
    }
    return 0;
}

/* After each #SBATCH line: what all of them set so far. */
static int set_batch_variables(struct parser *p)
{
    const struct words *w = &p->out->batch;
    int64_t product = 1;
    for (int i = 0; i < w->count; i++) {
        const char *text = w->list[i].text, *equals = strchr(text, '=');
        const char *value = equals ? equals + 1 : i + 1 < w->count ? w->list[i + 1].text : "";
        if (*text == '-' &&
            set_batch_variable(p, text, equals ? (size_t)(equals - text) : strlen(text), value))
            return -1;
    }
    static const char *const factors[] = {"SLURM_NNODES", "SLURM_NTASKS_PER_NODE"};
    for (int i = 0; i < 2; i++) {
        int64_t factor;
        if (!shell_arithmetic(p->scope, factors[i], factors[i] + strlen(factors[i]), &factor) ||
            !checked_mul(product, factor, &product))
            return 0;
    }
    return shell_find(p->scope, "SLURM_NTASKS", 12) ? 0 : set_number(p, "SLURM_NTASKS", product);
}

static int forget_words(struct parser *p, const struct words *w)
{
    for (int i = 1; i < w->count; i++) {
        const char *text = w->list[i].text, *end = text + strlen(text);
        size_t length = shell_name_length(text, end);
        if (length && text + length == end &&
            shell_forget(p->scope, text, length,
                         arena_printf(p->scope->arena, "$%s is read on line %d, which is not executed", text,
                                      w->list[i].line),
                         w->list[i].line, p->err))
            return -1;
    }
    return 0;
}

static void unset_words(struct parser *p, const struct words *w)
{
    for (int i = 1; i < w->count; i++) {
        struct variable *v = shell_find(p->scope, w->list[i].text, strlen(w->list[i].text));
        if (v && !v->fixed)
            v->count = 0;
    }
}

/* ---- what a command adds ---- */

static void *grow(struct parser *p, void *list, int count, int which, size_t size)
{
    if (count < p->rooms[which])
        return list;
    p->rooms[which] = p->rooms[which] ? 2 * p->rooms[which] : 16;
    void *longer = arena_array(p->scope->arena, (size_t)p->rooms[which], size);
    if (count)
        memcpy(longer, list, (size_t)count * size);
    return longer;
}

static void add_skipped(struct parser *p, const struct words *w)
{
    struct text line = {0};
    for (int i = 0; i < w->count && i < 4; i++)
        text_printf(&line, i ? " %s" : "%s", w->list[i].text);
    struct shell_script *out = p->out;
    out->skipped = grow(p, out->skipped, out->skipped_count, 2, sizeof *out->skipped);
    out->skipped[out->skipped_count++] = (struct word){.text = arena_strdup(p->scope->arena, line.data),
                                                       .file = p->scope->file,
                                                       .line = w->list[0].line,
                                                       .unknown = "not executed"};
    text_free(&line);
}

static int parse(struct parser *p);

/* Whether words[i] and the next are `bash -c`; then words[i + 2] is a script. */
static bool is_inner_script(const struct words *w, int i)
{
    const char *slash = strrchr(w->list[i].text, '/'), *name = slash ? slash + 1 : w->list[i].text;
    if (i + 2 >= w->count || (strcmp(name, "bash") && strcmp(name, "sh")))
        return false;
    const char *option = w->list[i + 1].text;
    return option[0] == '-' && option[1] != '-' && option[strlen(option) - 1] == 'c';
}

static int parse_inner(struct parser *p, const struct command *c, int at)
{
    struct words prefix = {c->words.list, at};
    const struct word *text = &c->words.list[at + 2];
    /* parse_one() looks at the character before the first. */
    const char *script = arena_printf(p->scope->arena, "\n%s", text->text) + 1;
    struct parser in = {.scope = p->scope,
                        .at = script,
                        .end = script + strlen(script),
                        .line = text->line,
                        .out = p->out,
                        .rooms = p->rooms,
                        .prefix = &prefix,
                        .nested = p->nested + 1,
                        .err = p->err};
    if (in.nested > MOST_NESTED)
        return broken(p, "bash -c is nested too deep");
    in.prefix_unknown = text->unknown;
    return parse(&in);
}

static int add_command(struct parser *p, struct command *c)
{
    struct shell_script *out = p->out;
    for (int i = 0; i < c->words.count; i++)
        if (is_inner_script(&c->words, i))
            return parse_inner(p, c, i);
    if (out->command_count == MOST_COMMANDS)
        return broken(p, "there are too many commands");
    if (p->prefix && p->prefix->count) {
        struct word *all =
            arena_array(p->scope->arena, (size_t)(p->prefix->count + c->words.count), sizeof *all);
        memcpy(all, p->prefix->list, (size_t)p->prefix->count * sizeof *all);
        memcpy(all + p->prefix->count, c->words.list, (size_t)c->words.count * sizeof *all);
        c->words = (struct words){all, c->words.count + p->prefix->count};
    }
    out->commands = grow(p, out->commands, out->command_count, 0, sizeof *out->commands);
    out->commands[out->command_count++] = (struct shell_command){c->words, c->line,
                                                                 inside(p)   ? inside(p)
                                                                 : p->tested ? "a condition"
                                                                             : NULL};
    return 0;
}

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(word, *list))
            return true;
    return false;
}

static const char *const declaring[] = {"export", "declare", "local", "readonly", "typeset", NULL};
static const char *const reading[] = {"read", "mapfile", "readarray", "getopts", "let", NULL};
static const char *const running[] = {"source", ".", "eval", NULL};
static const char *const testing[] = {"[", "test", NULL};

static const char *const allocators[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

/* What is set for one command is no variable for the next; this one is wanted all the same. */
static bool is_allocator(struct span s)
{
    for (int i = 0; i < 2; i++)
        if ((size_t)(s.end - s.from) > strlen(allocators[i]) &&
            !strncmp(s.from, allocators[i], strlen(allocators[i])) && s.from[strlen(allocators[i])] == '=')
            return true;
    return false;
}

static void find_allocator(struct scope *scope, struct shell_script *out)
{
    int room = 0;
    for (int i = 0; i < 2; i++) {
        const struct variable *v = shell_find(scope, allocators[i], strlen(allocators[i]));
        if (v && v->count && !out->allocator.count)
            shell_split(scope, &v->values[0], true, &out->allocator, &room);
    }
}

static int finish_command(struct parser *p, struct command *c)
{
    const char *name = c->words.count ? c->words.list[0].text : "";
    for (int i = 0; i < c->assigned_count; i++)
        if ((!c->words.count || c->declares || is_allocator(c->assigned[i])) && assign(p, c->assigned[i]))
            return -1;
    if (!c->words.count || c->declares || is_one_of(name, testing))
        return 0;
    if (is_one_of(name, reading))
        return forget_words(p, &c->words);
    if (!strcmp(name, "unset")) {
        unset_words(p, &c->words);
        return 0;
    }
    if (!strcmp(name, "shift")) {
        p->scope->arguments += p->scope->argument_count > 0;
        p->scope->argument_count -= p->scope->argument_count > 0;
        return 0;
    }
    if (is_one_of(name, running)) {
        add_skipped(p, &c->words);
        return 0;
    }
    return add_command(p, c);
}

/* ---- redirections ---- */

/* At < or >; moves behind the redirection. */
static int read_redirection(struct parser *p, struct command *c)
{
    const char *from = p->at;
    while (p->at < p->end && strchr("<>&|-", *p->at) && p->at - from < 3)
        p->at++;
    bool here = !strncmp(from, "<<", 2) && (p->at - from == 2 || from[2] == '-');
    bool output = *from == '>' && (p->at - from == 1 || (p->at - from == 2 && from[1] == '>'));
    skip_blanks(p);
    if (p->at < p->end && *p->at == '(') {
        /* >(command): a process of its own. */
        const char *close = array_end(p, p->at + 1);
        if (!close)
            return -1;
        advance(p, close);
        return 0;
    }
    const char *stop = word_end(p);
    if (!stop)
        return -1;
    if (here) {
        if (p->here_count == MOST_HERE)
            return broken(p, "there are too many here-documents on a line");
        struct here *h = &p->here[p->here_count++];
        bool quotes = p->at < stop && (*p->at == '\'' || *p->at == '"');
        int length = (int)(stop - p->at) - 2 * quotes;
        *h = (struct here){.quoted = quotes || (p->at < stop && *p->at == '\\'), .tabs = from[2] == '-'};
        h->word = arena_printf(p->scope->arena, "%.*s", length < 0 ? 0 : length, p->at + quotes);
    } else if (output && shell_expand(p->scope, p->at, stop, p->line, SHELL_WORD, 0, &c->target, p->err)) {
        return -1;
    }
    advance(p, stop);
    return 0;
}

static bool at_redirection(const struct parser *p)
{
    const char *at = p->at;
    while (at < p->end && isdigit((unsigned char)*at))
        at++;
    if (at < p->end && *at == '&' && at == p->at)
        return at + 1 < p->end && at[1] == '>';
    return at < p->end && (*at == '<' || *at == '>');
}

static void add_file(struct parser *p, const char *name, const struct glyphs *text)
{
    struct shell_script *out = p->out;
    char *body = arena_alloc(p->scope->arena, (size_t)text->count + 1);
    for (int i = 0; i < text->count; i++)
        body[i] = (char)text->list[i].character;
    out->files = grow(p, out->files, out->file_count, 1, sizeof *out->files);
    out->files[out->file_count++] = (struct shell_file){name, body, p->line};
}

/* The body of one here-document, from the start of a line. */
static int read_here(struct parser *p, const struct here *h)
{
    const char *from = p->at, *stop = NULL;
    size_t length = strlen(h->word);
    int line = p->line;
    while (!stop && p->at < p->end) {
        const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
        const char *line_end = newline ? newline : p->end, *text = p->at;
        while (h->tabs && text < line_end && *text == '\t')
            text++;
        if ((size_t)(line_end - text) == length && !strncmp(text, h->word, length))
            stop = p->at;
        advance(p, newline ? newline + 1 : p->end);
    }
    if (!stop)
        return broken(p, "a here-document does not end");
    struct glyphs text = {0};
    struct words name = {0};
    int room = 0;
    if (!h->target.count)
        return 0;
    if (h->quoted) {
        for (const char *at = from; at < stop; at++)
            if (shell_glyphs_add(p->scope, &text, &(struct glyph){.character = (unsigned char)*at}, 1,
                                 p->err))
                return -1;
    } else if (shell_expand(p->scope, from, stop, line, SHELL_HERE, 0, &text, p->err)) {
        return -1;
    }
    shell_split(p->scope, &h->target, true, &name, &room);
    add_file(p, name.list[0].text, &text);
    return 0;
}

static int read_here_documents(struct parser *p)
{
    for (int i = 0; i < p->here_count; i++)
        if (read_here(p, &p->here[i]))
            return -1;
    p->here_count = 0;
    return 0;
}

/* ---- comments ---- */

static void add_batch(struct parser *p, const char *from, const char *end)
{
    while (from < end) {
        while (from < end && isspace((unsigned char)*from))
            from++;
        const char *stop = from;
        while (stop < end && !isspace((unsigned char)*stop))
            stop++;
        if (stop == from || *from == '#')
            return;
        struct words *w = &p->out->batch;
        w->list = grow(p, w->list, w->count, 3, sizeof *w->list);
        w->list[w->count++] =
            (struct word){.text = arena_printf(p->scope->arena, "%.*s", (int)(stop - from), from),
                          .file = p->scope->file,
                          .line = p->line};
        from = stop;
    }
}

static int skip_comment(struct parser *p)
{
    const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *end = newline ? newline : p->end;
    bool batch = starts(p, "#SBATCH") && p->out->batch.count < MOST_BATCH;
    if (batch)
        add_batch(p, p->at + strlen("#SBATCH"), end);
    p->at = end;
    return batch ? set_batch_variables(p) : 0;
}

/* ---- commands ---- */

/* A word of the command, or an assignment before it. */
static int read_word(struct parser *p, struct command *c)
{
    const char *from = p->at, *value = NULL, *stop = word_end(p);
    bool append = false;
    if (!stop)
        return -1;
    size_t length = assigned_name(from, stop, &value, &append);
    if (length && value == stop && stop < p->end && *stop == '(' && !(stop = array_end(p, stop + 1)))
        return -1;
    if (length && (!c->words.count || c->declares)) {
        if (c->assigned_count == MOST_ASSIGNED)
            return broken(p, "there are too many assignments on a line");
        c->assigned[c->assigned_count++] = (struct span){from, stop, p->line};
        advance(p, stop);
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
        c->declares = is_one_of(c->words.list[0].text, declaring);
    advance(p, stop);
    return 0;
}

static bool at_end_of_command(const struct parser *p)
{
    return p->at == p->end || (strchr("\n;|()", *p->at) != NULL) || (*p->at == '&' && !at_redirection(p));
}

static int read_simple(struct parser *p)
{
    struct command c = {.line = p->line};
    int here_before = p->here_count;
    for (skip_blanks(p); !at_end_of_command(p); skip_blanks(p)) {
        if (*p->at == '#') {
            if (skip_comment(p))
                return -1;
        } else if (at_redirection(p)) {
            while (isdigit((unsigned char)*p->at) || *p->at == '&')
                p->at++;
            if (read_redirection(p, &c))
                return -1;
        } else if (*p->at == '\\' && p->at + 1 == p->end) {
            p->at++;
        } else if (read_word(p, &c)) {
            return -1;
        }
    }
    for (int i = here_before; i < p->here_count; i++)
        p->here[i].target = c.target;
    const char *name = c.words.count ? c.words.list[0].text : "";
    if (finish_command(p, &c))
        return -1;
    /* `[ ... ] && X=1` */
    bool and = starts(p, "&&"), or = starts(p, "||");
    p->tested = or ? true : and&&(p->tested || is_one_of(name, testing));
    return 0;
}

/* Up to a word that ends it: ]] or )). */
static int skip_condition(struct parser *p, const char *closer)
{
    while (p->at < p->end && !starts(p, closer)) {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return broken(p, "a condition is not closed");
        advance(p, next);
    }
    if (p->at == p->end)
        return broken(p, "a condition is not closed");
    p->at += strlen(closer);
    skip_blanks(p);
    p->tested = starts(p, "&&") || starts(p, "||");
    return 0;
}

/* `for NAME in ...` up to its end. */
static int read_for(struct parser *p)
{
    skip_blanks(p);
    size_t length = shell_name_length(p->at, p->end);
    int line = p->line;
    if (length && shell_forget(p->scope, p->at, length,
                               arena_printf(p->scope->arena, "$%.*s is that of a loop on line %d",
                                            (int)length, p->at, line),
                               line, p->err))
        return -1;
    while (p->at < p->end && *p->at != '\n' && *p->at != ';') {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return broken(p, "a for is not closed");
        advance(p, next);
    }
    return open_block(p, 'l');
}

static int read_case(struct parser *p)
{
    while (p->at < p->end && !(starts(p, "in") && p->at + 2 < p->end && isspace((unsigned char)p->at[2]) &&
                               isspace((unsigned char)p->at[-1]))) {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return broken(p, "a case is not closed");
        advance(p, next);
    }
    if (p->at < p->end)
        p->at += 2;
    p->pattern = true;
    return open_block(p, 'c');
}

static int read_pattern(struct parser *p)
{
    p->pattern = false;
    if (starts(p, "esac"))
        return 0;
    while (p->at < p->end && *p->at != ')') {
        const char *next = shell_skip(p->at, p->end, 0);
        if (!next)
            return broken(p, "a case is not closed");
        advance(p, next);
    }
    p->at += p->at < p->end;
    return 0;
}

/* NAME ( ) */
static bool skip_function_name(struct parser *p, const char *stop)
{
    const char *at = stop;
    while (at < p->end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == p->at || at[-1] == '=' || at == p->end || *at != '(')
        return false;
    for (at++; at < p->end && (*at == ' ' || *at == '\t');)
        at++;
    if (at == p->end || *at != ')')
        return false;
    p->at = at + 1;
    p->function_next = true;
    return true;
}

enum reserved {
    NOT_RESERVED,
    PASSED,
    OPENS_IF,
    OPENS_LOOP,
    OPENS_FOR,
    OPENS_CASE,
    CLOSES_IF,
    CLOSES_LOOP,
    CLOSES_CASE,
    OPENS_BRACE,
    CLOSES_BRACE,
    FUNCTION,
    CONDITION
};

static const struct {
    const char *word;
    enum reserved what;
} reserved_words[] = {
    {"if", OPENS_IF},      {"then", PASSED},       {"elif", PASSED},      {"else", PASSED},
    {"fi", CLOSES_IF},     {"for", OPENS_FOR},     {"select", OPENS_FOR}, {"while", OPENS_LOOP},
    {"until", OPENS_LOOP}, {"do", PASSED},         {"done", CLOSES_LOOP}, {"case", OPENS_CASE},
    {"esac", CLOSES_CASE}, {"{", OPENS_BRACE},     {"}", CLOSES_BRACE},   {"!", PASSED},
    {"time", PASSED},      {"function", FUNCTION}, {"[[", CONDITION},
};

static enum reserved reserved_at(const struct parser *p, const char *stop)
{
    for (size_t i = 0; i < sizeof reserved_words / sizeof reserved_words[0]; i++)
        if (strlen(reserved_words[i].word) == (size_t)(stop - p->at) &&
            !strncmp(p->at, reserved_words[i].word, (size_t)(stop - p->at)))
            return reserved_words[i].what;
    return NOT_RESERVED;
}

static int read_function(struct parser *p)
{
    skip_blanks(p);
    const char *stop = word_end(p);
    if (!stop)
        return -1;
    if (!skip_function_name(p, stop))
        advance(p, stop);
    p->function_next = true;
    return 0;
}

static int read_reserved(struct parser *p, enum reserved what, const char *stop)
{
    advance(p, stop);
    switch (what) {
    case OPENS_IF:
        return open_block(p, 'i');
    case OPENS_LOOP:
        return open_block(p, 'l');
    case OPENS_FOR:
        return read_for(p);
    case OPENS_CASE:
        return read_case(p);
    case CLOSES_IF:
        return close_block(p, "i", "fi");
    case CLOSES_LOOP:
        return close_block(p, "l", "done");
    case CLOSES_CASE:
        p->pattern = false;
        return close_block(p, "c", "esac");
    case OPENS_BRACE: {
        char kind = p->function_next ? 'f' : '{';
        p->function_next = false;
        return open_block(p, kind);
    }
    case CLOSES_BRACE:
        return close_block(p, "{f", "}");
    case FUNCTION:
        return read_function(p);
    case CONDITION:
        return skip_condition(p, "]]");
    default:
        return 0;
    }
}

static int read_operator(struct parser *p)
{
    if (starts(p, "((")) {
        p->at += 2;
        return skip_condition(p, "))");
    }
    char c = *p->at++;
    if (c == '(') {
        char kind = p->function_next ? 'f' : '(';
        p->function_next = false;
        return open_block(p, kind);
    }
    if (c == ')')
        return close_block(p, "(f", ")");
    if (c == ';' && p->at < p->end && *p->at == ';') {
        p->at++;
        p->pattern = p->open_count && p->open[p->open_count - 1] == 'c';
    }
    if (c == '\n') {
        p->line++;
        return read_here_documents(p);
    }
    return 0;
}

static int parse_one(struct parser *p)
{
    if (*p->at == '#')
        return skip_comment(p);
    if (p->pattern && *p->at != '\n')
        return read_pattern(p);
    if (strchr("\n;&|()", *p->at) && !at_redirection(p)) {
        if (!starts(p, "&&") && !starts(p, "||") && p->at[-1] != '&' && p->at[-1] != '|')
            p->tested = false;
        return read_operator(p);
    }
    const char *stop = word_end(p);
    if (!stop)
        return -1;
    if (skip_function_name(p, stop))
        return 0;
    enum reserved what = reserved_at(p, stop);
    return what ? read_reserved(p, what, stop) : read_simple(p);
}

static int parse(struct parser *p)
{
    for (skip_blanks(p); p->at < p->end; skip_blanks(p))
        if (parse_one(p))
            return -1;
    if (p->open_count)
        return broken(p, "the script ends inside a block");
    return p->here_count ? broken(p, "a here-document does not end") : 0;
}

static int give_variables(struct scope *scope, const struct shell_input *input, struct error *err)
{
    for (int i = 0; i < input->given_count; i++) {
        const char *name = input->given[i].name, *value = input->given[i].value;
        struct variable *v = shell_declare(scope, name, strlen(name), err);
        struct glyphs text = {0};
        if (!v)
            return -1;
        for (; *value; value++)
            if (shell_glyphs_add(scope, &text, &(struct glyph){.character = (unsigned char)*value}, 1, err))
                return -1;
        v->fixed = true;
        shell_append_value(scope, v, text);
    }
    return 0;
}

int shell_read(const struct shell_input *input, struct arena *arena, struct shell_script *out,
               struct error *err)
{
    struct scope scope = {.arena = arena,
                          .file = input->file,
                          .arguments = input->arguments,
                          .argument_count = input->argument_count,
                          .budget = GLYPH_BUDGET};
    int rooms[4] = {0};
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
                       .rooms = rooms,
                       .err = err};
    if (give_variables(&scope, input, err))
        return -1;
    if (parse(&p))
        return -1;
    find_allocator(&scope, out);
    return 0;
}
