/* Pipeline schedules as data: in which order one stage runs the forward and backward passes of its chunks, what it
 * receives before and sends after each, and how much it keeps meanwhile. Knows neither layers nor bytes.
 *
 * Layers are cut into pp * virtual_stages chunks, run in the order of their global number g = chunk * pp + stage: each stage
 * holds `virtual_stages` chunks, and chunk g passes activations to the stage of g + 1 and gradients to that of g - 1. */
#ifndef MEMPLAN_MODEL_SCHEDULE_H
#define MEMPLAN_MODEL_SCHEDULE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind {
    SCHEDULE_1F1B,        /* one forward, one backward (Narayanan et al. 2019) */
    SCHEDULE_GPIPE,       /* all forward, then all backward (Huang et al. 2019) */
    SCHEDULE_INTERLEAVED, /* the same over several chunks per stage (Narayanan et al. 2021), as Megatron-LM orders them */
    SCHEDULE_ZB_H1,       /* 1F1B whose weight gradients fill the bubble (Qi et al. 2024, "Zero Bubble") */
    SCHEDULE_KINDS,
};

enum schedule_work {
    SCHEDULE_FORWARD,
    SCHEDULE_BACKWARD,        /* both halves together */
    SCHEDULE_BACKWARD_INPUT,  /* gradients of activations, which the stage before waits for */
    SCHEDULE_BACKWARD_WEIGHT, /* gradients of weights, which nobody waits for */
};

struct schedule_item {
    enum schedule_work work;
    int chunk; /* of the stage: 0 .. virtual_stages - 1 */
    int micro_batch;
};

/* What all stages of a pipeline share. */
struct schedule_shape {
    enum schedule_kind kind;
    int64_t pp;             /* stages */
    int64_t virtual_stages; /* chunks per stage */
    int64_t micro_batches;  /* per step */
};

const char *schedule_name(enum schedule_kind kind); /* "gpipe", "1f1b", "interleaved", "zb-h1" */
int schedule_find(const char *name, enum schedule_kind *out, struct error *err);
/* Refuses what the kind cannot run; the message says what to use instead. */
int schedule_shape_check(const struct schedule_shape *shape, struct error *err);

/* The items of one stage in order, without storing them. The shape must have passed schedule_shape_check(). */
struct schedule_cursor {
    struct schedule_shape shape;
    int64_t stage;
    int64_t forwards, backwards, weights; /* done so far; `weights` only where backward is split */
};

struct schedule_cursor schedule_walk(const struct schedule_shape *shape, int64_t stage);
bool schedule_next(struct schedule_cursor *cursor, struct schedule_item *out);

/* The same, stored. */
struct schedule {
    struct schedule_shape shape;
    int stage;
    int count;
    struct schedule_item items[];
};

/* On success *out is the caller's: schedule_free(). */
int schedule_create(const struct schedule_shape *shape, int64_t stage, struct schedule **out, struct error *err);
void schedule_free(struct schedule *schedule); /* NULL is fine */

/* How many (chunk, micro-batch) pairs stage i of p keeps at most at once, with v chunks and m micro-batches:
 *
 *                    for all of backward                 for its input half   from there to its weight half
 *     gpipe          m
 *     1f1b           min(m, p-i)
 *     interleaved    min(vm, 2(p-i-1) + (v-1)p + 1)
 *     zb-h1          min(m, p)                           min(m, p-i)          min(m, i+1)
 *
 * So the fullest stage keeps no more under zb-h1 than under 1f1b, but the later ones do: the weight halves that they put off
 * are what fills the bubble. */

enum schedule_direction { SCHEDULE_ACTIVATION, SCHEDULE_GRADIENT, SCHEDULE_DIRECTIONS };

struct schedule_message {
    int peer; /* the other stage; -1: no message, and the rest says nothing */
    enum schedule_direction direction;
    int chunk; /* the global number of the receiver's */
    int micro_batch;
    int64_t tag; /* the three above in one number, the same on both ends and on no other message of the step */
};

/* What an item of one stage needs from another, and what another stage needs from it. Messages from one stage to
 * another in one direction are sent and received in the same order, so a transport without tags serves too. */
struct schedule_messages {
    struct schedule_message receive, send;
};

struct schedule_messages schedule_messages(const struct schedule_shape *shape, int64_t stage,
                                           const struct schedule_item *item);

/* How a stage executes its items; everything below assumes it. Receives and sends never block when they start.
 *
 *     start the receive of item 0
 *     for each item k:  start the receive of item k + 1
 *                       wait for the receive of item k
 *                       run item k
 *                       start the send of item k
 *                       wait for the send of item k - 1
 *     wait for the send of the last item
 *
 * So a message has an item's time to pass behind, what item k sends is released after item k + 1, and two buffers each for
 * receives and for sends, used in turn (k % 2), are enough. It needs no buffering by the transport: a send may well end only
 * when its receive has started. Later receives would not do: with that of item k + 1 started after item k, interleaved
 * stages all wait for each other's. */

/* Seconds of each global chunk's work, pp * virtual_stages of each. */
struct schedule_times {
    const double *forward_s, *backward_input_s, *backward_weight_s;
    double message_s; /* from the moment both ends have started; messages do not slow each other down */
};

#endif
