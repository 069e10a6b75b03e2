/* The search looks for the fastest plans with room by memplan's own count. What is exported of them is then read as `memplan check`
 * would read it, and judged by the rules of its framework: the fastest that fits there is the plan. Where none does, the search is
 * repeated with as much more headroom as the rules count more, by the one of which they count least. */
#include "cli/plan_for.h"

#include "base/arena.h"
#include "base/checked.h"
#include "cli/job_verdict.h"
#include "jobs/jobs.h"
#include "model/pipeline.h"
#include "planner/explanation.h"
#include "planner/prediction.h"

#include <inttypes.h>
#include <math.h>
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

static struct plan plan_of(const struct wish *w, const struct search_row *row)
{
    struct plan plan = {.model = w->answer->model,
                        .layout = row->layout,
                        .recompute = row->masks,
                        .chunk_layers = row->chunk_layers};
    siting_to_plan(&w->answer->cluster, &row->siting, &plan);
    return plan;
}

static int write_body(const struct wish *w, const struct search_row *row, char *path, struct error *err)
{
    struct plan plan = plan_of(w, row);
    struct export_request request = {.plan = &plan,
                                     .plan_path = "plan.json",
                                     .ranks_per_node = w->answer->cluster.groups[0].ranks_per_node};
    struct export_result result;
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

static int read_job(const struct wish *w, const struct search_row *row, const char *path, struct arena *arena,
                    struct training_job *out, struct error *err)
{
    int64_t ranks = layout_ranks(&row->layout),
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
static int judge(const struct wish *w, const struct search_row *row, struct job_verdict *out,
                 struct error *err)
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    struct training_job job;
    struct arena *arena = arena_create();
    snprintf(path, sizeof path, "%s/memplan-XXXXXX.%s", folder && *folder ? folder : "/tmp",
             w->target == EXPORT_TORCHTITAN ? "toml" : "sh");
    int status = write_body(w, row, path, err);
    if (!status)
        status = read_job(w, row, path, arena, &job, err) ||
                 job_verdict_make(&job, &w->answer->cluster.groups[0].device, -1, out, err);
    unlink(path);
    arena_free(arena);
    return status ? -1 : 0;
}

/* ----------------------------------------------------------------------------------------------------------- the search */

/* Have the rules a say? Not on CPUs, nor where cards differ, nor of a model that its name does not tell. */
static bool is_judged(const struct wish *w, struct error *why)
{
    const struct cluster *cluster = &w->answer->cluster;
    if (!cluster->groups[0].device.card)
        error_set(why, "they are about cards, and these ranks are CPUs");
    else if (cluster->group_count > 1)
        error_set(why, "they are about cards that are alike");
    else if (w->target == EXPORT_TORCHTITAN && !w->model)
        error_set(why, "fields of the model were replaced, and it is known there by its name");
    return why->kind == ERROR_NONE;
}

/* So much less that what the rules count fits, if they go on counting `more` times as much. */
static void narrow(struct plan_answer *a, double more)
{
    struct rank_device *device = &a->narrowed.groups[0].device;
    int64_t now = rank_device_plannable(device),
            wanted = (int64_t)(0.995 * (double)device->capacity_bytes / more);
    device->headroom_bytes = device->capacity_bytes - min_i64(wanted, now / 100 * 99);
}

/* Of rows that are not the first only peaks are known: what they need as built, and whether it has room. */
static int build(const struct wish *w, struct search_row *row, bool *fits, struct error *err)
{
    struct plan plan = plan_of(w, row);
    const struct rank_device **devices = host_alloc((size_t)row->layout.pp * sizeof *devices);
    struct pipeline *pipeline;
    struct prediction built;
    siting_devices(&w->answer->narrowed, &row->layout, &row->siting, devices);
    int status = plan_pipeline(&plan, &pipeline, err);
    if (!status) {
        status = prediction_make_placed(pipeline, devices, NULL, &built, err);
        pipeline_free(pipeline);
    }
    if (!status) {
        row->arena_bytes = built.arena_bytes;
        row->needed_bytes = built.needed_bytes;
        *fits = built.needed_bytes <= rank_device_plannable(devices[built.stage]);
    }
    free(devices);
    return status;
}

/* The fastest plan so far that fits by the rules too, and what it was found with. */
struct kept {
    bool found;
    struct search_result result; /* it is the first */
    struct search_for within;
    struct cluster narrowed;
    struct job_verdict verdict;
};

/* Keeps the fastest of the answer's rows that fits by the rules too, and is faster than what is kept; *least_more: by how much they
 * count more of those before it, infinite where there are none. Of what they say nothing about, *why says so, and it is passed
 * over. */
static int choose(const struct wish *w, struct kept *kept, double *least_more, struct error *why,
                  struct error *err)
{
    struct search_result *r = &w->answer->result;
    bool found = false;
    *least_more = INFINITY;
    for (int64_t i = 0; i < r->alternative_count && !found; i++) {
        struct search_row row = r->alternatives[i];
        struct job_verdict verdict;
        if (kept->found && row.time.total >= kept->result.alternatives[0].time.total)
            break;
        if (judge(w, &row, &verdict, why))
            continue;
        found = verdict.fits;
        if (found && i && build(w, &row, &found, err))
            return -1;
        if (!found) {
            *least_more = fmin(*least_more, (double)verdict.needed_bytes / (double)row.needed_bytes);
            continue;
        }
        search_clear(&kept->result);
        *kept = (struct kept){true, *r, w->answer->within, w->answer->narrowed, verdict};
        kept->result.alternatives += i;
        kept->result.alternative_count -= i;
        kept->result.alternatives[0] = row;
    }
    return 0;
}

/* Unless it is what is kept. */
static void drop_result(struct plan_answer *a, const struct kept *kept)
{
    if (a->result.arena != kept->result.arena)
        search_clear(&a->result);
}

static void adopt(const struct wish *w, const struct kept *kept)
{
    struct plan_answer *a = w->answer;
    a->result = kept->result;
    a->result.judged = true;
    a->within = kept->within; /* which points into itself, and is where it was */
    a->narrowed = kept->narrowed;
    a->request = a->within.request;
    a->verdict.judged = true;
    a->verdict.needed_bytes = kept->verdict.needed_bytes;
    a->verdict.capacity_bytes = kept->verdict.capacity_bytes;
}

/* What the search is given next: less. Where the rules go on asking for more than that, much less. */
static void go_on(struct plan_answer *a, const struct kept *kept, double least_more, bool patiently)
{
    narrow(a, patiently ? least_more : 1.1 * least_more);
    drop_result(a, kept);
}

/* Searches with less and less memory, until what is found fits by the rules and nothing that is faster could, or until nothing is
 * found. */
static int search(const struct wish *w, struct search_request *request, struct kept *kept, struct error *err)
{
    enum { MOST_ATTEMPTS = 8 };
    struct plan_answer *a = w->answer;
    bool judged = is_judged(w, &a->verdict.why), again = true;
    double bound_s = 0, least_more;
    for (int attempt = 0; again; attempt++) {
        request->limit_s = kept->found ? kept->result.alternatives[0].time.total : 0;
        if (search_for_run(request, w->target, &a->within, &a->result, err))
            return -1;
        a->request = a->within.request;
        if (!attempt)
            bound_s = a->result.bound_s; /* of all plans, those that leave less included */
        if (!judged || !a->result.alternative_count)
            break;
        if (choose(w, kept, &least_more, &a->verdict.why, err))
            return -1;
        again = isfinite(least_more) && (attempt < MOST_ATTEMPTS || !kept->found);
        if (again)
            go_on(a, kept, least_more, attempt < MOST_ATTEMPTS);
    }
    if (kept->found) {
        drop_result(a, kept);
        adopt(w, kept);
    }
    a->result.bound_s = bound_s;
    return 0;
}

/* What the system's limits cost. */
static int price(struct plan_answer *a, const struct search_request *asked, struct error *err)
{
    enum { PARTS = 8 };
    static const double worth = 1.01;
    struct search_request own = *asked;
    struct search_result result;
    own.alone = true;
    own.effort_parts = PARTS;
    if (!a->result.alternative_count)
        return 0;
    own.limit_s = a->result.alternatives[0].time.total / worth;
    if (search_run(&own, &result, err))
        return -1;
    if (result.alternative_count) {
        a->verdict.own_s = result.alternatives[0].time.total;
        explanation_plan(&result.alternatives[0], &a->verdict.own);
    }
    search_clear(&result);
    return 0;
}

int plan_for_search(struct plan_answer *a, enum export_target target, const char *model, struct error *err)
{
    struct wish w = {a, target, model};
    const struct search_request asked = a->request;
    struct search_request request = asked;
    struct kept kept = {0};
    if (export_check(target, &a->model, request.precision, err))
        return -1;
    a->verdict.system = export_target_name(target);
    a->narrowed = a->cluster;
    request.cluster = &a->narrowed;
    if (!search(&w, &request, &kept, err))
        return price(a, &asked, err);
    drop_result(a, &kept);
    search_clear(&kept.result);
    a->result = (struct search_result){0};
    return -1;
}
