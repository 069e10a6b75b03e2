/* Seconds of other frameworks' steps: what times must obey, whatever the constants are. */
#include "tests/planner/workload_sample.h"
#include "tests/test.h"

#include "planner/frameworks/workload_time.h"

#include <math.h>
#include <string.h>

/* The 22B of Korthikanti et al. 2022, four sequences of 2,048 tokens in eight micro-batches. */
static struct workload megatron(void)
{
    struct workload w = workload_default(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_REPLICATED);
    w.model = (struct workload_model){.layers = 48,
                                      .hidden = 6144,
                                      .heads = 64,
                                      .kv_heads = 64,
                                      .head_size = 96,
                                      .ffn = 24576,
                                      .vocab = 51200,
                                      .positions = 2048,
                                      .tied = true};
    w.micro_batch = 4;
    w.micro_batches = 8;
    w.sequence = 2048;
    w.attention = WORKLOAD_FUSED_SOFTMAX;
    w.hidden_dropout = w.attention_dropout = true;
    return w;
}

static struct machine_speed machine(const char *spec)
{
    struct error err = {0};
    struct cluster cluster;
    struct machine_speed speed = {0};
    ASSERT_OK(cluster_read(spec, &cluster, &err));
    machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    return speed;
}

static struct workload_time timed(const struct workload *w, const struct workload_habits *habits,
                                  const struct machine_speed *speed)
{
    struct error err = {0};
    struct workload_time t = {0};
    ASSERT_OK(workload_time(w, habits, speed, &t, &err));
    ASSERT_NEAR(t.passes_s + t.bubble_s + t.reduced_s + t.optimizer_s, t.seconds, 1e-9 * t.seconds);
    ASSERT(t.bubble_s > -1e-9 && t.reduced_s >= 0 && t.optimizer_s >= 0);
    return t;
}

static double seconds(const struct workload *w)
{
    struct machine_speed speed = machine("128x8:a100-80g,net=1600Gb/s");
    return timed(w, NULL, &speed).seconds;
}

TEST(workload_time_rate,
     "a step takes what its operations can: 22B at 40% to 55% of an A100's rate, a third more recomputed")
{
    struct workload w = megatron();
    w.tp = 8;
    w.sequence_parallel = true;
    w.recompute = WORKLOAD_MODULES;
    w.modules = WORKLOAD_CORE_ATTN;
    double tokens = 32.0 * 2048, flops = 6 * workload_parameters(&w) * tokens / 8, step_s = seconds(&w);
    ASSERT(step_s > flops / (0.55 * 312e12) && step_s < flops / (0.40 * 312e12));
    w.recompute = WORKLOAD_FULL;
    double share = seconds(&w) / step_s;
    ASSERT(share > 1.2 && share < 1.4);
}

TEST(workload_time_bubble, "of equal stages, the bubble is (p-1)/m, and 1/v of that in v chunks")
{
    struct workload_habits habits = workload_habits;
    struct machine_speed speed = machine("128x8:a100-80g,net=1600Gb/s");
    habits.message_wait_s = 0;
    struct workload w = megatron();
    w.model.vocab = 8; /* ends weigh nothing */
    w.tp = 8;
    w.pp = 4;
    double short_s = timed(&w, &habits, &speed).seconds;
    w.micro_batches = 16;
    struct workload_time longer = timed(&w, &habits, &speed);
    double micro_s = (longer.seconds - short_s) / 8;
    ASSERT_NEAR(short_s / micro_s, 8 + 3, 0.25);
    ASSERT_NEAR(longer.bubble_s / micro_s, 3, 0.25);
    /* gradients of weights fill most of the bubble of 3 forward and 3 backward passes */
    w.schedule = SCHEDULE_ZB_H1;
    ASSERT(timed(&w, &habits, &speed).seconds < longer.seconds - micro_s);
    w.schedule = SCHEDULE_1F1B;
    w.virtual_stages = 3;
    ASSERT_NEAR(timed(&w, &habits, &speed).seconds / micro_s, 16 + 1, 0.35);
}

/* Stage 1 takes twice a quarter for each of 16 micro-batches, and waits for nothing but stage 0, before its first and behind its
 * last: while stages 2 and 3 have the first one, it has two forward passes of its own. Equal stages take 16 + 3. */
