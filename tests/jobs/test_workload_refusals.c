/* What has no rule of memory is refused by its name; what asks for nothing is not; and activations by name. */
#include "tests/jobs/launches.h"

#include "planner/frameworks/layer_rules.h"
#include "tests/test.h"

#include <stdio.h>

#define GPT_SIZES                                                                                            \
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1 "
#define PROGRAM(name)                                                                                        \
    "torchrun --nproc_per_node 2 " name " --model_name_or_path models/gpt2 --output_dir out "

TEST(workload_refusals, "what changes memory and has no rule is refused by its name")
{
    static const struct {
        const char *script, *message;
    } refused[] = {
        {MEGATRON "--fp8-format hybrid --transformer-impl local", "fp8 other than"},
        {MEGATRON "--fp32-residual-connection", "residuals in fp32 (--fp32-residual-connection)"},
        {MEGATRON "--enable-cuda-graph", "CUDA graphs"},
        {MEGATRON "--mtp-num-layers 1", "predict further tokens"},
        {MEGATRON "--optimizer muon", "the optimizer muon"},
        {MEGATRON "--optimizer-cpu-offload --optimizer-offload-fraction 0.5", "on the host in part"},
        {MEGATRON "--num-experts 8 --moe-layer-freq 2", "every so many-th"},
        {MEGATRON "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
         "in chunks of several layers"},
        {MEGATRON "--recompute-granularity selective --recompute-modules mlp gdn_norm_out",
         "recomputation of gdn_norm_out (--recompute-modules)"},
        {MEGATRON "--recompute-granularity selective --recompute-modules mhc core_attn",
         "recomputation of mhc"},
        {"torchrun pretrain_t5.py " GPT_SIZES, "an encoder with a decoder (pretrain_t5.py)"},
        {"torchrun pretrain_mamba.py " GPT_SIZES, "layers other than attention (pretrain_mamba.py)"},
        {"torchrun pretrain_vlm.py " GPT_SIZES, "sees images"},
        {"torchrun pretrain_vision_classify.py " GPT_SIZES, "sees images"},
        {"torchrun pretrain_ict.py " GPT_SIZES, "retrieves"},
        {"torchrun tools/run_text_generation_server.py " GPT_SIZES, "trains nothing"},
        {"torchrun mine.py " GPT_SIZES "--encoder-num-layers 12 --decoder-num-layers 12",
         "an encoder with a decoder"},
        {MEGATRON "--vision-model-type clip", "what --vision-model-type asks for"},
        {MEGATRON "--lora-rank 16", "what --lora-rank asks for"},
        {MEGATRON "--fp8-format hybrid --fp8-dot-product-attention", "attention in fp8"},
        {HF "--optim galore_adamw", "the optimizer galore_adamw"},
        {"trl dpo --model_name_or_path models/gpt2", "learns from another model (dpo)"},
        {PROGRAM("scripts/grpo.py"), "learns from another model (scripts/grpo.py)"},
        {PROGRAM("scripts/run_dpo.py"), "run_dpo.py"},
        {PROGRAM("examples/scripts/ppo/ppo.py"), "compares or rewards answers"},
        {PROGRAM("online_dpo.py"), "compares or rewards answers"},
        {PROGRAM("gkd.py"), "compares or rewards answers"},
        {PROGRAM("train-RM.py"), "compares or rewards answers"},
        {PROGRAM("prm.py"), "compares or rewards answers"},
        {PROGRAM("sft_vlm.py"), "sees images (sft_vlm.py)"},
        {PROGRAM("run_summarization.py"), "an encoder with a decoder"},
        {PROGRAM("run_qa.py"), "another head"},
        {PROGRAM("train.py") "--vision_tower openai/clip-vit-large-patch14-336",
         "what --vision_tower asks for"},
        {PROGRAM("train.py") "--reward_model_path models/gpt2", "what --reward_model_path asks for"},
        {PROGRAM("train.py") "--ref_model gpt2", "what --ref_model asks for"},
        {PROGRAM("train.py") "--lora_r 8", "adapters (--lora_r) of a program that is not known, train.py"},
        {PROGRAM("train.py") "--load_in_4bit", "weights of 4 bits that are trained themselves"},
        {PROGRAM("train.py") "--bits 8", "weights of 8 bits that are trained themselves"},
        {PROGRAM("train.py") "--use_peft --lora_target_modules lm_head", "adapters beside lm_head"},
        {PROGRAM("train.py") "--use_peft --lora_target_modules q_proj",
         "beside q_proj of a model of type gpt2"},
        {HF "--use_dora True --use_peft", "DoRA"},
        {ZERO("\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 8}"),
         "ZeRO++'s second copy of the weights (zero_optimization.zero_hpz_partition_size)"},
        {TITAN "--model.converters float8 --float8.enable_fsdp_float8_all_gather", "gathered in fp8"},
        {TITAN "--activation_checkpoint.mode memory_budget", "a budget of memory"},
        {TITAN "--activation_checkpoint.selective_ac_option 3", "every third layer"},
        {TITAN "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule LoopedBFS",
         "the schedule LoopedBFS"},
        {ACCELERATE("distributed_type: MEGATRON_LM"), "Megatron-LM inside of accelerate"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(launch_workload(refused[i].script, arena, &w, &err), "%s is not refused",
                   refused[i].script);
        ASSERT_MSG(strstr(err.text, refused[i].message), "%s: %s", refused[i].script, err.text);
        arena_free(arena);
    }
}

TEST(workload_harmless, "options that ask for nothing, and stages that come out even, are no obstacle")
{
    static const char *const scripts[] = {
        MEGATRON "--optimizer-cpu-offload --optimizer-offload-fraction 1 --use-distributed-optimizer "
                 "--use-precision-aware-optimizer",
        MEGATRON "--num-layers 14 --pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
                 "--account-for-loss-in-pipeline-split",
        MEGATRON "--num-layers 14 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 "
                 "--decoder-last-pipeline-num-layers 3",
        HF "--use_dora False",
        PROGRAM("train.py") "--vision_tower none --ref_model False --bits 16",
        PROGRAM("sft.py") "--lora_r 8", /* which TRL reads with --use_peft alone */
        ZERO(
            "\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 1, \"mics_shard_size\": -1}"),
        TITAN "--float8.recipe_name rowwise",
        TITAN "--parallelism.pipeline_parallel_first_stage_less_layers 1",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(!launch_workload(scripts[i], arena, &w, &err), "%s: %s", scripts[i], err.text);
        arena_free(arena);
    }
}

/* A GPT-2 whose config.json names another; one that a gated feed-forward has decides nothing. */
static int read_activation(const char *name, bool gated, struct workload *w, struct error *failure)
{
    struct error err = {0};
    struct arena *arena = arena_create();
    struct training_job job;
    struct jobs_request request = {0};
    ASSERT_OK(jobs_read_text(&request, "examples/launch/run.sh", GPT2, strlen(GPT2), arena, &job, &err));
    snprintf(job.model.activation, sizeof job.model.activation, "%s", name);
    job.model.gated = gated;
    int status = job_workload(&job, w, failure);
    arena_free(arena);
    return status;
}

/* What autograd saves of an element besides the result, which the second product reads in any case; by hand from the formulas of
 * transformers/activations.py. A product saves both factors, tanh and sigmoid their results, pow, erf, gelu and clip their inputs. */
static const struct {
    const char *name;
    int saved;
} activations[] = {
    {"gelu", 1},
    {"gelu_pytorch_tanh", 1},
    {"silu", 1},
    {"swish", 1},
    {"leaky_relu", 1},
    {"relu6", 1},
    {"relu", 0}, /* the result alone */
    {"sigmoid", 0},
    {"tanh", 0},
    {"gelu_new", 4}, /* x of pow, tanh, 0.5 x, 1 + tanh */
    {"gelu_python_tanh", 4},
    {"gelu_accurate", 4},
    {"gelu_fast", 7},   /* x and 0.044 x, 0.79 x and 1 + 0.044 x x, tanh, 0.5 x, 1 + tanh */
    {"gelu_python", 3}, /* x / sqrt 2 of erf, 0.5 x, 1 + erf */
    {"quick_gelu", 2},  /* x, sigmoid */
    {"gelu_10", 2},     /* x of gelu, gelu of clip */
};

TEST(workload_activations, "an activation by transformers' name keeps what its formula makes autograd save")
{
    struct error err = {0};
    struct workload w;
    ASSERT_OK(read_activation("relu", false, &w, &err));
    double least = layer_kept_bytes(&w, 0);
    double one = (double)(w.model.ffn * w.micro_batch * w.sequence * w.compute_bytes);
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        ASSERT_OK(read_activation(activations[i].name, false, &w, &err));
        double saved = (layer_kept_bytes(&w, 0) - least) / one;
        ASSERT_MSG(saved == activations[i].saved, "%s: %g, not %d", activations[i].name, saved,
                   activations[i].saved);
    }
    ASSERT(read_activation("laplace", false, &w, &err) == -1);
    ASSERT(strstr(err.text, "no rule is about the activation laplace"));
    ASSERT_OK(read_activation("laplace", true, &w, &err));
}
