/* The answer to a launch as JSON: docs/design.md names its keys. */
#include "cli/job_json.h"

#include "cli/job_report.h"
#include "cli/speed.h"

#include <math.h>

json_t *job_json_real(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *settings_to_json(const struct training_job *job)
{
    json_t *out = json_array();
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *f = &job->facts.list[i];
        json_array_append_new(out, json_pack("{s:s, s:o, s:o, s:o}", "kind", fact_kind_name(f->kind), "name",
                                             jsonfile_string(f->name), "value", jsonfile_string(f->value),
                                             "from", jsonfile_string(f->origin)));
    }
    return out;
}

static json_t *figures_to_json(const struct job_verdict *v)
{
    static const char *const keys[WORKLOAD_FIGURES] = {[WORKLOAD_ALLOCATED] = "max_memory_allocated",
                                                       [WORKLOAD_RESERVED] = "max_memory_reserved",
                                                       [WORKLOAD_DEVICE] = "nvidia_smi"};
    json_t *out = json_object();
    for (int i = 0; i < WORKLOAD_FIGURES; i++)
        json_object_set_new(out, keys[i],
                            json_pack("{s:I, s:I, s:I, s:i}", "bytes",
                                      (json_int_t)workload_figure_bytes(&v->memory, (enum workload_figure)i),
                                      "low_bytes", (json_int_t)v->intervals[i].low_bytes, "high_bytes",
                                      (json_int_t)v->intervals[i].high_bytes, "measured_jobs",
                                      v->intervals[i].jobs));
    return out;
}

static json_t *roles_to_json(const int64_t by_role[ROLE_COUNT])
{
    json_t *out = json_object();
    for (int role = 0; role < ROLE_COUNT; role++)
        json_object_set_new(out, role_name((enum role)role), json_integer(by_role[role]));
    return out;
}

json_t *job_json_edits(const struct training_job *job, const struct job_edits *edits)
{
    static const char *const places[] = {
        [JOB_EDIT_OPTION] = "option", [JOB_EDIT_FILE] = "file", [JOB_EDIT_ENVIRONMENT] = "environment"};
    json_t *out = json_array();
    for (int i = 0; i < edits->count; i++) {
        const struct job_edit *e = &edits->list[i];
        const struct fact *now = job_changes_given(job, e);
        json_array_append_new(out, json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "place", places[e->place],
                                             "words", e->words, "file", jsonfile_string(e->file), "name",
                                             jsonfile_string(e->name), "value", jsonfile_string(e->value),
                                             "now", jsonfile_string(now ? now->value : NULL), "from",
                                             jsonfile_string(now ? now->origin : NULL)));
    }
    return out;
}

static json_t *advised_to_json(const struct training_job *job, const struct job_advised *a)
{
    json_t *names = json_array();
    for (int i = 0; i < a->part_count; i++)
        json_array_append_new(names, jsonfile_string(a->parts[i]->name));
    json_t *out =
        json_pack("{s:o, s:o, s:b, s:b, s:f, s:I, s:I}", "changes", names, "edits",
                  job_json_edits(job, &a->edits), "fits", a->after.fits, "alters_training", a->alters,
                  "probability", a->after.probability, "peak_bytes", (json_int_t)a->after.memory.peak.bytes,
                  "needed_bytes", (json_int_t)a->after.needed_bytes);
    json_object_set_new(out, "time_ratio", job_json_real(a->time_ratio));
    return out;
}

