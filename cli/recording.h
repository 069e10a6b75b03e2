/* Joins a training run to a recorder: names the program's tensors and operations in run.db, and passes on what each
 * rank's device and steps report.
 *
 * Ranks that are processes record into files of their own beside run.db, "run.db.rank-3.part" while they write and
 * "run.db.rank-3" when they have ended. Rank 0 takes their rows in and removes them: so a file has one writer, which also a
 * network file system can bear, and what a killed run leaves can be read, rank by rank. */
#ifndef MEMPLAN_CLI_RECORDING_H
#define MEMPLAN_CLI_RECORDING_H

#include "cli/world.h"
#include "model/plan.h"
#include "profiler/recorder.h"
#include "trainer/train.h"

struct recording;

struct recording_spec {
    const char *path, *command;
    const struct world *world;
    const struct plan *plan;
    const struct pipeline *pipeline; /* its programs */
    enum memory_policy policy;
    int64_t kernel_bytes; /* what the kernels take of each rank's device */
    bool timeline;        /* on a GPU: when every kernel, copy and fill ran */
    int64_t steps;        /* of the whole run */
    int64_t event_steps;  /* memory events and operation times are kept for the first so many steps; 0: all */
};

/* What `spec` points to is borrowed until the end. All ranks of a world call this, and one of the next two. */
int recording_open(const struct recording_spec *spec, struct recording **out, struct error *err);
/* When the run has failed, the world has ended before this. NULL is fine. */
int recording_close(struct recording *recording, struct error *err);

/* For a run that came to nothing: a database that was made for it alone is removed. NULL is fine. */
void recording_discard(struct recording *recording);

/* A sentence on the run, kept with each rank of this process. When the run is over, before recording_close(). */
void recording_note(struct recording *recording, const char *text);

/* A step's report as a row of the store. */
struct store_step recording_step_row(const struct step_report *report);

/* For the listener of train_run(). `program` is the rank's. */
int recording_start(struct recording *recording, int rank, struct device *device,
                    const struct program *program, struct error *err);
void recording_step_begin(struct recording *recording, int rank, int64_t step);
void recording_step(struct recording *recording, const struct step_report *report);
void recording_finish(struct recording *recording, int rank, struct device *device);

#endif
