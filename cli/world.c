#include "cli/world.h"

#include "base/arena.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORD = sizeof(int32_t), HOST_WORDS = 64 };

/* Machines are told apart by their names. */
static int count_ranks_here(struct world *world, struct error *err)
{
    enum { BYTES = HOST_WORDS * WORD };
    char mine[BYTES] = "", *all = host_alloc((size_t)comm_size(world->comm) * BYTES);
    struct comm_span part = {mine, HOST_WORDS}, full = {all, (int64_t)HOST_WORDS * comm_size(world->comm)};
    gethostname(mine, BYTES - 1);
    int status = comm_all_gather(world->comm, &part, &full, 1, DTYPE_I32, err);
    for (int rank = 0; !status && rank < comm_size(world->comm); rank++) {
        bool here = !strcmp(all + (size_t)rank * BYTES, mine);
        world->ranks_here += here;
        world->rank_here += here && rank < world->rank;
    }
    free(all);
    return status ? -1 : 0;
}

int world_open(struct world *out, struct error *err)
{
    *out = (struct world){0};
    if (comm_open_launched(&out->comm, err) == COMM_LAUNCH_FAILED)
        return -1;
    if (out->comm && comm_size(out->comm) == 1) {
        comm_close(out->comm);
        out->comm = NULL;
    }
    if (!out->comm)
        return 0;
    out->rank = comm_rank(out->comm);
    if (out->rank > 0)
        log_set_quiet(true);
    return count_ranks_here(out, err);
}

int world_refuse(struct error *err)
{
    struct world world;
    struct error failure;
    if (world_open(&world, &failure))
        *err = failure;
    return world_close(&world, -1, err);
}

int world_check(const struct world *world, const struct layout *l, struct error *err)
{
    int64_t ranks = layout_ranks(l);
    int processes = world->comm ? comm_size(world->comm) : 0;
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

int world_share(const struct world *world, void *data, int64_t bytes, struct error *err)
{
    struct comm_span span = {data, bytes / WORD};
    return world->comm ? comm_broadcast(world->comm, &span, 1, DTYPE_I32, 0, err) : 0;
}

int world_share_plan(const struct world *world, struct plan *plan, struct error *err)
{
    int32_t words = 0;
    char *text = NULL;
    if (!world->comm)
        return 0;
    if (world->rank == 0 && !(text = plan_text(plan, &words, err)))
        return -1;
    int status = world_share(world, &words, WORD, err);
    if (!status && world->rank > 0)
        text = host_alloc((size_t)words * WORD);
    if (!status)
        status = world_share(world, text, (int64_t)words * WORD, err);
    if (!status && world->rank > 0)
        status = read_plan(text, plan, err);
    free(text);
    return status;
}

void world_stop(const struct world *world, const struct error *err)
{
    if (world->comm)
        comm_abort(world->comm, err->text);
}

int world_close(struct world *world, int status, struct error *err)
{
    if (!world->comm)
        return status;
    if (status < 0) {
        world_stop(world, err);
        if (!comm_failed_first(world->comm))
            error_set_kind(err, ERROR_STOPPED, "another rank failed");
        else if (err->kind == ERROR_STOPPED)
            err->kind = ERROR_INPUT; /* a thread of this process has failed, which exchanges for it */
    }
    comm_close(world->comm);
    world->comm = NULL;
    return status;
}