TEST(workload_time_uneven, "of uneven stages the slowest sets the pace")
{
    static const int64_t chunks[] = {8, 24, 8, 8};
    struct workload_habits habits = workload_habits;
    struct machine_speed speed = machine("128x8:a100-80g,net=1600Gb/s");
    habits.message_wait_s = 0;
    struct workload w = megatron();
    w.model.vocab = 8; /* ends weigh nothing */
    w.optimizer = WORKLOAD_NO_OPTIMIZER;
    w.tp = 8;
    w.pp = 4;
    w.micro_batches = 16;
    double even_s = timed(&w, &habits, &speed).seconds;
    w.chunk_layers = chunks;
    ASSERT_NEAR(timed(&w, &habits, &speed).seconds / even_s, (16 * 2 + 2.0 / 3) / (16 + 3), 0.03);
}

TEST(workload_time_host,
     "small micro-batches take as long as they take to launch; programs in C launch at once")
{
    struct workload w = megatron();
    w.model.hidden = 512;
    w.model.heads = w.model.kv_heads = 8;
    w.model.head_size = 64;
    w.model.ffn = 2048;
    w.micro_batch = 1;
    w.sequence = 128;
    struct workload_habits habits = workload_habits;
    struct machine_speed speed = machine("8:a100-80g");
    habits.unhidden = 0;
    double step_s = timed(&w, &habits, &speed).passes_s;
    habits.host_s *= 2;
    ASSERT_NEAR(timed(&w, &habits, &speed).passes_s, 2 * step_s, 0.02 * step_s);
    w.library = WORKLOAD_LLMC;
    ASSERT(timed(&w, &habits, &speed).passes_s < 0.5 * step_s);
}

TEST(workload_time_softmax,
     "Megatron-LM's fused softmax takes heads and sequences in fours, up to 4,096 tokens")
{
    struct workload w = megatron();
    w.model.heads = w.model.kv_heads = 16;
    w.model.head_size = 384;
    w.tp = 8;
    w.micro_batch = 2;
    ASSERT_INT(workload_attention_run(&w), WORKLOAD_FUSED_SOFTMAX);
    double fused_s = seconds(&w) / (double)w.micro_batch;
    w.micro_batch = 1; /* two heads a rank */
    ASSERT_INT(workload_attention_run(&w), WORKLOAD_EAGER);
    ASSERT(seconds(&w) > fused_s);
    w.micro_batch = 2;
    w.sequence = 8192;
    ASSERT_INT(workload_attention_run(&w), WORKLOAD_EAGER);
    w.library = WORKLOAD_TRANSFORMERS;
    ASSERT_INT(workload_attention_run(&w), WORKLOAD_FUSED_SOFTMAX);
}

/* Gathers of 32 layers of 218 M parameters in 16 bits, twice, of two tables of 525 M once, and reductions in fp32. */
TEST(workload_time_gathers,
     "FSDP hides gathers behind layers while links are quick, and waits for links that are not")
{
    struct workload w = sample_titan();
    struct machine_speed quick = machine("1x8:h100-80g"), slow = machine("8x1:h100-80g,net=10Gb/s");
    struct workload alone = w;
    alone.dp = 1;
    double compute_s = timed(&alone, NULL, &quick).passes_s, quick_s = timed(&w, NULL, &quick).passes_s;
    ASSERT(quick_s > compute_s && quick_s < 1.1 * compute_s);
    /* tables are gathered once */
    double tables = 2 * 128256.0 * 4096, link = slow.net_bytes_per_s.value;
    double bytes = (8 * workload_parameters(&w) - 2 * tables) * 7 / 8;
    double slow_s = timed(&w, NULL, &slow).passes_s;
    ASSERT_NEAR(slow_s, bytes / link, 0.02 * slow_s);
    /* of one layer and no head, nothing hides the first gather, and the last reduction hides behind nothing */
    struct workload one = w, bare = w;
    one.model.layers = bare.model.layers = 1;
    bare.dp = 1;
    double layer_s = 218e6 * 7 / 8 / quick.comm_bytes_per_s.value,
           table_s = 525e6 * 7 / 8 / quick.comm_bytes_per_s.value;
    double more_s = timed(&one, NULL, &quick).passes_s - timed(&bare, NULL, &quick).passes_s;
    ASSERT(more_s > 2 * table_s + 4 * table_s && more_s < 8 * (2 * table_s + layer_s));
    w.reshards_after_forward = false; /* gathered once */
    double kept_s = timed(&w, NULL, &slow).passes_s, table = 2 * 128256.0 * 4096;
    ASSERT_NEAR(slow_s - kept_s, 2 * (workload_parameters(&w) - table) * 7 / 8 / link, 0.05 * slow_s);
    w.wraps_layers = false; /* one unit: nothing runs beside anything */
    ASSERT_NEAR(timed(&w, NULL, &slow).passes_s, kept_s + compute_s, 0.1 * slow_s);
}

