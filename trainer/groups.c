#include "trainer/groups.h"

#include "comm/comm_device.h"

/* What all groups are made of. */
struct divided {
    struct comm *world;
    struct device *device;
};

/* Divides the ranks by color, in the order of their numbers; nobody asks when all would be alone. */
static int split(const struct divided *from, int64_t members, int64_t color, struct comm **out,
                 struct error *err)
{
    struct comm *host = NULL;
    if (members == 1)
        return 0;
    if (comm_split(from->world, (int)color, 0, &host, err))
        return -1;
    return host ? comm_open_device(host, from->device, out, err) : 0;
}

/* Who adds up squares of the same gradients must not be asked twice: replicas hold the same ones, unless each keeps the sum
 * of its own shards only. */
static int split_norm(const struct divided *from, const struct layout *l, struct layout_place place,
                      struct comm **out, struct error *err)
{
    if (l->zero)
        return split(from, layout_ranks(l), 0, out, err);
    return split(from, l->tp * l->pp, place.replica, out, err);
}

static int split_embedding(const struct divided *from, const struct program *program,
                           struct layout_place place, struct comm **out, struct error *err)
{
    const struct layout *l = &program->layout;
    bool holds = place.stage == 0 || place.stage == l->pp - 1;
    return split(from, program->model.tied ? l->pp : 1, holds ? place.replica * l->tp + place.part : -1, out,
                 err);
}

int groups_open(struct comm *world, struct device *device, const struct program *program, struct groups *out,
                struct error *err)
{
    const struct layout *l = &program->layout;
    struct layout_place place = layout_place_of(l, comm_rank(world));
    struct divided all = {world, device};
    struct groups groups = {0};
    if (split(&all, l->dp, place.stage * l->tp + place.part, &groups.data, err) ||
        split(&all, l->tp, place.stage * l->dp + place.replica, &groups.tensor, err) ||
        split(&all, l->dp * l->pp, place.part, &groups.loss, err) ||
        split_norm(&all, l, place, &groups.norm, err) ||
        split(&all, l->pp, place.replica * l->tp + place.part, &groups.pipeline, err) ||
        split_embedding(&all, program, place, &groups.embedding, err)) {
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
