/* memplan calibrate: measured constants for the planner, from a recorded run. */
#include "base/log.h"
#include "cli/commands.h"
#include "cli/configuration.h"
#include "cli/speed.h"

#include <string.h>

struct calibrate_options {
    const char *output;
    int64_t run;
    bool all, json, quiet;
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "FILE", NULL,
     "write it there; default calibration.json, or nowhere with --json",
     offsetof(struct calibrate_options, output)},
    {"run", 0, OPTION_POSITIVE, "ID", NULL, "which run of the database; default the latest",
     offsetof(struct calibrate_options, run)},
    {"all", 0, OPTION_FLAG, NULL, NULL, "all runs of the database together",
     offsetof(struct calibrate_options, all)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "the calibration on stdout",
     offsetof(struct calibrate_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct calibrate_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "calibrate",
    .summary = "measured constants for the planner, from a recorded run",
    .usage = "calibrate run.db -o calibration.json",
    .about =
        "Fits the rate of each kind of operation against its shape, and what it takes ranks to meet, from "
        "times that `memplan train -o run.db` or `memplan profile` recorded on this machine. Runs of "
        "several layouts and micro-batches tell more than one, and those of train more than profile's. "
        "`plan` and `predict` use the file with --calibration.",
    .examples =
        {"memplan calibrate run.db --all -o calibration.json",
         "memplan plan gpt2-124m --cluster '1x2:cpu(4GiB)' --global-batch 8 --seq-len 256 --calibration "
         "calibration.json"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

static int write_file(const struct calibration *calibration, const char *path, struct error *err)
{
    int status = calibration_write(calibration, path, err);
    if (!status && strcmp(path, "-"))
        log_note("wrote %s; use it with: memplan plan ... --calibration %s", path, path);
    return status;
}

/* "-o -" and --json ask for the same, once. */
static int write_answer(const struct calibration *calibration, const struct calibrate_options *o,
                        struct error *err)
{
    const char *path = o->output ? o->output : o->json ? "-" : "calibration.json";
    progress_unwatch();
    if (write_file(calibration, path, err))
        return -1;
    return o->json && strcmp(path, "-") ? calibration_write(calibration, "-", err) : 0;
}

static int run(int argc, char **argv, struct error *err)
{
    struct calibrate_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    char line[256];
    configuration_command_line(argc, argv, line, sizeof line);
    struct calibration calibration;
    if (o.all && o.run)
        return error_set(err, "--all and --run both say which runs count; give one of them");
    if (speed_fit(operands[0], o.all ? SPEED_ALL_RUNS : o.run, line, &calibration, err))
        return -1;
    int status = write_answer(&calibration, &o, err);
    calibration_clear(&calibration);
    return status;
}

const struct command command_calibrate = {&spec, run};
