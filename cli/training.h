/* What `train` and `profile` share: their options, and a run with its step lines, recording and summary. */
#ifndef MEMPLAN_CLI_TRAINING_H
#define MEMPLAN_CLI_TRAINING_H

#include "cli/configuration.h"
#include "trainer/train.h"

#include <stdbool.h>
#include <stdint.h>

struct training_options {
    struct configuration_options configuration;
    const char *data, *device, *output, *schedule, *checkpoint, *resume, *weights, *policy;
    int64_t steps, seed, warmup, memory, threads, checkpoint_every, validate_every, event_steps;
    double lr, decay, clip;
    bool json, quiet, no_graph, timeline, overwrite;
};

#define TRAINING_RUN_OPTIONS                                                                                               \
    {.kind = OPTION_HEADING, .help = "Run"},                                                                               \
    {"data", 0, OPTION_TEXT, "FILE", NULL, "a text file (bytes are tokens), a .bin token file, or random",                 \
     offsetof(struct training_options, data)},                                                                             \
    {"steps", 0, OPTION_POSITIVE, "N", NULL, "training steps", offsetof(struct training_options, steps)},                  \
    {"lr", 0, OPTION_REAL, "X", NULL, "peak learning rate; default 3e-4",                                                  \
     offsetof(struct training_options, lr)},                                                                               \
    {"seed", 0, OPTION_COUNT, "N", NULL, "of initial weights and data order; default 1",                                   \
     offsetof(struct training_options, seed)},                                                                             \
    {"weights", 0, OPTION_TEXT, "FILE|FOLDER", NULL, "begin with a public model's weights, in safetensors",                \
     offsetof(struct training_options, weights)},                                                                          \
    {"threads", 0, OPTION_COUNT, "N", NULL, "OS threads shared out among the ranks; default all cores",                    \
     offsetof(struct training_options, threads)},                                                                          \
    {"device", 0, OPTION_TEXT, "D", NULL, "cpu, or cuda for the GPUs of this machine; default cpu",                                              \
     offsetof(struct training_options, device)},                                                                           \
    {"memory", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL, "what each rank's device holds; default its share of the machine", \
     offsetof(struct training_options, memory)},                                                                           \
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON line per step on stdout, then one that closes",                         \
     offsetof(struct training_options, json)},                                                                             \
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes or progress on stderr",                                              \
     offsetof(struct training_options, quiet)}

struct training_options training_default_options(void);

/* The rest of a command once its arguments are parsed: resolves `source`, runs, reports. `command` is its line, for the
 * recording. Returns the exit status or -1. */
int training_execute(const char *source, const struct training_options *options, enum memory_policy policy,
                     const char *command, struct error *err);

#endif
