/* Which modules Megatron-LM makes again: --recompute-modules, with what transformer_config.py asks of each. */
#include "jobs/megatron.h"

#include <string.h>

/* megatron/core/transformer/transformer_config.py of the main branch of 2026-08-22, recompute_modules; core 0.12 has the first six. */
static const struct {
    const char *name;
    unsigned module; /* enum workload_module; 0: no rule is about it */
} modules[] = {
    {"core_attn", WORKLOAD_CORE_ATTN},
    {"layernorm", WORKLOAD_LAYERNORM},
    {"mlp", WORKLOAD_MLP},
    {"moe", WORKLOAD_MOE},
    {"moe_act", WORKLOAD_MOE_ACT},
    {"mla_up_proj", WORKLOAD_MLA_UP_PROJ},
    {"shared_experts", WORKLOAD_SHARED_EXPERTS},
    {"gdn_norm_out", 0},
    {"gdp_in_proj", 0},
    {"gdp_qkv", 0},
    {"mhc", 0},
};

enum { MODULES = sizeof modules / sizeof modules[0] };

static int refuse_unknown(const char *name, int length, struct error *err)
{
    error_set(err, "--recompute-modules %.*s: Megatron-LM has no such module; it has ", length, name);
    for (int i = 0; i < MODULES; i++)
        error_append(err, "%s%s", i ? ", " : "", modules[i].name);
    return -1;
}

static int take_module(struct training_job *job, const char *name, int length, struct error *err)
{
    struct job_recompute_choice *r = &job->recompute;
    for (int i = 0; i < MODULES; i++) {
        if (strlen(modules[i].name) != (size_t)length || strncmp(modules[i].name, name, (size_t)length))
            continue;
        r->made_again |= modules[i].module;
        if (!modules[i].module && !r->unruled)
            r->unruled = modules[i].name;
        return 0;
    }
    return refuse_unknown(name, length, err);
}

/* What it would refuse to start with. */
static int check_modules(const struct training_job *job, struct error *err)
{
    unsigned chosen = job->recompute.made_again;
    if (chosen & WORKLOAD_MOE_ACT && job->model.experts.count && !job->kernels.grouped_gemm)
        return error_set(
            err, "--recompute-modules moe_act: Megatron-LM wants --moe-grouped-gemm with it; give both");
    if (chosen & WORKLOAD_MLA_UP_PROJ && !job->switches.latent)
        return error_set(
            err, "--recompute-modules mla_up_proj: Megatron-LM wants --multi-latent-attention with it; "
                 "leave out mla_up_proj");
    return 0;
}

int megatron_modules(struct training_job *job, struct error *err)
{
    struct job_recompute_choice *r = &job->recompute;
    r->made_again = 0;
    if (r->experts && r->granularity == JOB_RECOMPUTE_FULL)
        return error_set(
            err, "--moe-layer-recompute: Megatron-LM refuses it with --recompute-granularity full, which "
                 "makes experts again too; leave it out");
    if (r->experts)
        r->granularity = JOB_RECOMPUTE_SELECTIVE;
    if (r->granularity != JOB_RECOMPUTE_SELECTIVE)
        return 0;
    for (const char *at = r->modules ? r->modules : ""; *at; at += strspn(at, ", ")) {
        int length = (int)strcspn(at, ", ");
        if (length && take_module(job, at, length, err))
            return -1;
        at += length;
    }
    if (!r->modules) {
        r->made_again = WORKLOAD_CORE_ATTN;
        job_note(job, FACT_DEFAULT, "--recompute-modules", "core_attn", MEGATRON_VERSION);
    }
    if (r->experts)
        r->made_again |= WORKLOAD_MOE;
    return check_modules(job, err);
}

const char *megatron_modules_list(unsigned chosen, struct arena *arena)
{
    const char *list = "";
    for (int i = 0; i < MODULES; i++)
        if (chosen & modules[i].module)
            list = arena_printf(arena, "%s%s%s", list, *list ? " " : "", modules[i].name);
    return list;
}
