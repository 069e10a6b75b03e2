/* The time of a step: one worked by hand, the overlap of communication, and that recomputing never pays in time. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "model/recompute.h"
#include "planner/time_model.h"

/* gpt2-tiny with L = 2, C = 32, H = 4, D = 8, F = 128, V = 256, on B = 1, T = 8:
 *     products of a layer  2 T C (3C + C + F + F) = 2 * 8 * 32 * 384     = 196,608
 *     attention            2 products * 2 H T^2 D / 2 (causal)           =   4,096
 *     head                 2 T C V                                       = 131,072
 *     forward              2 (196,608 + 4,096) + 131,072                 = 532,480
 *     backward             2 (2 * 196,608 + 5/2 * 4,096) + 2 * 131,072   = 1,069,056 */
enum { FORWARD = 532480, BACKWARD = 1069056, ATTENTION = 4096 };

TEST(time_by_hand, "a tiny GPT-2's step takes the flops worked out by hand, for each micro-batch")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 1, 1, 3, 8);
    struct machine_speed speed = sample_speed();
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    struct step_time time = time_model_step(program, &speed);
    ASSERT_NEAR(time.forward, 3 * FORWARD / 1e9, 1e-12);
    ASSERT_NEAR(time.backward, 3 * BACKWARD / 1e9, 1e-12);
    ASSERT(time.recompute == 0 && time.exposed_communication == 0);
    ASSERT_NEAR(time.total, 3 * (FORWARD + BACKWARD) / 1e9, 1e-12);
    program_free(program);

    program = sample_program(&model, &layout, 1, recompute_selective(&model), 0);
    time = time_model_step(program, &speed);
    ASSERT_NEAR(time.recompute, 3 * ATTENTION / 1e9, 1e-12); /* in one of two layers */
    ASSERT_NEAR(time.total, 3 * (FORWARD + BACKWARD + ATTENTION) / 1e9, 1e-12);
    program_free(program);
}

TEST(time_of_optimizer, "the optimizer reads gradients twice, and reads and writes weights and moments")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 1, 1, 1, 8);
    struct machine_speed speed = sample_speed();
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    speed.matmul_flops_per_s[0] = speed.matmul_flops_per_s[1] = 1e300;
    speed.memory_bytes_per_s.value = 1e9;
    /* 4 bytes x (1 for the norm + 1 gradient + 2 weight + 2 + 2 moments) = 32 bytes a parameter */
    ASSERT_NEAR(time_model_step(program, &speed).optimizer, 32e-9 * (double)model_parameters(&model), 1e-12);
    program_free(program);
}

/* Gradient bytes of the embedding, a layer and the head of gpt2-tiny: fp32, C = 32, F = 128, V = 256, 64 positions.
 * A layer: 12 C^2 + 13 C = 12,704 parameters. All are multiples of 64 bytes. */
enum { EMBED_BYTES = 4 * (256 + 64) * 32, LAYER_BYTES = 4 * 12704, HEAD_BYTES = 4 * 2 * 32 };
/* The loss is summed too: one float. */
enum { LOSS_BYTES = 4 };

TEST(time_communication_last, "one bucket that holds everything is reduced after backward, in full view")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 2, 1, 2, 8);
    struct machine_speed speed = sample_speed();
    layout.bucket_bytes = 1 << 30;
    speed.comm_bytes_per_s.value = 1e6; /* 2 ranks send 2 x 1/2 of the bytes */
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    double bytes = EMBED_BYTES + 2 * LAYER_BYTES + HEAD_BYTES + LOSS_BYTES;
    struct step_time time = time_model_step(program, &speed);
    ASSERT_NEAR(time.exposed_communication, bytes / 1e6, 1e-9);
    ASSERT_NEAR(time.total, (FORWARD + BACKWARD) / 1e9 + bytes / 1e6, 1e-9);
    program_free(program);
}