TEST(workload_time_sync,
     "gradients that are not reduced with each micro-batch are reduced once, behind the last")
{
    struct workload w = sample_titan();
    struct machine_speed slow = machine("8x1:h100-80g,net=10Gb/s");
    w.micro_batches = 4;
    struct workload_time each = timed(&w, NULL, &slow);
    w.accumulates_without_sync = true;
    struct workload_time once = timed(&w, NULL, &slow);
    double reduction_s = 4 * workload_parameters(&w) * 7 / 8 / slow.net_bytes_per_s.value;
    ASSERT_NEAR(each.passes_s - once.passes_s, 4 * reduction_s, 0.1 * each.passes_s);
    ASSERT(once.reduced_s > 0 && once.reduced_s < reduction_s);
}

TEST(workload_time_zero2, "ZeRO-2 reduces with each micro-batch, and gathers once what it has updated")
{
    struct workload w = workload_default(WORKLOAD_TRANSFORMERS, WORKLOAD_ZERO2);
    struct machine_speed slow = machine("8x1:h100-80g,net=10Gb/s");
    w.model = sample_titan().model;
    w.dp = 8;
    w.sequence = 2048;
    double half_s = 2 * workload_parameters(&w) * 7 / 8 / slow.net_bytes_per_s.value;
    struct workload_time one = timed(&w, NULL, &slow);
    w.micro_batches = 3;
    struct workload_time three = timed(&w, NULL, &slow);
    ASSERT(one.passes_s > half_s && one.passes_s < 1.1 * half_s);
    ASSERT_NEAR(three.passes_s, 3 * one.passes_s, 1e-6 * three.passes_s);
    ASSERT_NEAR(three.reduced_s, half_s, 0.01 * half_s);
}

TEST(workload_time_hybrid, "hybrid shards are gathered within a node, and only sums of shards cross it")
{
    struct machine_speed speed = machine("8x8:h100-80g,net=10Gb/s");
    struct workload w = sample_titan();
    w.dp = 64;
    double whole_s = timed(&w, NULL, &speed).passes_s;
    w.shard_ranks = 8;
    double hybrid_s = timed(&w, NULL, &speed).passes_s;
    /* an eighth of the gradients in fp32, there and back, of eight ranks that share a node's network */
    double across_s = 2 * 4 * workload_parameters(&w) * 7 / 8 / speed.net_bytes_per_s.value;
    ASSERT(hybrid_s > across_s && hybrid_s < 1.1 * across_s && hybrid_s < 0.9 * whole_s + across_s / 10);
    w.model.tied = true; /* one table is reduced less */
    double table_s = 2 * 4 * 128256.0 * 4096 * 7 / 8 / speed.net_bytes_per_s.value;
    ASSERT_NEAR(hybrid_s - timed(&w, NULL, &speed).passes_s, table_s, 0.1 * table_s);
}

TEST(workload_time_replicas, "DDP sums behind backward what backward does not hide; ZeRO-1 gathers besides")
{
    struct machine_speed slow = machine("8x1:a100-80g,net=10Gb/s"),
                         quick = machine("8x1:a100-80g,net=3200Gb/s");
    struct workload w = workload_default(WORKLOAD_TRANSFORMERS, WORKLOAD_REPLICATED);
    w.model = sample_titan().model;
    w.weight_bytes = 4;
    w.master_bytes = 0;
    w.dp = 8;
    w.sequence = 2048;
    ASSERT(w.overlaps_gradients);
    double sum_s = 2 * 4 * workload_parameters(&w) * 7 / 8 / slow.net_bytes_per_s.value;
    struct workload_time t = timed(&w, NULL, &slow);
    ASSERT(t.reduced_s > 0.8 * sum_s && t.reduced_s < sum_s);
    ASSERT(timed(&w, NULL, &quick).reduced_s < 0.02 * t.passes_s);
    w.overlaps_gradients = false;
    ASSERT_NEAR(timed(&w, NULL, &slow).reduced_s, sum_s, 0.01 * sum_s);
    struct workload z = workload_default(WORKLOAD_TRANSFORMERS, WORKLOAD_ZERO1);
    z.model = w.model;
    z.dp = 8;
    z.sequence = 2048; /* 16 bits there, and 16 bits back: half of the sum in fp32 */
    ASSERT_NEAR(timed(&z, NULL, &slow).reduced_s, sum_s / 2, 0.01 * sum_s);
}

