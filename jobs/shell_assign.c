/* What a script assigns: variables and arrays, and what takes their values away again. */
#include "jobs/shell_parse.h"

#include "model/hub_cache.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What "" leaves in a word is nothing in a value. Looks from `first` on. */
static struct glyphs stripped(struct glyphs text, int first)
{
    int count = first;
    for (int i = first; i < text.count; i++)
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
            shell_advance(&in, in.at + 1);
        if (in.at == in.end)
            return 0;
        if (*in.at == '#') {
            while (in.at < in.end && *in.at != '\n')
                in.at++;
            continue;
        }
        const char *stop = shell_word_end(&in);
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
                shell_append_value(p->scope, v,
                                   stripped((struct glyphs){text.list + first, i - first, 0}, 0));
            first = i + 1;
        }
        shell_advance(&in, stop);
    }
}

/* `old`: what stands before it, NULL: nothing. */
static int assign_text(struct parser *p, struct variable *v, const struct glyphs *old, struct span value)
{
    struct glyphs text = {0};
    if (old)
        text = *old; /* its room too: nobody else adds to it */
    int first = text.count;
    if (shell_expand(p->scope, value.from, value.end, value.line, SHELL_WORD, 0, &text, p->err))
        return -1;
    /* Of "${ARRAY[@]}" one value is made; it is cut where it is used. */
    for (int i = first; i < text.count; i++)
        if (text.list[i].flags & GLYPH_BREAK)
            text.list[i].flags = 0;
    shell_append_value(p->scope, v, stripped(text, first));
    return 0;
}

/* Whether a value begins with that of the variable itself: A+=..., A="$A ...". */
static bool adds(const struct variable *v, const char *value, const char *end, bool append)
{
    size_t length = strlen(v->name);
    value += value < end && *value == '"';
    bool braces = end - value > 2 && !strncmp(value, "${", 2);
    const char *name = value + 1 + braces;
    bool itself =
        value < end && *value == '$' && (size_t)(end - name) > length && !strncmp(name, v->name, length);
    return append || (itself && (braces ? name[length] == '}' : shell_name_length(name, end) == length));
}

/* What was there stays, with a word behind it that says that more may come. */
static int add_addition(struct parser *p, struct variable *v, struct span s, const char *place)
{
    enum { MOST_MORE = 4000 }; /* a loop over thousands of them is no launch */
    const char *written = arena_printf(p->scope->arena, "%.*s", (int)(s.end - s.from), s.from);
    const char *why = arena_printf(p->scope->arena, "$%s grows inside %s on line %s", v->name, place,
                                   shell_line_text(p->scope, s.line));
    struct variable fresh = {.name = v->name, .array = v->array};
    struct glyphs more = {0}, text = v->count ? v->values[v->count - 1] : (struct glyphs){0};
    unsigned short last = text.count ? text.list[text.count - 1].unknown : 0;
    if (last && p->scope->unknowns[last - 1].added) {
        struct unknown *u = &p->scope->unknowns[last - 1]; /* that more may come is there already */
        if (strlen(u->more) + strlen(written) < MOST_MORE)
            u->more = arena_printf(p->scope->arena, "%s %s", u->more, written);
        return 0;
    }
    if (shell_add_addition(p->scope, v->name, s.line, why, written, &more, p->err))
        return -1;
    for (int i = 0; i < v->count; i++)
        shell_append_value(p->scope, &fresh, v->values[i]);
    if (v->array) {
        shell_append_value(p->scope, &fresh, more);
    } else {
        text = fresh.values[0];
        text.room = 0; /* others may hold the old text */
        if (shell_glyphs_add(p->scope, &text, &(struct glyph){.character = ' ', .line = s.line}, 1, p->err) ||
            shell_glyphs_add(p->scope, &text, more.list, more.count, p->err))
            return -1;
        fresh.values[0] = text;
    }
    *v = fresh;
    return 0;
}