TEST(time_communication_hidden,
     "with a bucket per block only the last ones show, unless the cores are shared")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 2, 1, 2, 8);
    struct machine_speed speed = sample_speed();
    layout.bucket_bytes = 1;
    speed.comm_bytes_per_s.value =
        1e9; /* a layer: 50,816 bytes in 51 us, its backward 403,456 flops in 403 us */
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    /* The embedding's backward is no product and takes no time here, so the lowest layer's bucket cannot hide behind it. */
    ASSERT_NEAR(time_model_step(program, &speed).exposed_communication,
                (LAYER_BYTES + EMBED_BYTES + LOSS_BYTES) / 1e9, 1e-12);
    speed.overlap = 0;
    ASSERT_NEAR(time_model_step(program, &speed).exposed_communication,
                (EMBED_BYTES + 2 * LAYER_BYTES + HEAD_BYTES + LOSS_BYTES) / 1e9, 1e-12);
    program_free(program);
}

TEST(time_communication_queues, "buckets wait for each other when the link is slower than backward")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct layout layout = sample_layout(&model, 2, 1, 2, 8);
    struct machine_speed speed = sample_speed();
    layout.bucket_bytes = 1;
    speed.comm_bytes_per_s.value = 1e6;
    struct program *program = sample_program(&model, &layout, 0, 0, 0);
    /* The head's bucket is full after its backward of 262,144 flops; from there the link is never idle: 256 us later
     * the head's is done, layer 1's (full after 403 us more) is waited for, and then everything queues. */
    double layer_full = (2 * 131072 + 2 * 196608 + 2.5 * 4096) / 1e9;
    double done = layer_full + (2 * LAYER_BYTES + EMBED_BYTES + LOSS_BYTES) / 1e6;
    ASSERT_NEAR(time_model_step(program, &speed).exposed_communication, done - BACKWARD / 1e9, 1e-9);
    program_free(program);
}

TEST(time_sums_the_walk, "without ranks to wait for, a step is the sum over every operation of the walk")
{
    static const char *const names[] = {"gpt2-tiny",  "llama-tiny",  "qwen3-tiny", "olmo2-tiny",
                                        "gemma-tiny", "gemma3-tiny", "block-tiny"};
    for (int i = 0; i < 7; i++) {
        struct model model = sample_model(names[i], 3);
        struct layout layout = sample_layout(&model, 1, 2, 4, 16);
        struct machine_speed speed;
        machine_speed_from_cpuinfo("", 2, &speed);
        struct program *program = sample_program(&model, &layout, 2, recompute_full(&model), 0);
        struct program_cursor cursor = program_walk(program);
        struct step_op op;
        double walked = 0;
        while (program_next(&cursor, &op)) {
            struct work work = work_of(program, &op);
            walked += machine_speed_seconds(&speed, op.kind, &work, 1);
        }
        ASSERT_NEAR(time_model_step(program, &speed).total, walked, walked * 1e-9);
        program_free(program);
    }
}

/* The same step on 2 tensor-parallel ranks: half the products. What each sends, in bytes, to sum over 2 ranks n bytes is n:
 *     embedding                                        1,024   (1, 8, 32) floats
 *     a layer forward, after proj and down             2,048, and backward, before fc and qkv, as much
 *     head: a maximum and two sums per position, and d 32 + 64 + 1,024
 *     together                                         10,336, and once a step the squares' sum, one float */
TEST(time_of_parts, "tensor-parallel ranks halve the products, and wait for what they exchange within layers")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct machine_speed speed = sample_speed();
    speed.comm_bytes_per_s.value = 1e6;
    struct pipeline *pipeline =
        sample_pipeline(&model, (struct layout){.tp = 2, .micro_batch = 1, .global_batch = 3, .seq_len = 8});
    struct step_time time = time_model_step(pipeline->stages[0], &speed);
    ASSERT_NEAR(time.forward, 3 * FORWARD / 2 / 1e9, 1e-12);
    ASSERT_NEAR(time.backward, 3 * BACKWARD / 2 / 1e9, 1e-12);
    ASSERT_NEAR(time.exposed_communication, (3 * 10336 + 4) / 1e6, 1e-9);
    pipeline_free(pipeline);
}

