#include "jobs/jobs.h"

#include "jobs/frameworks.h"
#include "jobs/not_a_script.h"
#include "jobs/unread_frameworks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LINES_TEXT = 200 };

#define VARIABLE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* ---- the launch among the commands of a script ---- */

static const struct shell_command *only_launch(const struct shell_script *script, int64_t line, int *count)
{
    const struct shell_command *found = NULL;
    *count = 0;
    for (int i = 0; i < script->command_count; i++) {
        const struct shell_command *c = &script->commands[i];
        if (!launcher_is_launch(&c->words) || (line && c->line != line))
            continue;
        found = c;
        ++*count;
    }
    return found;
}

static int several(const struct shell_script *script, const char *file, struct error *err)
{
    char lines[LINES_TEXT] = "";
    size_t used = 0;
    int last = 0;
    for (int i = 0; i < script->command_count && used < sizeof lines - 20; i++) {
        const struct shell_command *c = &script->commands[i];
        if (launcher_is_launch(&c->words))
            used += (size_t)snprintf(lines + used, sizeof lines - used, used ? ", %d" : "%d", last = c->line);
    }
    return error_set(err, "%s: it starts several jobs, on lines %s; choose one: --line %d", file, lines,
                     last);
}

static int refuse_own(const struct words *command, const char *file, struct error *err)
{
    const struct word *plan = launcher_own_plan(command);
    return plan ? error_set(
                      err,
                      "%s: this is a run of memplan's own, memplan train %.200s; memplan predict %.200s says "
                      "what that needs",
                      file, plan->text, plan->text)
                : 0;
}

static int refuse_unread(struct arena *arena, const struct words *command, const char *file, int line,
                         struct error *err)
{
    const char *framework = unread_frameworks_find(command);
    return framework
               ? error_set(
                     err,
                     "%s: this starts %s, which is not read (%s are); memplan predict MODEL --dp N says what "
                     "memplan's own training of its model needs",
                     line ? arena_printf(arena, "%s:%d", file, line) : file, framework,
                     frameworks_list(arena))
               : 0;
}

/* "$LAUNCHER train.py": the variable. */
static const struct shell_command *hidden_launcher(const struct shell_script *script)
{
    for (int i = 0; i < script->command_count; i++) {
        const struct words *w = &script->commands[i].words;
        const struct word *first = w->count > 1 ? &w->list[0] : NULL;
        if (first && first->unknown && first->name && launcher_has_program(w))
            return &script->commands[i];
    }
    return NULL;
}

static int find_launch(const struct shell_script *script, const struct jobs_request *request,
                       struct arena *arena, const char *file, const struct shell_command **out,
                       struct error *err)
{
    int count;
    char names[LAUNCHERS_TEXT];
    *out = only_launch(script, request->line, &count);
    if (count > 1 && !request->line)
        return several(script, file, err);
    for (int i = 0; !*out && i < script->command_count; i++)
        if (refuse_own(&script->commands[i].words, file, err) ||
            refuse_unread(arena, &script->commands[i].words, file, script->commands[i].line, err))
            return -1;
    if (!*out && request->line)
        return error_set(err, "%s:%lld: no launch stands on that line; leave out --line", file,
                         (long long)request->line);
    const struct shell_command *hidden = *out ? NULL : hidden_launcher(script);
    if (hidden)
        return error_set(err,
                         "%s:%d: what starts the training is not known: %s; give --set %s='torchrun ...'",
                         file, hidden->line, hidden->words.list[0].unknown, hidden->words.list[0].name);
    if (!*out && script->missing.text)
        return error_set(
            err,
            "%s:%d: it starts %s, which is not here; put it beside the script, or give that one: memplan "
            "check %s",
            script->missing.file, script->missing.line, script->missing.text, script->missing.text);
    if (!*out)
        return error_set(err, "%s: no %s or python that starts training is in it; is it the right script?",
                         file, launchers_list(names));
    return 0;
}

/* ---- from words to a job ---- */

static void add_with(struct launch *launch, const struct jobs_request *request, struct arena *arena)
{
    struct words *w = &launch->arguments;
    if (!request->with)
        return;
    char *copy = arena_strdup(arena, request->with), *state = NULL;
    struct word *all = arena_array(arena, (size_t)w->count + strlen(copy) + 1, sizeof *all);
    if (w->count)
        memcpy(all, w->list, (size_t)w->count * sizeof *all);
    w->list = all;
    for (char *word = strtok_r(copy, " \t\n", &state); word; word = strtok_r(NULL, " \t\n", &state))
        all[w->count++] = (struct word){.text = word, .file = "--with"};
}

