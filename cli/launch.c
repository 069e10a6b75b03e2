#include "cli/launch.h"

#include "base/arena.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORD = sizeof(int32_t), HOST_WORDS = 64 };

/* Machines are told apart by their names. */
static int count_ranks_here(struct launch *launch, struct error *err)
{
    enum { BYTES = HOST_WORDS * WORD };
    char mine[BYTES] = "", *all = host_alloc((size_t)comm_size(launch->world) * BYTES);
    struct comm_span part = {mine, HOST_WORDS}, full = {all, (int64_t)HOST_WORDS * comm_size(launch->world)};
    gethostname(mine, BYTES - 1);
    int status = comm_start_all_gather(launch->world, &part, &full, 1, DTYPE_I32, NULL, err) ||
                 comm_wait(launch->world, err);
    for (int rank = 0; !status && rank < comm_size(launch->world); rank++)
        launch->ranks_here += !strcmp(all + (size_t)rank * BYTES, mine);
    free(all);
    return status ? -1 : 0;
}

int launch_begin(struct launch *out, struct error *err)
{
    *out = (struct launch){0};
    if (comm_open_launched(&out->world, err) == COMM_LAUNCH_FAILED)
        return -1;
    if (out->world && comm_size(out->world) == 1) {
        comm_close(out->world);
        out->world = NULL;
    }
    if (!out->world)
        return 0;
    out->rank = comm_rank(out->world);
    if (out->rank > 0)
        log_set_quiet(true);
    return count_ranks_here(out, err);
}

int launch_refuse(struct error *err)
{
    struct launch launch;
    struct error failure;
    if (launch_begin(&launch, &failure))
        *err = failure;
    return launch_end(&launch, -1, err);
}

int launch_check(const struct launch *launch, const struct layout *l, struct error *err)
{
    int64_t ranks = layout_ranks(l);
    int processes = launch->world ? comm_size(launch->world) : 0;
    if (!processes || processes == ranks)
        return 0;
    return error_set(err,
                     "the plan has %" PRId64 " rank%s (dp %" PRId64 " x tp %" PRId64 " x pp %" PRId64
                     "), but %d processes were started; start %" PRId64 " (mpirun -np, srun --ntasks), or "
                     "make a plan for %d",
                     ranks, ranks == 1 ? "" : "s", l->dp, l->tp, l->pp, processes, ranks, processes);
}

/* What the plan file holds, as a text that is padded to whole words. */
static char *plan_text(const struct plan *plan, int32_t *words, struct error *err)
{
    struct pipeline *pipeline;
    if (plan_pipeline(plan, &pipeline, err))
        return NULL;
    json_t *object = plan_to_json(plan, pipeline);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    pipeline_free(pipeline);
    *words = (int32_t)(strlen(text) / WORD + 1);
    char *padded = strcpy(host_alloc((size_t)*words * WORD), text);
    free(text);
    return padded;
}

static int read_plan(const char *text, struct plan *plan, struct error *err)
{
    json_t *object = json_loads(text, 0, NULL);
    int status = object ? plan_from_json(object, "the plan of rank 0", plan, err)
                        : error_set(err, "the plan of rank 0 arrived damaged; start the run again");
    json_decref(object);
    return status;
}

int launch_share(const struct launch *launch, void *data, int64_t bytes, struct error *err)
{
    struct comm_span span = {data, bytes / WORD};
    if (!launch->world)
        return 0;
    if (comm_start_broadcast(launch->world, &span, 1, DTYPE_I32, 0, NULL, err))
        return -1;
    return comm_wait(launch->world, err);
}

int launch_share_plan(const struct launch *launch, struct plan *plan, struct error *err)
{
    int32_t words = 0;
    char *text = NULL;
    if (!launch->world)
        return 0;
    if (launch->rank == 0 && !(text = plan_text(plan, &words, err)))
        return -1;
    int status = launch_share(launch, &words, WORD, err);
    if (!status && launch->rank > 0)
        text = host_alloc((size_t)words * WORD);
    if (!status)
        status = launch_share(launch, text, (int64_t)words * WORD, err);
    if (!status && launch->rank > 0)
        status = read_plan(text, plan, err);
    free(text);
    return status;
}

void launch_stop(const struct launch *launch, const struct error *err)
{
    if (launch->world)
        comm_abort(launch->world, err->text);
}

int launch_end(struct launch *launch, int status, struct error *err)
{
    if (!launch->world)
        return status;
    if (status < 0) {
        launch_stop(launch, err);
        if (!comm_failed_first(launch->world))
            error_set_kind(err, ERROR_STOPPED, "another rank failed");
    }
    comm_close(launch->world);
    launch->world = NULL;
    return status;
}
