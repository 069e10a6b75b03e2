#include "jobs/launcher.h"

#include "base/checked.h"
#include "base/text.h"
#include "jobs/frameworks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_module_option(const char *text)
{
    return !strcmp(text, "-m") || !strcmp(text, "--module");
}

/* Whether the launcher at `at` is called to train. */
static bool is_called(const struct launcher *launcher, const struct words *command, int at)
{
    return !launcher->commands ||
           (at + 1 < command->count && launchers_has_command(launcher, command->list[at + 1].text));
}

static bool is_binary(const char *text)
{
    return frameworks_have_binary(text_base_name(text));
}

/* uv's options with a value, which may be called as a launcher is: "uv run --with trl accelerate launch". */
static bool takes_next(const struct words *command, int at)
{
    static const char *const names[] = {"--with",  "--python",  "-p",        "--extra",
                                        "--group", "--project", "--env-file"};
    bool first = !strcmp(text_base_name(command->list[0].text), "uv");
    for (size_t i = 0; first && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(command->list[at].text, names[i]))
            return true;
    return false;
}

/* Whether it only says what it is given, or looks for it. */
static bool only_speaks(const struct words *command)
{
    static const char *const names[] = {"echo", "printf", "logger", "cat",  "tee",
                                        "grep", "pkill",  "pgrep",  "which"};
    for (size_t i = 0; command->count && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(text_base_name(command->list[0].text), names[i]))
            return true;
    return false;
}

bool launcher_is_launch(const struct words *command)
{
    bool starts = false;
    if (only_speaks(command))
        return false;
    for (int i = 0; i < command->count; i++) {
        const char *text = command->list[i].text;
        const struct launcher *launcher = launchers_find(text);
        if (!starts && takes_next(command, i)) {
            i++;
            continue;
        }
        if ((!i || starts) && is_binary(text))
            return true;
        if (launcher && launcher->trains)
            return is_called(launcher, command, i);
        starts = starts || launcher;
        if (starts && (text_ends_with(text, ".py") || (i && is_module_option(command->list[i - 1].text))))
            return frameworks_have_program(text_base_name(text));
    }
    return false;
}

bool launcher_has_program(const struct words *command)
{
    for (int i = 0; i < command->count; i++) {
        const char *text = command->list[i].text;
        if (text_ends_with(text, ".py") && frameworks_have_program(text_base_name(text)))
            return true;
    }
    return false;
}

const struct word *launcher_own_plan(const struct words *command)
{
    for (int i = 0; i + 2 < command->count; i++)
        if (!strcmp(text_base_name(command->list[i].text), "memplan") &&
            !strcmp(command->list[i + 1].text, "train"))
            return &command->list[i + 2];
    return NULL;
}

/* ---- options ---- */

static bool same(const char *a, size_t length, const char *b)
{
    size_t i = 0;
    for (; i < length && b[i]; i++)
        if (a[i] != b[i] && !((a[i] == '_' || a[i] == '-') && (b[i] == '_' || b[i] == '-')))
            return false;
    return i == length && !b[i];
}

static enum launcher_meaning meaning_of(const struct launcher *launcher, const char *text, size_t length,
                                        bool *known)
{
    for (const struct launcher_option *o = launcher->options; o && o->name; o++)
        if ((*known = same(text, length, o->name)))
            return o->meaning;
    return LAUNCHER_VALUE;
}

/* The last number in it: "4", "1:4" and "2-4" (from, to), "gpu:a100:8". 0: none. */
static int64_t last_number(const char *text)
{
    const char *at = text + strlen(text);
    while (at > text && isdigit((unsigned char)at[-1]))
        at--;
    int64_t value = *at && strlen(at) < 10 ? strtoll(at, NULL, 10) : 0;
    return at == text || strchr(":-", at[-1]) ? value : 0;
}

static void set_number(struct training_job *job, enum launcher_meaning meaning, const struct word *name,
                       const struct word *value)
{
    struct job_launch *l = &job->launch;
    int64_t number = value->unknown ? 0 : last_number(value->text);
    int64_t *to = meaning == LAUNCHER_NODES   ? &l->nodes
                  : meaning == LAUNCHER_RANKS ? &l->ranks
                                              : &l->processes_per_node;
    struct arena *arena = job->facts.arena;
    const char *option = arena_printf(arena, "%.*s", (int)strcspn(name->text, "="), name->text);
    *to = number;
    if (number) {
        job_note(job, FACT_READ, option, value->text, job_origin(job, value));
        return;
    }
    const char *why =
        value->unknown ? value->unknown : arena_printf(arena, "\"%s\" depends on the machine", value->text);
    job_note(job, FACT_MISSING, option, value->text,
             value->name ? arena_printf(arena, "%s; give --set %s=N", why, value->name)
                         : arena_printf(arena, "%s; give --ranks N", why));
}