/* Whether one of the names between `from` and `end`, with bars between, was said; or is taken to be "true". */
static bool one_was_said(const struct training_job *job, const char *from, const char *end)
{
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *fact = &job->facts.list[i];
        size_t length = strlen(fact->name);
        bool said =
            fact->kind != FACT_UNKNOWN && (fact->kind != FACT_DEFAULT || !strcmp(fact->value, "true"));
        for (const char *at = from; said && at < end; at += strcspn(at, "| "), at += *at == '|')
            if (strcspn(at, "| ") == length && !strncmp(at, fact->name, length))
                return true;
    }
    return false;
}

/* What matters most, and may stand in a word that is not known. */
static void require_vital(struct training_job *job, const char *vital)
{
    struct arena *arena = job->facts.arena;
    for (const char *at = job->condition ? vital : NULL; at && *at; at += strspn(at, " ")) {
        const char *end = at + strcspn(at, " ");
        const char *first = arena_printf(arena, "%.*s", (int)strcspn(at, "| "), at);
        if (!one_was_said(job, at, end))
            job_note(
                job, FACT_MISSING, first, "?",
                arena_printf(arena,
                             "it is the default only if %s; give it by --with, or by --set what is unknown",
                             job->condition));
        at = end;
    }
}

static int read_framework(struct training_job *job, const struct launch *launch,
                          const struct job_files *files, struct error *err)
{
    for (int i = 0; i < launch->met_count; i++)
        if (launch->met[i]->read && launch->met[i]->read(job, launch, files, err))
            return -1;
    launcher_count_devices(job, launch, files);
    launcher_count(job);
    job->framework = frameworks_find(launch);
    if (job->framework && job->framework->read(job, launch, files, err))
        return -1;
    if (job->framework) {
        require_vital(job, job->framework->vital);
        return 0;
    }
    return error_set(err,
                     "%s: %.80s is a script of none of the frameworks that are read (%s), so what it trains "
                     "is not known; say "
                     "it: --model gpt2-124m --with='--micro-batch 4 --seq-len 1024' takes it for plain DDP; "
                     "memplan predict "
                     "gpt2-124m --dp %lld asks it of memplan's own loop",
                     job_origin(job, &job->launch.where), launch->program, frameworks_list(job->facts.arena),
                     (long long)(job->launch.ranks ? job->launch.ranks : 8));
}

static void note_parameters(struct training_job *job)
{
    const struct job_model *m = &job->model;
    if (!job->model_known)
        return;
    int64_t count = job_model_parameters(m);
    job_note_count(job, FACT_DERIVED, "parameters", count, "from the model's description");
    if (m->experts.count)
        job_note_count(job, FACT_DERIVED, "parameters that a token meets", job_model_active_parameters(m),
                       "with the experts that it is sent to");
    if (m->counted_parameters && m->counted_parameters != count)
        job_note(job, FACT_UNKNOWN, "parameters in the weights",
                 arena_printf(job->facts.arena, "%lld", (long long)m->counted_parameters),
                 "not as many as the description has: the file may hold other layers too");
}

static void note_allocator(struct training_job *job, const struct job_files *files)
{
    struct word found;
    if (!job_environment_find(job, files, "PYTORCH_CUDA_ALLOC_CONF", &found) &&
        !job_environment_find(job, files, "PYTORCH_ALLOC_CONF", &found))
        return;
    job->kernels.allocator = found.text;
    job_note(job, FACT_READ, "PYTORCH_CUDA_ALLOC_CONF", found.text, job_origin(job, &found));
}

static int read_job(const struct jobs_request *request, const struct words *batch,
                    const struct job_files *files, struct training_job *job, struct error *err)
{
    struct launch launch;
    if (launcher_read(job, files->command, batch, &launch, err))
        return -1;
    if (request->ranks) {
        for (int i = 0; i < job->facts.count; i++)
            if (job->facts.list[i].kind == FACT_MISSING)
                job->facts.list[i].kind = FACT_IRRELEVANT; /* only the launcher's are there yet */
        job->launch.ranks = request->ranks;
        job->launch.nodes = job->launch.processes_per_node = 0;
    }
    launch.model_said = request->model != NULL;
    add_with(&launch, request, job->facts.arena);
    job_edit_words(&request->edits, &launch.arguments, job->facts.arena);
    note_allocator(job, files);
    if (read_framework(job, &launch, files, err))
        return -1;
    note_parameters(job);
    return 0;
}

/* ---- scripts ---- */

