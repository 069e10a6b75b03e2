/* Functions of a script. Where one is defined its body is walked over, so that a launch in it is found, and nothing that it
 * assigns lasts; where one is called its body is read with the call's arguments, as bash would run it. */
#include "jobs/shell_parse.h"

#include <string.h>

enum { MOST_LOCALS = 64 };

int shell_open_function(struct parser *p)
{
    struct shell_functions *all = p->functions;
    struct scope *s = p->scope;
    bool kept = all->count < SHELL_MOST_FUNCTIONS && p->open_count < SHELL_MOST_OPEN && !shell_is_passed(p);
    p->function_next = false;
    if (kept) {
        struct shell_function *f = &all->list[all->count++];
        *f = (struct shell_function){.name = p->function_name,
                                     .from = p->at,
                                     .line = p->line,
                                     .first = p->out->command_count,
                                     .variable_count = s->variable_count,
                                     .arguments = s->arguments,
                                     .argument_count = s->argument_count};
        f->variables = arena_array(s->arena, (size_t)s->variable_count + 1, sizeof *f->variables);
        if (s->variable_count)
            memcpy(f->variables, s->variables, (size_t)s->variable_count * sizeof *f->variables);
        s->argument_count = SHELL_UNKNOWN_ARGUMENTS;
        p->function_of[p->open_count] = f;
    }
    if (shell_open_block(p, 'f'))
        return -1;
    if (!kept)
        p->function_of[p->open_count - 1] = NULL;
    return 0;
}

void shell_close_function(struct parser *p, const char *end)
{
    bool open = p->open_count > p->open_base && p->open[p->open_count - 1] == 'f';
    struct shell_function *f = open ? p->function_of[p->open_count - 1] : NULL;
    struct scope *s = p->scope;
    if (!f)
        return;
    f->end = end;
    f->last = p->out->command_count;
    if (f->variable_count)
        memcpy(s->variables, f->variables, (size_t)f->variable_count * sizeof *s->variables);
    s->arguments = f->arguments;
    s->argument_count = f->argument_count;
}

/* ---- calls ---- */

static struct shell_function *find(const struct shell_functions *all, const char *name)
{
    size_t length = strlen(name);
    for (int i = all->count - 1; i >= 0; i--) {
        struct shell_function *f = (struct shell_function *)&all->list[i];
        if (f->end && (size_t)(f->name.end - f->name.from) == length && !strncmp(f->name.from, name, length))
            return f;
    }
    return NULL;
}

int shell_give_words(struct scope *s, const struct words *w, int from, struct error *err)
{
    struct glyphs *values = arena_array(s->arena, (size_t)w->count + 1, sizeof *values);
    for (int i = from; i < w->count; i++)
        if (shell_glyphs_from_word(s, &w->list[i], &values[i - from], err))
            return -1;
    s->arguments = values;
    s->argument_count = w->count - from;
    return 0;
}

static void restore_locals(struct parser *p)
{
    for (int i = p->local_count - 1; i >= 0; i--) {
        const struct variable *before = &p->locals[i];
        struct variable *v = shell_find(p->scope, before->name, strlen(before->name));
        if (v && !v->fixed)
            *v = *before;
    }
}

int shell_keep_local(struct parser *p, const char *name, size_t length)
{
    struct variable *v = shell_declare(p->scope, name, length, p->err);
    if (!v)
        return -1;
    if (!p->locals)
        p->locals = arena_array(p->scope->arena, MOST_LOCALS, sizeof *p->locals);
    if (p->local_count == MOST_LOCALS)
        return shell_broken(p, "a function has too many local variables");
    p->locals[p->local_count++] = *v;
    return 0;
}

struct parser shell_nested(const struct parser *p, const char *from, const char *end, int line)
{
    struct parser in = *p;
    in.outer_branch = p->list.branch == SHELL_MAY_RUN ? SHELL_MAY_RUN : p->outer_branch;
    in.at = from;
    in.end = end;
    in.line = line;
    in.open_base = in.open_count;
    in.here_count = 0;
    in.pattern = in.function_next = false;
    in.list = (struct shell_list){.branch = SHELL_RUNS};
    in.nested++;
    return in;
}

int shell_call_function(struct parser *p, const struct command *c)
{
    struct shell_functions *all = p->functions;
    struct shell_function *f = find(all, c->words.list[0].text);
    struct scope *s = p->scope, before = *s;
    if (!f || p->nested == SHELL_MOST_NESTED || all->calls == SHELL_MOST_CALLS ||
        all->walked + (f->end - f->from) > JOBS_FILE_BYTES)
        return 1;
    all->calls++;
    all->walked += f->end - f->from;
    /* What walking over it found counts no more. */
    for (int i = f->first; i < f->last; i++)
        p->out->commands[i].words.count = 0;
    f->last = f->first;
    struct parser in = shell_nested(p, f->from, f->end, f->line);
    in.called = true;
    in.locals = NULL;
    in.local_count = 0;
    if (shell_give_words(s, &c->words, 1, p->err))
        return -1;
    int status = shell_parse(&in);
    restore_locals(&in);
    s->arguments = before.arguments;
    s->argument_count = before.argument_count;
    return status;
}
