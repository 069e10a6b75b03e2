/* What the commands about launches of other frameworks (check, tune) ask alike: the launch on the command line, what it does not
 * say itself, and the card. */
#ifndef MEMPLAN_CLI_JOB_OPTIONS_H
#define MEMPLAN_CLI_JOB_OPTIONS_H

#include "base/options.h"
#include "jobs/jobs.h"
#include "planner/cluster.h"

#include <stdint.h>

struct job_options {
    const char *device, *net, *set, *with, *model;
    int64_t memory, ranks, line;
};

/* Entries for a command's option table; `field` is the struct job_options in `type`. */
#define JOB_OPTIONS_CARD(type, field)                                                                          \
    {"device", 'd', OPTION_TEXT, "D", NULL, "the card of each rank, such as h100-80g",                         \
     offsetof(type, field.device)},                                                                            \
    {"memory", 0, OPTION_POSITIVE_BYTES, "BYTES", NULL, "what each rank has; default all of the card",         \
     offsetof(type, field.memory)}

#define JOB_OPTIONS_UNSAID(type, field)                                                                        \
    {.kind = OPTION_HEADING, .help = "What the launch does not say"},                                          \
    {"net", 0, OPTION_TEXT, "RATE", NULL,                                                                      \
     "of a whole node to others, all its ports together, such as 3200Gb/s: for times; default what nodes "     \
     "with such cards have",                                                                                   \
     offsetof(type, field.net)},                                                                               \
    {"set", 0, OPTION_TEXT, "NAME=VALUE,...", NULL,                                                            \
     "variables of the script, set outside of it: NODES=4,GPUS=8", offsetof(type, field.set)},                 \
    {"with", 0, OPTION_TEXT, "OPTIONS", NULL, "further options of the program: --with='--seq-length 4096'",    \
     offsetof(type, field.with)},                                                                              \
    {"model", 0, OPTION_TEXT, "MODEL", NULL,                                                                   \
     "a model folder, a config.json, a preset of `memplan describe --list`, or a name of the Hugging Face "    \
     "hub",                                                                                                    \
     offsetof(type, field.model)},                                                                             \
    {"ranks", 0, OPTION_POSITIVE, "N", NULL, "processes of the job, all machines together",                    \
     offsetof(type, field.ranks)},                                                                             \
    {"line", 0, OPTION_POSITIVE, "N", NULL, "of the launch, in a script with several",                         \
     offsetof(type, field.line)}

/* Whether the operands stand behind "--", which makes them a launch and not a file. */
bool job_options_is_command(int argc, char **argv, const char *first);

/* The launch as jobs_read() takes it; texts live as long as the arena and the command line. */
int job_options_request(const struct job_options *options, bool is_command, const char *const *operands, int count,
                        struct arena *arena, struct jobs_request *out, struct error *err);

/* The card, and how nodes with it are taken to be joined, of a job whose launch was read. */
int job_options_card(const struct job_options *options, const struct training_job *job, struct rank_device *device,
                     struct node_group *nodes, struct error *err);

/* Names the first things that are missing, with how to give them; of more than those, `lists` says where all are. */
int job_options_refuse_missing(const struct training_job *job, const char *lists, struct error *err);

#endif
