/* Scripts that a script reads or starts: `source env.sh`, `srun bash inner.sh 24`, `sbatch job.sh`, `sbatch --wrap ...`. Each is read as
 * text by the same reader, from beside the script that names it, or from where its path says; none is run. */
#include "jobs/shell_parse.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- finding and reading ---- */

static bool is_file(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISREG(info.st_mode) && info.st_size <= JOBS_FILE_BYTES;
}

static const char *beside(struct scope *s, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    return slash ? arena_printf(s->arena, "%.*s/%s", (int)(slash - file), file, path) : path;
}

/* Beside the file that names it, beside the first script, where this program was started; NULL: nowhere. */
static const char *find(struct scope *s, const char *path)
{
    const char *const places[] = {path, beside(s, s->file, path), beside(s, s->files[0], path)};
    if (!*path)
        return NULL;
    for (int i = *path == '/' ? 0 : 2; i >= 0; i--)
        if (is_file(places[i]))
            return places[i];
    return NULL;
}

/* Its text as shell_parse() wants it; NULL: it is no script. */
static const char *read_text(struct parser *p, const char *path, size_t *length)
{
    struct error unheard = {0};
    char *text;
    if (text_read_file(path, JOBS_FILE_BYTES, &text, length, &unheard))
        return NULL;
    bool script = !memchr(text, 0, *length) && p->functions->walked + (int64_t)*length <= JOBS_FILE_BYTES;
    const char *kept = script ? arena_printf(p->scope->arena, "\n%s", text) + 1 : NULL;
    free(text);
    p->functions->walked += script ? (int64_t)*length : 0;
    return kept;
}

/* Whether there is room for another; then the number that its lines begin with. */
static bool add_file(struct scope *s, const char *path, int *line)
{
    if (s->file_count == SHELL_MOST_FILES)
        return false;
    s->files[s->file_count] = path;
    *line = (s->file_count++ << SHELL_LINE_BITS) + 1;
    return true;
}

/* Reads it with the arguments behind words[at], which names it; 1: it cannot be. */
static int follow(struct parser *p, const struct words *words, int at, const struct words *prefix,
                  struct error *err)
{
    struct scope *s = p->scope, before = *s;
    const struct word *name = &words->list[at];
    const char *path = name->unknown || p->nested == SHELL_MOST_NESTED ? NULL : find(s, name->text);
    size_t length = 0;
    int line = 0;
    const char *text = path ? read_text(p, path, &length) : NULL;
    if (!text || !add_file(s, path, &line))
        return 1;
    struct parser in = shell_nested(p, text, text + length, line);
    bool given = prefix || at + 1 < words->count;
    if (given && shell_give_words(s, words, at + 1, p->err))
        return -1;
    in.err = err;
    in.prefix = prefix ? prefix : p->prefix;
    s->file = path;
    int status = shell_parse(&in);
    s->file = before.file;
    s->arguments = before.arguments;
    s->argument_count = before.argument_count;
    return status;
}

/* ---- what the script's own shell reads ---- */

const char *shell_read_source(struct parser *p, const struct words *words)
{
    struct error err = {0};
    int status = words->count > 1 ? follow(p, words, 1, NULL, &err) : 1;
    return status > 0 ? "not here, and not read"
           : status   ? arena_printf(p->scope->arena, "not read to its end (%s)", err.text)
                      : NULL;
}

/* ---- what is started ---- */

static bool ends_as_script(const char *text)
{
    static const char *const ends[] = {".sh", ".bash", ".slurm", ".sbatch"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (text_ends_with(text, ends[i]))
            return true;
    return false;
}

static bool is_shell(const char *text)
{
    const char *name = text_base_name(text);
    return !strcmp(name, "bash") || !strcmp(name, "sh");
}

/* The place of a script's name in a command that starts one; -1: it starts none. */
static int script_in(const struct words *words)
{
    static const char *const starts[] = {"srun", "sbatch", "exec",    "nohup", "time",
                                         "env",  "mpirun", "mpiexec", NULL};
    for (int i = 0; i < words->count; i++) {
        const char *text = words->list[i].text;
        if (ends_as_script(text))
            return i;
        if (!i && !is_shell(text) && !shell_is_one_of(text_base_name(text), starts))
            return -1;
        if (is_shell(text)) {
            for (i++; i < words->count && words->list[i].text[0] == '-'; i++)
                if (words->list[i].text[1] != '-' && strchr(words->list[i].text, 'c'))
                    return -1;
            return i < words->count ? i : -1;
        }
        if (text_ends_with(text, ".py"))
            return -1;
    }
    return -1;
}

static void note_missing(struct parser *p, const struct word *name)
{
    if (!p->out->missing.text)
        p->out->missing = *name;
}

/* What a script of its own process sets does not last. */
static int start(struct parser *p, const struct words *words, int at)
{
    struct scope *s = p->scope;
    bool batch = !strcmp(text_base_name(words->list[0].text), "sbatch");
    struct words prefix = {words->list, batch ? 0 : at};
    while (prefix.count && (is_shell(prefix.list[prefix.count - 1].text) ||
                            (prefix.list[prefix.count - 1].text[0] == '-' && prefix.count > 1 &&
                             is_shell(prefix.list[prefix.count - 2].text))))
        prefix.count--;
    if (words->list[at].unknown || !find(s, words->list[at].text)) {
        note_missing(p, &words->list[at]);
        return 1;
    }
    int count = s->variable_count, room = s->variable_room;
    struct variable *kept = s->variables;
    s->variables = arena_array(s->arena, (size_t)room + 1, sizeof *kept);
    if (count)
        memcpy(s->variables, kept, (size_t)count * sizeof *kept);
    if (batch && shell_add_batch_words(p, words, 1, at))
        return -1;
    int status = follow(p, words, at, &prefix, p->err);
    if (!status && batch && shell_add_batch_words(p, words, 1, at))
        return -1;
    s->variables = kept;
    s->variable_count = count;
    s->variable_room = room;
    return status;
}

/* `sbatch --wrap "..."` */
static const struct word *wrapped(struct parser *p, const struct words *words)
{
    static const char option[] = "--wrap";
    for (int i = 1; i < words->count; i++) {
        const char *text = words->list[i].text;
        if (!strcmp(text, option) && i + 1 < words->count)
            return &words->list[i + 1];
        if (strncmp(text, option, sizeof option - 1) || text[sizeof option - 1] != '=')
            continue;
        struct word *value = arena_alloc(p->scope->arena, sizeof *value);
        *value = words->list[i];
        value->text += sizeof option;
        return value;
    }
    return NULL;
}

int shell_start_script(struct parser *p, const struct words *words)
{
    bool batch = words->count && !strcmp(text_base_name(words->list[0].text), "sbatch");
    const struct word *script = batch ? wrapped(p, words) : NULL;
    int at = script ? -1 : script_in(words);
    if (at >= 0)
        return start(p, words, at);
    if (!script)
        return 1;
    return shell_add_batch_words(p, words, 1, words->count) ? -1
                                                            : shell_read_inner(p, &(struct words){0}, script);
}

bool shell_reads_here(const struct words *words)
{
    static const char *const readers[] = {"sbatch", "bash", "sh", NULL};
    return words->count && shell_is_one_of(text_base_name(words->list[0].text), readers) &&
           script_in(words) < 0;
}