/* Each of 2 ranks sends half the gradients and half the weights, and a float each for the loss and the squares' sum. What a
 * rank updates is half: 16 bytes a parameter. */
TEST(time_of_zero,
     "with ZeRO a rank scatters gradients, updates its shard, and gathers weights when all is updated")
{
    struct model model = sample_model("gpt2-tiny", 2);
    struct machine_speed speed = sample_speed();
    speed.comm_bytes_per_s.value = 1e6;
    struct pipeline *pipeline = sample_pipeline(
        &model,
        (struct layout){
            .dp = 2, .zero = 1, .micro_batch = 1, .global_batch = 2, .seq_len = 8, .bucket_bytes = 1 << 30});
    double bytes = EMBED_BYTES + 2 * LAYER_BYTES + HEAD_BYTES;
    struct step_time time = time_model_step(pipeline->stages[0], &speed);
    ASSERT_NEAR(time.exposed_communication, (bytes / 2 + bytes / 2 + 4 + 4) / 1e6, 1e-9);
    speed.memory_bytes_per_s.value = 1e9;
    ASSERT_NEAR(time_model_step(pipeline->stages[0], &speed).optimizer,
                16e-9 * (double)model_parameters(&model), 1e-12);
    pipeline_free(pipeline);
}

/* One layer a stage, and the head with the second. Stage 1 is never idle between its first forward and its last backward. */
TEST(time_of_pipeline, "a pipeline fills, runs at the pace of its slowest stage, and drains")
{
    enum { MICRO_BATCHES = 4, F0 = 196608 + 4096, B0 = 2 * 196608 + 5 * 4096 / 2 };
    enum { F1 = F0 + 131072, B1 = B0 + 2 * 131072 };
    struct error err = {0};
    struct model model = sample_model("gpt2-tiny", 2);
    struct machine_speed speed = sample_speed();
    struct step_time time, stages[2];
    struct pipeline *pipeline = sample_pipeline(
        &model, (struct layout){.pp = 2, .micro_batch = 1, .global_batch = MICRO_BATCHES, .seq_len = 8});
    ASSERT_OK(time_model_pipeline(pipeline, &speed, stages, &time, &err));
    ASSERT_NEAR(time.total, (F0 + MICRO_BATCHES * (F1 + B1) + B0) / 1e9, 1e-12);
    ASSERT_NEAR(time.bubble, (F0 + B0) / 1e9, 1e-12);
    ASSERT_NEAR(time.forward, MICRO_BATCHES * F1 / 1e9, 1e-12);
    ASSERT_NEAR(stages[0].total, time.total, 1e-12);
    ASSERT_NEAR(stages[0].bubble, time.total - MICRO_BATCHES * (F0 + B0) / 1e9, 1e-12);
    /* A message of (1, 8, 32) floats takes 10 us, far less than any pass, and only the first way up and the last way down
     * are not hidden. */
    speed.comm_bytes_per_s.value = 102.4e6;
    ASSERT_OK(time_model_pipeline(pipeline, &speed, stages, &time, &err));
    /* Besides, the loss, the tied embedding's gradient and the squares' sum: 4 + 32,768 + 4 bytes. */
    ASSERT_NEAR(time.total, (F0 + MICRO_BATCHES * (F1 + B1) + B0) / 1e9 + 20e-6 + 32776 / 102.4e6, 1e-9);
    pipeline_free(pipeline);
}

TEST(time_of_one_stage, "a pipeline of one stage takes exactly what its program takes")
{
    struct error err = {0};
    struct model model = sample_model("llama-tiny", 3);
    struct machine_speed speed;
    struct step_time time, stage;
    machine_speed_from_cpuinfo("", 2, &speed);
    struct pipeline *pipeline = sample_pipeline(
        &model, (struct layout){.dp = 2, .tp = 2, .micro_batch = 1, .global_batch = 6, .seq_len = 16});
    ASSERT_OK(time_model_pipeline(pipeline, &speed, &stage, &time, &err));
    struct step_time alone = time_model_step(pipeline->stages[0], &speed);
    ASSERT(time.total == alone.total && stage.total == alone.total);
    ASSERT(time.bubble == 0);
    pipeline_free(pipeline);
}

