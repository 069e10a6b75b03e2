/* The parameters of each part of a model: names, shapes, initial values. Exact counts come from here and nowhere else. */
#ifndef MEMPLAN_MODEL_PARAMETERS_H
#define MEMPLAN_MODEL_PARAMETERS_H

#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum part { PART_EMBED, PART_LAYER, PART_HEAD };

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
    PARAM_IDS,
};

struct parameter {
    enum parameter_id id;
    const char *name; /* within its part: "qkv" */
    int64_t dims[2];  /* (rows, columns); a vector has dims[1] == 0 */
    int64_t count;    /* elements */
    bool decay;       /* matrices decay, vectors do not */
    double init_std;  /* normal(0, std); 0: filled with init_value */
    double init_value;
};

enum { PART_PARAMETERS_MAX = 12 };

/* Fills out[0..n) in storage order and returns n. A tied head has no PARAM_HEAD: it uses the embedding's PARAM_WTE.
 * Initial values follow GPT-2: std 0.02, and 0.02 / sqrt(2 L) for the two matrices that write into the residual stream. */
int parameters_of(const struct model *model, enum part part, struct parameter out[PART_PARAMETERS_MAX]);

#endif