static void keep(struct training_job *job, struct words *list, const struct word *word)
{
    /* Its room is the next power of two. */
    if (!(list->count & (list->count - 1))) {
        struct word *longer = arena_array(job->facts.arena, 2 * (size_t)list->count + 1, sizeof *longer);
        if (list->count)
            memcpy(longer, list->list, (size_t)list->count * sizeof *longer);
        list->list = longer;
    }
    list->list[list->count++] = *word;
}

/* "localhost:0,1,2,3" says which GPUs; a file of them is for hostfile.c, and of some of its hosts only
 * --num_nodes says how many. */
static void read_hosts(struct training_job *job, const struct word *name, const struct word *value,
                       struct launch *out)
{
    static const char local[] = "localhost:";
    struct arena *arena = job->facts.arena;
    struct word count = *value;
    if (!strncmp(name->text, "--hostfile", 10) || !strncmp(name->text, "-H", 2))
        out->hosts = *value;
    if (!value->unknown && !strncmp(value->text, local, sizeof local - 1) && !strchr(value->text, '@')) {
        int devices = 1;
        for (const char *c = value->text; *c; c++)
            devices += *c == ',';
        count.text = arena_printf(arena, "%d", devices);
        set_number(job, LAUNCHER_PER_NODE, name, &count);
    } else if (!job_was_given(job, "--num_nodes") && !job_was_given(job, "--num-nodes")) {
        job->launch.nodes = 0;
        job_note(job, FACT_MISSING, "hosts", value->text, "there is no such file of hosts; give --ranks N");
    }
}

/* Of "--nodes=2" and "-N2"; NULL: the value, if any, is the next word. */
static const char *attached_value(const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals)
        return equals + 1;
    return text[0] == '-' && isalpha((unsigned char)text[1]) && isdigit((unsigned char)text[2]) ? text + 2
                                                                                                : NULL;
}

/* "ppr:4:node" */
static void read_places(struct training_job *job, const struct word *name, const struct word *value)
{
    struct word count = *value;
    if (strncmp(value->text, "ppr:", 4))
        return;
    count.text =
        arena_printf(job->facts.arena, "%.*s", (int)strspn(value->text + 4, "0123456789"), value->text + 4);
    set_number(job, LAUNCHER_PER_NODE, name, &count);
}

/* One option of a launcher at `at`; returns the place behind it. */
static int read_option(struct training_job *job, const struct launcher *launcher, const struct words *c,
                       int at, struct launch *out)
{
    const struct word *name = &c->list[at];
    const char *attached = attached_value(name->text);
    size_t length = attached ? (size_t)(attached - name->text) - (attached[-1] == '=') : strlen(name->text);
    bool known = false;
    enum launcher_meaning meaning = meaning_of(launcher, name->text, length, &known);
    struct word value = *name;
    int next = at + 1;
    if (attached)
        value.text = attached;
    bool has_value = attached;
    if (!attached && meaning != LAUNCHER_SWITCH && next < c->count && c->list[next].text[0] != '-' &&
        (known || !(text_ends_with(c->list[next].text, ".py") || is_binary(c->list[next].text) ||
                    launchers_find(c->list[next].text)))) {
        value = c->list[next++];
        has_value = true;
    }
    if (meaning == LAUNCHER_PAIR)
        next = next < c->count ? next + 1 : next;
    bool counts = meaning == LAUNCHER_NODES || meaning == LAUNCHER_PER_NODE || meaning == LAUNCHER_RANKS;
    if (counts && has_value)
        set_number(job, meaning, name, &value);
    else if (meaning == LAUNCHER_HOSTS && has_value)
        read_hosts(job, name, &value, out);
    else if (meaning == LAUNCHER_PLACES && has_value)
        read_places(job, name, &value);
    else if (launcher->keeps)
        for (int i = at; i < next; i++)
            keep(job, &out->kept, &c->list[i]);
    return next;
}

void launcher_read_options(struct training_job *job, const struct launcher *launcher,
                           const struct words *options)
{
    struct launch none = {0};
    for (int at = 0; at < options->count;)
        at = options->list[at].text[0] == '-' ? read_option(job, launcher, options, at, &none) : at + 1;
}

bool launcher_was_met(const struct launch *launch, const struct launcher *launcher)
{
    for (int i = 0; i < launch->met_count; i++)
        if (launch->met[i] == launcher)
            return true;
    return false;
}

