#include "cli/tune_write.h"

#include "base/text.h"
#include "jobs/launch_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that is to be written, and what stood there. */
struct draft {
    const char *path, *text;
    const char *named; /* of a configuration file, as the launch names it, and is to name it */
    const char *renamed;
    struct splices splices;
    char *before; /* NULL: nothing */
    mode_t mode;  /* 0: whatever a new file has */
    bool written;
};

struct writer_of_tune {
    const struct tune_request *request;
    const struct tuned *found;
    struct arena *arena;
    struct jobs_request launch; /* the script that is changed */
    struct launch_text script;
    struct draft drafts[TUNE_FILES_MOST]; /* the script first */
    int count;
};

/* ---- the script as it stands ---- */

static int read_whole(const char *path, struct arena *arena, const char **out, struct error *err)
{
    char *text;
    size_t length;
    if (text_read_file(path, JOBS_FILE_BYTES, &text, &length, err))
        return -1;
    *out = arena_strdup(arena, text);
    free(text);
    return 0;
}

static int read_text(struct writer_of_tune *w, const char *path, struct error *err)
{
    struct stat info;
    w->launch = jobs_request_named(w->request->launch, w->arena);
    w->drafts[0] = (struct draft){.path = path};
    w->count = 1;
    if (w->launch.script) {
        w->script.file = w->launch.script;
        w->drafts[0].mode = stat(w->launch.script, &info) ? 0 : info.st_mode & 07777;
        return read_whole(w->launch.script, w->arena, &w->script.text, err);
    }
    w->script.file = path;
    w->script.text = launch_text_of_command(w->launch.command, w->launch.command_count, w->arena);
    w->launch.command = NULL;
    w->launch.command_count = 0;
    w->drafts[0].mode = 0755;
    return 0;
}

/* The job again, now with the lines of the script as its origins, and what the script writes. */
static int read_launch(struct writer_of_tune *w, const char *path, struct error *err)
{
    struct training_job *job = arena_alloc(w->arena, sizeof *job);
    struct shell_script *script = arena_alloc(w->arena, sizeof *script);
    if (read_text(w, path, err))
        return -1;
    size_t length = strlen(w->script.text);
    struct shell_input input = {.text = w->script.text,
                                .length = length,
                                .file = w->script.file,
                                .first_line = 1,
                                .given = w->launch.set,
                                .given_count = w->launch.set_count,
                                .arguments = w->launch.command,
                                .argument_count = w->launch.command_count};
    w->script.job = job;
    w->script.script = script;
    w->script.arena = w->arena;
    return jobs_read_text(&w->launch, w->script.file, w->script.text, length, w->arena, job, err) ||
                   shell_read(&input, w->arena, script, err)
               ? -1
               : 0;
}

/* ---- configuration files ---- */

static const char *folder_of(const char *path, struct arena *arena)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_printf(arena, "%.*s/", (int)(slash - path), path) : "";
}

/* "tuned" of "out/tuned.sh". */
static const char *stem_of(const char *path, struct arena *arena)
{
    const char *name = text_base_name(path), *dot = strrchr(name, '.');
    return dot && dot > name ? arena_printf(arena, "%.*s", (int)(dot - name), name) : name;
}

/* A file that the launch names without a folder goes beside the script; another stays in its folder. */
static int draft_config(struct writer_of_tune *w, const char *named, struct draft **out, struct error *err)
{
    struct stat info;
    const char *script = w->drafts[0].path;
    const char *beside = arena_printf(w->arena, "%s%s", folder_of(w->script.file, w->arena), named);
    const char *here = *named != '/' && !stat(beside, &info) ? beside : named;
    for (int i = 1; i < w->count; i++)
        if (!strcmp(w->drafts[i].named, named)) {
            *out = &w->drafts[i];
            return 0;
        }
    if (w->count == TUNE_FILES_MOST)
        return error_set(err, "more than %d files would change; make the changes by hand",
                         TUNE_FILES_MOST - 1);
    struct draft *draft = &w->drafts[w->count++];
    const char *name = arena_printf(w->arena, "%s.%s", stem_of(script, w->arena), text_base_name(named));
    *draft = (struct draft){.named = named,
                            .renamed = arena_printf(w->arena, "%s%s", folder_of(named, w->arena), name)};
    draft->path =
        arena_printf(w->arena, "%s%s", folder_of(strchr(named, '/') ? here : script, w->arena), name);
    *out = draft;
    return read_whole(here, w->arena, &draft->text, err) ||
                   launch_text_rename(&w->script, named, draft->renamed, err)
               ? -1
               : 0;
}

static int edit_config(struct writer_of_tune *w, const struct job_edit *edit, struct error *err)
{
    struct draft *draft = NULL;
    if (draft_config(w, edit->file, &draft, err))
        return -1;
    size_t length = strlen(draft->text);
    return text_ends_with(edit->file, ".json")
               ? config_text_json(draft->text, 0, length, edit, w->arena, &draft->splices, err)
               : config_text_yaml(draft->text, 0, length, edit, w->arena, &draft->splices, err);
}