TEST(workload_time_experts,
     "two of eight experts cost what two do; tokens that go to other nodes cost their way")
{
    struct machine_speed speed = machine("8x1:h100-80g,net=10Gb/s");
    struct workload w = sample_titan();
    w.sharding = WORKLOAD_DISTRIBUTED_OPTIMIZER;
    w.library = WORKLOAD_MEGATRON;
    double dense_s = timed(&w, NULL, &speed).passes_s;
    w.model.experts = 8;
    w.model.active_experts = 2;
    w.model.expert_ffn = w.model.ffn / 2;
    double two_s = timed(&w, NULL, &speed).passes_s;
    ASSERT(two_s > dense_s && two_s < 1.25 * dense_s);
    w.model.active_experts = 4;
    ASSERT(timed(&w, NULL, &speed).passes_s > 1.4 * two_s);
    w.model.active_experts = 2;
    w.expert_capacity = 1.5;
    ASSERT(timed(&w, NULL, &speed).passes_s > 1.2 * two_s);
    w.expert_capacity = 0;
    w.ep = 8; /* four times 2 tokens of 16 bits x hidden a layer */
    double sent = 4 * 32 * 2 * 8192.0 * 2 * 4096 * 7 / 8;
    double way_s = timed(&w, NULL, &speed).passes_s - two_s;
    ASSERT_NEAR(way_s, sent / speed.net_bytes_per_s.value, 0.05 * way_s);
}

TEST(workload_time_adapters, "frozen weights have no gradients, and 4 bits are widened at each use")
{
    struct machine_speed speed = machine("1:h100-80g");
    struct workload w = sample_titan();
    w.dp = 1;
    double full_s = timed(&w, NULL, &speed).passes_s;
    w.lora_rank = 16;
    w.lora_linears = LINEAR_Q | LINEAR_V;
    double frozen_s = timed(&w, NULL, &speed).passes_s;
    double products_s = 2 * workload_parameters(&w) * 8192 / speed.products.flops_per_s;
    ASSERT(full_s - frozen_s > 0.8 * products_s && full_s - frozen_s < 1.2 * products_s);
    w.lora_linears = ALL_SEVEN;
    ASSERT(timed(&w, NULL, &speed).passes_s > frozen_s);
    w.lora_linears = LINEAR_Q | LINEAR_V;
    w.frozen_bits = 4;
    ASSERT(timed(&w, NULL, &speed).passes_s > frozen_s);
}

TEST(workload_time_fp8, "fp8 halves what products of layers take, and casts take some of it back")
{
    struct machine_speed speed = machine("1:h100-80g");
    struct workload w = sample_titan();
    w.library = WORKLOAD_MEGATRON;
    w.dp = 1;
    double wide_s = timed(&w, NULL, &speed).passes_s;
    w.fp8 = true;
    double products_s =
        6 * (workload_parameters(&w) - 2 * 128256.0 * 4096) * 8192 / speed.products.flops_per_s;
    double saved_s = wide_s - timed(&w, NULL, &speed).passes_s;
    ASSERT(saved_s > 0.25 * products_s && saved_s < 0.5 * products_s);
}

TEST(workload_time_context, "context-parallel ranks share a sequence")
{
    struct machine_speed speed = machine("1x8:h100-80g");
    struct workload w = sample_titan();
    w.sharding = WORKLOAD_DISTRIBUTED_OPTIMIZER;
    w.dp = 1;
    w.sequence = 65536;
    double whole_s = timed(&w, NULL, &speed).passes_s;
    w.cp = 8;
    double shared_s = timed(&w, NULL, &speed).passes_s;
    ASSERT(shared_s > whole_s / 8 && shared_s < 1.15 * whole_s / 8);
    /* keys and values of all go around forward, and with their gradients backward: what computing takes hides behind it */
    speed = machine("8x1:h100-80g,net=10Gb/s");
    double around_s = 3 * 32 * 2 * 2 * 65536.0 * 1024 * 7 / 8 / speed.net_bytes_per_s.value;
    double slow_s = timed(&w, NULL, &speed).passes_s;
    ASSERT(slow_s > around_s && slow_s < around_s + 0.8 * shared_s);
}