static void note_script(struct training_job *job, const struct shell_script *script,
                        const struct shell_command *launch)
{
    for (int i = 0; i < script->skipped_count; i++)
        if (script->skipped[i].line < launch->line)
            job_note(
                job, FACT_UNKNOWN, script->skipped[i].text,
                arena_printf(job->facts.arena, "%s; what it sets is not known", script->skipped[i].unknown),
                job_origin(job, &script->skipped[i]));
    if (launch->inside)
        job_note(job, FACT_DERIVED, "launch", launch->inside,
                 arena_printf(job->facts.arena, "line %d stands inside it, and is taken to run once",
                              launch->line));
}

int jobs_read_text(const struct jobs_request *request, const char *file, const char *text, size_t length,
                   struct arena *arena, struct training_job *out, struct error *err)
{
    struct shell_input input = {.text = text,
                                .length = length,
                                .file = file,
                                .first_line = 1,
                                .given = request->set,
                                .given_count = request->set_count,
                                .arguments = request->command,
                                .argument_count = request->command_count};
    struct shell_script script;
    const struct shell_command *launch;
    const char *slash = strrchr(file, '/');
    *out = (struct training_job){.facts.arena = arena};
    if (shell_read(&input, arena, &script, err) || find_launch(&script, request, arena, file, &launch, err))
        return -1;
    struct job_files files = {
        .script = &script, .model = request->model, .command = &launch->words, .edits = request->edits};
    if (slash)
        files.folder = arena_printf(arena, "%.*s", (int)(slash - file), file);
    note_script(out, &script, launch);
    int status = read_job(request, &script.batch, &files, out, err);
    out->launch.line = launch->line;
    return status;
}

static int read_script(const struct jobs_request *request, struct arena *arena, struct training_job *out,
                       struct error *err)
{
    char *text;
    size_t length;
    struct stat info;
    if (!stat(request->script, &info) && S_ISDIR(info.st_mode))
        return error_set(err, "%s: a folder; name a script in it", request->script);
    if (text_read_file(request->script, JOBS_FILE_BYTES, &text, &length, err))
        return -1;
    int status = not_a_script_refuse(request->script, text, length, err);
    if (!status)
        status = jobs_read_text(request, request->script, text, length, arena, out, err);
    free(text);
    return status;
}

/* ---- a script on a launch line ---- */

static bool is_assignment(const char *word)
{
    size_t length = strcspn(word, "=");
    return word[length] && length && strspn(word, VARIABLE) >= length && !isdigit((unsigned char)*word);
}

/* The place of the script in "A=1 bash run.sh ARGUMENTS"; -1: the line is something else. */
static int script_at(const struct jobs_request *r)
{
    static const char *const before[] = {"env", "bash", "sh", "sbatch", "source", "."};
    for (int i = 0; i < r->command_count; i++) {
        const char *word = r->command[i];
        size_t length = strlen(word);
        bool passed = is_assignment(word);
        if (length > 3 && !strcmp(word + length - 3, ".sh"))
            return i;
        for (size_t k = 0; k < sizeof before / sizeof before[0]; k++)
            passed = passed || !strcmp(word, before[k]);
        if (!passed)
            return -1;
    }
    return -1;
}

/* With the variables before the script given. */
struct jobs_request jobs_request_named(const struct jobs_request *request, struct arena *arena)
{
    struct jobs_request named = *request;
    int at = request->script ? -1 : script_at(request);
    if (at < 0)
        return named;
    struct shell_variable *set = arena_array(arena, (size_t)(request->set_count + at), sizeof *set);
    if (request->set_count)
        memcpy(set, request->set, (size_t)request->set_count * sizeof *set);
    for (int i = 0; i < at; i++) {
        const char *word = request->command[i], *equals = strchr(word, '=');
        if (equals)
            set[named.set_count++] =
                (struct shell_variable){arena_printf(arena, "%.*s", (int)(equals - word), word), equals + 1};
    }
    named.set = set;
    named.script = request->command[at];
    named.command = request->command + at + 1;
    named.command_count = request->command_count - at - 1;
    return named;
}

int jobs_read(const struct jobs_request *request, struct arena *arena, struct training_job *out,
              struct error *err)
{
    struct words words = {arena_array(arena, (size_t)request->command_count + 1, sizeof(struct word)), 0},
                 none = {0};
    struct job_files files = {.model = request->model, .command = &words, .edits = request->edits};
    struct jobs_request named = jobs_request_named(request, arena);
    *out = (struct training_job){.facts.arena = arena};
    if (named.script)
        return read_script(&named, arena, out, err);
    for (int i = 0; i < request->command_count; i++)
        words.list[words.count++] = (struct word){.text = request->command[i]};
    if (refuse_own(&words, "command line", err) ||
        (!launcher_is_launch(&words) && refuse_unread(arena, &words, "command line", 0, err)))
        return -1;
    return read_job(request, &none, &files, out, err);
}
