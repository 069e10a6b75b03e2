/* How one step is spread over ranks and cut into micro-batches. */
#ifndef MEMPLAN_MODEL_LAYOUT_H
#define MEMPLAN_MODEL_LAYOUT_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "model/model.h"
#include "model/schedule.h"

#include <stdint.h>

enum precision {
    PRECISION_FP32,
    PRECISION_BF16, /* bf16 weights and activations; fp32 gradients, master weights and Adam moments */
    PRECISION_FP64, /* for checks against finite differences; only the reference kernels compute it */
};

struct layout {
    int64_t dp;           /* data-parallel ranks */
    int64_t tp;           /* tensor-parallel ranks */
    int64_t pp;           /* pipeline stages */
    int64_t virtual_stages; /* chunks of layers per stage */
    enum schedule_kind schedule; /* how the stages take turns */
    int zero; /* 1: optimizer states are sharded over the data-parallel ranks (ZeRO-1, Rajbhandari et al. 2020); 0: not */
    bool sequence_parallel; /* norms and residuals are split over the sequence between tensor-parallel regions */
    int64_t micro_batch;  /* B, sequences per micro-batch of one rank */
    int64_t global_batch; /* sequences per step over all ranks; dp * micro_batch divides it */
    int64_t seq_len;      /* T */
    int64_t bucket_bytes; /* gradients are all-reduced in buckets of about this size */
    enum precision precision;
};

/* Far above any real layout, so that products of them fit 63 bits. */
enum { LAYOUT_DP_MAX = 1 << 20, LAYOUT_TP_MAX = 1 << 12, LAYOUT_PP_MAX = 1 << 10, LAYOUT_MICRO_BATCH_MAX = 1 << 24 };

/* PyTorch DDP's bucket_cap_mb default: 25 MiB. */
#define LAYOUT_BUCKET_BYTES (25LL << 20)

/* Fills every zero field: dp, tp, pp and virtual_stages 1, micro_batch the model's usual one, global_batch dp * micro_batch
 * (times pp, so that every stage has work), seq_len the model's, bucket 25 MiB; then checks. 1f1b with several chunks per
 * stage is interleaved, and one stage alone has nothing to schedule: both are written so. Messages name the option and what
 * to use instead. */
int layout_complete(struct layout *layout, const struct model *model, struct error *err);
int64_t layout_micro_batches(const struct layout *layout); /* per rank and step */
/* dp * tp * pp. */
int64_t layout_ranks(const struct layout *layout);

/* Where a rank stands, as Megatron-LM counts: r = (stage * dp + replica) * tp + part. */
struct layout_place {
    int64_t stage;   /* of the pipeline */
    int64_t replica; /* data-parallel rank */
    int64_t part;    /* tensor-parallel rank */
};
struct layout_place layout_place_of(const struct layout *layout, int64_t rank);

struct schedule_shape layout_schedule(const struct layout *layout);
int64_t layout_chunks(const struct layout *layout); /* pp * virtual_stages */
/* The least that a chunk has, by its number in the pipeline: one layer, but 0 where the embedding or the head may stand alone, which
 * an encoder's may not: its first layer and its embedding are made for each other. */
int64_t layout_least_layers(const struct layout *layout, const struct model *model, int64_t chunk);
/* An even split of `layers` into out[0 .. layout_chunks()): what does not divide goes to the last chunks but the very last,
 * which has the head, since the first ones keep most micro-batches. With fewer layers than chunks the ends have none. */
void layout_spread_layers(const struct layout *layout, int64_t layers, int64_t *out);

/* Adds "0,1*126,0": layers of chunks in the pipeline's order, equal ones that follow each other together. */
void layout_print_layers(const int64_t *layers, int64_t chunks, struct text *out);

const char *precision_name(enum precision precision); /* "fp32", "bf16", "fp64" */
/* Element type of weights and activations. */
enum dtype precision_dtype(enum precision precision);
int precision_find(const char *name, enum precision *out, struct error *err);

json_t *layout_to_json(const struct layout *layout);
int layout_from_json(const json_t *object, const char *where, struct layout *out, struct error *err);

#endif
