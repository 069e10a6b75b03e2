/* Pipeline schedules: the closed forms of their papers, and that the check finds what is wrong. Letters as in the papers:
 * p stages, of which i is one, v chunks per stage, m micro-batches. */
#include "model/schedule.h"

#include "base/arena.h"
#include "base/checked.h"
#include "tests/model/schedule_replay.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

/* A pipeline of all its stages. */
struct pipeline {
    struct schedule_shape shape;
    struct schedule **stages;
};

static const struct schedule *const *stages_of(const struct pipeline *pipe)
{
    return (const struct schedule *const *)pipe->stages;
}

static struct pipeline pipeline_create(struct schedule_shape shape)
{
    struct pipeline pipe = {shape, host_alloc((size_t)shape.pp * sizeof *pipe.stages)};
    for (int64_t i = 0; i < shape.pp; i++)
        if (schedule_create(&shape, i, &pipe.stages[i], &err))
            ck_abort_msg("%s", err.text);
    return pipe;
}

static void pipeline_free(struct pipeline *pipe)
{
    for (int64_t i = 0; i < pipe->shape.pp; i++)
        schedule_free(pipe->stages[i]);
    free(pipe->stages);
}

/* Calls `check` for shapes of every kind: dense where small, with the extremes where large. Those with more forward passes
 * in all than `most_passes` are left out. */
static void for_each_shape(int64_t most_passes, void (*check)(const struct pipeline *pipe))
{
    static const int64_t stages[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 32, 63, 64};
    static const int64_t micro_batches[] = {1,  2,  3,  4,  5,  6,   7,   8,   9,   12,  16,  30, 32,
                                            33, 62, 63, 64, 65, 126, 128, 192, 256, 504, 511, 512};
    int checked = 0;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        for (size_t p = 0; p < sizeof stages / sizeof *stages; p++)
            for (size_t m = 0; m < sizeof micro_batches / sizeof *micro_batches; m++)
                for (int64_t v = 1; v <= 8; v++) {
                    struct schedule_shape shape = {(enum schedule_kind)kind, stages[p], v, micro_batches[m]};
                    if (schedule_shape_check(&shape, &err) ||
                        shape.pp * v * shape.micro_batches > most_passes)
                        continue;
                    struct pipeline pipe = pipeline_create(shape);
                    check(&pipe);
                    pipeline_free(&pipe);
                    checked++;
                }
    ASSERT(checked > 1000);
}

static const char work_letters[] = "FBIW"; /* forward, backward, its input half, its weight half */

/* "F0 F1 B0", or with chunks "F0.0 F0.1 B0.1". */
static void print(const struct schedule *schedule, char *out)
{
    for (int k = 0; k < schedule->count; k++) {
        const struct schedule_item *item = &schedule->items[k];
        out += sprintf(out, "%s%c%d", k ? " " : "", work_letters[item->work], item->micro_batch);
        if (schedule->shape.virtual_stages > 1)
            out += sprintf(out, ".%d", item->chunk);
    }
}

static void expect_order(struct schedule_shape shape, int64_t stage, const char *expected)
{
    struct schedule *schedule;
    char text[1000];
    ASSERT_OK(schedule_create(&shape, stage, &schedule, &err));
    print(schedule, text);
    ASSERT_STR(text, expected);
    schedule_free(schedule);
}

