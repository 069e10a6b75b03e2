/* Jobs of Megatron-LM: the published formulas for what layers keep, stages, states; and what times must obey. */
#include "tests/test.h"

#include "planner/frameworks/megatron.h"

#include <math.h>

/* s 2048, b 4, h 6144, a 64, L 48: the 22B of Korthikanti et al. 2022. */
static struct job sample(void)
{
    struct job job = {
        .model = {.family = MODEL_GPT2,
                  .layers = 48,
                  .hidden = 6144,
                  .heads = 64,
                  .kv_heads = 64,
                  .head_size = 96,
                  .ffn = 24576,
                  .vocab = 51200,
                  .max_seq_len = 2048,
                  .tied = true},
        .layout = {.dp = 1,
                   .tp = 1,
                   .pp = 1,
                   .virtual_stages = 1,
                   .micro_batch = 4,
                   .global_batch = 32,
                   .seq_len = 2048,
                   .precision = PRECISION_BF16},
        .attention = JOB_ATTENTION_SOFTMAX,
        .norm_fused = true,
        .dropout = true,
        .gradient_bytes = 2,
    };
    return job;
}

static const double sbh = 2048.0 * 4 * 6144;

TEST(megatron_layer,
     "a layer keeps what the paper's table 2 says, for every kind of parallelism and recomputation")
{
    struct job job = sample();
    double scores = 5.0 * 64 * 2048 / 6144; /* 5 a s / h */
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh * (34 + scores), 1);
    job.layout.tp = 8;
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh * (10 + 24.0 / 8 + scores / 8), 1);
    job.layout.sequence_parallel = true;
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh / 8 * (34 + scores), 1);
    job.recompute = JOB_SELECTIVE;
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh / 8 * 34, 1);
    job.recompute = JOB_FULL;
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh / 8 * 2, 1);
    job.layout.sequence_parallel = false;
    ASSERT_NEAR(megatron_layer_bytes(&job), sbh * 2, 1);
}

TEST(megatron_kernels,
     "flash attention keeps no scores, norms in fp32 keep 16 bytes more, whole inputs are not split")
{
    struct job job = sample();
    job.attention = JOB_ATTENTION_FLASH2;
    job.dropout = false;
    double layer = megatron_layer_bytes(&job);
    ASSERT_NEAR(layer, sbh * 32 + 4.0 * 64 * 2048 * 4, 1);
    job.norm_fused = false;
    ASSERT_NEAR(megatron_layer_bytes(&job), layer + 16 * sbh, 1);
    job.norm_fused = true;
    job.layout.tp = 2;
    job.layout.sequence_parallel = true;
    layer = megatron_layer_bytes(&job);
    job.inputs_whole = true;
    ASSERT_NEAR(megatron_layer_bytes(&job), layer + 2 * sbh, 1);
}

TEST(megatron_states,
     "states are 16 bytes a parameter, of which ZeRO-1 shares out 12; ends of a pipeline have the tables")
{
    struct rank_device cpu = {0};
    struct job job = sample();
    job.layout.dp = 8;
    struct megatron_memory whole = megatron_memory(&job, &megatron_habits, &cpu, NULL);
    double parameters = 48.0 * (12.0 * 6144 * 6144 + 13.0 * 6144) + 51200.0 * 6144;
    ASSERT_NEAR(whole.weights + whole.gradients + whole.optimizer, 16 * parameters, 1e3);
    job.layout.zero = 1;
    struct megatron_memory sharded = megatron_memory(&job, &megatron_habits, &cpu, NULL);
    ASSERT_NEAR(sharded.optimizer, 12 * parameters / 8, 1e3);
    job.layout.pp = 4;
    double weights = 0;
    for (int64_t i = 0; i < 4; i++)
        weights += megatron_stage_memory(&job, &megatron_habits, &cpu, i).weights;
    ASSERT_NEAR(weights, 2 * (parameters + 51200.0 * 6144), 1e3); /* the head has a copy */
}

