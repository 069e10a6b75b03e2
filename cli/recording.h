/* Joins a training run to a recorder: names the program's tensors and operations in run.db, and passes on what each
 * rank's device and steps report. */
#ifndef MEMPLAN_CLI_RECORDING_H
#define MEMPLAN_CLI_RECORDING_H

#include "model/plan.h"
#include "profiler/recorder.h"
#include "trainer/train.h"

struct recording;

/* Starts a run of the plan, whose programs `pipeline` are borrowed, in `path`. `event_steps`: memory events and operation
 * times are kept for the first so many steps; 0: all. */
int recording_open(const char *path, const struct plan *plan, const struct pipeline *pipeline,
                   enum memory_policy policy, const char *command, int64_t event_steps,
                   struct recording **out, struct error *err);
int recording_close(struct recording *recording, struct error *err); /* NULL is fine */

/* For a run that came to nothing: a database that was made for it alone is removed. NULL is fine. */
void recording_discard(struct recording *recording);

/* A step's report as a row of the store. */
struct store_step recording_step_row(const struct step_report *report);

/* For the listener of train_run(). `program` is the rank's. */
int recording_start(struct recording *recording, int rank, struct device *device,
                    const struct program *program, struct error *err);
void recording_step_begin(struct recording *recording, int rank, int64_t step);
void recording_step(struct recording *recording, const struct step_report *report);
void recording_finish(struct recording *recording, int rank, struct device *device);

#endif