TEST(schedule_orders, "small schedules are those that their papers draw")
{
    struct schedule_shape shape = {SCHEDULE_GPIPE, 2, 1, 3};
    expect_order(shape, 0, "F0 F1 F2 B0 B1 B2");
    shape.kind = SCHEDULE_1F1B;
    expect_order(shape, 0, "F0 F1 B0 F2 B1 B2");
    expect_order(shape, 1, "F0 B0 F1 B1 F2 B2");
    /* Megatron-LM: 2 (p-i-1) + (v-1) p = 4 and 2 warm-up passes, groups of p = 2 micro-batches. */
    shape = (struct schedule_shape){SCHEDULE_INTERLEAVED, 2, 2, 4};
    expect_order(shape, 0, "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
    expect_order(shape, 1, "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
    /* Qi et al. 2024, figure 2: its first, second and last device. */
    shape = (struct schedule_shape){SCHEDULE_ZB_H1, 4, 1, 6};
    expect_order(shape, 0, "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5");
    expect_order(shape, 1, "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5");
    expect_order(shape, 3, "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5");
}

TEST(schedule_names, "kinds are found by name, and an unknown one says which there are")
{
    enum schedule_kind kind;
    for (int i = 0; i < SCHEDULE_KINDS; i++) {
        ASSERT_OK(schedule_find(schedule_name((enum schedule_kind)i), &kind, &err));
        ASSERT_INT(kind, i);
    }
    ASSERT_INT(schedule_find("zb-v", &kind, &err), -1);
    ASSERT_HAS(err.text, "gpipe, 1f1b, interleaved or zb-h1");
}

static void refuse(struct schedule_shape shape, int64_t stage, const char *piece)
{
    struct schedule *schedule = NULL;
    ASSERT_INT(schedule_create(&shape, stage, &schedule, &err), -1);
    ASSERT_HAS(err.text, piece);
    ASSERT(!schedule);
}

TEST(schedule_refusals, "what a schedule cannot run is refused with what to use instead")
{
    refuse((struct schedule_shape){SCHEDULE_INTERLEAVED, 4, 2, 6}, 0, "use 8 micro-batches");
    refuse((struct schedule_shape){SCHEDULE_INTERLEAVED, 4, 2, 3}, 0, "use 4 micro-batches");
    refuse((struct schedule_shape){SCHEDULE_INTERLEAVED, 4, 1, 8}, 0, "--virtual-stages 2 or more");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 4, 2, 8}, 0,
           "1f1b has one chunk per stage, not --virtual-stages 2");
    refuse((struct schedule_shape){SCHEDULE_ZB_H1, 4, 3, 8}, 0, "zb-h1 has one chunk per stage");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 0, 1, 8}, 0, "--pp 0");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 2, 0, 8}, 0, "--virtual-stages 0");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 0}, 0, "0 micro-batches");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 8}, 2,
           "stage 2 is not in a pipeline of --pp 2; use 0 to 1");
    refuse((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 8}, -1, "stage -1");
    refuse((struct schedule_shape){SCHEDULE_1F1B, INT64_MAX, 1, 8}, 0, "chunks");
    refuse((struct schedule_shape){SCHEDULE_INTERLEAVED, 2, INT64_MAX, 8}, 0, "chunks");
    refuse((struct schedule_shape){SCHEDULE_GPIPE, 2, 1, INT64_MAX}, 0, "--micro-batch");
}

/* Plain ifs below: Check reports every ASSERT that holds to the runner, and there are millions here. */
static void must_be(const struct schedule *schedule, const char *what, int64_t got, int64_t expected)
{
    const struct schedule_shape *shape = &schedule->shape;
    if (got != expected)
        ck_abort_msg("%s: p %lld, v %lld, m %lld, i %d: %s is %lld, not %lld", schedule_name(shape->kind),
                     (long long)shape->pp, (long long)shape->virtual_stages, (long long)shape->micro_batches,
                     schedule->stage, what, (long long)got, (long long)expected);
}

/* What is kept of a (chunk, micro-batch) pair, from one item to another, both included. */
enum life {
    KEPT,            /* from forward until all of backward is done */
    KEPT_FOR_INPUT,  /* from forward until the input half is done */
    KEPT_FOR_WEIGHT, /* from the input half until the weight half is done */
};

/* The most pairs kept at once, as the papers have it. */
static int64_t most_kept(const struct schedule_shape *shape, int64_t i, enum life life)
{
    int64_t p = shape->pp, v = shape->virtual_stages, m = shape->micro_batches;
    bool zero_bubble = shape->kind == SCHEDULE_ZB_H1;
    if (life == KEPT_FOR_WEIGHT)
        return zero_bubble ? min_i64(m, i + 1) : 1;
    if (shape->kind == SCHEDULE_GPIPE)
        return m;
    if (shape->kind == SCHEDULE_INTERLEAVED)
        return min_i64(m * v, 2 * (p - i - 1) + (v - 1) * p + 1);
    return min_i64(m, zero_bubble && life == KEPT ? p : p - i);
}

static bool opens(enum life life, enum schedule_work work)
{
    return life == KEPT_FOR_WEIGHT ? work == SCHEDULE_BACKWARD || work == SCHEDULE_BACKWARD_INPUT
                                   : work == SCHEDULE_FORWARD;
}