/* All but waiting, which is no work of its own. */
static double walk_seconds(const struct program *program, const struct machine_speed *speed)
{
    struct program_cursor cursor = program_walk(program);
    double walked = 0;
    for (struct step_op op; program_next(&cursor, &op);) {
        struct work work = work_of(program, &op);
        if (op.kind != OP_WAIT)
            walked += machine_speed_layout_seconds(speed, op.kind, &work, &program->layout);
    }
    return walked;
}

/* Where nothing overlaps, all that is done shows. */
TEST_LOOP(time_of_stages, "of every layout, each stage takes the sum of its walk and its bubble", 4)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny", "block-tiny"};
    static const struct layout layouts[] = {
        {.tp = 2},
        {.dp = 2, .tp = 2, .sequence_parallel = true},
        {.dp = 2, .tp = 2, .zero = 1},
        {.pp = 2},
        {.pp = 4, .schedule = SCHEDULE_GPIPE},
        {.pp = 2, .virtual_stages = 2},
        {.dp = 2, .tp = 2, .pp = 2, .zero = 1, .sequence_parallel = true},
        {.dp = 2, .pp = 4, .schedule = SCHEDULE_ZB_H1, .precision = PRECISION_BF16},
    };
    struct model model = sample_model(names[_i], 4);
    struct error err = {0};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct machine_speed speed;
        struct step_time time, stages[4];
        struct layout layout = layouts[i];
        machine_speed_from_cpuinfo("", 2, &speed);
        layout.micro_batch = 1;
        layout.global_batch = 8;
        layout.seq_len = 16;
        layout.bucket_bytes = 20000;
        struct pipeline *pipeline = sample_pipeline(&model, layout);
        ASSERT_OK(time_model_pipeline(pipeline, &speed, stages, &time, &err));
        for (int stage = 0; stage < pipeline->count; stage++) {
            const struct step_time *t = &stages[stage];
            double walked = walk_seconds(pipeline->stages[stage], &speed);
            ASSERT(t->bubble >= 0 && t->bubble >= time.bubble);
            ASSERT_NEAR(t->total, time.total, time.total * 1e-12);
            ASSERT_NEAR(t->total - t->bubble, walked, walked * 1e-9);
            ASSERT_NEAR(t->forward + t->backward + t->recompute + t->exposed_communication + t->bubble +
                            t->optimizer,
                        t->total, time.total * 1e-12);
        }
        pipeline_free(pipeline);
    }
}

/* Four stages, four micro-batches, forward 1 s and backward 2: 1f1b alone ends after (4 + 3) 3 = 21 s, and all work is 48. Two
 * stages at once: for the first forward second, and the last 2 of backward, one core's worth stands idle: (48 + 1 + 2) / 2.
 * Afterwards 0.5 s of each. Three at once: (48 + 3 + 6) / 3 = 19, and the schedule itself takes longer. */