TEST(megatron_stages,
     "the first stage keeps most micro-batches, chunks more, and one layer fewer at the ends moves the peak")
{
    struct rank_device cpu = {0};
    struct job job = sample();
    job.layout.pp = 8;
    job.layout.global_batch = 64;
    ASSERT_NEAR(job_kept_micro_batches(&job, 0), 8, 1e-12);
    ASSERT_NEAR(job_kept_micro_batches(&job, 7), 1, 1e-12);
    job.layout.schedule = SCHEDULE_INTERLEAVED;
    job.layout.virtual_stages = 3;
    /* 2 x 7 + 2 x 8 + 1 of thirds: the paper's 8 (1 + 7 / 24) and a third of the step between them */
    ASSERT_NEAR(job_kept_micro_batches(&job, 0), 31 / 3.0, 1e-12);
    job.layout.schedule = SCHEDULE_1F1B;
    job.layout.virtual_stages = 1;
    job.model.layers = 46;
    job.fewer_at_ends = 1;
    int64_t stage, layers = 0;
    for (int64_t i = 0; i < 8; i++)
        layers += job_stage_layers(&job, i);
    ASSERT_INT(layers, 46);
    ASSERT_INT(job_stage_layers(&job, 0), 5);
    ASSERT_INT(job_stage_layers(&job, 1), 6);
    job.layout.schedule = SCHEDULE_INTERLEAVED;
    job.layout.virtual_stages = 3;
    ASSERT_INT(job_chunk_layers(&job, 0), 1);
    ASSERT_INT(job_chunk_layers(&job, 8), 2);
    ASSERT_INT(job_stage_layers(&job, 0), 5);
    job.layout.schedule = SCHEDULE_1F1B;
    job.layout.virtual_stages = 1;
    job.layout.tp = 8;
    job.model.vocab = 1000;
    megatron_memory(&job, &megatron_habits, &cpu, &stage);
    ASSERT_INT(stage, 1);
}

static double seconds(const struct job *job, const struct megatron_habits *habits)
{
    struct error err = {0};
    struct cluster cluster;
    struct machine_speed speed;
    double step_s = NAN;
    if (cluster_read("128x8:a100-80g,net=1600Gb/s", &cluster, &err))
        return NAN;
    machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    return megatron_step_seconds(job, habits, &speed, &step_s, &err) ? NAN : step_s;
}

TEST(megatron_time,
     "a step takes what its operations can: 22B at 40% to 55% of an A100's rate, a third more recomputed")
{
    struct job job = sample();
    job.layout.tp = 8;
    job.recompute = JOB_SELECTIVE;
    double tokens = 32.0 * 2048, flops = 6 * 22.07e9 * tokens / 8, step_s = seconds(&job, &megatron_habits);
    ASSERT(step_s > flops / (0.55 * 312e12) && step_s < flops / (0.40 * 312e12));
    job.recompute = JOB_FULL;
    double share = seconds(&job, &megatron_habits) / step_s;
    ASSERT(share > 1.2 && share < 1.4);
}

TEST(megatron_bubble, "of equal stages, the bubble is (p-1)/m, and 1/v of that in v chunks")
{
    struct megatron_habits habits = megatron_habits;
    habits.message_wait_s = 0;
    struct job job = sample();
    job.model.vocab = 8; /* ends weigh nothing */
    job.layout.tp = 8;
    job.layout.pp = 4;
    job.layout.global_batch = 32;
    double short_s = seconds(&job, &habits);
    job.layout.global_batch = 64;
    double long_s = seconds(&job, &habits), micro_s = (long_s - short_s) / 8;
    ASSERT_NEAR(short_s / micro_s, 8 + 3, 0.25);
    /* gradients of weights fill most of the bubble of 3 forward and 3 backward passes */
    job.layout.schedule = SCHEDULE_ZB_H1;
    ASSERT(seconds(&job, &habits) < long_s - micro_s);
    job.layout.schedule = SCHEDULE_INTERLEAVED;
    job.layout.virtual_stages = 3;
    ASSERT_NEAR(seconds(&job, &habits) / micro_s, 16 + 1, 0.35);
}

TEST(megatron_host, "small micro-batches take as long as they take to launch")
{
    struct job job = sample();
    job.model.hidden = 512;
    job.model.heads = job.model.kv_heads = 8;
    job.model.head_size = 64;
    job.model.ffn = 2048;
    job.layout.micro_batch = 1;
    job.layout.seq_len = 128;
    struct megatron_habits habits = megatron_habits;
    habits.unhidden = 0;
    double step_s = seconds(&job, &habits);
    habits.host_s *= 2;
    ASSERT(seconds(&job, &habits) > 1.9 * step_s);
}
