/* Records a run: joins what devices report (device/observe.h) to run.db.
 *
 * One recorder per run, one channel per rank. A rank's thread drops each event into its own ring (a few stores, no lock, no
 * system call); one thread of the recorder empties the rings into the store, a transaction per batch. When a ring is full
 * its rank waits for that thread: exact counts matter more than the last per cent of speed, and memory stays bounded.
 *
 * The recorder never stops the run that it watches: when writing fails (a full disk), recording ends, the run goes on, and
 * recorder_close() tells what happened. */
#ifndef MEMPLAN_PROFILER_RECORDER_H
#define MEMPLAN_PROFILER_RECORDER_H

#include "base/error.h"
#include "device/device.h"
#include "device/observe.h"
#include "profiler/store.h"

#include <stdbool.h>
#include <stdint.h>

struct recorder;

/* Creates `path`, or adds a run to it. run->ranks ranks, from 0; run->event_steps limits events and kernels to the first
 * steps (figures of ranks and steps are recorded always). Sets run->run_id, as store_run_add() does. Time in the file counts
 * from here. */
int recorder_open(const char *path, struct store_run *run, struct recorder **out, struct error *err);

/* Ranks that are processes have a recorder each, with a file and the same run_id; at the end one of them takes the rows of
 * the others. (One SQLite file for several machines depends on the locks of a network file system.) Before the first event
 * each learns how long ago the run began for that one. */
int64_t recorder_age_ns(const struct recorder *recorder);
void recorder_set_age(struct recorder *recorder, int64_t age_ns);
/* Takes what was recorded of `rank` in the file `path`, which nobody writes any more. Trouble is told by
 * recorder_close(). */
void recorder_merge(struct recorder *recorder, int rank, const char *path);

/* Writes out everything, marks the run as finished and closes. Returns the first error that any recording met, in which
 * case the file holds what was written before it. No device may report any more. NULL is fine. */
int recorder_close(struct recorder *recorder, struct error *err);

/* Likewise, for a run that came to nothing: a file that was made for it alone is removed. NULL is fine. */
void recorder_discard(struct recorder *recorder);

/* For device_observe(). All calls for one rank, here and below, come from one thread. */
struct observer recorder_rank_observer(struct recorder *recorder, int rank);

/* Once, before the first step: the step program that ids refer to, and what was foretold for it. */
void recorder_tensors(struct recorder *recorder, int rank, const struct store_tensor *rows, int64_t count);
void recorder_operations(struct recorder *recorder, int rank, const struct store_operation *rows, int64_t count);
void recorder_prediction(struct recorder *recorder, const struct store_prediction *row);

/* What follows belongs to this step. */
void recorder_step_begin(struct recorder *recorder, int rank, int step);
/* The step is done, and these are its figures. row->rank is set to `rank`. */
void recorder_step(struct recorder *recorder, int rank, const struct store_step *row);

/* Rows that are no rank's own events. `write` is called with the store in a transaction of its own, one at a time; false: not
 * called, because recording has failed. Outside of steps. */
typedef void recorder_writes(void *context, struct store *store, int64_t run_id);
bool recorder_write(struct recorder *recorder, recorder_writes *write, void *context);
/* From here on the writer's thread calls `write` with each batch, some 20 times per second; NULL ends that. */
void recorder_set_source(struct recorder *recorder, recorder_writes *write, void *context);

/* At the end of a rank: what its ledger says. arena_bytes: 0 when there was no arena. */
void recorder_usage(struct recorder *recorder, int rank, const struct device_usage *usage, int64_t arena_bytes);

#endif