static void begin_launcher(struct training_job *job, const struct launcher *launcher, struct launch *out)
{
    struct job_launch *l = &job->launch;
    if (launcher->name)
        l->launchers = l->launchers ? arena_printf(job->facts.arena, "%s, %s", l->launchers, launcher->name)
                                    : launcher->name;
    if (launcher->counts)
        *l = (struct job_launch){
            .launchers = l->launchers, .nodes = launcher->nodes, .processes_per_node = launcher->per_node};
    if (out->met_count < LAUNCHER_MOST_MET)
        out->met[out->met_count++] = launcher;
}

/* The program, and what it is given. */
static void set_program(struct training_job *job, const struct words *command, int at, struct launch *out)
{
    out->program = command->list[at].text;
    out->arguments = (struct words){command->list + at + 1, command->count - at - 1};
    job->launch.program = out->program;
    job->launch.where = command->list[at];
    job->launch.leading = 0;
    while (job->launch.leading < out->arguments.count &&
           !word_is_option(out->arguments.list[job->launch.leading].text))
        job->launch.leading++;
}

static int refuse_command(const struct launcher *launcher, const struct word *word, const struct launch *out,
                          struct error *err)
{
    return error_set(err, "%.60s %.60s is no training; %s is followed by one of: %s", word->text,
                     out->program, launcher->name, launcher->commands);
}

int launcher_read(struct training_job *job, const struct words *command, const struct words *batch,
                  struct launch *out, struct error *err)
{
    const struct launcher *current = NULL;
    bool module = false;
    *out = (struct launch){0};
    for (int at = 0; at < command->count;) {
        const struct word *word = &command->list[at];
        const struct launcher *launcher = launchers_find(word->text);
        if (!current && takes_next(command, at)) {
            at += 2;
        } else if (launcher) {
            current = launcher;
            module = false;
            begin_launcher(job, launcher, out);
            if (launcher->takes_batch)
                launcher_read_options(job, launcher, batch);
            at++;
            if (launcher->is_program && at < command->count) {
                set_program(job, command, at, out);
                return is_called(launcher, command, at - 1) ? 0 : refuse_command(launcher, word, out, err);
            }
            at += launcher->commands && is_called(launcher, command, at - 1);
        } else if (text_ends_with(word->text, ".py") || (module && word->text[0] != '-') ||
                   is_binary(word->text)) {
            set_program(job, command, at, out);
            return 0;
        } else if (!strcmp(word->text, "--")) {
            at++;
        } else if (word->text[0] == '-' && current) {
            module = module || is_module_option(word->text);
            at = read_option(job, current, command, at, out);
        } else {
            at++; /* of a wrapper: numactl, singularity, env */
        }
    }
    return error_set(err,
                     "%s: no Python program in this launch; give the whole line: memplan check -- torchrun "
                     "--nproc-per-node 8 pretrain_gpt.py ...",
                     command->count ? job_origin(job, &command->list[0]) : "command line");
}

void launcher_count_devices(struct training_job *job, const struct launch *launch,
                            const struct job_files *files)
{
    struct job_launch *l = &job->launch;
    int64_t devices = l->ranks || l->processes_per_node ? 0 : job_environment_devices(job, files);
    bool sees = false;
    for (int i = 0; i < launch->met_count; i++)
        sees = sees || launch->met[i]->sees;
    if (!devices || !sees)
        return;
    l->processes_per_node = devices;
    for (int i = 0; i < job->facts.count; i++)
        if (job->facts.list[i].kind == FACT_MISSING && strstr(job->facts.list[i].name, "nproc"))
            job->facts.list[i].kind = FACT_IRRELEVANT;
    job_note_count(job, FACT_DERIVED, "processes on a node", devices, "CUDA_VISIBLE_DEVICES");
    l->nodes = l->nodes ? l->nodes : 1;
}

void launcher_count(struct training_job *job)
{
    struct job_launch *l = &job->launch;
    int64_t product;
    if (!l->ranks && l->nodes && l->processes_per_node &&
        checked_mul(l->nodes, l->processes_per_node, &product))
        l->ranks = product;
    if (!l->launchers && !l->ranks)
        l->ranks = l->nodes = 1;
    if (!l->nodes && l->ranks && l->processes_per_node)
        l->nodes = (l->ranks + l->processes_per_node - 1) / l->processes_per_node;
    if (!l->nodes)
        l->nodes = 1;
    if (!l->processes_per_node && l->ranks)
        l->processes_per_node = l->ranks / l->nodes;
    if (l->ranks)
        job_note_count(job, FACT_DERIVED, "ranks", l->ranks, l->launchers ? l->launchers : "one process");
    else
        job_note(job, FACT_MISSING, "ranks", "?",
                 "the launcher does not say how many processes; give --ranks N");
}