static bool closes(enum life life, enum schedule_work work)
{
    return work == SCHEDULE_BACKWARD ||
           work == (life == KEPT_FOR_INPUT ? SCHEDULE_BACKWARD_INPUT : SCHEDULE_BACKWARD_WEIGHT);
}

static int64_t count_kept(const struct schedule *schedule, enum life life)
{
    int64_t live = 0, most = 0;
    for (int k = 0; k < schedule->count; k++) {
        live += opens(life, schedule->items[k].work);
        most = max_i64(most, live);
        live -= closes(life, schedule->items[k].work);
    }
    must_be(schedule, "pairs kept after the step", live, 0);
    return most;
}

static void check_most_kept(const struct pipeline *pipe)
{
    for (int64_t i = 0; i < pipe->shape.pp; i++)
        for (int life = KEPT; life <= KEPT_FOR_WEIGHT; life++)
            must_be(pipe->stages[i], "pairs kept", count_kept(pipe->stages[i], (enum life)life),
                    most_kept(&pipe->shape, i, (enum life)life));
}

TEST(schedule_in_flight, "stages keep as many micro-batches as the closed forms say")
{
    for_each_shape(64 * 8 * 512, check_most_kept);
}

static void check_runs(const struct pipeline *pipe)
{
    if (schedule_check(stages_of(pipe), true, &err))
        ck_abort_msg("%s", err.text);
}

TEST(schedule_runs, "every schedule is complete and ends when messages pass only from hand to hand")
{
    for_each_shape(64 * 8 * 512, check_runs);
}

/* Every message of a step, by its tag. */
struct sides {
    int sender, receiver;
};

static void check_messages(const struct pipeline *pipe)
{
    const struct schedule_shape *shape = &pipe->shape;
    int64_t chunks = shape->pp * shape->virtual_stages,
            tags = chunks * shape->micro_batches * SCHEDULE_DIRECTIONS;
    struct sides *sides = host_alloc((size_t)tags * sizeof *sides);
    memset(sides, -1, (size_t)tags * sizeof *sides);
    for (int64_t i = 0; i < shape->pp; i++)
        for (int k = 0; k < pipe->stages[i]->count; k++) {
            const struct schedule *s = pipe->stages[i];
            struct schedule_messages m = schedule_messages(&s->shape, s->stage, &s->items[k]);
            if (m.send.peer >= 0) {
                must_be(pipe->stages[i], "tag sent before", sides[m.send.tag].sender, -1);
                sides[m.send.tag] = (struct sides){(int)i, m.send.peer};
            }
        }
    int64_t received = 0, sent = 0;
    for (int64_t i = 0; i < shape->pp; i++)
        for (int k = 0; k < pipe->stages[i]->count; k++) {
            const struct schedule *s = pipe->stages[i];
            struct schedule_messages m = schedule_messages(&s->shape, s->stage, &s->items[k]);
            if (m.receive.peer < 0)
                continue;
            must_be(pipe->stages[i], "sender", sides[m.receive.tag].sender, m.receive.peer);
            must_be(pipe->stages[i], "receiver", sides[m.receive.tag].receiver, i);
            must_be(pipe->stages[i], "chunk's stage", m.receive.chunk % shape->pp, i);
            received++;
        }
    for (int64_t tag = 0; tag < tags; tag++)
        sent += sides[tag].sender >= 0;
    /* Each of the chunks - 1 borders between chunks is crossed twice by each micro-batch. */
    must_be(pipe->stages[0], "messages sent", sent,
            shape->pp > 1 ? 2 * (chunks - 1) * shape->micro_batches : 0);
    must_be(pipe->stages[0], "messages received", received, sent);
    free(sides);
}

TEST(schedule_messages_meet, "every send has its receive, on the stage that it names and under the same tag")
{
    for_each_shape(20000, check_messages);
}

/* Idle seconds of each stage with equal chunks and free messages: Narayanan et al. 2021, section 2.2; Qi et al. 2024, table
 * 1, whose form for zb-h1 is that of m >= p (with fewer micro-batches fewer weight halves can fill the bubble). */
static double idle_s(const struct schedule_shape *shape, double forward, double input, double weight)
{
    double others = (double)shape->pp - 1;
    if (shape->kind == SCHEDULE_ZB_H1)
        return others * (forward + input) - (double)(min_i64(shape->micro_batches, shape->pp) - 1) * weight;
    return others * (forward + input + weight);
}

