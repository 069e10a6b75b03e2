/* memplan check: will this launch of another framework fit? Reads the launch line or script as it stands, and runs nothing. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/job_options.h"
#include "cli/job_report.h"
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_options {
    struct job_options launch;
    const char *output;
    bool explain, json, quiet;
};

static const struct option_spec options[] = {
    JOB_OPTIONS_CARD(struct check_options, launch),
    {"explain", 0, OPTION_FLAG, NULL, NULL,
     "every term of the peak with its rule and source, and every setting with where it came from",
     offsetof(struct check_options, explain)},
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write there: .html, .csv, .json or .txt; default text on stdout",
     offsetof(struct check_options, output)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct check_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct check_options, quiet)},
    JOB_OPTIONS_UNSAID(struct check_options, launch),
    {0},
};

static const struct command_spec spec = {
    .name = "check",
    .summary = "will a Megatron, DeepSpeed, Hugging Face or torchtitan launch fit?",
    .usage = "check FILE.sh [ARGUMENTS] --device D | check [options] -- LAUNCH COMMAND",
    .about =
        "Reads a launch line, or a script with one, as it stands: torchrun, srun, mpirun, deepspeed, "
        "accelerate; then the options and files of Megatron-LM, DeepSpeed, Hugging Face, LLaMA-Factory, "
        "Axolotl, torchtitan or llm.c. Nothing is run. Says whether a rank fits the card and how sure that "
        "is, what the usual tools will show, who holds the bytes and when, and "
        "which options to change so that it fits, or so that it uses the room it has. What is not understood "
        "is listed, and what matters and is missing is asked for. Exit status 0: it fits; 1: it does not.",
    .examples =
        {"memplan check train.sh --device h100-80g",
         "memplan check --explain -- torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --bf16"},
    .options = options,
    .min_operands = 1,
    .max_operands = -1,
};

static struct breakdown headlines(const struct job_answer *answer, const char *sentence)
{
    const struct job_verdict *v = answer->verdict;
    struct breakdown out = {.model = sentence,
                            .advice = job_report_advice(answer, answer->job->facts.arena),
                            .ranks = answer->job->launch.ranks,
                            .stages = 1,
                            .capacity_bytes = INT64_MAX};
    if (v) {
        out.stages = v->workload.pp;
        out.capacity_bytes = v->capacity_bytes;
        out.peak_bytes = v->memory.peak.bytes;
        memcpy(out.by_role, v->memory.peak.by_role, sizeof out.by_role);
    }
    return out;
}

static int print_answer(const struct job_answer *answer, const struct check_options *o, struct error *err)
{
    struct output_choice choice;
    struct document document;
    struct arena *arena = answer->job->facts.arena;
    if (output_choose(o->output, o->json, &choice, err))
        return -1;
    struct report *page = job_report_page(answer, arena);
    struct breakdown breakdown = headlines(answer, page->title);
    json_t *json = job_report_json(answer);
    document_of_answer(page, json, &breakdown, arena, &document);
    int status = output_document(&document, &choice, err);
    json_decref(json);
    return status;
}

/* Everything that is known of a job without a verdict: what was asked for besides it. */
static int explain_without(struct job_answer *answer, const struct check_options *o)
{
    struct error unheard = {0};
    if (o->explain || o->json)
        print_answer(answer, o, &unheard);
    return -1;
}

static int judge(struct job_answer *answer, const struct jobs_request *request, const struct check_options *o,
                 struct error *err)
{
    const struct training_job *job = answer->job;
    struct arena *arena = job->facts.arena;
    struct rank_device device;
    struct node_group nodes;
    struct machine_speed speeds[2];
    struct job_verdict verdict;
    struct job_advice advice;
    struct workload_terms terms;
    if (job_options_card(&o->launch, job, &device, &nodes, err))
        return -1;
    answer->device = &device;
    answer->nodes = &nodes;
    if (job_verdict_make(job, &device, -1, &verdict, err))
        return explain_without(answer, o);
    if (o->explain && workload_terms(&verdict.workload, verdict.memory.stage, arena, &terms, err))
        return -1;
    machine_speed_for_group(&nodes, PRECISION_FP32, 1, &speeds[0]);
    machine_speed_for_group(&nodes, PRECISION_BF16, 1, &speeds[1]);
    job_advice_find(
        &(struct job_advice_request){request, job, &verdict, &device, device.card ? speeds : NULL}, arena,
        &advice);
    struct job_pace pace = job_pace_of(job, &verdict, &device, device.card ? speeds : NULL, advice.seconds);
    answer->verdict = &verdict;
    answer->advice = &advice;
    answer->pace = &pace;
    answer->terms = o->explain ? &terms : NULL;
    return print_answer(answer, o, err) ? -1 : verdict.fits ? 0 : 1;
}

static int check(struct training_job *job, const struct jobs_request *request, const struct check_options *o,
                 struct error *err)
{
    struct job_answer answer = {.job = job, .explain = o->explain};
    if (!o->launch.device)
        job_note(job, FACT_MISSING, "the card", "?", "give --device h100-80g");
    if (!job_count(job, FACT_MISSING))
        return judge(&answer, request, o, err);
    explain_without(&answer, o);
    return job_options_refuse_missing(job, "--explain", err);
}

static int read_and_check(const struct check_options *o, bool is_command, const char **operands, int count,
                          struct error *err)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request;
    int status = job_options_request(&o->launch, is_command, operands, count, arena, &request, err);
    if (!status)
        status = jobs_read(&request, arena, &job, err);
    if (!status)
        status = check(&job, &request, o, err);
    arena_free(arena);
    return status;
}

static int run(int argc, char **argv, struct error *err)
{
    struct check_options o = {0};
    int count;
    const char **operands = host_alloc((size_t)argc * sizeof *operands);
    int status = command_parse_all(&spec, argc, argv, &o, operands, &count, err);
    if (status > 0) {
        log_set_quiet(o.quiet);
        status = read_and_check(&o, job_options_is_command(argc, argv, operands[0]), operands, count, err);
    }
    free(operands);
    return status;
}

const struct command command_check = {&spec, run};