/* ZeRO-Offload, table 4: 10e9 parameters in 2.57 s of a node; and 25 GB/s to each card. */
TEST(workload_time_host_optimizer,
     "an optimizer on the host takes what a processor takes, and weights come back")
{
    struct machine_speed speed = machine("1x8:h100-80g");
    struct workload w = workload_default(WORKLOAD_TRANSFORMERS, WORKLOAD_ZERO2);
    w.model = sample_titan().model;
    w.dp = 8;
    w.sequence = 8192;
    double parameters = workload_parameters(&w);
    struct workload_time card = timed(&w, NULL, &speed);
    w.offload_optimizer = true;
    struct workload_time host = timed(&w, NULL, &speed);
    ASSERT_NEAR(host.optimizer_s, parameters * 2.57 / 10e9 + 2 * parameters / 8 / 25e9,
                0.01 * host.optimizer_s);
    ASSERT(host.optimizer_s > 20 * card.optimizer_s);
    speed = machine("8x1:h100-80g,net=3200Gb/s"); /* a processor for each */
    ASSERT_NEAR(timed(&w, NULL, &speed).optimizer_s, parameters / 8 * 2.57 / 10e9 + 2 * parameters / 8 / 25e9,
                0.01 * host.optimizer_s);
    w.optimizer = WORKLOAD_NO_OPTIMIZER; /* what is left is the way back */
    ASSERT_NEAR(timed(&w, NULL, &speed).optimizer_s, 2 * parameters / 8 / 25e9, 1e-3);
}

/* Megatron's gradients go there once a step, in fp32. */
TEST(workload_time_host_megatron, "gradients that are summed once go to the host before its update")
{
    struct machine_speed speed = machine("1x8:h100-80g");
    struct workload w = sample_titan();
    w.library = WORKLOAD_MEGATRON;
    w.sharding = WORKLOAD_DISTRIBUTED_OPTIMIZER;
    w.weight_bytes = 2;
    w.master_bytes = 4;
    w.offload_optimizer = true;
    double parameters = workload_parameters(&w);
    double moved_s = (4 + 2) * parameters / 8 / 25e9;
    struct workload_time t = timed(&w, NULL, &speed);
    ASSERT_NEAR(t.optimizer_s, parameters * 2.57 / 10e9 + moved_s, 0.01 * t.optimizer_s);
}

/* A shard of fp32 for each gather, an eighth of 8e9 x 4 bytes, forward and backward; so few tokens that it decides. */
TEST(workload_time_host_weights, "weights on the host are fetched for each gather")
{
    struct machine_speed speed = machine("1x8:h100-80g");
    struct workload w = sample_titan();
    w.sequence = 16;
    struct workload_time near = timed(&w, NULL, &speed);
    w.offload_weights = w.offload_optimizer = true;
    struct workload_time away = timed(&w, NULL, &speed);
    double once_s = 4 * workload_parameters(&w) / 8 / 25e9;
    ASSERT(away.passes_s > 3 * once_s); /* there twice, and gradients back */
    ASSERT(away.passes_s < near.passes_s + 3.1 * once_s);
    ASSERT_NEAR(away.optimizer_s, workload_parameters(&w) * 2.57 / 10e9, 0.01 * away.optimizer_s);
    w.step = WORKLOAD_STEP_FOREACH;
    ASSERT_NEAR(timed(&w, NULL, &speed).optimizer_s, workload_parameters(&w) * 14.76 / 10e9,
                0.01 * timed(&w, NULL, &speed).optimizer_s);
    w.offload_weights = false;
    ASSERT(timed(&w, NULL, &speed).passes_s < away.passes_s - once_s);
}

