/* How sure a prediction is: the errors of earlier predictions, job by job, as the one error model of intervals and of the
 * probability that a job fits. Nothing is fitted: a new job is taken to be one more of those that were measured. */
#ifndef MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_ODDS_H
#define MEMPLAN_PLANNER_FRAMEWORKS_WORKLOAD_ODDS_H

#include "planner/frameworks/workload_memory.h"

/* The three numbers that people compare. */
enum workload_figure { WORKLOAD_ALLOCATED, WORKLOAD_RESERVED, WORKLOAD_DEVICE, WORKLOAD_FIGURES };
const char *workload_figure_name(enum workload_figure figure); /* "torch.cuda.max_memory_allocated" */
int64_t workload_figure_bytes(const struct workload_memory *memory, enum workload_figure figure);

/* Whose jobs were measured. */
enum workload_class { WORKLOAD_CLASS_MEGATRON, WORKLOAD_CLASS_TORCH, WORKLOAD_CLASSES };
const char *workload_class_name(enum workload_class class);

/* Measured / predicted of full jobs, rising. `make score` prints these lists. */
struct workload_errors {
    const double *ratios;
    int count;
};
struct workload_errors workload_odds_errors(enum workload_class class, enum workload_figure figure);

/* Quantized weights that are split over ranks, which need more than rules explain by all three figures that were published. */
enum { WORKLOAD_SPLIT_QUANTIZED = 3 };
bool workload_odds_unexplained(const struct workload *workload);

/* What holds for eight of ten jobs of this kind; by how many measured ones. */
struct workload_interval {
    int64_t low_bytes, high_bytes;
    int jobs;
};
struct workload_interval workload_odds_interval(const struct workload *workload, enum workload_figure figure,
                                                int64_t predicted_bytes);

/* Of predicted seconds of a step, what holds for eight of ten. */
struct workload_pace {
    double low_s, high_s;
    int steps; /* measured ones, whose errors it is made from */
    bool own;  /* they were of this class of frameworks */
};
/* Measured / predicted of steps: the tenths between which eight of ten lie, the middle one, and of how many. `make score` prints it. */
struct workload_step_errors {
    double low, median, high;
    int steps;
};
extern const struct workload_step_errors workload_step_errors;
/* `card_doubt`: how far a step may be off for what is not known of the card, as a share; 0: those steps were measured on it. */
struct workload_pace workload_odds_pace(const struct workload *workload, double seconds, double card_doubt);

/* What a card must have for the job: tensors, context, NCCL, and what no rule accounts for; with the allocator's caches too
 * where it ran out without them. Within workload.capacity_bytes. */
int64_t workload_odds_needed_bytes(const struct workload *workload, const struct workload_memory *memory);
/* 0 .. 1, never either, that the job fits workload.capacity_bytes. It is said to fit when this is a half or more. */
double workload_odds_fits(const struct workload *workload, const struct workload_memory *memory, int *jobs);

#endif
