#include "jobs/training_job.h"

#include "base/checked.h"
#include "base/options.h"

#include <string.h>

static const char *const kinds[] = {"read", "default", "derived", "irrelevant", "unknown", "missing"};

const char *fact_kind_name(enum fact_kind kind)
{
    return kinds[kind];
}

static struct fact *find(const struct facts *facts, const char *name)
{
    for (int i = 0; i < facts->count; i++)
        if (!strcmp(facts->list[i].name, name))
            return &facts->list[i];
    return NULL;
}

void job_note(struct training_job *job, enum fact_kind kind, const char *name, const char *value,
              const char *origin)
{
    struct facts *f = &job->facts;
    struct fact *old = find(f, name);
    if (old && old->kind == FACT_MISSING && (kind == FACT_DEFAULT || kind == FACT_DERIVED))
        return;
    struct fact fact = {kind, arena_strdup(f->arena, name), arena_strdup(f->arena, value),
                        arena_strdup(f->arena, origin)};
    if (old) {
        *old = fact;
        return;
    }
    if (f->count == f->room) {
        f->room = f->room ? 2 * f->room : 64;
        struct fact *longer = arena_array(f->arena, (size_t)f->room, sizeof *longer);
        if (f->count)
            memcpy(longer, f->list, (size_t)f->count * sizeof *longer);
        f->list = longer;
    }
    f->list[f->count++] = fact;
}

void job_note_count(struct training_job *job, enum fact_kind kind, const char *name, int64_t value,
                    const char *origin)
{
    job_note(job, kind, name, arena_printf(job->facts.arena, "%lld", (long long)value), origin);
}

int job_count(const struct training_job *job, enum fact_kind kind)
{
    int count = 0;
    for (int i = 0; i < job->facts.count; i++)
        count += job->facts.list[i].kind == kind;
    return count;
}

bool job_was_given(const struct training_job *job, const char *name)
{
    const struct fact *fact = find(&job->facts, name);
    return fact && (fact->kind == FACT_READ || fact->kind == FACT_MISSING);
}

bool job_was_said(const struct training_job *job, const char *name)
{
    const struct fact *fact = find(&job->facts, name);
    return fact && (fact->kind == FACT_READ || fact->kind == FACT_DERIVED);
}

void job_drop_defaults(struct training_job *job, const char *prefix)
{
    struct facts *f = &job->facts;
    int kept = 0;
    for (int i = 0; i < f->count; i++)
        if (f->list[i].kind != FACT_DEFAULT || strncmp(f->list[i].name, prefix, strlen(prefix)))
            f->list[kept++] = f->list[i];
    f->count = kept;
}

const char *job_origin(struct training_job *job, const struct word *word)
{
    if (!word->file)
        return "command line";
    if (!word->line)
        return word->file;
    return arena_printf(job->facts.arena, "%s:%d", word->file, word->line);
}

bool job_says(const char *text, const char *piece)
{
    return text && strcasestr(text, piece);
}

/* What was given that nobody knows, and is spelled like the option; NULL: nothing. */
static const struct fact *find_misspelled(const struct training_job *job, const char *option)
{
    const char *const names[] = {option + strspn(option, "-"), NULL};
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *fact = &job->facts.list[i];
        if (fact->kind == FACT_UNKNOWN && options_nearest(fact->name + strspn(fact->name, "-"), names))
            return fact;
    }
    return NULL;
}

void job_require(struct training_job *job, int64_t value, const char *option, const char *example)
{
    struct arena *arena = job->facts.arena;
    const struct fact *near = find_misspelled(job, option);
    if (value || job_was_given(job, option))
        return;
    const char *said =
        near ? arena_printf(arena, "is it meant by %s, which is unknown?", near->name) : "nothing says it";
    job_note(job, FACT_MISSING, option, "?",
             arena_printf(arena, "%s; give --with='%s %s'", said, option, example));
}

int job_split_ranks(struct training_job *job, struct error *err)
{
    struct job_layout *l = &job->layout;
    int64_t *degrees[] = {&l->tp, &l->pp, &l->cp}, product = 1;
    for (int i = 0; i < 3; i++) {
        *degrees[i] = *degrees[i] ? *degrees[i] : 1;
        if (*degrees[i] > 1 << 20 || !checked_mul(product, *degrees[i], &product) || product > 1LL << 40)
            return error_set(err, "a parallel degree of %lld is no real one; correct the launch line",
                             (long long)*degrees[i]);
    }
    if (!job->launch.ranks)
        return 0;
    if (job->launch.ranks > JOB_MOST_RANKS)
        return error_set(err,
                         "%lld ranks are more than any job has; correct the launch line, or give --ranks",
                         (long long)job->launch.ranks);
    if (job->launch.ranks % product)
        return error_set(
            err,
            "%lld ranks are no multiple of tensor %lld x pipeline %lld x context %lld parallel ranks; "
            "correct the launch line, or give --ranks",
            (long long)job->launch.ranks, (long long)l->tp, (long long)l->pp, (long long)l->cp);
    l->dp = job->launch.ranks / product;
    job_note_count(job, FACT_DERIVED, "data-parallel ranks", l->dp, "ranks / (tensor x pipeline x context)");
    return 0;
}