/* 32 inputs of 8192 x 4096 x 2 bytes: longer than a small model's passes, and hidden by a large one's. */
TEST(workload_time_host_inputs, "inputs that wait on the host cost what computing does not hide")
{
    struct machine_speed speed = machine("1x8:h100-80g");
    struct workload w = sample_titan();
    w.sharding = WORKLOAD_REPLICATED;
    w.recompute = WORKLOAD_FULL;
    double kept_s = timed(&w, NULL, &speed).passes_s;
    w.inputs_offloaded = true;
    ASSERT_NEAR(timed(&w, NULL, &speed).passes_s, kept_s, 1e-9);
    w.model.ffn = w.model.head_size = 64;
    w.model.heads = w.model.kv_heads = 1;
    w.model.vocab = 100;
    w.loss = WORKLOAD_LOSS_FUSED;
    w.norm = WORKLOAD_NORM_FUSED;
    double moved_s = 2 * 32 * 2.0 * 8192 * 4096 / 25e9, away_s = timed(&w, NULL, &speed).passes_s;
    w.inputs_offloaded = false;
    ASSERT(timed(&w, NULL, &speed).passes_s < away_s);
    ASSERT(away_s >= moved_s);
}

TEST(workload_time_refusals, "what no rule prices is refused by name")
{
    struct error err = {0};
    struct machine_speed speed = machine("8:a100-80g");
    struct workload_time t;
    struct workload w = sample_titan();
    w = megatron();
    w.v_shaped = true;
    ASSERT_INT(workload_time(&w, NULL, &speed, &t, &err), -1);
    ASSERT(strstr(err.text, "V-shaped"));
    w = megatron();
    w.tp = 128;
    ASSERT_INT(workload_time(&w, NULL, &speed, &t, &err), -1);
    ASSERT(strstr(err.text, "64 heads"));
    w = megatron();
    w.pp = 16;
    w.micro_batches = 1 << 23;
    ASSERT_INT(workload_time(&w, NULL, &speed, &t, &err), -1);
    ASSERT(strstr(err.text, "8388608 micro-batches"));
}

TEST(workload_time_remade,
     "a step with half of its layers made again stands half way between none and all of them")
{
    struct machine_speed speed = machine("1x8:a100-80g");
    struct workload w = megatron();
    double none = timed(&w, NULL, &speed).seconds;
    w.recompute = WORKLOAD_FULL;
    double all = timed(&w, NULL, &speed).seconds;
    w.remade_layers = w.model.layers / 2;
    double half = timed(&w, NULL, &speed).seconds;
    ASSERT(all > none);
    ASSERT_MSG(fabs(half - (none + all) / 2) < 0.01 * none, "%g, between %g and %g", half, none, all);
}

/* gelu_new has eight kernels forward where GELU has one, and eleven backward: 36 and 56 bytes an element instead of 4 and 6. Of
 * 48 layers and eight micro-batches of 8,192 tokens on an A100 (2.0 TB/s) that is 82 bytes x 24,576 x 8,192 x 48 x 8 = 6.3e12 bytes:
 * 3.1 s at the peak rate, and less than twice that at the rate that such kernels reach. */
TEST(workload_time_activation,
     "an activation that is written out takes its kernels' time, and compiled one kernel's")
{
    struct workload w = megatron();
    w.library = WORKLOAD_TRANSFORMERS;
    double kernel_s = seconds(&w);
    w.model.activation = WORKLOAD_ACTIVATION_NEW;
    double more_s = seconds(&w) - kernel_s;
    ASSERT_MSG(more_s > 3.1 && more_s < 6.2, "gelu_new takes %g s more", more_s);
    w.compiled = true;
    double compiled_s = seconds(&w);
    w.model.activation = WORKLOAD_ACTIVATION_KERNEL;
    ASSERT_NEAR(seconds(&w), compiled_s, 1e-9);
}

/* Two norms of 6,144 wide tokens become one: 12 bytes an element fewer, of the fused ones. */
TEST(workload_time_one_norm,
     "a layer with one norm is faster by the other's kernels, one with four slower by two")
{
    struct workload w = megatron();
    double two_s = seconds(&w);
    w.model.traits.residual = WORKLOAD_BESIDE_ONE_NORM;
    double one_s = two_s - seconds(&w);
    w.model.traits = (struct workload_traits){.post_norms = true};
    ASSERT(one_s > 0);
    ASSERT_NEAR(seconds(&w) - two_s, 2 * one_s, 1e-3 * one_s);
}
