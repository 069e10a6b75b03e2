/* The search looks for the fastest plan with room by memplan's own count. What is exported of it is then read as `memplan check` would
 * read it, and judged by the rules of its framework; where that says it does not fit, the search is repeated with as much less memory
 * as the rules count more. */
#include "cli/plan_for.h"

#include "base/checked.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/job_verdict.h"
#include "jobs/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct wish {
    struct plan_answer *answer;
    enum export_target target;
    const char *model;
};

/* ------------------------------------------------------------------------------------------------------- the verdict */

static int write_body(const struct wish *w, char *path, struct error *err)
{
    const struct search_row *best = &w->answer->result.alternatives[0];
    struct plan plan = {.model = w->answer->model,
                        .layout = best->layout,
                        .recompute = best->masks,
                        .chunk_layers = best->chunk_layers};
    struct export_request request = {.plan = &plan,
                                     .plan_path = "plan.json",
                                     .ranks_per_node = w->answer->cluster.groups[0].ranks_per_node};
    struct export_result result;
    siting_to_plan(&w->answer->cluster, &best->siting, &plan);
    if (export_write(w->target, &request, &result, err))
        return -1;
    int file = mkstemps(path, (int)strlen(strrchr(path, '.')));
    int status = file < 0
                     ? error_set(err, "cannot write %s; set TMPDIR to a folder where that can be done", path)
                     : text_write(&result.body, path, err);
    if (file >= 0)
        close(file);
    export_clear(&result);
    return status;
}

static int read_job(const struct wish *w, const char *path, struct arena *arena, struct training_job *out,
                    struct error *err)
{
    const struct search_row *best = &w->answer->result.alternatives[0];
    int64_t ranks = layout_ranks(&best->layout),
            each = min_i64(w->answer->cluster.groups[0].ranks_per_node, ranks);
    const char *command[] = {"torchrun",
                             "--nnodes",
                             arena_printf(arena, "%" PRId64, (ranks + each - 1) / each),
                             "--nproc-per-node",
                             arena_printf(arena, "%" PRId64, each),
                             "-m",
                             "torchtitan.train",
                             "--job.config_file",
                             path};
    bool titan = w->target == EXPORT_TORCHTITAN;
    struct jobs_request request = {.script = titan ? NULL : path,
                                   .command = command,
                                   .command_count = titan ? (int)(sizeof command / sizeof command[0]) : 0,
                                   .model = titan ? w->model : NULL};
    if (jobs_read(&request, arena, out, err))
        return -1;
    return job_count(out, FACT_MISSING) ? error_set(err, "not all of it could be read") : 0;
}

/* Fails where the framework's rules do not know all of it. */
static int judge(const struct wish *w, struct job_verdict *out, struct error *err)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    struct training_job job;
    struct arena *arena = arena_create();
    snprintf(path, sizeof path, "%s/memplan-XXXXXX.%s", folder && *folder ? folder : "/tmp",
             w->target == EXPORT_TORCHTITAN ? "toml" : "sh");
    int status = write_body(w, path, err);
    if (!status)
        status = read_job(w, path, arena, &job, err) ||
                 job_verdict_make(&job, &w->answer->cluster.groups[0].device, -1, out, err);
    unlink(path);
    arena_free(arena);
    return status ? -1 : 0;
}

/* ----------------------------------------------------------------------------------------------------------- the search */

/* Have the rules a say? Not on CPUs, nor where cards differ, nor of a model that its name does not tell. */
static bool is_judged(const struct wish *w)
{
    const struct cluster *cluster = &w->answer->cluster;
    return cluster->group_count == 1 && cluster->groups[0].device.card &&
           (w->target == EXPORT_MEGATRON || w->model);
}

static void say_verdict(const struct wish *w, const struct job_verdict *v)
{
    char needed[UNITS_TEXT], capacity[UNITS_TEXT], kept[UNITS_TEXT];
    int64_t less = v->capacity_bytes - w->answer->narrowed.groups[0].device.capacity_bytes;
    log_note("note: by the rules of %s a rank needs %s of %s, with room for what no rule accounts for; "
             "the plan leaves %s to it",
             export_target_name(w->target), units_format_bytes(v->needed_bytes, needed),
             units_format_bytes(v->capacity_bytes, capacity), units_format_bytes(less, kept));
}

/* So much less that what the rules count fits, if they go on counting as much more. */
static void narrow(struct plan_answer *a, const struct job_verdict *v)
{
    double more = (double)v->needed_bytes / (double)a->result.alternatives[0].needed_bytes;
    struct rank_device *device = &a->narrowed.groups[0].device;
    double wanted = 0.995 * (double)v->capacity_bytes / more;
    device->capacity_bytes = min_i64((int64_t)wanted, device->capacity_bytes / 100 * 99);
}

int plan_for_search(struct plan_answer *a, enum export_target target, const char *model, struct error *err)
{
    enum { MOST_ATTEMPTS = 8 };
    struct wish w = {a, target, model};
    struct search_request request = a->request;
    if (export_check(target, &a->model, request.precision, err))
        return -1;
    a->narrowed = a->cluster;
    request.cluster = &a->narrowed;
    for (int attempt = 0;; attempt++) {
        struct job_verdict verdict;
        struct error unknown = {0};
        if (search_for_run(&request, target, &a->within, &a->result, err))
            return -1;
        a->request = a->within.request;
        if (!a->result.alternative_count || !is_judged(&w))
            return 0;
        if (judge(&w, &verdict, &unknown)) {
            log_note("note: whether it fits there too, `memplan check` cannot say (%s)", unknown.text);
            return 0;
        }
        if (verdict.fits || attempt == MOST_ATTEMPTS) {
            say_verdict(&w, &verdict);
            return 0;
        }
        narrow(a, &verdict);
        search_clear(&a->result);
    }
}
