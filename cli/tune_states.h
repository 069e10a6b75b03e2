/* The launches of a search (tune_search.h), each as its edits, its price and the little of its workload that tells twins from
 * others: grown by proposals, the fastest first, until there are no new ones. */
#ifndef MEMPLAN_CLI_TUNE_STATES_H
#define MEMPLAN_CLI_TUNE_STATES_H

#include "cli/tune_search.h"

enum { TUNE_EDITS_MOST = 40, TUNE_NEAR_MOST = 2 * JOB_CHANGES_MOST };

/* Of a workload, what tells kinds of launches apart. */
struct tune_shape {
    int64_t tp, pp, cp, chunks, micro_batch;
    int64_t remade_layers; /* of a stage; 0: of those that are made again all */
    enum workload_sharding sharding;
    enum workload_recompute recompute;
    unsigned modules;
    enum workload_attention attention;
    enum workload_loss loss;
    bool offloads, halves;
};

struct tune_state {
    struct job_edits edits; /* of the launch as it stands: each option once, in order, none that says what is said already */
    double sequence_s;
    uint64_t twins; /* alike in those that differ by micro-batch, recomputation and chunks of a stage alone */
    struct tune_shape shape;
};

struct tune_states;

/* With the launch as it stands, number 0. What it borrows outlives it; edits live as long as the arena. */
struct tune_states *tune_states_create(const struct tune_request *request, const struct job_trials *trials,
                                       struct arena *arena);
void tune_states_free(struct tune_states *states);

int tune_states_count(const struct tune_states *states);
const struct tune_state *tune_states_get(const struct tune_states *states, int place); /* until the next is added */

/* As many ranks and as long sequences, and unless it may differ as many of them in a step. */
bool tune_states_is_same_work(const struct tune_states *states, const struct training_job *job,
                              const struct workload *workload);

/* Adds all that proposals lead to. False: not all, since it would take more units of pricing, a microsecond each. */
bool tune_states_close(struct tune_states *states, int64_t most);
/* Adds what small steps from one launch lead to. */
void tune_states_step(struct tune_states *states, const struct tuned *from);

/* Places of those that the proposals for one lead to, after what costs nothing: at most TUNE_NEAR_MOST. */
int tune_states_near(const struct tune_states *states, int place, int *out);

/* Places from `from` on by time, and among equals by how little is changed. */
void tune_states_order(const struct tune_states *states, int from, int *order);
void tune_states_sort(const struct tune_states *states, int *places, int count);

/* Whether `less` differs from `more` only so that it needs no more memory: smaller micro-batches, more made again, a chunk a stage
 * (or more of several: docs/memory-model.md has how many passes are under way). */
bool tune_states_needs_less(const struct tune_state *less, const struct tune_state *more);
/* Of one kind: laid out, sharded and made again alike but for how much of it. */
bool tune_states_alike(const struct tune_state *state, const struct workload *workload);
bool tune_states_are_alike(const struct workload *one, const struct workload *other);

/* The edits with a change of the launch that they make. */
struct job_edits tune_states_joined(const struct tune_states *states, struct job_edits edits, const struct job_change *change,
                                    struct arena *arena);

#endif
