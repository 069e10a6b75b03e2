/* memplan check: will this launch of another framework fit? Reads the launch line or script as it stands, and runs nothing. */
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/job_verdict.h"
#include "cli/output.h"
#include "jobs/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SET = 64, NAMED_MISSING = 3 };

struct check_options {
    const char *device, *set, *with, *model;
    int64_t memory, ranks, line;
    bool explain, json, quiet;
};

static const struct option_spec options[] = {
    {"device", 'd', OPTION_TEXT, "D", NULL, "the card of each rank, such as h100-80g",
     offsetof(struct check_options, device)},
    {"memory", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL, "what each rank has; default all of the card",
     offsetof(struct check_options, memory)},
    {"explain", 0, OPTION_FLAG, NULL, NULL,
     "what was understood, and where each value came from; what was not; what is missing",
     offsetof(struct check_options, explain)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct check_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct check_options, quiet)},
    {.kind = OPTION_HEADING, .help = "What the launch does not say"},
    {"set", 0, OPTION_TEXT, "NAME=VALUE,...", NULL,
     "variables of the script, set outside of it: NODES=4,GPUS=8", offsetof(struct check_options, set)},
    {"with", 0, OPTION_TEXT, "OPTIONS", NULL, "further options of the program: --with='--seq-length 4096'",
     offsetof(struct check_options, with)},
    {"model", 0, OPTION_TEXT, "MODEL", NULL,
     "a model folder, a config.json, or a preset of `memplan describe --list`",
     offsetof(struct check_options, model)},
    {"ranks", 0, OPTION_POSITIVE, "N", NULL, "processes of the job, all machines together",
     offsetof(struct check_options, ranks)},
    {"line", 0, OPTION_POSITIVE, "N", NULL, "of the launch, in a script with several",
     offsetof(struct check_options, line)},
    {0},
};

static const struct command_spec spec = {
    .name = "check",
    .summary = "will this Megatron-LM, DeepSpeed, Hugging Face or torchtitan launch fit?",
    .usage = "check FILE.sh [ARGUMENTS] --device D | check [options] -- LAUNCH COMMAND",
    .about = "Reads a launch line, or a script with one, as it stands: torchrun, srun, mpirun, deepspeed, "
             "accelerate; "
             "then the options and files of the framework. Nothing is run. What is not understood is listed, "
             "and what "
             "matters and is missing is asked for. Exit status 0: it fits; 1: it does not.",
    .examples =
        {"memplan check examples/launch/megatron-llama2-70b-slurm.sh --device h100-80g",
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

/* ---- what was understood ---- */

/* Columns before the place that a setting came from. */
enum { SETTING_COLUMNS = 52 };

/* Whole lines, however long: nothing here is shortened. */
static void print_facts(const struct training_job *job, enum fact_kind kind, const char *heading,
                        struct text *out)
{
    if (job_count(job, kind))
        text_printf(out, "\n%s\n", heading);
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *f = &job->facts.list[i];
        int room = SETTING_COLUMNS - (int)strlen(f->name) - 1;
        if (f->kind == kind)
            text_printf(out, "  %s %-*s  %s\n", f->name, room > 0 ? room : 0, f->value, f->origin);
    }
}

/* Names alone. */
static void print_irrelevant(const struct training_job *job, struct text *out)
{
    int column = 0;
    if (job_count(job, FACT_IRRELEVANT))
        text_add(out, "\nKnown, and no business of memory\n");
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *f = &job->facts.list[i];
        if (f->kind != FACT_IRRELEVANT)
            continue;
        bool breaks = column && column + (int)strlen(f->name) > SETTING_COLUMNS;
        column = breaks ? 0 : column;
        text_printf(out, "%s%s%s", breaks ? "\n" : "", column ? " " : "  ", f->name);
        column += (int)strlen(f->name) + 1;
    }
    if (column)
        text_add(out, "\n");
}

static void add_layout(struct report *report, const struct training_job *job)
{
    const struct job_layout *l = &job->layout;
    report_fact(report, "ranks", "%lld: data %lld x tensor %lld x pipeline %lld x context %lld",
                (long long)job->launch.ranks, (long long)l->dp, (long long)l->tp, (long long)l->pp,
                (long long)l->cp);
    report_fact(report, "batch", "%lld sequences of %lld a step, in micro-batches of %lld",
                (long long)job->batch.global, (long long)job->batch.sequence, (long long)job->batch.micro);
}

static void add_understood(struct report *report, const struct training_job *job)
{
    char parameters[UNITS_TEXT];
    const struct job_launch *l = &job->launch;
    report_fact(report, "framework", "%s", job_framework_name(job->framework));
    report_fact(report, "launch", "%s, %s", l->launchers ? l->launchers : "python", l->program);
    if (job->model_known)
        report_fact(report, "model", "%s, %s parameters", job->model.name,
                    units_format_count(job_model_parameters(&job->model), parameters));
    if (l->ranks && job->layout.dp)
        add_layout(report, job);
}

