/* memplan profile: runs real training steps and records who holds every byte. */
#include "cli/commands.h"
#include "cli/training.h"
#include "cli/world.h"

#include <string.h>

static const struct option_spec options[] = {
    TRAINING_RUN_OPTIONS,
    {"output", 'o', OPTION_TEXT, "RUN.DB", NULL, "the database to write or to add to; default run.db",
     offsetof(struct training_options, output)},
    {"policy", 0, OPTION_CHOICE, NULL, "tensor|arena",
     "default tensor: every tensor an allocation of its own; arena: as train does",
     offsetof(struct training_options, policy)},
    {"timeline", 0, OPTION_FLAG, NULL, NULL,
     "on a GPU, also record when each kernel ran; takes some of its memory, and time",
     offsetof(struct training_options, timeline)},
    {"event-steps", 0, OPTION_COUNT, "N", NULL,
     "record memory events and times of the first N steps; default all",
     offsetof(struct training_options, event_steps)},
    CONFIGURATION_MODEL_OPTIONS(struct training_options, configuration),
    CONFIGURATION_LAYOUT_OPTIONS(struct training_options, configuration),
    {0},
};

static const struct command_spec spec = {
    .name = "profile",
    .summary = "run real training steps and record who holds every byte",
    .usage = "profile MODEL|PLAN --data FILE -o run.db [options]",
    .about = "Runs a few training steps with every tensor as an allocation of its own, and records each "
             "allocation, each "
             "operation and its time in an SQLite database. The figures are counted by the device where "
             "memory is really "
             "taken; predictions are stored beside them.",
    .examples = {"memplan profile block-768 --data random -o run.db",
                 "memplan profile gpt2-124m --data corpus.txt --dp 2 --zero 1 --seq-len 256 --micro-batch 4 "
                 "-o run.db"},
    .options = options,
    .min_operands = 1,
    .max_operands = 1,
};

static int run(int argc, char **argv, struct error *err)
{
    struct training_options o = training_default_options();
    o.steps = 3;
    o.output = "run.db";
    o.event_steps = 0;
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on < 0 ? world_refuse(err) : 0;
    char line[256];
    configuration_command_line(argc, argv, line, sizeof line);
    enum memory_policy policy = o.policy && !strcmp(o.policy, "arena") ? MEMORY_ARENA : MEMORY_TENSOR;
    return training_execute(operands[0], &o, policy, line, err);
}

const struct command command_profile = {&spec, run};
