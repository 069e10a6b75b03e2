/* run.db: what training runs really did, in one SQLite file. The recorder and importers write it; reports, planner and cli
 * read it, through this header only. schema.c shows the tables and the views that people query by hand.
 *
 * Rows are open structs. Texts going in are borrowed for the call, and NULL is fine. Texts and arrays coming out belong to
 * the `struct arena` given by the caller. -1 stands for "none" in ids, layers and micro-batches.
 *
 * Every function that can fail returns 0, or -1 with a sentence in err that names the file. A store is used by one thread
 * at a time. */
#ifndef MEMPLAN_PROFILER_STORE_H
#define MEMPLAN_PROFILER_STORE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/role.h"

#include <stdbool.h>
#include <stdint.h>

struct store;

/* ------------------------------------------------------------------------------------------------------------ rows */

struct store_run {
    int64_t run_id; /* going in 0: given by store_run_add() */
    const char *started_at;  /* ISO 8601, UTC; NULL going in: now */
    const char *finished_at; /* NULL: still running, or killed */
    const char *command, *model, *model_json, *layout_json, *device;
    int64_t capacity_bytes; /* 0: no limit */
    const char *policy;     /* "arena" or "tensor" */
    const char *memplan_version;
    int ranks;
    int64_t event_steps; /* events and kernels are recorded in steps below this; 0: in all, < 0: in none */
    const char *note;
    int64_t steps; /* that the run is to have, those before a resume included; 0: not known */
};

struct store_rank {
    int rank;
    bool measured; /* false: the rank is not done, and all figures but `host` are unknown */
    int64_t arena_bytes, peak_bytes, reserved_peak_bytes;
    int64_t at_peak[ROLE_COUNT]; /* the device's own ledger, not counted from events */
    const char *host;
};

/* Of one rank, as operations are: the ranks of another pipeline stage number theirs anew. Layers are the model's. */
struct store_tensor {
    int64_t tensor_id;
    const char *name, *dims, *dtype; /* "layer 3 qkv", "2x64x768", "F32" */
    enum role role;
    int layer, micro_batch;
    int64_t bytes;
};

struct store_operation {
    int64_t operation_id;
    const char *kind, *phase, *detail; /* "matmul", "forward", the shape: "M512 N2304 K768" */
    int layer, micro_batch;
    bool recompute;
    int64_t flops, bytes_moved;
};

/* Times, here and below, count from the start of the run. */
struct store_memory {
    int64_t seq, time_ns;
    int64_t operation_id, tensor_id;
    int64_t bytes; /* > 0 taken, < 0 given back */
    int64_t live_bytes, address;
    int step; /* -1: before the first */
    enum role role;
    bool arena; /* inside a block taken before */
};

struct store_kernel {
    int64_t seq, operation_id, start_ns, end_ns;
    int step;
};

/* What the driver of a GPU gave out, or took back. */
struct store_driver_event {
    int64_t seq, time_ns, operation_id;
    int64_t bytes; /* > 0 taken, < 0 given back */
    int64_t live_bytes, address;
    int step;
    const char *call, *owner; /* "cuMemAlloc_v2", "libnccl.so.2" */
};

/* What a GPU held besides tensors. */
struct store_runtime {
    const char *name; /* "CUDA context" */
    const char *how;  /* "measured", "counted", "residual" */
    int64_t bytes;
};

/* What a GPU did. */
struct store_gpu_span {
    int64_t seq, operation_id, start_ns, end_ns, bytes, stream;
    int step;
    const char *kind; /* "kernel", "copy", "fill", "range" */
    const char *name; /* NULL: none */
};

/* NAN: not known on this rank. */
struct store_step {
    int rank, step;
    double loss, grad_norm, seconds;
    int64_t tokens; /* of all ranks together */
    double tokens_per_s, communication_busy_s, communication_waited_s;
};

