/* The parameters of each part of a model: names, shapes, initial values. Exact counts come from here and nowhere else. */
#ifndef MEMPLAN_MODEL_PARAMETERS_H
#define MEMPLAN_MODEL_PARAMETERS_H

#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* What a block is part of. In a pipeline, where a chunk of layers does not begin with the embedding it begins with a block
 * that receives, and where it does not end with the head it ends with one that sends; these two hold no parameters. */
enum part { PART_EMBED, PART_LAYER, PART_HEAD, PART_RECEIVE, PART_SEND };

enum parameter_id {
    /* PART_EMBED */
    PARAM_WTE,
    PARAM_WPE,
    /* PART_LAYER */
    PARAM_NORM1,
    PARAM_NORM1_BIAS,
    PARAM_QKV,
    PARAM_QKV_BIAS,
    PARAM_PROJ,
    PARAM_PROJ_BIAS,
    PARAM_NORM2,
    PARAM_NORM2_BIAS,
    PARAM_UP, /* fc, or gate and up stacked */
    PARAM_UP_BIAS,
    PARAM_DOWN,
    PARAM_DOWN_BIAS,
    /* PART_HEAD */
    PARAM_FINAL_NORM,
    PARAM_FINAL_NORM_BIAS,
    PARAM_HEAD,
    PARAM_HEAD_BIAS,
    /* PART_LAYER again: behind the others, whose numbers stay (trainer/weights.c) */
    PARAM_Q_NORM,
    PARAM_K_NORM,
    PARAM_POST_NORM1, /* behind attention, inside the residual */
    PARAM_POST_NORM2, /* behind the feed-forward */
    PARAM_IDS,
};

/* How tensor-parallel ranks share a parameter, as Megatron-LM does (Shoeybi et al. 2019). */
enum sharing {
    SHARED_NOT,    /* every rank holds all of it */
    SHARED_ROWS,    /* outputs: qkv by heads, gate and up each, the vocabulary */
    SHARED_COLUMNS, /* inputs: what follows a product that was split by rows */
};

enum { PARAMETER_GROUPS = 3 };

struct parameter {
    enum parameter_id id;
    const char *name;     /* within its part: "qkv" */
    int64_t dims[2];      /* what a rank holds: (rows, columns); a vector has dims[1] == 0 */
    int64_t count;        /* elements that a rank holds */
    int64_t full_dims[2]; /* of the whole model */
    int64_t full_count;
    enum sharing sharing;
    int64_t groups[PARAMETER_GROUPS]; /* SHARED_ROWS: rows of the whole, by stacked matrix; each is shared out alone */
    bool decay;       /* matrices decay, vectors do not */
    double init_std;  /* normal(0, std); 0: filled with init_value */
    double init_value;
};

enum { PART_PARAMETERS_MAX = 12 };

/* Fills out[0..n) in storage order and returns n. A tied head has no PARAM_HEAD: it uses the embedding's PARAM_WTE.
 * Initial values follow GPT-2: std 0.02, and 0.02 / sqrt(2 L) for the two matrices that write into the residual stream, unless a
 * norm stands between, which would undo that.
 * `tp`: over how many ranks heads, feed-forward and vocabulary are shared; the vocabulary is padded to a multiple. */
int parameters_of(const struct model *model, enum part part, int64_t tp,
                  struct parameter out[PART_PARAMETERS_MAX]);

/* Of the elements that tensor-parallel rank `rank` holds, those from `first` on: where in the whole parameter they come
 * from, and how many follow one another there. *global_first is -1 for padding, which belongs to no element of the whole. */
int64_t parameters_stretch(const struct parameter *parameter, int64_t tp, int64_t rank, int64_t first,
                           int64_t *global_first);

/* Columns of the vocabulary that a rank holds, padding included: ceil(V / tp). */
int64_t parameters_vocabulary_part(const struct model *model, int64_t tp);

#endif
