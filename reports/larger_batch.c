#include "reports/larger_batch.h"

#include "base/checked.h"
#include "base/units.h"
#include "reports/stage_table.h"

/* What is tried, and with which room. */
struct trial {
    const struct program *first; /* of the pipeline */
    const int64_t *chunk_layers;
    int64_t runtime_bytes;
};

/* An interleaved schedule takes micro-batches in groups of as many as there are stages. */
static bool is_valid(const struct trial *trial, const struct layout *layout)
{
    struct layout copy = *layout;
    return layout_complete(&copy, &trial->first->model, NULL) == 0;
}

/* What the stage that needs most would need; INT64_MAX: no such step can be built. */
static int64_t needed_by(const struct trial *trial, const struct layout *layout)
{
    struct pipeline *pipeline;
    struct program_spec spec = {.model = &trial->first->model,
                                .layout = layout,
                                .recompute = trial->first->recompute,
                                .chunk_layers = trial->chunk_layers};
    if (pipeline_create(&spec, &pipeline, NULL))
        return INT64_MAX;
    int64_t arena_bytes = pipeline->stages[pipeline_worst(pipeline)]->arena_bytes;
    pipeline_free(pipeline);
    return arena_bytes + trial->runtime_bytes;
}

/* A global batch of one micro-batch for each stage is what nobody asked for: it grows along. */
static bool grows_along(const struct layout *l)
{
    return l->global_batch == l->dp * l->micro_batch * l->pp;
}

/* The least larger micro-batch that the global batch divides into and the schedule takes; 0: none. */
static int64_t next_of(const struct trial *trial, int64_t micro_batch)
{
    struct layout l = trial->first->layout;
    int64_t sequences = l.global_batch / l.dp, most = min_i64(sequences, LAYOUT_MICRO_BATCH_MAX);
    if (grows_along(&l))
        return micro_batch < LAYOUT_MICRO_BATCH_MAX ? micro_batch + 1 : 0;
    for (l.micro_batch = micro_batch + 1; l.micro_batch <= most; l.micro_batch++)
        if (sequences % l.micro_batch == 0 && is_valid(trial, &l))
            return l.micro_batch;
    return 0;
}

/* Where a global batch may be kept or may grow, of the two what needs more. */
static int64_t needed_with(const struct trial *trial, int64_t micro_batch)
{
    struct layout kept = trial->first->layout, grown = kept;
    int64_t needed = 0;
    kept.micro_batch = grown.micro_batch = micro_batch;
    grown.global_batch = grown.dp * micro_batch * grown.pp;
    if (is_valid(trial, &kept))
        needed = needed_by(trial, &kept);
    if (grows_along(&trial->first->layout))
        needed = max_i64(needed, needed_by(trial, &grown));
    return needed;
}

/* Of micro-batches of any size, the largest that fits, when `fits` does. */
static int64_t find_largest(const struct trial *trial, int64_t fits, int64_t capacity_bytes)
{
    int64_t beyond = fits + 1;
    while (beyond <= LAYOUT_MICRO_BATCH_MAX && needed_with(trial, beyond) <= capacity_bytes) {
        fits = beyond;
        beyond *= 2;
    }
    beyond = min_i64(beyond, LAYOUT_MICRO_BATCH_MAX + 1);
    while (beyond - fits > 1) {
        int64_t middle = fits + (beyond - fits) / 2;
        if (needed_with(trial, middle) <= capacity_bytes)
            fits = middle;
        else
            beyond = middle;
    }
    return fits;
}

/* Likewise of the divisors of what a rank has in a step. */
static int64_t find_largest_divisor(const struct trial *trial, int64_t fits, int64_t capacity_bytes)
{
    for (int64_t next; (next = next_of(trial, fits)) && needed_with(trial, next) <= capacity_bytes;)
        fits = next;
    return fits;
}

const char *larger_batch_find(const struct pipeline *pipeline, int64_t capacity_bytes, int64_t runtime_bytes,
                              struct arena *arena)
{
    struct trial trial = {pipeline->stages[0], stage_table_chunk_layers(pipeline, arena), runtime_bytes};
    char needed[UNITS_TEXT];
    int64_t own = trial.first->layout.micro_batch, next = next_of(&trial, own);
    if (!next)
        return NULL;
    int64_t largest = grows_along(&trial.first->layout) ? find_largest(&trial, own, capacity_bytes)
                                                        : find_largest_divisor(&trial, own, capacity_bytes);
    int64_t named = largest > own ? largest : next, bytes = needed_with(&trial, named);
    if (bytes == INT64_MAX)
        return NULL;
    return arena_printf(arena,
                        largest > own ? "--micro-batch %lld would use them: it needs %s"
                                      : "too little for --micro-batch %lld, which needs %s",
                        (long long)named, units_format_bytes(bytes, needed));
}
