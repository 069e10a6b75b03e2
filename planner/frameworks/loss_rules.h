/* What the loss makes, in forward and in backward, in order: a table each, one tensor a line, read as those of layer_rules.h. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_LOSS_RULES_H
#define MEMPLAN_PLANNER_FRAMEWORKS_LOSS_RULES_H

#include "planner/frameworks/layer_rules.h"

enum { LOSS_RULES_MOST = 24 };

/* One tensor of the loss. */
struct loss_rule {
    const char *name;
    enum layer_element element;
    enum layer_width width;
    unsigned losses; /* bits of enum workload_loss */
    unsigned conditions;
    int life;
    const char *source;
};
extern const struct loss_rule loss_forward_rules[], loss_backward_rules[];
extern const int loss_forward_count, loss_backward_count;

/* w->loss, or what it is between tensor-parallel ranks. */
enum workload_loss loss_rule_kind(const struct workload *workload);
int loss_rule_element(const struct workload *workload, const struct loss_rule *rule); /* its bytes */
double loss_rule_bytes(const struct workload *workload, const struct loss_rule *rule);
void loss_rule_formula(const struct workload *workload, const struct loss_rule *rule, struct text *out);

#endif