static void check_bubble(const struct pipeline *pipe, double forward, double input, double weight)
{
    int64_t p = pipe->shape.pp, v = pipe->shape.virtual_stages, m = pipe->shape.micro_batches;
    double seconds[3][64 * 8], bubbles[64], step_s;
    for (int64_t chunk = 0; chunk < p * v; chunk++) {
        seconds[0][chunk] = forward;
        seconds[1][chunk] = input;
        seconds[2][chunk] = weight;
    }
    struct schedule_times times = {seconds[0], seconds[1], seconds[2], 0};
    if (schedule_replay(stages_of(pipe), &times, &step_s, bubbles, &err))
        ck_abort_msg("%s", err.text);
    double work_s = (double)(v * m) * (forward + input + weight);
    double expected_s = work_s + idle_s(&pipe->shape, forward, input, weight);
    for (int64_t i = 0; i < p; i++)
        if (bubbles[i] < expected_s / work_s - 1 - 1e-9 || bubbles[i] > expected_s / work_s - 1 + 1e-9)
            must_be(pipe->stages[i], "bubble in millionths of the work", (int64_t)(1e6 * bubbles[i]),
                    (int64_t)(1e6 * (expected_s / work_s - 1)));
    must_be(pipe->stages[0], "seconds of a step", (int64_t)step_s, (int64_t)expected_s);
}

static void check_bubbles(const struct pipeline *pipe)
{
    check_bubble(pipe, 1, 1, 1);
    check_bubble(pipe, 4, 5, 3);
}

TEST(schedule_bubbles,
     "bubbles are (p-1)/m, interleaved (p-1)/(vm), and (p-1)(T_F + T_B - T_W) seconds for zb-h1")
{
    for_each_shape(64 * 8 * 64, check_bubbles);
}

TEST(schedule_largest,
     "the largest pipeline, 64 stages of 8 chunks and 512 micro-batches, holds to its closed forms")
{
    struct pipeline pipe = pipeline_create((struct schedule_shape){SCHEDULE_INTERLEAVED, 64, 8, 512});
    check_runs(&pipe);
    check_messages(&pipe);
    check_bubble(&pipe, 1, 1, 1);
    check_most_kept(&pipe);
    pipeline_free(&pipe);
}

TEST(schedule_replay_by_hand, "the clock counts uneven stages and messages as a hand does")
{
    struct pipeline pipe = pipeline_create((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 2});
    double forward[] = {1, 2}, input[] = {1, 3}, weight[] = {1, 1}, step_s, bubbles[2];
    struct schedule_times times = {forward, input, weight, 0.5};
    ASSERT_OK(schedule_replay(stages_of(&pipe), &times, &step_s, bubbles, &err));
    /* stage 0: F0 0-1, F1 1-2,                       B0 8-10 (sent at 7.5),         B1 14-16 (sent at 13.5)
     * stage 1:         F0 1.5-3.5 (sent at 1), B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
     * They work 6 and 12 of 16 seconds. */
    ASSERT_NEAR(step_s, 16, 1e-12);
    ASSERT_NEAR(bubbles[0], 10.0 / 6, 1e-12);
    ASSERT_NEAR(bubbles[1], 4.0 / 12, 1e-12);
    pipeline_free(&pipe);
}

