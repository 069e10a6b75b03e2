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
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
    for (int i = 0; i < 3; i++) {
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

TEST_LOOP(time_monotone, "recomputing more never makes a step faster, whatever communication it hides", 3)
{
    static const char *const names[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
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
