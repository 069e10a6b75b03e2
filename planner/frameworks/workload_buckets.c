/* DeepSpeed's flat buckets, through which gradients go to the ranks that have their partitions (runtime/zero/stage_1_and_2.py and
 * stage3.py of 0.19.8). ZeRO-1 and 2 have them from a backward pass's first gradient to its end, ZeRO-3 always. */
#include "planner/frameworks/workload_parts.h"

/* Of ZeRO-1 what it sums in, of the others what gradients are made in (_gradient_reduction_buffer_dtype()). */
static int element_bytes(const struct workload *w)
{
    return w->sharding == WORKLOAD_ZERO1 ? w->gradient_bytes : w->compute_bytes;
}

/* stage_1_and_2.py, setup_buckets(): a second one, so that the first can be on its way. stage3.py has one. */
void workload_buckets_open(struct rank *rank)
{
    const struct workload *w = rank->w;
    bool two = w->overlaps_gradients && w->sharding != WORKLOAD_ZERO3;
    for (int i = 0; i < 1 + two; i++)
        if (rank->buckets[i] < 0)
            rank->buckets[i] = workload_take(rank, RANK_FLAT_BUCKET,
                                             (double)w->bucket_elements * element_bytes(w), REPLAY_COMPUTE);
}

/* stage_1_and_2.py, copy_grads_in_partition(): made anew for each micro-batch, and added to what there is. */
static void take_partition(struct rank *rank)
{
    const struct workload *w = rank->w;
    int *partition = rank->partition < 0 ? &rank->partition : &rank->partition_of_pass;
    if (*partition < 0 && !w->offload_optimizer)
        *partition = workload_take(rank, RANK_PARTITION_GRADIENT,
                                   w->gradient_bytes * workload_all_sharded(rank), REPLAY_COMPUTE);
}

/* Tensors of a bucket are put side by side in a copy, which is reduced (allreduce_bucket(); reduce_scatter_coalesced()). */
static void reduce_bucket(struct rank *rank)
{
    const struct workload *w = rank->w;
    int stream = w->overlaps_gradients ? REPLAY_REDUCE : REPLAY_COMPUTE;
    replay_release(rank->r,
                   workload_take(rank, RANK_BUCKET_COPY, element_bytes(w) * rank->in_bucket, stream));
    rank->in_bucket = 0;
}

static void add(struct rank *rank, double elements)
{
    if (rank->in_bucket + elements > (double)rank->w->bucket_elements)
        reduce_bucket(rank);
    rank->in_bucket += elements;
}

/* ZeRO-1 waits for the end of the last pass. */
void workload_buckets_add(struct rank *rank, double elements)
{
    enum workload_sharding sharding = rank->w->sharding;
    workload_buckets_open(rank);
    if (sharding == WORKLOAD_ZERO2 && !rank->made_gradients)
        take_partition(rank);
    rank->made_gradients = true;
    if (sharding != WORKLOAD_ZERO1)
        add(rank, elements);
}

/* All of its gradients: each goes into the bucket, and from there only those of the partition live on. */
static void reduce_at_last(struct rank *rank)
{
    take_partition(rank);
    for (int64_t u = workload_unit_count(rank) - 1; u >= 0; u--)
        for (int t = 0; t < UNIT_TENSORS; t++)
            if (rank->units[u].gradients[t] >= 0) {
                add(rank, workload_trained(rank, &rank->units[u], t));
                replay_drop(rank->r, &rank->units[u].gradients[t]);
            }
}

void workload_buckets_close(struct rank *rank)
{
    const struct workload *w = rank->w;
    if (w->sharding == WORKLOAD_ZERO1 && rank->last)
        reduce_at_last(rank);
    reduce_bucket(rank);
    rank->made_gradients = false;
    replay_drop(rank->r, &rank->partition_of_pass);
    for (int i = 0; i < 2 && w->sharding != WORKLOAD_ZERO3; i++)
        replay_drop(rank->r, &rank->buckets[i]);
}