struct store_prediction {
    int rank;
    int64_t peak_bytes; /* the sum of at_peak; filled in by the reader, ignored by the writer */
    int64_t at_peak[ROLE_COUNT], arena_bytes;
    double step_seconds;
};

/* --------------------------------------------------------------------------------------------------- open and close */

/* Opens `path` for writing: a new file, or one of ours, to which further runs are added. What it made is gone again when it
 * fails. */
int store_create(const char *path, struct store **out, struct error *err);

/* Opens for reading, and never changes the file: works in a folder that cannot be written, while another process writes,
 * and on what a killed writer left. Says so when it is no database, not ours, or made by a newer memplan. */
int store_open_read(const char *path, struct store **out, struct error *err);

/* Of a store that was opened for reading: whatever others write meanwhile, all that is read from here on is of one moment. */
int store_freeze(struct store *store, struct error *err);

/* A transaction that is still open is rolled back. NULL is fine. */
void store_close(struct store *store);

/* Likewise, for a run that came to nothing: removes the file too, when store_create() made it and no other run is in it. */
void store_discard(struct store *store);

/* ------------------------------------------------------------------------------------------------------------- write */

/* Rows are added between begin and commit. When one could not be added (a full disk), commit takes back all of them and
 * returns that first error; so the file holds whole batches only. A killed process loses the open batch and no other. */
int store_begin(struct store *store, struct error *err);
int store_commit(struct store *store, struct error *err);

/* Sets row->run_id, unless it is above 0 and free. Adds a row for each of its ranks too, with no figures yet. */
int store_run_add(struct store *store, struct store_run *row, struct error *err);
/* Sets finished_at to now. */
int store_run_finish(struct store *store, int64_t run_id, struct error *err);
/* Replaces what was known of that rank. */
int store_rank_add(struct store *store, int64_t run_id, const struct store_rank *row, struct error *err);
int store_tensor_add(struct store *store, int64_t run_id, int rank, const struct store_tensor *row, struct error *err);
int store_operation_add(struct store *store, int64_t run_id, int rank, const struct store_operation *row,
                        struct error *err);
int store_memory_add(struct store *store, int64_t run_id, int rank, const struct store_memory *row, struct error *err);
int store_kernel_add(struct store *store, int64_t run_id, int rank, const struct store_kernel *row, struct error *err);
int store_step_add(struct store *store, int64_t run_id, const struct store_step *row, struct error *err);
int store_prediction_add(struct store *store, int64_t run_id, const struct store_prediction *row, struct error *err);

int store_driver_event_add(struct store *store, int64_t run_id, int rank,
                           const struct store_driver_event *row, struct error *err);
/* Replaces one of the same name. */
int store_runtime_add(struct store *store, int64_t run_id, int rank, const struct store_runtime *row,
                      struct error *err);
int store_span_add(struct store *store, int64_t run_id, int rank, const struct store_gpu_span *row,
                   struct error *err);
int store_note_add(struct store *store, int64_t run_id, int rank, const char *note, struct error *err);
/* Adds a kernel row for every operation and step that has spans: from the begin of the first to the end of the last. */
int store_spans_as_kernels(struct store *store, int64_t run_id, struct error *err);

/* Copies the rows of one rank of the run from the file `path`, where they have the same run_id. Not between begin and
 * commit; all or nothing. */
int store_merge(struct store *store, int64_t run_id, int rank, const char *path, struct error *err);

/* -------------------------------------------------------------------------------------------------------------- read */

/* Each sets *rows and *count; no rows is no error. */

/* In order of run_id. */
int store_read_runs(struct store *store, struct arena *arena, struct store_run **rows, int64_t *count,
                    struct error *err);
/* The highest run_id; a file without runs is an error. */
int store_latest_run(struct store *store, int64_t *run_id, struct error *err);
/* One run; an unknown run_id is an error that names the latest. */
int store_read_run(struct store *store, int64_t run_id, struct arena *arena, struct store_run *row, struct error *err);

