#include "trainer/groups.h"

/* Divides the ranks by color, in the order of their numbers; nobody asks when all would be alone. */
static int split(struct comm *world, int64_t members, int64_t color, struct comm **out, struct error *err)
{
    return members == 1 ? 0 : comm_split(world, (int)color, 0, out, err);
}

/* Who adds up squares of the same gradients must not be asked twice: replicas hold the same ones, unless each keeps the sum
 * of its own shards only. */
static int split_norm(struct comm *world, const struct layout *l, struct layout_place place,
                      struct comm **out, struct error *err)
{
    if (l->zero)
        return split(world, layout_ranks(l), 0, out, err);
    return split(world, l->tp * l->pp, place.replica, out, err);
}

static int split_embedding(struct comm *world, const struct program *program, struct layout_place place,
                           struct comm **out, struct error *err)
{
    const struct layout *l = &program->layout;
    bool holds = place.stage == 0 || place.stage == l->pp - 1;
    return split(world, program->model.tied ? l->pp : 1, holds ? place.replica * l->tp + place.part : -1, out,
                 err);
}

int groups_open(struct comm *world, const struct program *program, struct groups *out, struct error *err)
{
    const struct layout *l = &program->layout;
    struct layout_place place = layout_place_of(l, comm_rank(world));
    struct groups groups = {0};
    if (split(world, l->dp, place.stage * l->tp + place.part, &groups.data, err) ||
        split(world, l->tp, place.stage * l->dp + place.replica, &groups.tensor, err) ||
        split(world, l->dp * l->pp, place.part, &groups.loss, err) ||
        split_norm(world, l, place, &groups.norm, err) ||
        split(world, l->pp, place.replica * l->tp + place.part, &groups.pipeline, err) ||
        split_embedding(world, program, place, &groups.embedding, err)) {
        groups_close(&groups);
        return -1;
    }
    *out = groups;
    return 0;
}

void groups_close(struct groups *groups)
{
    comm_close(groups->data);
    comm_close(groups->tensor);
    comm_close(groups->loss);
    comm_close(groups->norm);
    comm_close(groups->pipeline);
    comm_close(groups->embedding);
    *groups = (struct groups){0};
}
