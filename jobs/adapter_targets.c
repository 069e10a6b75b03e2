#include "jobs/adapter_targets.h"

#include <string.h>

#define DENSE_AND_EXPERTS(which) (LINEAR_##which | LINEAR_EXPERT_##which)

/* As transformers 4.57 names modules. PEFT takes a name for every module whose own ends with it, so that one may be several
 * linear layers: experts have feed-forwards of the names that dense ones have. */
static const struct {
    const char *name;
    const char *type; /* of models that mean something else by it; NULL: of all others */
    unsigned linears;
} names[] = {
    {"q_proj", NULL, LINEAR_Q},
    {"k_proj", NULL, LINEAR_K},
    {"v_proj", NULL, LINEAR_V},
    {"o_proj", NULL, LINEAR_O},
    {"out_proj", NULL, LINEAR_O},
    {"gate_proj", NULL, DENSE_AND_EXPERTS(GATE)},
    {"up_proj", NULL, DENSE_AND_EXPERTS(UP)},
    {"down_proj", NULL, DENSE_AND_EXPERTS(DOWN)},
    {"qkv_proj", NULL, LINEAR_QKV}, /* Phi-3 */
    {"gate_up_proj", NULL, LINEAR_GATE_UP},
    {"w1", NULL, LINEAR_EXPERT_GATE}, /* Mixtral */
    {"w2", NULL, LINEAR_EXPERT_DOWN},
    {"w3", NULL, LINEAR_EXPERT_UP},
    {"gate", NULL, LINEAR_ROUTER},
    {"q_a_proj", NULL, LINEAR_Q_DOWN}, /* DeepSeek-V2 and V3 */
    {"q_b_proj", NULL, LINEAR_Q},
    {"kv_a_proj_with_mqa", NULL, LINEAR_KV_DOWN},
    {"kv_b_proj", NULL, LINEAR_KV_UP},
    {"query_key_value", NULL, LINEAR_QKV}, /* GPT-NeoX, Falcon, BLOOM */
    {"dense_h_to_4h", NULL, LINEAR_UP},
    {"dense_4h_to_h", NULL, LINEAR_DOWN},
    {"dense", "bert", LINEAR_O | LINEAR_UP | LINEAR_DOWN},
    {"dense", "roberta", LINEAR_O | LINEAR_UP | LINEAR_DOWN},
    {"dense", "xlm-roberta", LINEAR_O | LINEAR_UP | LINEAR_DOWN},
    {"dense", NULL, LINEAR_O},
    {"query", NULL, LINEAR_Q}, /* BERT */
    {"key", NULL, LINEAR_K},
    {"value", NULL, LINEAR_V},
    {"c_attn", NULL, LINEAR_QKV}, /* GPT-2 */
    {"c_proj", NULL, LINEAR_O | LINEAR_DOWN},
    {"c_fc", NULL, LINEAR_UP},
    {"fc1", NULL, LINEAR_UP}, /* OPT, Phi */
    {"fc2", NULL, LINEAR_DOWN},
    {"fc_in", NULL, LINEAR_UP}, /* GPT-J */
    {"fc_out", NULL, LINEAR_DOWN},
};

/* All that are nn.Linear or Conv1D in transformers 4.57. DeepSeek-V3's router is none, and Falcon's three are one product. */
static unsigned linears_of(const struct training_job *job, const struct workload *w)
{
    const struct workload_model *m = &w->model;
    const char *type = job->model.type;
    bool joint = m->traits.joint_qkv || !strcmp(type, "falcon");
    bool router = m->experts && strcmp(type, "deepseek_v3");
    unsigned attention = m->kv_rank
                             ? LINEAR_Q | LINEAR_KV_DOWN | LINEAR_KV_UP | (m->q_rank ? LINEAR_Q_DOWN : 0)
                         : joint ? LINEAR_QKV
                                 : LINEAR_Q | LINEAR_K | LINEAR_V;
    unsigned gates = !strcmp(type, "phi3") ? LINEAR_GATE_UP : m->gated ? LINEAR_GATE | LINEAR_UP : LINEAR_UP;
    bool dense = !m->experts || m->shared_ffn || m->dense_layers;
    unsigned experts =
        m->experts ? LINEAR_EXPERT_UP | LINEAR_EXPERT_DOWN | (m->gated ? LINEAR_EXPERT_GATE : 0) : 0;
    return attention | LINEAR_O | (dense ? gates | LINEAR_DOWN : 0) | experts | (router ? LINEAR_ROUTER : 0);
}

static unsigned linears_named(const char *name, const char *type)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i].name, name) && (!names[i].type || !strcmp(names[i].type, type)))
            return names[i].linears;
    return 0;
}

static int add_named(const struct training_job *job, const char *name, unsigned has, unsigned *out,
                     struct error *err)
{
    unsigned linears = linears_named(name, job->model.type) & has;
    *out |= linears;
    return linears
               ? 0
               : error_set(err,
                           "no rule is about adapters beside %s of a model of type %s; try all-linear to see "
                           "what those beside all linear layers need",
                           name, job->model.type);
}

int adapter_targets(const struct training_job *job, const struct workload *w, unsigned *out,
                    struct error *err)
{
    const char *targets = job->adapter.targets ? job->adapter.targets : "";
    unsigned has = linears_of(job, w);
    *out = job_says(targets, "all-linear") ? has : 0;
    if (*out)
        return 0;
    for (const char *at = targets; *(at += strspn(at, ", "));) {
        int length = (int)strcspn(at, ", ");
        if (add_named(job, arena_printf(job->facts.arena, "%.*s", length, at), has, out, err))
            return -1;
        at += length;
    }
    return *out ? 0 : error_set(err, "no adapter is asked for; try all-linear");
}
