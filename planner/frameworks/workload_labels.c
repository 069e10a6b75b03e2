/* Labels of a replay's tensors: which rule each is of. */
#include "planner/frameworks/workload_parts.h"

static const struct loss_rule *loss_rule_of(int label)
{
    return label < LABEL_LOSS_BACKWARD ? &loss_forward_rules[label - LABEL_LOSS]
                                       : &loss_backward_rules[label - LABEL_LOSS_BACKWARD];
}

static const struct layer_rule *layer_rule_of(int label)
{
    return &layer_rules[label < LABEL_LAYER_GRADIENT ? label - LABEL_LAYER : label - LABEL_LAYER_GRADIENT];
}

static const struct rank_rule_row *rank_rule_of(int label)
{
    return &rank_rules[(label - LABEL_RANK) / MODEL_PARTS];
}

enum role workload_label_role(int label)
{
    return label < LABEL_RANK ? ROLE_ACTIVATION : rank_rule_of(label)->role;
}

const char *workload_label_source(int label)
{
    return label >= LABEL_RANK   ? rank_rule_of(label)->source
           : label >= LABEL_LOSS ? loss_rule_of(label)->source
                                 : layer_rule_of(label)->source;
}

void workload_label_name(int label, struct text *out)
{
    if (label >= LABEL_RANK) {
        const char *part = model_part_name((enum model_part)((label - LABEL_RANK) % MODEL_PARTS));
        text_printf(out, "%s%s%s", rank_rule_of(label)->name, *part ? " of " : "", part);
    } else if (label >= LABEL_LOSS) {
        text_add(out, loss_rule_of(label)->name);
    } else {
        text_printf(out, "%s%s", label < LABEL_LAYER_GRADIENT ? "" : "gradient of ",
                    layer_rule_of(label)->name);
    }
}

void workload_label_formula(const struct workload *w, int label, struct text *out)
{
    if (label >= LABEL_RANK)
        text_add(out, rank_rule_of(label)->formula);
    else if (label >= LABEL_LOSS)
        loss_rule_formula(w, loss_rule_of(label), out);
    else
        layer_rule_formula(w, layer_rule_of(label), out);
}