TEST(time_of_shared_cores, "stages that share cores take as long as the cores need for all of them")
{
    double forward[] = {1, 1, 1, 1}, input[] = {1.5, 1.5, 1.5, 1.5}, weight[] = {0.5, 0.5, 0.5, 0.5};
    double ends[] = {21, 19, 17, 15}, met;
    const struct schedule_times times = {forward, input, weight, 0};
    struct layout layout = {
        .dp = 1, .tp = 1, .pp = 4, .virtual_stages = 1, .micro_batch = 1, .global_batch = 4};
    struct stage_tail tails[] = {{0, 0.5}, {0, 0.5}, {0, 0.5}, {0, 0.5}};
    ASSERT_NEAR(time_model_together(&(struct time_question){&layout, &times, 4}, ends, tails, &met), 21.5,
                1e-12);
    ASSERT_NEAR(time_model_together(&(struct time_question){&layout, &times, 3}, ends, tails, &met),
                21 + 2 / 3.0, 1e-12);
    ASSERT_NEAR(time_model_together(&(struct time_question){&layout, &times, 2}, ends, tails, &met), 26.5,
                1e-12);
    ASSERT_NEAR(met, 25.5, 1e-12);
    tails[3].before_s = 1.5; /* summed while stage 0 is in its last backward */
    time_model_together(&(struct time_question){&layout, &times, 2}, ends, tails, &met);
    ASSERT_NEAR(met, 25.5, 1e-12);
    tails[2].before_s = 1; /* 2.5 s of sums no longer fit there */
    time_model_together(&(struct time_question){&layout, &times, 2}, ends, tails, &met);
    ASSERT_NEAR(met, 25.75, 1e-12);
    layout.schedule = SCHEDULE_ZB_H1; /* weight halves fill the end in any case */
    time_model_together(&(struct time_question){&layout, &times, 2}, ends, tails, &met);
    ASSERT_NEAR(met, 25.75, 1e-12);
    tails[2].before_s = tails[3].before_s = 0;
    time_model_together(&(struct time_question){&layout, &times, 2}, ends, tails, &met);
    ASSERT_NEAR(met, 24.5, 1e-12);
}

/* Equal stages: (p-1)/m of the work is bubble, or (p-1)/(vm), and less with ZB-H1. 8 equal layers, whose ends are small. */
TEST(time_of_schedules, "bubbles shrink with more chunks, and where weight gradients fill them")
{
    struct error err = {0};
    struct model model = sample_model("block-tiny", 8);
    struct machine_speed speed = sample_speed();
    static const struct layout layouts[] = {{.pp = 4, .schedule = SCHEDULE_GPIPE},
                                            {.pp = 4},
                                            {.pp = 4, .virtual_stages = 2},
                                            {.pp = 4, .schedule = SCHEDULE_ZB_H1}};
    double total[4];
    for (int i = 0; i < 4; i++) {
        struct step_time time;
        struct layout layout = layouts[i];
        layout.micro_batch = 1;
        layout.global_batch = 8;
        layout.seq_len = 8;
        struct pipeline *pipeline = sample_pipeline(&model, layout);
        ASSERT_OK(time_model_pipeline(pipeline, &speed, NULL, &time, &err));
        total[i] = time.total;
        if (i < 3) {
            double work = time.total - time.bubble, bubble = i < 2 ? 3 / 8.0 : 3 / 16.0;
            ASSERT_NEAR(time.bubble / work, bubble, 0.05);
        }
        pipeline_free(pipeline);
    }
    ASSERT_NEAR(total[0], total[1], total[0] * 1e-9);
    ASSERT(total[2] < total[1] && total[3] < total[1]);
}

TEST_LOOP(time_monotone, "recomputing more never makes a step faster, whatever communication it hides", 4)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny", "block-tiny"};
    struct model model = sample_model(names[_i], 3);
    uint32_t full = recompute_full(&model), random = 1;
    for (int try = 0; try < 200; try++) {
        random = random * 1664525u + 1013904223u;
        uint32_t less = (random >> 8) & full, more = less | ((random >> 3) & full);
        struct layout layout = sample_layout(&model, 1 + try % 3, 1, 6, 16);
        layout.bucket_bytes = 1 << (try % 20);
        struct machine_speed speed;
        machine_speed_from_cpuinfo("", 2, &speed);
        speed.overlap = try % 2;
        speed.comm_bytes_per_s.value = 1e5 * (try + 1);
        struct program *a = sample_program(&model, &layout, try % 4, less, 0);
        struct program *b = sample_program(&model, &layout, try % 4, more, 0);
        double fewer = time_model_step(a, &speed).total, greater = time_model_step(b, &speed).total;
        ASSERT_MSG(fewer <= greater * (1 + 1e-12), "dropping %x takes %.9g s, %x only %.9g s", less, fewer,
                   more, greater);
        program_free(a);
        program_free(b);
    }
}
