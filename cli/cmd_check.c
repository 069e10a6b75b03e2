/* memplan check: will this launch of another framework fit? Reads the launch line or script as it stands, and runs nothing. */
#include "base/log.h"
#include "base/units.h"
#include "cli/capacity.h"
#include "cli/commands.h"
#include "cli/job_report.h"
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SET = 64, NAMED_MISSING = 3 };

struct check_options {
    const char *device, *output, *net, *set, *with, *model;
    int64_t memory, ranks, line;
    bool explain, json, quiet;
};

static const struct option_spec options[] = {
    {"device", 'd', OPTION_TEXT, "D", NULL, "the card of each rank, such as h100-80g",
     offsetof(struct check_options, device)},
    {"memory", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL, "what each rank has; default all of the card",
     offsetof(struct check_options, memory)},
    {"explain", 0, OPTION_FLAG, NULL, NULL,
     "every term of the peak with its rule and source, and every setting with where it came from",
     offsetof(struct check_options, explain)},
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write there: .html, .csv, .json or .txt; default text on stdout",
     offsetof(struct check_options, output)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct check_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct check_options, quiet)},
    {.kind = OPTION_HEADING, .help = "What the launch does not say"},
    {"net", 0, OPTION_TEXT, "RATE", NULL,
     "of a whole node to others, all its ports together, such as 3200Gb/s: for times; default what nodes "
     "with such cards have",
     offsetof(struct check_options, net)},
    {"set", 0, OPTION_TEXT, "NAME=VALUE,...", NULL,
     "variables of the script, set outside of it: NODES=4,GPUS=8", offsetof(struct check_options, set)},
    {"with", 0, OPTION_TEXT, "OPTIONS", NULL, "further options of the program: --with='--seq-length 4096'",
     offsetof(struct check_options, with)},
    {"model", 0, OPTION_TEXT, "MODEL", NULL,
     "a model folder, a config.json, a preset of `memplan describe --list`, or a name of the Hugging Face "
     "hub",
     offsetof(struct check_options, model)},
    {"ranks", 0, OPTION_POSITIVE, "N", NULL, "processes of the job, all machines together",
     offsetof(struct check_options, ranks)},
    {"line", 0, OPTION_POSITIVE, "N", NULL, "of the launch, in a script with several",
     offsetof(struct check_options, line)},
    {0},
};

static const struct command_spec spec = {
    .name = "check",
    .summary = "will a Megatron, DeepSpeed, Hugging Face or torchtitan launch fit?",
    .usage = "check FILE.sh [ARGUMENTS] --device D | check [options] -- LAUNCH COMMAND",
    .about =
        "Reads a launch line, or a script with one, as it stands: torchrun, srun, mpirun, deepspeed, "
        "accelerate; then the options and files of the framework. Nothing is run. Says whether a rank fits "
        "the card and how sure that is, what the usual tools will show, who holds the bytes and when, and "
        "which options to change so that it fits, or so that it uses the room it has. What is not understood "
        "is listed, and what matters and is missing is asked for. Exit status 0: it fits; 1: it does not.",
    .examples =
        {"memplan check train.sh --device h100-80g",
         "memplan check --explain -- torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --bf16"},
    .options = options,
    .min_operands = 1,
    .max_operands = -1,
};

/* ---- the request ---- */

/* "A=1,B=2": cut in place. */
static int split_set(char *text, struct shell_variable *out, int *count, struct error *err)
{
    char *state = NULL;
    *count = 0;
    for (char *item = strtok_r(text, ",", &state); item; item = strtok_r(NULL, ",", &state)) {
        char *equals = strchr(item, '=');
        if (!equals || equals == item || *count == MOST_SET)
            return error_set(err, "--set %s: not a NAME=VALUE; write --set NODES=4,GPUS=8", item);
        *equals = 0;
        out[(*count)++] = (struct shell_variable){item, equals + 1};
    }
    return 0;
}

/* Whether the operands stand behind "--", which makes them a launch and not a file. */
static bool behind_dashes(int argc, char **argv, const char *first)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--"))
            return argv[i + 1] == first;
    return false;
}

/* ---- the answer ---- */

static int refuse_missing(const struct training_job *job, struct error *err)
{
    int count = job_count(job, FACT_MISSING), named = 0;
    error_set(err, "%d thing%s that matter%s missing:", count, count == 1 ? "" : "s",
              count == 1 ? "s is" : " are");
    for (int i = 0; i < job->facts.count && named < NAMED_MISSING; i++) {
        const struct fact *f = &job->facts.list[i];
        if (f->kind == FACT_MISSING)
            error_append(err, "%s %s (%s)", named++ ? "," : "", f->name, f->origin);
    }
    if (count > named)
        error_append(err, ", and %d more: --explain lists them", count - named);
    return -1;
}

static int read_card(const struct check_options *o, int64_t ranks, struct rank_device *out, struct error *err)
{
    if (capacity_read_device(o->device, ranks, out, err))
        return -1;
    if (!strncmp(out->name, "cpu", 3))
        return error_set(err, "--device %s: these frameworks train on GPUs; give a card such as h100-80g",
                         o->device);
    if (o->memory)
        out->capacity_bytes = o->memory;
    return 0;
}

static int read_nodes(const struct check_options *o, const struct training_job *job,
                      const struct rank_device *device, struct node_group *out, struct error *err)
{
    *out = capacity_assume_nodes(device, job->launch.ranks, job->launch.processes_per_node);
    out->net_assumed = !o->net;
    return o->net ? units_parse_rate(o->net, "--net", &out->net_bytes_per_s, err) : 0;
}

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
    if (read_card(o, job->launch.ranks, &device, err) || read_nodes(o, job, &device, &nodes, err))
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
    if (!o->device)
        job_note(job, FACT_MISSING, "the card", "?", "give --device h100-80g");
    if (!job_count(job, FACT_MISSING))
        return judge(&answer, request, o, err);
    explain_without(&answer, o);
    return refuse_missing(job, err);
}

static int read_and_check(const struct check_options *o, bool is_command, const char **operands, int count,
                          struct error *err)
{
    struct shell_variable set[MOST_SET];
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {
        .script = is_command ? NULL : operands[0],
        .command = operands + !is_command,
        .command_count = count - !is_command,
        .set = set,
        .with = o->with,
        .model = o->model,
        .ranks = o->ranks,
        .line = o->line,
    };
    int status = o->set ? split_set(arena_strdup(arena, o->set), set, &request.set_count, err) : 0;
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
        status = read_and_check(&o, behind_dashes(argc, argv, operands[0]), operands, count, err);
    }
    free(operands);
    return status;
}

const struct command command_check = {&spec, run};
