#include "cli/world_gpus.h"

#include "base/arena.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a rank tells the others. */
struct found {
    char host[256];
    struct cuda_machine machine;
};
_Static_assert(sizeof(struct found) % sizeof(int32_t) == 0, "it travels as whole words");

static int find_own(struct world *world, struct found *out, struct error *err)
{
    const struct cuda_library *library;
    struct cuda_choice choice = {.used = 1, .ranks = comm_size(world->comm)};
    int devices;
    if (cuda_library_open(&library, err) || library->count(&devices, err))
        return -1;
    if (devices > 1 && world->rank_here >= devices)
        return error_set(err,
                         "%d processes of this machine need a GPU each and this one sees %d; start fewer, or "
                         "look at CUDA_VISIBLE_DEVICES",
                         world->ranks_here, devices);
    choice.first = world->gpu = devices > 1 ? world->rank_here : 0;
    gethostname(out->host, sizeof out->host - 1);
    return cuda_library_measure(&choice, &out->machine, err);
}

static int check_apart(const struct found *all, int ranks, struct error *err)
{
    for (int rank = 0; rank < ranks; rank++)
        for (int other = 0; other < rank; other++)
            if (!strcmp(all[rank].host, all[other].host) &&
                !strcmp(all[rank].machine.device.place, all[other].machine.device.place))
                return error_set(err,
                                 "ranks %d and %d have one GPU between them, %s at %s of %s, and need one "
                                 "each; start as many processes as there are GPUs, or show each its own "
                                 "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)",
                                 other, rank, all[rank].machine.device.name, all[rank].machine.device.place,
                                 all[rank].host);
    return 0;
}

int world_find_gpus(struct world *world, struct error *err)
{
    int ranks = comm_size(world->comm);
    struct found own = {0}, *all = NULL;
    if (find_own(world, &own, err))
        return error_prefix(err, "--device cuda");
    all = host_alloc((size_t)ranks * sizeof *all);
    int64_t words = sizeof own / sizeof(int32_t);
    struct comm_span part = {&own, words}, full = {all, words * ranks};
    int status = comm_all_gather(world->comm, &part, &full, 1, DTYPE_I32, err);
    if (!status)
        status = check_apart(all, ranks, err);
    world->gpus = (struct cuda_machine){0};
    for (int rank = 0; !status && rank < ranks; rank++)
        cuda_library_join(&world->gpus, &all[rank].machine);
    free(all);
    return status;
}
