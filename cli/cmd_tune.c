/* memplan tune: the fastest launch near one's own that fits. Reads, searches, and writes the launch that it found. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/job_options.h"
#include "cli/output.h"
#include "cli/tune_report.h"
#include "cli/tune_write.h"

#include <stdlib.h>
#include <string.h>

struct tune_options {
    struct job_options launch;
    const char *output, *allow;
    bool exhaustive, json, quiet;
};

static const struct option_spec options[] = {
    JOB_OPTIONS_CARD(struct tune_options, launch),
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write the launch that was found there: the script with its changes, and beside it the files that "
     "change",
     offsetof(struct tune_options, output)},
    {"allow", 0, OPTION_TEXT, "WHAT", NULL,
     "changes by which what is learned may differ: batch, precision, or batch,precision; default none",
     offsetof(struct tune_options, allow)},
    {"exhaustive", 0, OPTION_FLAG, NULL, NULL,
     "no limit of work, and a verdict on every launch in its turn: takes up to minutes",
     offsetof(struct tune_options, exhaustive)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct tune_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct tune_options, quiet)},
    JOB_OPTIONS_UNSAID(struct tune_options, launch),
    {0},
};

static const struct command_spec spec = {
    .name = "tune",
    .summary = "the fastest launch near one's own that fits",
    .usage = "tune FILE.sh [ARGUMENTS] --device D | tune [options] -- LAUNCH COMMAND",
    .about =
        "Reads a launch as `memplan check` does, and searches what its framework's options lead to from "
        "there, "
        "with as many ranks and sequences a step and the same precision: micro-batches, recomputation, "
        "sharding, tensor, context and pipeline parallelism, offloading, kernels. Says which launch takes "
        "least time of those that surely fit, what to change for it and why it is faster, and writes it. "
        "Nothing is run. Exit status 0: that is found, or there is nothing faster; 1: nothing fits.",
    .examples = {"memplan tune train.sh --device h100-80g",
                 "memplan tune train.sh --device h100-80g -o tuned.sh"},
    .options = options,
    .min_operands = 1,
    .max_operands = -1,
};

static int read_allowed(const char *text, struct tune_request *out, struct error *err)
{
    while (text && *text) {
        size_t length = strcspn(text, ",");
        if (length == 5 && !strncmp(text, "batch", length))
            out->allow_batch = true;
        else if (length == 9 && !strncmp(text, "precision", length))
            out->allow_precision = true;
        else
            return error_set(err, "--allow %.*s: give batch, precision, or both with a comma between",
                             (int)length, text);
        text += length + (text[length] == ',');
    }
    return 0;
}

static int print_answer(const struct tune_answer *answer, const struct tune_options *o, struct error *err)
{
    struct arena *arena = answer->request->job->facts.arena;
    if (o->json)
        return output_json(tune_report_json(answer, arena), "-", err);
    return output_report(tune_report_page(answer, arena), "-", err);
}

/* Writes what was found, and says so. A launch that stays as it is is written too, so that whoever starts FILE next does not
 * start what an earlier search left there; where nothing fits, nothing is. */
static int write_found(struct tune_answer *answer, const struct tune_options *o, struct tune_written *written,
                       struct error *err)
{
    const struct tuned now = {.job = *answer->request->job,
                              .verdict = *answer->request->verdict,
                              .sequence_s = answer->tuning->sequence_s};
    bool changes = tune_report_changes(answer);
    if (!o->output)
        return 0;
    if (!changes && !now.verdict.fits) {
        log_note("-o %s: nothing fits, so nothing is written", o->output);
        return 0;
    }
    if (!changes)
        log_note("-o %s: there is nothing to change, so that is the launch as it stands", o->output);
    if (tune_write(answer->request, changes ? &answer->tuning->list[0] : &now, o->output, written, err))
        return -1;
    answer->written = written->files;
    return 0;
}

static int tune(const struct training_job *job, struct tune_request *request, const struct tune_options *o,
                struct error *err)
{
    struct rank_device device;
    struct node_group nodes;
    struct machine_speed speeds[2];
    struct job_verdict verdict;
    struct tuning tuning;
    struct tune_written written = {0};
    struct tune_answer answer = {.request = request, .nodes = &nodes, .tuning = &tuning};
    if (job_options_card(&o->launch, job, &device, &nodes, err) ||
        job_verdict_make(job, &device, -1, &verdict, err))
        return -1;
    machine_speed_for_group(&nodes, PRECISION_FP32, 1, &speeds[0]);
    machine_speed_for_group(&nodes, PRECISION_BF16, 1, &speeds[1]);
    request->job = job;
    request->verdict = &verdict;
    request->device = &device;
    request->speeds = device.card ? speeds : NULL;
    if (tune_search(request, job->facts.arena, &tuning, err) || write_found(&answer, o, &written, err) ||
        print_answer(&answer, o, err))
        return -1;
    for (int i = 0; answer.written && written.files[i]; i++)
        log_note(i ? "wrote %s" : "wrote %s: memplan check %s judges it", written.files[i], written.files[i]);
    return tuning.count || verdict.fits ? 0 : 1;
}

static int read_and_tune(const struct tune_options *o, bool is_command, const char **operands, int count,
                         struct error *err)
{
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request launch;
    struct tune_request request = {.launch = &launch, .judge_all = o->exhaustive};
    int status = read_allowed(o->allow, &request, err) ||
                 job_options_request(&o->launch, is_command, operands, count, arena, &launch, err) ||
                 jobs_read(&launch, arena, &job, err);
    if (!status && !o->launch.device)
        job_note(&job, FACT_MISSING, "the card", "?", "give --device h100-80g");
    if (!status && job_count(&job, FACT_MISSING))
        status = job_options_refuse_missing(&job, "memplan check --explain", err);
    if (!status)
        status = tune(&job, &request, o, err);
    else
        status = -1;
    arena_free(arena);
    return status;
}

static int run(int argc, char **argv, struct error *err)
{
    struct tune_options o = {0};
    int count;
    const char **operands = host_alloc((size_t)argc * sizeof *operands);
    int status = command_parse_all(&spec, argc, argv, &o, operands, &count, err);
    if (status > 0) {
        log_set_quiet(o.quiet);
        status = read_and_tune(&o, job_options_is_command(argc, argv, operands[0]), operands, count, err);
    }
    free(operands);
    return status;
}

const struct command command_tune = {&spec, run};
