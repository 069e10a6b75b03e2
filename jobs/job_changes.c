#include "jobs/job_changes_parts.h"

#include "jobs/frameworks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Beyond a DGX or HGX machine tensor parallelism waits for the network; from such a length on sequences are commonly split. */
enum { MOST_TENSOR = 8, LONG_SEQUENCE = 8192 };

/* ---- what was given ---- */

static bool is_json(const char *file)
{
    size_t length = strlen(file);
    return length > 5 && !strcmp(file + length - 5, ".json");
}

static bool is_yaml(const char *file)
{
    size_t length = strlen(file);
    return (length > 5 && !strcmp(file + length - 5, ".yaml")) ||
           (length > 4 && !strcmp(file + length - 4, ".yml"));
}

const struct fact *changes_read(const struct training_job *job, const char *name)
{
    for (int i = 0; i < job->facts.count; i++)
        if (job->facts.list[i].kind == FACT_READ && !strcmp(job->facts.list[i].name, name))
            return &job->facts.list[i];
    return NULL;
}

const char *changes_file_of(const struct training_job *job, const char *name)
{
    const struct fact *fact = changes_read(job, name);
    if (!fact)
        return NULL;
    const char *file = arena_printf(job->facts.arena, "%.*s", (int)strcspn(fact->origin, ":"), fact->origin);
    return is_json(file) || is_yaml(file) ? file : NULL;
}

const struct fact *job_changes_given(const struct training_job *job, const struct job_edit *edit)
{
    const char *name = edit->name;
    const struct fact *fact = changes_read(job, name);
    if (!fact && edit->place == JOB_EDIT_OPTION) /* keys of a file that are given as options */
        fact = changes_read(job, name + strspn(name, "-"));
    if (!fact && edit->place == JOB_EDIT_FILE) /* the options of a program as a file */
        fact = changes_read(job, arena_printf(job->facts.arena, "--%s", name));
    return fact;
}

/* ---- proposals ---- */

struct job_change *changes_propose(struct proposals *p, enum job_change_kind kind, const char *name, ...)
{
    struct arena *arena = p->job->facts.arena;
    char text[160];
    va_list args;
    va_start(args, name);
    vsnprintf(text, sizeof text, name, args);
    va_end(args);
    struct job_change *change =
        p->out->count < JOB_CHANGES_MOST ? &p->out->list[p->out->count++] : &p->beyond;
    *change = (struct job_change){.kind = kind, .name = arena_strdup(arena, text)};
    return change;
}

static void add_edit(struct proposals *p, struct job_change *change, struct job_edit edit)
{
    if (edit.value)
        edit.value = arena_strdup(p->job->facts.arena, edit.value);
    if (change->count < JOB_CHANGE_EDITS)
        change->edits[change->count++] = edit;
}

void changes_key(struct proposals *p, struct job_change *change, const char *file, const char *name,
                 const char *value)
{
    add_edit(p, change,
             (struct job_edit){.place = JOB_EDIT_FILE, .file = file, .name = name, .value = value});
}

void changes_option(struct proposals *p, struct job_change *change, const char *name, const char *value)
{
    const char *file = changes_file_of(p->job, name);
    if (file)
        changes_key(p, change, file, name + strspn(name, "-"), *value ? value : "true");
    else
        add_edit(p, change, (struct job_edit){.place = JOB_EDIT_OPTION, .name = name, .value = value});
}

void changes_words(struct proposals *p, struct job_change *change, const char *name, const char *words)
{
    add_edit(p, change,
             (struct job_edit){.place = JOB_EDIT_OPTION, .name = name, .value = words, .words = true});
}

void changes_count(struct proposals *p, struct job_change *change, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    changes_option(p, change, name, text);
}

void changes_drop(struct proposals *p, struct job_change *change, const char *name)
{
    if (changes_read(p->job, name))
        add_edit(p, change, (struct job_edit){.place = JOB_EDIT_OPTION, .name = name});
}

int64_t changes_smaller(int64_t micro_batch, int64_t than)
{
    for (int64_t next = than / 2; next > 0; next--)
        if (micro_batch % next == 0)
            return next;
    return 0;
}

struct job_change *changes_propose_tensor(struct proposals *p, int64_t tp)
{
    return changes_propose(p, JOB_CHANGE_TENSOR, "tensor parallel over %lld ranks instead of %lld",
                           (long long)tp, (long long)p->job->layout.tp);
}

struct job_change *changes_propose_context(struct proposals *p, int64_t cp)
{
    return changes_propose(p, JOB_CHANGE_CONTEXT, "context parallel over %lld ranks instead of %lld",
                           (long long)cp, (long long)p->job->layout.cp);
}

bool changes_splits_heads(const struct training_job *job, int64_t tp)
{
    const struct job_model *m = &job->model;
    return tp >= 1 && tp <= MOST_TENSOR && m->heads % tp == 0 && m->kv_heads % tp == 0;
}

/* Each rank has a piece from the front and one from the end, which makes their work alike. */
bool changes_splits_sequence(const struct training_job *job, int64_t cp)
{
    int64_t sequence = job->batch.sequence;
    return cp >= 1 && sequence >= LONG_SEQUENCE && sequence % (2 * cp) == 0;
}

/* ---- of all frameworks ---- */

static void propose_allocator(struct proposals *p)
{
    const char *now = p->job->kernels.allocator;
    if (now && strstr(now, "expandable_segments:True"))
        return;
    struct job_change *change = changes_propose(p, JOB_CHANGE_ALLOCATOR, "expandable segments");
    add_edit(p, change,
             (struct job_edit){
                 .place = JOB_EDIT_ENVIRONMENT,
                 .name = "PYTORCH_CUDA_ALLOC_CONF",
                 .value = now && *now ? arena_printf(p->job->facts.arena, "%s,expandable_segments:True", now)
                                      : "expandable_segments:True"});
}

/* Sizes that make a job, so that products of two of them are numbers. */
static bool is_sound(const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    const struct job_batch *b = &job->batch;
    const int64_t sizes[] = {l->dp,
                             l->tp,
                             l->pp,
                             l->cp,
                             l->virtual_stages ? l->virtual_stages : 1,
                             b->micro,
                             b->accumulation ? b->accumulation : 1,
                             b->global ? b->global : 1,
                             b->sequence,
                             job->model.layers,
                             job->model.heads,
                             job->model.kv_heads};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1 || sizes[i] > 1 << 28)
            return false;
    return job->model_known;
}

void job_changes_find(const struct training_job *job, bool larger, struct job_changes *out)
{
    struct proposals p = {.job = job, .out = out};
    out->count = 0;
    if (!is_sound(job))
        return;
    if (!larger)
        propose_allocator(&p);
    job->framework->changes(&p, larger);
}