int shell_assign(struct parser *p, struct span s)
{
    const char *value = s.end;
    bool append = false;
    size_t length = shell_assigned_name(s.from, s.end, &value, &append);
    struct scope *scope = p->scope;
    const char *place = shell_inside(p);
    struct variable *old = place ? shell_find(scope, s.from, length) : NULL;
    if (old && (old->count || old->array) && !old->fixed && adds(old, value, s.end, append))
        return add_addition(p, old, s, place);
    if (place)
        return shell_forget(scope, s.from, length,
                            arena_printf(scope->arena, "$%.*s is set inside %s on line %s", (int)length,
                                         s.from, place, shell_line_text(scope, s.line)),
                            s.line, p->err);
    struct variable *v = shell_declare(scope, s.from, length, p->err);
    if (!v)
        return -1;
    if (v->fixed)
        return 0;
    /* The old value stands until the new one is complete: A="$A more". */
    struct variable fresh = {.name = v->name};
    bool array = value < s.end && *value == '(';
    int status = array ? assign_array(p, &fresh, value + 1, s.end - 1, s.line)
                       : assign_text(p, &fresh, append && v->count ? &v->values[0] : NULL,
                                     (struct span){value, s.end, s.line});
    if (!append || !array || !v->array) {
        *v = fresh;
        return status;
    }
    for (int i = 0; i < fresh.count; i++)
        shell_append_value(scope, v, fresh.values[i]);
    return status;
}

int shell_forget_words(struct parser *p, const struct words *w)
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

void shell_unset_words(struct parser *p, const struct words *w)
{
    for (int i = 1; i < w->count; i++) {
        struct variable *v = shell_find(p->scope, w->list[i].text, strlen(w->list[i].text));
        if (v && !v->fixed)
            *v = (struct variable){.name = v->name};
    }
}

int shell_set_number(struct parser *p, const char *name, int64_t number)
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
    *v = (struct variable){.name = v->name};
    shell_append_value(p->scope, v, value);
    return 0;
}

static int give_arguments(struct scope *scope, const struct shell_input *input, struct error *err)
{
    struct glyphs *values = arena_array(scope->arena, (size_t)input->argument_count + 1, sizeof *values);
    for (int i = 0; i < input->argument_count; i++) {
        struct word word = {.text = input->arguments[i]};
        if (shell_glyphs_from_word(scope, &word, &values[i], err))
            return -1;
    }
    scope->arguments = values;
    scope->argument_count = input->argument_count;
    return 0;
}

int shell_give_variables(struct scope *scope, const struct shell_input *input, struct error *err)
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
    return give_arguments(scope, input, err);
}

/* ---- what others read ---- */

/* Of PyTorch's allocator, and how many processes there are; those of the hub's cache come behind them. */
static const char *const process_variables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                                "CUDA_VISIBLE_DEVICES",    "NNODES",
                                                "NPROC_PER_NODE",          NULL};

/* The i-th name; NULL: there are no more. */
static const char *setting_name(int i)
{
    enum { OURS = sizeof process_variables / sizeof process_variables[0] - 1 };
    return i < OURS ? process_variables[i] : hub_cache_variable_names()[i - OURS];
}

/* What is set for one command is no variable for the next; these are wanted all the same. */
bool shell_is_setting(struct span s)
{
    const char *name;
    for (int i = 0; (name = setting_name(i)); i++)
        if ((size_t)(s.end - s.from) > strlen(name) && !strncmp(s.from, name, strlen(name)) &&
            s.from[strlen(name)] == '=')
            return true;
    return false;
}

void shell_find_settings(struct scope *scope, struct shell_script *out)
{
    int names = 0;
    while (setting_name(names))
        names++;
    out->settings = arena_array(scope->arena, (size_t)names, sizeof *out->settings);
    for (int i = 0; i < names; i++) {
        const char *name = setting_name(i);
        const struct variable *v = shell_find(scope, name, strlen(name));
        struct words words = {0};
        int room = 0;
        if (v && v->count)
            shell_split(scope, &v->values[0], true, &words, &room);
        if (words.count)
            out->settings[out->setting_count++] = (struct shell_setting){name, words.list[0]};
    }
}