/* Two stages in the orders given, as print() writes them, without chunks. */
static int check_orders(int64_t micro_batches, const char *first, const char *second, bool rendezvous)
{
    struct pipeline pipe = pipeline_create((struct schedule_shape){SCHEDULE_ZB_H1, 2, 1, micro_batches});
    const char *orders[] = {first, second};
    for (int i = 0; i < 2; i++) {
        struct schedule *schedule = pipe.stages[i];
        schedule->count = 0;
        for (const char *at = orders[i]; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
            schedule->items[schedule->count++] =
                (struct schedule_item){.work = (enum schedule_work)(strchr(work_letters, *at) - work_letters),
                                       .micro_batch = atoi(at + 1)};
    }
    int status = schedule_check(stages_of(&pipe), rendezvous, &err);
    pipeline_free(&pipe);
    return status;
}

TEST(schedule_check_items, "the check finds items that are missing, double, foreign or too early")
{
    const char *good = "F0 B0 F1 I1 W1";
    ASSERT_OK(check_orders(2, good, good, true));
    ASSERT_INT(check_orders(2, good, "F0 B0 F1 I1", true), -1);
    ASSERT_HAS(err.text, "stage 1 never finishes micro-batch 1");
    ASSERT_INT(check_orders(2, "F0 B0", good, true), -1);
    ASSERT_HAS(err.text, "stage 0 never finishes micro-batch 1");
    ASSERT_INT(check_orders(2, good, "F0 B0 B0 F1 B1", true), -1);
    ASSERT_HAS(err.text, "stage 1, item 2 (backward of micro-batch 0, chunk 0) runs twice");
    ASSERT_INT(check_orders(2, good, "F0 I0 B0 F1 B1", true), -1);
    ASSERT_HAS(err.text, "stage 1, item 2 (backward of micro-batch 0, chunk 0) runs twice");
    ASSERT_INT(check_orders(2, good, "F0 B0 F2 B2", true), -1);
    ASSERT_HAS(err.text, "item 2 (forward of micro-batch 2, chunk 0) is not of this pipeline");
    ASSERT_INT(check_orders(2, good, "F0 B0 I1 F1 W1", true), -1);
    ASSERT_HAS(err.text, "item 2 (input half of backward of micro-batch 1, chunk 0) comes before");
    ASSERT_INT(check_orders(2, good, "F0 B0 F1 W1 I1", true), -1);
    ASSERT_HAS(err.text, "item 3 (weight half of backward of micro-batch 1, chunk 0) comes before");
}

TEST(schedule_check_order_of_chunks, "with one stage a chunk must still follow the chunk that feeds it")
{
    struct pipeline pipe = pipeline_create((struct schedule_shape){SCHEDULE_INTERLEAVED, 1, 2, 1});
    struct schedule_item *items = pipe.stages[0]->items; /* F0.0 F0.1 B0.1 B0.0 */
    items[0].chunk = 1;
    items[1].chunk = 0;
    ASSERT_INT(schedule_check(stages_of(&pipe), true, &err), -1);
    ASSERT_HAS(err.text, "item 0 (forward of micro-batch 0, chunk 1) comes before");
    items[0].chunk = 0;
    items[1].chunk = 1;
    items[2].chunk = 0;
    items[3].chunk = 1;
    ASSERT_INT(schedule_check(stages_of(&pipe), true, &err), -1);
    ASSERT_HAS(err.text, "item 2 (backward of micro-batch 0, chunk 0) comes before");
    pipeline_free(&pipe);
}

TEST(schedule_check_deadlock,
     "the check finds stages that wait for each other, and messages in another order")
{
    /* Stage 0 wants the gradient of 0 before it goes on to 1, stage 1 wants 1 first. */
    ASSERT_INT(check_orders(2, "F0 B0 F1 B1", "F0 F1 B0 B1", false), -1);
    ASSERT_HAS(err.text,
               "stage 0, item 1 (backward of micro-batch 0, chunk 0) waits for ever for its receive");
    ASSERT_INT(check_orders(2, "F0 F1 B0 B1", "F1 F0 B1 B0", true), -1);
    ASSERT_HAS(err.text, "stage 0, item 0 (forward of micro-batch 0, chunk 0) meets another message");
    /* Stage 0 cannot let go of 2 before stage 1 starts to receive it, at B1; stage 1 cannot let go of gradient 0 before
     * stage 0 starts to receive that, at F4. A transport that buffers one of them goes on. */
    const char *gpipe = "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4", *alternating = "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4";
    ASSERT_OK(check_orders(5, gpipe, alternating, false));
    ASSERT_INT(check_orders(5, gpipe, alternating, true), -1);
    ASSERT_HAS(err.text, "stage 0, item 2 (forward of micro-batch 2, chunk 0) waits for ever for its send");
}

TEST(schedule_check_stages, "the check wants all stages of one pipeline in order")
{
    struct pipeline pipe = pipeline_create((struct schedule_shape){SCHEDULE_1F1B, 2, 1, 2});
    struct schedule *first = pipe.stages[0];
    pipe.stages[0] = pipe.stages[1];
    pipe.stages[1] = first;
    ASSERT_INT(schedule_check(stages_of(&pipe), true, &err), -1);
    ASSERT_HAS(err.text, "schedule 0 is that of stage 1");
    pipeline_free(&pipe);
}