static void print_explanation(const struct training_job *job, struct text *out)
{
    print_facts(job, FACT_READ, "Read", out);
    print_facts(job, FACT_DERIVED, "Follows from that", out);
    print_facts(job, FACT_DEFAULT, "Not given, so the default of", out);
    print_irrelevant(job, out);
}

static void add_verdict(struct report *report, const struct job_verdict *v)
{
    const struct prediction *a = &v->answer;
    char room[UNITS_TEXT], runtime[UNITS_TEXT], error[UNITS_TEXT];
    int64_t left = a->capacity_bytes - a->needed_bytes;
    if (v->pipeline->count > 1)
        report_fact(report, "most needs", "stage %lld", (long long)a->stage);
    report_fact(report, a->fits ? "fits" : "does not fit", "%s %s on %s%s",
                units_format_bytes(left < 0 ? -left : left, room), left < 0 ? "short" : "to spare",
                v->device.name, a->in_doubt ? ", within the error of the runtime term" : "");
    report_capacity(report, "needed", a->needed_bytes, a->capacity_bytes);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (role != ROLE_RUNTIME && a->by_role[role])
            report_fact(report, role_name((enum role)role), "%s", units_format_bytes(a->by_role[role], room));
    report_fact(report, "runtime", "%s, give or take %s", units_format_bytes(a->runtime.bytes, runtime),
                units_format_bytes(a->runtime.error_bytes, error));
    report_fact(report, "predicted as", "memplan's own step of this model and layout");
}

static json_t *facts_to_json(const struct training_job *job)
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

static json_t *to_json(const struct training_job *job, const struct job_verdict *v)
{
    const struct job_layout *l = &job->layout;
    json_t *out = json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "framework",
        job_framework_name(job->framework), "program", jsonfile_string(job->launch.program), "ranks",
        (json_int_t)job->launch.ranks, "dp", (json_int_t)l->dp, "tp", (json_int_t)l->tp, "pp",
        (json_int_t)l->pp, "cp", (json_int_t)l->cp, "micro_batch", (json_int_t)job->batch.micro,
        "global_batch", (json_int_t)job->batch.global, "seq_len", (json_int_t)job->batch.sequence,
        "parameters", (json_int_t)(job->model_known ? job_model_parameters(&job->model) : 0), "settings",
        facts_to_json(job));
    if (!v)
        return out;
    const struct prediction *a = &v->answer;
    json_object_set_new(out, "fits", json_boolean(a->fits));
    json_object_set_new(out, "capacity_bytes", json_integer(a->capacity_bytes));
    json_object_set_new(out, "peak_bytes", json_integer(a->peak_bytes));
    json_object_set_new(out, "needed_bytes", json_integer(a->needed_bytes));
    json_object_set_new(out, "worst_stage", json_integer(a->stage));
    return out;
}

/* ---- the answer ---- */

/* `verdict` is NULL when there is none; then only an explanation that was asked for is printed. */
static int print_answer(const struct training_job *job, const struct check_options *o,
                        const struct job_verdict *verdict, struct error *err)
{
    if (o->json)
        return output_json(to_json(job, verdict), "-", err);
    struct text out = {0};
    struct report *report = report_create(job->facts.arena, "%s on %s", job->launch.program,
                                          o->device ? o->device : "no card yet");
    add_understood(report, job);
    if (verdict)
        add_verdict(report, verdict);
    ink_text_report(report, INK_ASCII, &out);
    if (o->explain)
        print_explanation(job, &out);
    print_facts(job, FACT_UNKNOWN, "Not understood", &out);
    print_facts(job, FACT_MISSING, "Missing", &out);
    return output_text(&out, "-", err);
}

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

static int check(struct training_job *job, const struct check_options *o, struct error *err)
{
    struct job_verdict verdict = {0};
    if (!o->device)
        job_note(job, FACT_MISSING, "the card", "?", "give --device h100-80g");
    int status = job_count(job, FACT_MISSING) ? refuse_missing(job, err)
                                              : job_verdict_make(job, o->device, o->memory, &verdict, err);
    bool judged = !status;
    if ((judged || o->explain || o->json) &&
        print_answer(job, o, judged ? &verdict : NULL, judged ? err : NULL))
        status = -1;
    if (judged && !status)
        status = verdict.answer.fits ? 0 : 1;
    job_verdict_clear(&verdict);
    return status;
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
        status = check(&job, o, err);
    arena_free(arena);
    return status;
}

static int run(int argc, char **argv, struct error *err)
{
    struct check_options o = {0};
    bool help = false;
    const char **operands = host_alloc((size_t)argc * sizeof *operands);
    int count = options_parse(&spec, argc, argv, &o, operands, &help, err), status = -1;
    if (count >= 0 && help) {
        struct text page = {0};
        options_help(&spec, &page);
        status = output_text(&page, "-", err);
    } else if (count >= 0) {
        log_set_quiet(o.quiet);
        status = read_and_check(&o, behind_dashes(argc, argv, operands[0]), operands, count, err);
    }
    free(operands);
    return status;
}

const struct command command_check = {&spec, run};
