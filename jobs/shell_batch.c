/* The #SBATCH lines of a script: options of Slurm, and the variables that Slurm will set from them. */
#include "jobs/shell_parse.h"

#include "base/checked.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BATCH = 200 };

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

/* What Slurm will set, of an option of #SBATCH and its value: "8", "gpu:8", "gpu:a100:8". */
static int set_batch_variable(struct parser *p, const char *option, size_t length, const char *value)
{
    const char *colon = strrchr(value, ':');
    int64_t number = strtoll(colon ? colon + 1 : value, NULL, 10);
    for (size_t i = 0; i < sizeof batch_variables / sizeof batch_variables[0]; i++) {
        if (strlen(batch_variables[i].option) != length || strncmp(batch_variables[i].option, option, length))
            continue;
        for (int k = 0; batch_variables[i].variables[k] && number > 0; k++)
            if (shell_set_number(p, batch_variables[i].variables[k], number))
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
    return shell_find(p->scope, "SLURM_NTASKS", 12) ? 0 : shell_set_number(p, "SLURM_NTASKS", product);
}

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
        w->list = shell_grown(p->scope->arena, w->list, w->count, &p->rooms->batch, sizeof *w->list);
        w->list[w->count++] =
            (struct word){.text = arena_printf(p->scope->arena, "%.*s", (int)(stop - from), from),
                          .file = p->scope->file,
                          .line = shell_line_in_file(p->line)};
        from = stop;
    }
}

int shell_skip_comment(struct parser *p)
{
    const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
    const char *end = newline ? newline : p->end;
    bool batch = shell_starts(p, "#SBATCH") && p->out->batch.count < MOST_BATCH;
    if (batch)
        add_batch(p, p->at + strlen("#SBATCH"), end);
    p->at = end;
    return batch ? set_batch_variables(p) : 0;
}

int shell_add_batch_words(struct parser *p, const struct words *words, int from, int end)
{
    struct words *w = &p->out->batch;
    for (int i = from; i < end && w->count < MOST_BATCH; i++) {
        w->list = shell_grown(p->scope->arena, w->list, w->count, &p->rooms->batch, sizeof *w->list);
        w->list[w->count++] = words->list[i];
    }
    return set_batch_variables(p);
}