static void add_advice(json_t *out, const struct job_answer *answer)
{
    static const char *const aims[] = {[JOB_ADVICE_TO_FIT] = "to fit",
                                       [JOB_ADVICE_TO_BE_SURE] = "to be sure",
                                       [JOB_ADVICE_TO_BUY] = "to buy"};
    const struct job_advice *advice = answer->advice;
    json_t *list = json_array();
    for (int i = 0; i < advice->count; i++)
        json_array_append_new(list, advised_to_json(answer->job, &advice->list[i]));
    bool timed = !isnan(advice->seconds);
    json_object_set_new(out, "step_seconds", job_json_real(advice->seconds));
    json_object_set_new(out, "step_low_seconds", job_json_real(timed ? answer->pace->range.low_s : NAN));
    json_object_set_new(out, "step_high_seconds", job_json_real(timed ? answer->pace->range.high_s : NAN));
    json_object_set_new(out, "tokens_per_second", job_json_real(answer->pace->tokens_per_second));
    json_object_set_new(out, "model_flops_utilization", job_json_real(answer->pace->utilization));
    if (answer->nodes->nodes > 1) {
        struct cluster cluster = cluster_of_group(answer->nodes);
        json_object_set_new(out, "networks", speed_networks_to_json(&cluster));
    }
    json_object_set_new(out, "advice",
                        json_pack("{s:s, s:b, s:i, s:o}", "aim", aims[advice->aim], "falls_short",
                                  advice->falls_short, "tried", advice->tried, "list", list));
}

static void add_terms(json_t *out, const struct workload_terms *terms)
{
    json_t *list = json_array();
    for (int i = 0; i < terms->count; i++) {
        const struct workload_term *t = &terms->list[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:I, s:s, s:s}", "name", t->name, "role",
                                        role_name(t->role), "count", (json_int_t)t->count, "bytes",
                                        (json_int_t)t->bytes, "formula", t->formula, "source", t->source));
    }
    json_object_set_new(out, "terms", list);
}

static void add_verdict(json_t *out, const struct job_answer *answer)
{
    const struct job_verdict *v = answer->verdict;
    const struct workload_memory *m = &v->memory;
    json_t *verdict =
        json_pack("{s:b, s:f, s:i, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "fits",
                  v->fits, "probability", v->probability, "measured_jobs", v->jobs, "capacity_bytes",
                  (json_int_t)v->capacity_bytes, "needed_bytes", (json_int_t)v->needed_bytes, "peak_bytes",
                  (json_int_t)m->peak.bytes, "worst_stage", (json_int_t)m->stage, "moment",
                  replay_moment_name(m->peak.moment), "figures", figures_to_json(v), "by_role",
                  roles_to_json(m->peak.by_role), "context_bytes", (json_int_t)m->context_bytes, "nccl_bytes",
                  (json_int_t)m->nccl_bytes, "kept_free_bytes", (json_int_t)m->doubt_bytes, "fragment_bytes",
                  (json_int_t)v->fragment_bytes, "allocator_retries", (json_int_t)m->retries);
    json_object_update(out, verdict);
    json_object_set_new(out, "worst_first_rank", json_integer(v->first_rank));
    json_object_set_new(out, "worst_ranks", json_integer(v->ranks));
    json_decref(verdict);
    add_advice(out, answer);
}

json_t *job_report_json(const struct job_answer *answer)
{
    const struct training_job *job = answer->job;
    const struct job_layout *l = &job->layout;
    json_t *out = json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "framework",
        job_framework_name(job->framework), "program", jsonfile_string(job->launch.program), "ranks",
        (json_int_t)job->launch.ranks, "dp", (json_int_t)l->dp, "tp", (json_int_t)l->tp, "pp",
        (json_int_t)l->pp, "cp", (json_int_t)l->cp, "micro_batch", (json_int_t)job->batch.micro,
        "global_batch", (json_int_t)job->batch.global, "seq_len", (json_int_t)job->batch.sequence,
        "parameters", (json_int_t)(job->model_known ? job_model_parameters(&job->model) : 0));
    if (job->launch.taken_for)
        json_object_set_new(out, "taken_for", jsonfile_string(job->launch.taken_for));
    if (job->condition)
        json_object_set_new(out, "condition", jsonfile_string(job->condition));
    json_object_set_new(out, "device", jsonfile_string(answer->device ? answer->device->name : NULL));
    if (answer->verdict)
        add_verdict(out, answer);
    if (answer->terms)
        add_terms(out, answer->terms);
    json_object_set_new(out, "settings", settings_to_json(job));
    return out;
}
