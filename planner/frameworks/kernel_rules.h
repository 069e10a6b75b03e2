/* What a layer and the loss run besides matrix products and fused attention: kernels that do nothing but read and write, one
 * rule a line: how wide, on which conditions, how many launches and how many bytes for each element forward and backward.
 * Widths, splits and conditions are those of layer_rules.h, so that a framework that says what its layers keep has said most
 * of what they run. Bytes are of 16-bit tensors, and of fp32 where a kernel casts. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_KERNEL_RULES_H
#define MEMPLAN_PLANNER_FRAMEWORKS_KERNEL_RULES_H

#include "planner/frameworks/layer_rules.h"

/* Which recomputation runs it again, and which models have it. */
enum kernel_part {
    KERNELS_REST,
    KERNELS_NORM_1,
    KERNELS_NORM_2,
    KERNELS_SCORES,     /* attention's, where scores are a tensor */
    KERNELS_POSITIONS,  /* rotations; of models that learn none */
    KERNELS_ACTIVATION, /* of a dense feed-forward */
    KERNELS_EXPERTS,    /* routes, and what is sent */
    KERNELS_EXPERT_GATE,
    KERNELS_SHARED,
};

struct kernel_cost {
    double launches, bytes; /* bytes for each element of the width */
};

struct kernel_rule {
    const char *name;
    enum layer_width width;
    enum layer_split split;
    unsigned conditions; /* IF_... of layer_rules.h */
    enum kernel_part part;
    struct kernel_cost forward, backward;
    const char *source;
};

extern const struct kernel_rule kernel_rules[];
extern const int kernel_rule_count;

/* Of each logit, by enum workload_loss. */
struct loss_kernels {
    struct kernel_cost forward, backward;
};
extern const struct loss_kernels loss_kernels[];

/* Bytes of all tensors of the rule's width on this rank, were an element one byte. */
double kernel_rule_elements(const struct workload *workload, const struct kernel_rule *rule);

#endif
