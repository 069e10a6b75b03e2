#include "cli/configuration.h"

#include "base/arena.h"
#include "base/log.h"
#include "model/recompute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool configuration_is_plan(const char *path)
{
    size_t length = strlen(path);
    return length >= 5 && !strcmp(path + length - 5, ".json");
}

/* Reads `source` as a plan when it is a JSON file that says it is one. Returns 1: it was; 0: it is a model; -1: error. */
static int try_plan(const char *source, struct plan *out, struct error *err)
{
    if (!configuration_is_plan(source) || access(source, R_OK))
        return 0;
    json_t *object;
    if (jsonfile_read(source, &object, err))
        return -1;
    int status = 0;
    if (json_object_get(object, "memplan_plan"))
        status = plan_from_json(object, source, out, err) ? -1 : 1;
    json_decref(object);
    return status;
}

/* What docs/design.md plans and this version does not run yet is refused by name, not ignored. */
static int check_supported(const struct configuration_options *o, struct error *err)
{
    const struct {
        const char *option;
        int64_t value, supported;
    } limits[] = {
        {"tp", o->tp, 1}, {"pp", o->pp, 1}, {"virtual-stages", o->virtual_stages, 1}, {"zero", o->zero, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].value > limits[i].supported)
            return error_set(
                err,
                "--%s %lld: this version splits work by data parallelism only; leave it at %lld and use "
                "--dp",
                limits[i].option, (long long)limits[i].value, (long long)limits[i].supported);
    if (o->sequence_parallel)
        return error_set(
            err, "--sequence-parallel works between tensor-parallel ranks, which this version does not have; "
                 "leave it out");
    return 0;
}

/* A plan says what its model is; another one needs another plan. */
static int check_no_overrides(const char *source, const struct model_overrides *o, struct error *err)
{
    if (o->layers || o->hidden || o->heads || o->kv_heads || o->ffn || o->vocab)
        return error_set(err,
                         "%s is a plan, and its model cannot be changed; make a new plan with `memplan plan`",
                         source);
    return 0;
}

static int apply_layout(const struct configuration_options *o, struct plan *plan, struct error *err)
{
    struct layout *l = &plan->layout;
    if (o->dp || o->micro_batch)
        l->global_batch = o->global_batch;
    if (o->dp)
        l->dp = o->dp;
    if (o->micro_batch)
        l->micro_batch = o->micro_batch;
    if (o->global_batch)
        l->global_batch = o->global_batch;
    if (o->seq_len)
        l->seq_len = o->seq_len;
    if (o->bucket_bytes)
        l->bucket_bytes = o->bucket_bytes;
    if (o->precision && precision_find(o->precision, &l->precision, err))
        return -1;
    return layout_complete(l, &plan->model, err);
}

int configuration_resolve(const char *source, const struct configuration_options *options, struct plan *out,
                          bool *automatic, struct error *err)
{
    struct plan plan = {.capacity_bytes = INT64_MAX, .device = "cpu"};
    if (check_supported(options, err))
        return -1;
    int is_plan = try_plan(source, &plan, err);
    if (is_plan < 0)
        return -1;
    if (is_plan ? check_no_overrides(source, &options->model, err)
                : model_read(source, &options->model, &plan.model, err))
        goto fail;
    if (plan.model.note[0])
        log_note("note: %s", plan.model.note);
    if (!plan.recompute)
        plan.recompute = host_alloc((size_t)plan.model.layers * sizeof *plan.recompute);
    *automatic = options->recompute && !strcmp(options->recompute, "auto");
    if (options->recompute && !*automatic &&
        recompute_parse(options->recompute, &plan.model, plan.recompute, err))
        goto fail;
    if (apply_layout(options, &plan, err))
        goto fail;
    *out = plan;
    return 0;
fail:
    plan_clear(&plan);
    return -1;
}

void configuration_command_line(int argc, char **argv, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "memplan");
    for (int i = 0; i < argc && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, strchr(argv[i], ' ') ? " '%s'" : " %s", argv[i]);
}