/* These are in order of rank, then of id. */
int store_read_ranks(struct store *store, int64_t run_id, struct arena *arena, struct store_rank **rows,
                     int64_t *count, struct error *err);
int store_read_tensors(struct store *store, int64_t run_id, int rank, struct arena *arena,
                       struct store_tensor **rows, int64_t *count, struct error *err);
int store_read_operations(struct store *store, int64_t run_id, int rank, struct arena *arena,
                          struct store_operation **rows, int64_t *count, struct error *err);
/* The place of an id in what was read: an index, or -1. */
int64_t store_find_tensor(const struct store_tensor *rows, int64_t count, int64_t tensor_id);
int64_t store_find_operation(const struct store_operation *rows, int64_t count, int64_t operation_id);
int store_read_predictions(struct store *store, int64_t run_id, struct arena *arena, struct store_prediction **rows,
                           int64_t *count, struct error *err);
/* In order of step, then of rank. */
int store_read_steps(struct store *store, int64_t run_id, struct arena *arena, struct store_step **rows,
                     int64_t *count, struct error *err);
/* Likewise, from `first_step` on: for whoever has seen the others. */
int store_read_steps_from(struct store *store, int64_t run_id, int64_t first_step, struct arena *arena,
                          struct store_step **rows, int64_t *count, struct error *err);

/* The `limit` largest tensors that live at the peak, largest first; limit < 0: all. The name is NULL, and tensor_id -1,
 * for bytes of no tensor. */
int store_read_peak_tensors(struct store *store, int64_t run_id, int rank, int64_t limit, struct arena *arena,
                            struct store_tensor **rows, int64_t *count, struct error *err);

struct store_point {
    int64_t seq, time_ns, operation_id, live_bytes, live[ROLE_COUNT];
    int step;
};
/* Live bytes over time in at most `limit` points (limit < 1: every event). Of each stretch of events the highest moment is
 * kept, so the peak is always among them. */
int store_read_timeline(struct store *store, int64_t run_id, int rank, int64_t limit, struct arena *arena,
                        struct store_point **rows, int64_t *count, struct error *err);

/* Every memory event of a rank in order, one after the other and never all at once; `seen` may keep none of it. */
typedef void store_memory_seen(void *context, const struct store_memory *event);
int store_each_memory(struct store *store, int64_t run_id, int rank, store_memory_seen *seen, void *context,
                      struct error *err);
/* Likewise those whose seq is at least `first_seq`. */
int store_each_memory_from(struct store *store, int64_t run_id, int rank, int64_t first_seq,
                           store_memory_seen *seen, void *context, struct error *err);
int store_count_memory(struct store *store, int64_t run_id, int rank, int64_t *events, struct error *err);

struct store_cost {
    const char *kind, *detail, *phase;
    int64_t count; /* executions measured, over all ranks and steps */
    double median_s, mean_s, min_s;
    int64_t flops, bytes; /* of one execution */
};
/* The most total time first. */
int store_read_operation_costs(struct store *store, int64_t run_id, struct arena *arena, struct store_cost **rows,
                               int64_t *count, struct error *err);

/* Likewise the kernels of a step (-1: of all steps), in order of step, then as they were recorded. */
typedef void store_kernel_seen(void *context, const struct store_kernel *kernel);
int store_each_kernel(struct store *store, int64_t run_id, int rank, int step, store_kernel_seen *seen,
                      void *context, struct error *err);
/* The first and the last step in which a rank recorded kernels; -1: in none. */
int store_kernel_steps(struct store *store, int64_t run_id, int rank, int *first, int *last, struct error *err);

/* The largest first; none in a file of before version 2. */
int store_read_runtime(struct store *store, int64_t run_id, int rank, struct arena *arena,
                       struct store_runtime **rows, int64_t *count, struct error *err);
/* Likewise, in the order in which they were made. */
int store_read_notes(struct store *store, int64_t run_id, int rank, struct arena *arena, const char ***rows,
                     int64_t *count, struct error *err);

#endif