static int make_drafts(struct writer_of_tune *w, struct error *err)
{
    for (int i = 0; i < w->found->edits.count; i++) {
        const struct job_edit *edit = &w->found->edits.list[i];
        bool config = edit->place == JOB_EDIT_FILE && !launch_text_writes(&w->script, edit->file);
        if (config ? edit_config(w, edit, err) : launch_text_edit(&w->script, edit, err))
            return -1;
    }
    w->drafts[0].text = launch_text_written(&w->script);
    for (int i = 1; i < w->count; i++)
        w->drafts[i].text = splices_apply(&w->drafts[i].splices, w->drafts[i].text, w->arena);
    return 0;
}

/* ---- on the disk ---- */

/* The script's name was given, and may be replaced; those of other files follow from it, and may not. */
static int write_draft(struct draft *draft, bool given, struct error *err)
{
    struct text text = {0};
    struct stat info;
    size_t length;
    if (!stat(draft->path, &info) && S_ISREG(info.st_mode) &&
        text_read_file(draft->path, JOBS_FILE_BYTES, &draft->before, &length, err))
        return -1;
    if (!given && draft->before && strcmp(draft->before, draft->text))
        return error_set(err,
                         "%s is there already, and would be replaced; delete it, or give -o another name",
                         draft->path);
    text_add(&text, draft->text);
    int status = text_write(&text, draft->path, err);
    text_free(&text);
    draft->written = !status;
    if (!status && draft->mode && !draft->before)
        status =
            chmod(draft->path, draft->mode) ? error_set(err, "%s: its mode cannot be set", draft->path) : 0;
    return status;
}

static void take_back(struct draft *draft)
{
    struct error unheard = {0};
    struct text text = {0};
    if (draft->written && draft->before) {
        text_add(&text, draft->before);
        text_write(&text, draft->path, &unheard);
        text_free(&text);
    } else if (draft->written) {
        unlink(draft->path);
    }
}

/* Whether what was written gives what was found. */
static int check(const struct writer_of_tune *w, struct error *err)
{
    struct jobs_request again = w->launch;
    struct training_job job;
    struct job_verdict verdict;
    struct error reason = {0};
    const char *path = w->drafts[0].path, *script = w->script.file;
    again.script = path;
    again.line += again.line ? w->script.lines_above : 0;
    bool beside = !strcmp(folder_of(path, w->arena), folder_of(script, w->arena));
    const char *way_out = beside ? "make the changes by hand, as the answer without -o lists them"
                                 : arena_printf(w->arena, "write it beside the script: -o %s%s",
                                                folder_of(script, w->arena), text_base_name(path));
    if (jobs_read(&again, w->arena, &job, &reason) ||
        job_verdict_make(&job, w->request->device, -1, &verdict, &reason))
        return error_set(err, "-o %s: with the changes written into it, it can no longer be read (%s); %s",
                         path, reason.text, way_out);
    const struct job_verdict *promised = &w->found->verdict;
    struct job_trials trials = {&again, w->request->device, w->request->speeds, 0};
    double off = job_trial_seconds(&trials, &verdict.workload, &reason) / w->found->sequence_s - 1;
    if (verdict.memory.peak.bytes == promised->memory.peak.bytes &&
        verdict.needed_bytes == promised->needed_bytes && off < 1e-9 && off > -1e-9)
        return 0;
    return error_set(
        err,
        "-o %s: with the changes written into it, it is not what was found (a peak of %lld bytes "
        "instead of %lld): options that the script adds later count more; %s",
        path, (long long)verdict.memory.peak.bytes, (long long)promised->memory.peak.bytes, way_out);
}

/* Configuration files first, so that the script never names one that is not there. */
static int write_all(struct writer_of_tune *w, struct error *err)
{
    int status = 0;
    for (int i = w->count - 1; i >= 0 && !status; i--)
        status = write_draft(&w->drafts[i], i == 0, err);
    if (!status)
        status = check(w, err);
    for (int i = 0; i < w->count; i++) {
        if (status)
            take_back(&w->drafts[i]);
        free(w->drafts[i].before);
    }
    return status;
}

int tune_write(const struct tune_request *request, const struct tuned *found, const char *path,
               struct tune_written *out, struct error *err)
{
    struct arena *arena = request->job->facts.arena;
    struct writer_of_tune *w = arena_alloc(arena, sizeof *w);
    *w = (struct writer_of_tune){.request = request, .found = found, .arena = arena};
    if (!strcmp(path, "-"))
        return error_set(
            err, "-o -: the answer goes to stdout, and the launch to a file; name one, such as tuned.sh");
    if (read_launch(w, path, err) || make_drafts(w, err) || write_all(w, err))
        return -1;
    for (int i = 0; i < w->count; i++)
        out->files[i] = w->drafts[i].path;
    out->files[w->count] = NULL;
    return 0;
}
