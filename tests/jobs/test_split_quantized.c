/* What PEFT's documentation says of quantized weights that are split, held against what is said of its launches: the errors that
 * workload_odds.c has of such jobs. */
#include "tests/jobs/launches.h"

#include "planner/frameworks/workload_odds.h"
#include "tests/test.h"

#include <stdio.h>

#define PEFT_LAUNCH                                                                                          \
    "train.py --model_name_or_path meta-llama/Llama-2-70b-hf --max_seq_len 2048 --bf16 True --output_dir o " \
    "--gradient_checkpointing True --use_flash_attn True --use_peft_lora True --lora_r 8 --lora_alpha 16 "   \
    "--lora_dropout 0.1 --lora_target_modules all-linear --per_device_train_batch_size 2 "                   \
    "--gradient_accumulation_steps 2 --use_4bit_quantization True --use_nested_quant True "                  \
    "--bnb_4bit_quant_storage_dtype bfloat16"
#define SPLIT(offload)                                                                                       \
    "cat > f.yaml <<EOF\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\nnum_machines: 1\n" \
    "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_sharding_strategy: FULL_SHARD\n"  \
    "  fsdp_offload_params: " offload "\nEOF\naccelerate launch --config_file f.yaml " PEFT_LAUNCH
#define SPLIT_BY_DEEPSPEED                                                                                   \
    "cat > z.yaml <<EOF\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\n"             \
    "num_machines: 1\ndeepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: none\n"                \
    "  offload_param_device: none\nEOF\naccelerate launch --config_file z.yaml " PEFT_LAUNCH

TEST(split_quantized,
     "what is said of published jobs with split quantized weights is as short as the odds have it")
{
    static const struct {
        const char *script;
        double published_gib, ratio;
    } jobs[] = {{SPLIT("false"), 35.6, 1.26}, {SPLIT_BY_DEEPSPEED, 36.6, 1.27}, {SPLIT("true"), 19.6, 1.79}};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        struct workload_memory m;
        int count;
        ASSERT_OK(launch_workload(jobs[i].script, arena, &w, &err));
        w.capacity_bytes = 80LL << 30;
        ASSERT(workload_odds_unexplained(&w));
        ASSERT_OK(workload_memory(&w, &m, &err));
        ASSERT_NEAR(jobs[i].published_gib * (1 << 30) / (double)m.device_bytes, jobs[i].ratio, 0.02);
        w.capacity_bytes = (int64_t)(1.3 * (double)workload_odds_needed_bytes(&w, &m));
        ASSERT(workload_odds_fits(&w, &m, &count) < 0.6);
        ASSERT_INT(count, WORKLOAD_SPLIT_QUANTIZED);
        arena_free(arena);
    }
}
