/* Redirections, and the files that a script writes from here-documents. */
#include "jobs/shell_parse.h"

#include <ctype.h>
#include <string.h>

/* At < or >; moves behind the redirection. */
int shell_read_redirection(struct parser *p, struct command *c)
{
    const char *from = p->at;
    while (p->at < p->end && strchr("<>&|-", *p->at) && p->at - from < 3)
        p->at++;
    bool here = !strncmp(from, "<<", 2) && (p->at - from == 2 || from[2] == '-');
    bool output = *from == '>' && (p->at - from == 1 || (p->at - from == 2 && from[1] == '>'));
    shell_skip_blanks(p);
    if (p->at < p->end && *p->at == '(') {
        /* >(command): a process of its own. */
        const char *close = shell_array_end(p, p->at + 1);
        if (!close)
            return -1;
        shell_advance(p, close);
        return 0;
    }
    const char *stop = shell_word_end(p);
    if (!stop)
        return -1;
    if (here) {
        if (p->here_count == SHELL_MOST_HERE)
            return shell_broken(p, "there are too many here-documents on a line");
        struct here *h = &p->here[p->here_count++];
        bool quotes = p->at < stop && (*p->at == '\'' || *p->at == '"');
        int length = (int)(stop - p->at) - 2 * quotes;
        *h = (struct here){.quoted = quotes || (p->at < stop && *p->at == '\\'), .tabs = from[2] == '-'};
        h->word = arena_printf(p->scope->arena, "%.*s", length < 0 ? 0 : length, p->at + quotes);
    } else if (output && shell_expand(p->scope, p->at, stop, p->line, SHELL_WORD, 0, &c->target, p->err)) {
        return -1;
    }
    shell_advance(p, stop);
    return 0;
}

bool shell_at_redirection(const struct parser *p)
{
    const char *at = p->at;
    while (at < p->end && isdigit((unsigned char)*at))
        at++;
    if (at < p->end && *at == '&' && at == p->at)
        return at + 1 < p->end && at[1] == '>';
    return at < p->end && (*at == '<' || *at == '>');
}

static void add_file(struct parser *p, const char *name, const struct glyphs *text, int line)
{
    struct shell_script *out = p->out;
    char *body = arena_alloc(p->scope->arena, (size_t)text->count + 1);
    for (int i = 0; i < text->count; i++)
        body[i] = (char)text->list[i].character;
    out->files =
        shell_grown(p->scope->arena, out->files, out->file_count, &p->rooms->files, sizeof *out->files);
    out->files[out->file_count++] = (struct shell_file){name, body, line};
}

/* What `sbatch <<EOF` is given. */
static int read_script(struct parser *p, const struct glyphs *text, int line)
{
    char *body = arena_alloc(p->scope->arena, (size_t)text->count + 1);
    for (int i = 0; i < text->count; i++)
        body[i] = (char)text->list[i].character;
    struct word word = {
        .text = body, .file = shell_file_of(p->scope, line), .line = shell_line_in_file(line)};
    return shell_read_inner(p, &(struct words){0}, &word);
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
        shell_advance(p, newline ? newline + 1 : p->end);
    }
    if (!stop)
        return shell_broken(p, "a here-document does not end");
    struct glyphs text = {0};
    struct words name = {0};
    int room = 0;
    if (!h->target.count && !h->script)
        return 0;
    if (h->quoted) {
        for (const char *at = from; at < stop; at++)
            if (shell_glyphs_add(p->scope, &text, &(struct glyph){.character = (unsigned char)*at}, 1,
                                 p->err))
                return -1;
    } else if (shell_expand(p->scope, from, stop, line, SHELL_HERE, 0, &text, p->err)) {
        return -1;
    }
    if (!h->target.count)
        return read_script(p, &text, line);
    shell_split(p->scope, &h->target, true, &name, &room);
    add_file(p, name.list[0].text, &text, line);
    return 0;
}

int shell_read_here_documents(struct parser *p)
{
    for (int i = 0; i < p->here_count; i++)
        if (read_here(p, &p->here[i]))
            return -1;
    p->here_count = 0;
    return 0;
}
