/* What each option is for: flipped alone it reaches the field of planner/frameworks/workload.h that it should, and moves what is
 * predicted in the direction that its framework's documentation gives it. A field that is added there fails the last test
 * until an option turns it here, or it is known to have none. */
#include "tests/jobs/launches.h"

#include "base/text.h"
#include "planner/cluster.h"
#include "planner/frameworks/workload_memory.h"
#include "planner/frameworks/workload_time.h"
#include "tests/test.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>

/* Large enough for tensors to be more than the allocator's rounding. */
#define LARGER                                                                                               \
    "--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "          \
    "--micro-batch-size 2 --vocab-size 50000 "
#define GPT_1K  MEGATRON LARGER
#define LOCAL   GPT_1K "--transformer-impl local "
#define EXPERTS GPT_1K "--num-experts 8 "
#define LATENT  GPT_1K "--multi-latent-attention "
#define SPLIT   GPT_1K "--use-distributed-optimizer "
#define PRECISE SPLIT "--use-precision-aware-optimizer "
#define STAGES                                                                                               \
    GPT_1K "--hidden-size 8192 --num-attention-heads 64 --global-batch-size 16 "                             \
           "--pipeline-model-parallel-size 4 "
#define TENSOR         GPT_1K "--tensor-model-parallel-size 4 "
#define LONG           HF "--block_size 4096 --bf16 "
#define SHARDED        LONG "--fsdp 'full_shard auto_wrap' "
#define SFT            "torchrun --nproc_per_node 8 sft.py --model_name_or_path models/Llama-3.1-8B --max_length 4096 "
#define ADAPTED        SFT "--use_peft --torch_dtype bfloat16 "
#define ALL_LINEAR     (LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O | LINEAR_GATE | LINEAR_UP | LINEAR_DOWN)
#define TITAN_PIPE     TITAN "--parallelism.pipeline_parallel_degree 2 "
#define TITAN_PAIR     TITAN "--parallelism.tensor_parallel_degree 2 "
#define FEW            "--block_size 256 --per_device_train_batch_size 1 " /* states decide */
#define MANY           "--block_size 2048 --per_device_train_batch_size 4 "
#define STAGE(n, more) ZERO("\"zero_optimization\": {\"stage\": " #n more "}") FEW

enum measure {
    STATES,   /* what is allocated between steps */
    PEAK,     /* what is allocated at most */
    RESERVED, /* with what the allocator holds */
    SECONDS,  /* of a step */
};
enum direction { LESS, NOT_LESS, MORE };

struct flip {
    const char *before, *after, *field;
    size_t offset, size;
    int64_t value; /* of the field, afterwards */
    enum measure measure;
    enum direction direction;
};

/* An option behind a launch; two launches that differ in a file or a variable. */
#define FLIP(field, value, measure, direction, before, option)                                               \
    OTHER(field, value, measure, direction, before, before option)
#define OTHER(field, value, measure, direction, before, after)                                               \
    {                                                                                                        \
        before, after, #field, offsetof(struct workload, field), sizeof(((struct workload *)0)->field),      \
            value, measure, direction                                                                        \
    }

static const struct flip flips[] = {
    /* the model: more of it needs more */
    FLIP(model.layers, 16, STATES, MORE, GPT_1K, "--num-layers 16"),
    FLIP(model.hidden, 2048, STATES, MORE, GPT_1K, "--hidden-size 2048"),
    FLIP(model.heads, 32, PEAK, MORE, LOCAL, "--num-attention-heads 32"), /* scores are heads x s^2 */
    FLIP(model.kv_heads, 4, STATES, LESS, GPT_1K, "--group-query-attention --num-query-groups 4"),
    FLIP(model.head_size, 128, STATES, MORE, GPT_1K, "--kv-channels 128"),
    FLIP(model.ffn, 2048, STATES, LESS, GPT_1K, "--ffn-hidden-size 2048"), /* 4 x hidden otherwise */
    FLIP(model.vocab, 50176, STATES, MORE, GPT_1K, "--make-vocab-size-divisible-by 1024"),
    FLIP(model.positions, 0, STATES, LESS, GPT_1K, "--position-embedding-type rope"),
    FLIP(model.gated, 1, STATES, MORE, GPT_1K "--ffn-hidden-size 4096 ", "--swiglu"),
    FLIP(model.tied, 0, STATES, MORE, GPT_1K, "--untie-embeddings-and-output-weights"),
    FLIP(model.rms_norm, 1, STATES, LESS, GPT_1K, "--normalization RMSNorm"),
    FLIP(model.bias, 0, STATES, LESS, GPT_1K, "--disable-bias-linear"),
    FLIP(model.qkv_bias, 1, STATES, MORE, GPT_1K "--disable-bias-linear ", "--add-qkv-bias"),
    FLIP(model.qk_norm, 1, STATES, MORE, GPT_1K, "--qk-layernorm"),
    FLIP(model.experts, 16, STATES, MORE, EXPERTS, "--num-experts 16"),
    FLIP(model.active_experts, 4, PEAK, MORE, EXPERTS, "--moe-router-topk 4"),
    FLIP(model.expert_ffn, 1024, STATES, LESS, EXPERTS, "--moe-ffn-hidden-size 1024"),
    FLIP(model.shared_ffn, 512, STATES, MORE, EXPERTS, "--moe-shared-expert-intermediate-size 512"),
    FLIP(model.dense_layers, 3, STATES, LESS, EXPERTS, "--moe-layer-freq '([0]*3+[1]*5)'"),
    FLIP(model.kv_rank, 32, STATES, LESS, GPT_1K,
         "--multi-latent-attention --qk-head-dim 32 --v-head-dim 64"),
    FLIP(model.kv_rank, 512, STATES, MORE, LATENT, "--kv-lora-rank 512"),
    FLIP(model.q_rank, 256, STATES, LESS, LATENT, "--q-lora-rank 256"),
    FLIP(model.rope_size, 128, STATES, MORE, LATENT, "--qk-pos-emb-head-dim 128"),
    FLIP(model.nope_size, 64, STATES, LESS, LATENT, "--qk-head-dim 64"),
    FLIP(model.value_size, 256, STATES, MORE, LATENT, "--v-head-dim 256"),

    /* who has which states */
    FLIP(library, WORKLOAD_MEGATRON_LEGACY, PEAK, MORE, GPT_1K, "--transformer-impl local"), /* with scores */
    FLIP(sharding, WORKLOAD_DISTRIBUTED_OPTIMIZER, STATES, LESS, GPT_1K, "--use-distributed-optimizer"),
    FLIP(sharding, WORKLOAD_FSDP2, STATES, LESS, GPT_1K, "--use-torch-fsdp2"),
    FLIP(sharding, WORKLOAD_FSDP2, STATES, LESS, GPT_1K,
         "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"),
    OTHER(sharding, WORKLOAD_ZERO1, STATES, LESS, STAGE(0, ""), STAGE(1, "")),
    OTHER(sharding, WORKLOAD_ZERO2, PEAK, LESS, STAGE(1, ""), STAGE(2, "")),
    OTHER(sharding, WORKLOAD_ZERO3, STATES, LESS, STAGE(2, ""), STAGE(3, "")),
    OTHER(sharding, WORKLOAD_ZERO3, STATES, LESS, ACCELERATE("distributed_type: DEEPSPEED"),
          ACCELERATE("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3")),
    FLIP(sharding, WORKLOAD_FSDP1, STATES, LESS, LONG, "--fsdp 'full_shard auto_wrap'"),
    FLIP(sharding, WORKLOAD_REPLICATED, STATES, MORE, SHARDED, "--fsdp no_shard"),
    OTHER(sharding, WORKLOAD_FSDP2, STATES, LESS, ACCELERATE(""), ACCELERATE(FSDP "  fsdp_version: 2")),
    FLIP(sharding, WORKLOAD_REPLICATED, STATES, MORE, TITAN,
         "--parallelism.data_parallel_replicate_degree 8 --parallelism.data_parallel_shard_degree 1"),
    OTHER(shard_ranks, 8, STATES, MORE, ACCELERATE(FSDP),
          ACCELERATE(FSDP "  fsdp_sharding_strategy: HYBRID_SHARD")),
    FLIP(shard_ranks, 4, STATES, MORE, TITAN, "--parallelism.data_parallel_replicate_degree 2"),
    FLIP(shard_ranks, 2, STATES, MORE, SPLIT, "--num-distributed-optimizer-instances 4"),

    /* the layout and the batch */
    FLIP(dp, 4, STATES, MORE, SPLIT, "--context-parallel-size 2 --num-distributed-optimizer-instances 2"),
    FLIP(tp, 4, STATES, LESS, GPT_1K, "--tensor-model-parallel-size 4"),
    FLIP(tp, 2, PEAK, LESS, TITAN, "--parallelism.tensor_parallel_degree 2"),
    FLIP(pp, 4, STATES, LESS, GPT_1K, "--pipeline-model-parallel-size 4"),
    FLIP(pp, 2, STATES, LESS, TITAN "--parallelism.data_parallel_replicate_degree 2 ",
         "--parallelism.pipeline_parallel_degree 2 --parallelism.data_parallel_replicate_degree 1"),
    FLIP(cp, 2, PEAK, LESS, GPT_1K, "--context-parallel-size 2"),
    FLIP(cp, 2, PEAK, LESS, TITAN, "--parallelism.context_parallel_degree 2"),
    FLIP(ep, 4, STATES, LESS, EXPERTS, "--expert-model-parallel-size 4"),
    FLIP(virtual_stages, 2, PEAK, MORE, GPT_1K "--global-batch-size 64 --pipeline-model-parallel-size 4 ",
         "--num-layers-per-virtual-pipeline-stage 1"),
    FLIP(virtual_stages, 2, SECONDS, LESS, STAGES, "--num-virtual-stages-per-pipeline-rank 2"),
    FLIP(sequence_parallel, 1, PEAK, LESS, TENSOR, "--sequence-parallel"),
    FLIP(v_shaped, 1, STATES, MORE, TITAN_PIPE "--parallelism.data_parallel_replicate_degree 4 ",
         "--parallelism.pipeline_parallel_schedule ZBVZeroBubble"), /* both ends on one rank */
    FLIP(schedule, SCHEDULE_GPIPE, PEAK, MORE, TITAN_PIPE, "--parallelism.pipeline_parallel_schedule GPipe"),
    FLIP(schedule, SCHEDULE_ZB_H1, SECONDS, LESS, STAGES, "--enable-zbh1-pipeline"),
    FLIP(micro_batch, 16, PEAK, MORE, LONG, "--per_device_train_batch_size 16"),
    OTHER(micro_batch, 3, PEAK, MORE, STAGE(2, ""),
          ZERO("\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": 3") "--block_"
                                                                                               "size "
                                                                                               "4096"),
    FLIP(sequence, 2048, PEAK, LESS, LONG, "--block_size 2048"),
    FLIP(sequence, 8192, PEAK, MORE, TITAN, "--training.seq_len 8192"),
    FLIP(micro_batches, 4, SECONDS, MORE, GPT_1K, "--global-batch-size 64"),
    FLIP(micro_batches, 6, SECONDS, MORE, LONG, "--gradient_accumulation_steps 6"),
    FLIP(micro_batches, 2, SECONDS, MORE, TITAN, "--training.global_batch_size 128"),

    /* precision */
    FLIP(weight_bytes, 2, STATES, LESS, HF, "--torch_dtype bfloat16"),
    FLIP(weight_bytes, 2, STATES, LESS, TITAN, "--training.dtype bfloat16"),
    FLIP(compute_bytes, 4, PEAK, MORE, TITAN, "--training.mixed_precision_param float32"),
    FLIP(autocast, 1, PEAK, LESS, HF "--block_size 4096 ", "--fp16"),
    FLIP(gradient_bytes, 2, STATES, LESS, GPT_1K, "--grad-reduce-in-bf16"),
    FLIP(gradient_bytes, 2, STATES, LESS, PRECISE, "--main-grads-dtype bf16"),
    OTHER(gradient_bytes, 4, PEAK, MORE, STAGE(1, ""),
          ZERO("\"zero_optimization\": {\"stage\": 1}, \"data_types\": {\"grad_accum_dtype\": "
               "\"fp32\"}") "--block_size 4096"),
    OTHER(gradient_bytes, 4, PEAK, MORE, STAGE(1, ""),
          ZERO("\"zero_optimization\": {\"stage\": 1}, \"data_types\": {\"grad_accum_dtype\": "
               "\"float\"}") "--block_size 4096"),
    FLIP(master_bytes, 2, STATES, LESS, SPLIT, "--use-precision-aware-optimizer"),
    FLIP(moment_bytes, 2, STATES, LESS, PRECISE, "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"),
    FLIP(moment_bytes, 1, STATES, LESS, PRECISE, "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8"),
    OTHER(moment_bytes, 2, STATES, LESS, STAGE(2, ""),
          DEEPSPEED("\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                    "\"bf16_optimizer_states\": true}, \"zero_optimization\": {\"stage\": 2}",
                    FEW)),
    FLIP(reduce_bytes, 2, SECONDS, LESS, GPT_1K, "--grad-reduce-in-bf16"),

    /* the optimizer */
    FLIP(optimizer, WORKLOAD_ADAM8, STATES, LESS, HF, "--optim adamw_bnb_8bit"),
    FLIP(optimizer, WORKLOAD_PAGED_ADAM, STATES, LESS, HF, "--optim paged_adamw_8bit"),
    FLIP(optimizer, WORKLOAD_ADAFACTOR, STATES, LESS, HF, "--adafactor"),
    FLIP(optimizer, WORKLOAD_SGD, STATES, LESS, HF, "--optim sgd"),
    FLIP(optimizer, WORKLOAD_SGD_MOMENTUM, STATES, LESS, HF, "--optim lion_8bit"),
    FLIP(optimizer, WORKLOAD_SGD_MOMENTUM, STATES, LESS, GPT_1K, "--optimizer sgd"),
    FLIP(optimizer, WORKLOAD_SGD, STATES, LESS, GPT_1K "--optimizer sgd ", "--sgd-momentum 0"),
    FLIP(step, WORKLOAD_STEP_FOREACH, PEAK, MORE, HF,
         "--optim adamw_torch"), /* one more copy (torch.optim) */
    FLIP(step, WORKLOAD_STEP_LOOP, SECONDS, MORE, TITAN, "--optimizer.implementation for-loop"),
    FLIP(step_in_backward, 1, PEAK, LESS, TITAN "--training.seq_len 256 ",
         "--optimizer.early_step_in_backward"),
    FLIP(offload_optimizer, 1, STATES, LESS, PRECISE, "--optimizer-cpu-offload"),
    FLIP(offload_optimizer, 1, SECONDS, MORE, PRECISE, "--optimizer-cpu-offload"),
    OTHER(offload_optimizer, 1, STATES, LESS, STAGE(2, ""),
          STAGE(2, ", \"offload_optimizer\": {\"device\": \"cpu\"}")),
    OTHER(offload_optimizer, 1, SECONDS, MORE, STAGE(2, ""), STAGE(2, ", \"cpu_offload\": true")),
    FLIP(offload_optimizer, 1, STATES, LESS, TITAN, "--training.enable_cpu_offload"),
    OTHER(offload_weights, 1, STATES, LESS, STAGE(3, ""),
          STAGE(3, ", \"offload_param\": {\"device\": \"nvme\"}")),
    OTHER(offload_weights, 1, STATES, LESS, ACCELERATE(FSDP), ACCELERATE(FSDP "  fsdp_offload_params: true")),
    FLIP(offload_weights, 1, SECONDS, MORE, SHARDED, "--fsdp 'full_shard auto_wrap offload'"),
    FLIP(accumulates_without_sync, 1, PEAK, MORE, SHARDED, "--gradient_accumulation_steps 2"),

    /* what is made again */
    FLIP(modules, WORKLOAD_CORE_ATTN, PEAK, LESS, LOCAL, "--recompute-activations"),
    FLIP(modules, WORKLOAD_CORE_ATTN, SECONDS, MORE, GPT_1K, "--recompute-activations"),
    FLIP(modules, WORKLOAD_MLP, PEAK, LESS, GPT_1K,
         "--recompute-granularity selective --recompute-modules mlp"),
    FLIP(modules, WORKLOAD_MLP, SECONDS, MORE, GPT_1K,
         "--recompute-granularity selective --recompute-modules mlp"),
    FLIP(modules, WORKLOAD_LAYERNORM, PEAK, LESS, LOCAL,
         "--recompute-granularity selective --recompute-modules layernorm"),
    FLIP(modules, WORKLOAD_CORE_ATTN | WORKLOAD_MLP | WORKLOAD_LAYERNORM, PEAK, LESS,
         LOCAL "--recompute-granularity selective --recompute-modules mlp ",
         "--recompute-modules core_attn mlp layernorm"),
    FLIP(recompute, WORKLOAD_FULL, PEAK, LESS, GPT_1K,
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
    FLIP(recompute, WORKLOAD_FULL, SECONDS, MORE, GPT_1K,
         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
    FLIP(modules, WORKLOAD_MOE | WORKLOAD_CORE_ATTN, PEAK, LESS, EXPERTS,
         "--recompute-granularity selective --recompute-modules moe core_attn"),
    FLIP(modules, WORKLOAD_MOE | WORKLOAD_CORE_ATTN, PEAK, LESS, EXPERTS, "--moe-layer-recompute"),
    FLIP(modules, WORKLOAD_MOE | WORKLOAD_LAYERNORM, PEAK, LESS, EXPERTS "--moe-layer-recompute ",
         "--recompute-granularity selective --recompute-modules moe layernorm"),
    FLIP(modules, WORKLOAD_MOE_ACT, PEAK, LESS, EXPERTS "--moe-grouped-gemm ",
         "--recompute-granularity selective --recompute-modules moe_act"),
    FLIP(modules, WORKLOAD_SHARED_EXPERTS, PEAK, LESS, EXPERTS "--moe-shared-expert-intermediate-size 4096 ",
         "--recompute-granularity selective --recompute-modules shared_experts"),
    FLIP(modules, WORKLOAD_MLA_UP_PROJ, PEAK, LESS, LATENT,
         "--recompute-granularity selective --recompute-modules mla_up_proj"),
    FLIP(recompute, WORKLOAD_FULL, PEAK, LESS, TITAN, "--activation_checkpoint.selective_ac_option 1"),
    FLIP(recompute, WORKLOAD_EVERY_SECOND, PEAK, LESS, TITAN "--activation_checkpoint.mode none ",
         "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op"),
    FLIP(recompute, WORKLOAD_FULL, SECONDS, MORE, TITAN, "--activation_checkpoint.mode full"),
    FLIP(recompute, WORKLOAD_KEEPS_ALL, PEAK, MORE, TITAN, "--activation_checkpoint.mode none"),
    FLIP(recompute, WORKLOAD_FULL, PEAK, LESS, LONG, "--gradient_checkpointing"),
    FLIP(recompute, WORKLOAD_KEEPS_ALL, PEAK, MORE, SFT, "--gradient_checkpointing False"),
    OTHER(recompute, WORKLOAD_FULL, PEAK, LESS, ACCELERATE(FSDP) "--block_size 4096",
          ACCELERATE(FSDP "  fsdp_activation_checkpointing: true") "--block_size 4096"),
    FLIP(remade_layers, 3, PEAK, LESS, GPT_1K,
         "--recompute-granularity full --recompute-method block --recompute-num-layers 3"),
    FLIP(inputs_offloaded, 1, PEAK, LESS, SFT, "--activation_offloading"),

    /* kernels */
    FLIP(attention, WORKLOAD_EAGER, PEAK, MORE, LONG, "--attn_implementation eager"),
    FLIP(attention, WORKLOAD_FUSED_SOFTMAX, PEAK, MORE, GPT_1K, "--attention-backend unfused"),
    FLIP(attention, WORKLOAD_FLASH, PEAK, LESS, LOCAL, "--use-flash-attn"),
    FLIP(attention, WORKLOAD_EAGER, SECONDS, MORE, LOCAL, "--no-masked-softmax-fusion"),
    FLIP(first_flash, 1, SECONDS, MORE, LOCAL "--use-flash-attn ", "--use-flash-attn-v1"),
    FLIP(norm, WORKLOAD_NORM_FUSED, PEAK, LESS, LONG, "--use_liger_kernel"),
    FLIP(loss, WORKLOAD_LOSS_LINEAR, PEAK, LESS, LONG, "--use_liger_kernel"),
    FLIP(loss_chunks, 31, PEAK, LESS, LONG, "--use_liger_kernel"), /* 128,256 words by 4,096 */
    FLIP(logits_held, 0, PEAK, LESS, LONG, "--use_liger_kernel"),
    FLIP(gate, WORKLOAD_GATE_WRITTEN, PEAK, MORE, GPT_1K "--swiglu ", "--no-bias-swiglu-fusion"),
    FLIP(bias_apart, 1, PEAK, NOT_LESS, GPT_1K,
         "--no-bias-gelu-fusion"), /* gone before backward, which needs more */
    FLIP(loss, WORKLOAD_LOSS_FUSED, PEAK, LESS, GPT_1K "--cross-entropy-loss-fusion ",
         "--cross-entropy-fusion-impl te"),
    FLIP(logits_whole, 1, PEAK, MORE, TITAN_PAIR, "--parallelism.disable_loss_parallel"),
    FLIP(hidden_dropout, 0, PEAK, LESS, GPT_1K, "--hidden-dropout 0"), /* no masks */
    FLIP(attention_dropout, 0, PEAK, LESS, LOCAL, "--attention-dropout 0.0"),
    FLIP(embedding_dropout, 0, PEAK, LESS, GPT_1K, "--hidden-dropout 0"),
    FLIP(keys_expanded, 0, PEAK, LESS, LONG, "--attn_implementation flash_attention_2"),
    FLIP(compiled, 1, PEAK, LESS, LONG, "--torch_compile"),
    FLIP(compiled, 1, PEAK, LESS, LONG, "--torch_compile_mode reduce-overhead"),
    OTHER(compiled, 1, PEAK, LESS, ACCELERATE("dynamo_config:\n  dynamo_backend: 'NO'") "--block_size 4096",
          ACCELERATE("dynamo_config:\n  dynamo_backend: INDUCTOR") "--block_size 4096"),
    FLIP(compiled, 1, PEAK, LESS, TITAN, "--compile.enable"),
    FLIP(compiled, 1, PEAK, LESS, TITAN, "--training.compile"),
    FLIP(fp8, 1, SECONDS, LESS, GPT_1K "--hidden-size 8192 --num-attention-heads 64 ", "--fp8-format hybrid"),
    FLIP(expert_capacity, 2, PEAK, MORE, EXPERTS "--moe-pad-expert-input-to-capacity ",
         "--moe-expert-capacity-factor 2.0"),

    /* shards */
    FLIP(reshards_after_forward, 0, PEAK, MORE, SHARDED, "--fsdp 'shard_grad_op auto_wrap'"),
    OTHER(reshards_after_forward, 0, PEAK, MORE, ACCELERATE(FSDP "  fsdp_version: 2"),
          ACCELERATE(FSDP "  fsdp_version: 2\n  fsdp_reshard_after_forward: false")),
    FLIP(reshards_after_forward, 0, PEAK, MORE, TITAN, "--parallelism.fsdp_reshard_after_forward never"),
    FLIP(reshards_after_forward, 0, SECONDS, LESS,
         TITAN "--training.seq_len 256 --training.local_batch_size 1 ",
         "--parallelism.fsdp_reshard_after_forward never"),
    FLIP(reshards_after_forward, 0, PEAK, MORE, GPT_1K "--use-torch-fsdp2 ",
         "--torch-fsdp2-no-reshard-after-forward"),
    FLIP(wraps_layers, 0, PEAK, MORE, SHARDED, "--fsdp full_shard"),
    OTHER(wraps_layers, 0, PEAK, MORE, ACCELERATE(FSDP),
          ACCELERATE("distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP")),
    OTHER(bucket_elements, 1000000, STATES, LESS, STAGE(3, ""), STAGE(3, ", \"reduce_bucket_size\": 1e6")),
    OTHER(reuse_elements, 4000000000, PEAK, MORE, STAGE(3, "") MANY,
          STAGE(3, ", \"stage3_max_reuse_distance\": 4e9") MANY),
    FLIP(overlaps_gradients, 1, SECONDS, LESS, GPT_1K, "--overlap-grad-reduce"),
    OTHER(overlaps_gradients, 1, SECONDS, LESS, STAGE(2, ""), STAGE(2, ", \"overlap_comm\": true")),

    /* adapters */
    FLIP(lora_rank, 16, STATES, LESS, SFT, "--use_peft"),
    FLIP(lora_rank, 64, STATES, MORE, ADAPTED, "--lora_r 64"),
    FLIP(lora_linears, ALL_LINEAR, STATES, MORE, ADAPTED, "--lora_target_modules all-linear"),
    FLIP(lora_linears, LINEAR_Q | LINEAR_K | LINEAR_V | LINEAR_O, STATES, MORE, ADAPTED,
         "--lora_target_modules q_proj k_proj v_proj o_proj"),
    FLIP(fp8_weights, 1, STATES, LESS, GPT_1K "--bf16 --fp8-format hybrid ", "--fp8-param-gather"),
    FLIP(lora_dropout, 0, PEAK, LESS, ADAPTED "--gradient_checkpointing False ", "--lora_dropout 0"),
    FLIP(adapters_cast, 1, PEAK, LESS, ADAPTED "--gradient_checkpointing False --bf16 False ", "--bf16 True"),
    FLIP(frozen_end_bytes, 2, STATES, LESS, SFT "--use_peft ", "--load_in_4bit"),
    FLIP(wide_results, 1, STATES, LESS, SFT "--use_peft ", "--load_in_4bit"),
    FLIP(frozen_bits, 4, STATES, LESS, ADAPTED, "--load_in_4bit"),
    FLIP(frozen_bits, 4, STATES, LESS, LONG "--use_peft_lora True --torch_dtype bfloat16 ",
         "--use_4bit_quantization True"),
    FLIP(keys_expanded, 0, PEAK, LESS, LONG, "--use_flash_attn True"),
    FLIP(frozen_bits, 8, STATES, LESS, ADAPTED, "--load_in_8bit"),

    /* the allocator */
    OTHER(allocator.expandable_segments, 1, RESERVED, LESS, SHARDED,
          "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" SHARDED),
    OTHER(allocator.max_split_bytes, 128 << 20, RESERVED, MORE, SHARDED,
          "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\n" SHARDED),
    OTHER(allocator.power2_divisions[3], 2, PEAK, MORE, SHARDED,
          "export PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:2\n" SHARDED),
};

enum { FLIPS = sizeof flips / sizeof flips[0] };

/* Of a bool, an int, an enum or an int64_t; of a double the whole part. */
static int64_t value_of(const struct workload *w, const struct flip *flip)
{
    const char *at = (const char *)w + flip->offset;
    int32_t half = 0;
    int64_t whole = 0;
    memcpy(&half, at, flip->size == 4 ? 4 : 0);
    memcpy(&whole, at, flip->size == 8 ? 8 : 0);
    if (flip->offset == offsetof(struct workload, expert_capacity))
        return (int64_t)w->expert_capacity;
    return flip->size == 1 ? *(const bool *)at : flip->size == 4 ? half : whole;
}

static double measured(const char *script, const struct workload *w, enum measure measure)
{
    struct error err = {0};
    struct workload_memory m;
    struct workload_time t;
    struct cluster cluster;
    struct machine_speed speed;
    if (measure == SECONDS) {
        ASSERT_OK(cluster_read("1x8:h100-80g", &cluster, &err));
        machine_speed_for_group(&cluster.groups[0], PRECISION_BF16, 1, &speed);
        ASSERT_MSG(!workload_time(w, NULL, &speed, &t, &err), "%s: %s", script, err.text);
        return t.seconds;
    }
    ASSERT_MSG(!workload_memory(w, &m, &err), "%s: %s", script, err.text);
    return (double)(measure == STATES ? m.states_bytes : measure == PEAK ? m.peak.bytes : m.reserved_bytes);
}

TEST_LOOP(option_effects,
          "an option flipped alone reaches its field, and moves what it is documented to move",
          sizeof flips / sizeof flips[0])
{
    static const char *const measures[] = {"states", "peak", "reserved", "seconds"};
    const struct flip *flip = &flips[_i];
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload before, after;
    ASSERT_MSG(!launch_workload(flip->before, arena, &before, &err), "%s: %s", flip->before, err.text);
    ASSERT_MSG(!launch_workload(flip->after, arena, &after, &err), "%s: %s", flip->after, err.text);
    ASSERT_MSG(value_of(&after, flip) == flip->value, "%s: %s is %lld, not %lld", flip->after, flip->field,
               (long long)value_of(&after, flip), (long long)flip->value);
    ASSERT_MSG(value_of(&before, flip) != flip->value, "%s: %s is that already", flip->before, flip->field);
    double from = measured(flip->before, &before, flip->measure),
           to = measured(flip->after, &after, flip->measure);
    ASSERT_MSG(flip->direction == MORE   ? to > from
               : flip->direction == LESS ? to < from
                                         : to >= from,
               "%s: %s: %s went from %g to %g", flip->after, flip->field, measures[flip->measure], from, to);
    arena_free(arena);
}

/* ---- what the documents say in numbers ---- */

/* Bytes of a parameter between steps, over eight ranks, as each framework's own documents count them. */
static const struct {
    const char *script;
    double bytes;
} documented[] = {
    /* docs/source/api-guide/dist_optimizer.rst of Megatron-LM: 18 with bf16 and fp32 gradients, 20 less the 2 of 16-bit ones; 16 in
     * fp32; split over d ranks 6 + 12 / d, 4 + 12 / d, 8 + 8 / d */
    {GPT_1K, 18},
    {SPLIT, 6 + 12.0 / 8},
    {GPT LARGER, 16},
    {GPT LARGER "--use-distributed-optimizer", 8 + 8.0 / 8},
    {GPT_1K "--grad-reduce-in-bf16 ", 16},
    {SPLIT "--grad-reduce-in-bf16 ", 4 + 12.0 / 8},
    /* Rajbhandari et al. 2020, section 3: 2 + 2 + 12, of which stage 1 splits the 12, 2 gradients too, 3 all */
    {STAGE(1, ""), 2 + 12.0 / 8},
    {STAGE(2, ""), 2 + 12.0 / 8}, /* and 2 / 8 while it steps: no gradient is left between steps */
    {STAGE(3, ", \"reduce_bucket_size\": 1e6"), 16.0 / 8}, /* which keeps its buffer of them */
    /* PyTorch's FSDP: fp32 shards with Adam's two moments, and gradients until the next step begins */
    {SHARDED, 16.0 / 8},
    {TITAN, 16.0 / 8},
};

TEST_LOOP(option_documented, "states between steps are as many bytes a parameter as the framework documents",
          sizeof documented / sizeof documented[0])
{
    struct arena *arena = arena_create();
    struct error err = {0};
    struct workload w;
    ASSERT_MSG(!launch_workload(documented[_i].script, arena, &w, &err), "%s: %s", documented[_i].script,
               err.text);
    double bytes = measured(documented[_i].script, &w, STATES) / workload_parameters(&w);
    ASSERT_MSG(bytes > 0.99 * documented[_i].bytes && bytes < 1.03 * documented[_i].bytes,
               "%s: %.3f bytes of a parameter, not %.3f", documented[_i].script, bytes, documented[_i].bytes);
    arena_free(arena);
}

/* ---- that no field is left out ---- */

/* What no option of a launch says. */
static const char *const without_option[] = {
    "pooler", /* counted of classifiers alone, though --bert-no-binary-head leaves it out: 0.3% of a BERT */
    "token_types",   "encoder",
    "activation",                           /* the program or the model */
    "parameters",    "classes",             /* counted elsewhere; of classifiers, which are not read */
    "wraps_ends",    "inputs_whole",        /* the library's habits */
    "pads_heads_to", "in_buckets",          /* likewise */
    "old_torch",     "softmax_keeps_input", /* by version */
    "buckets_early", "projections_kept",    /* likewise */
    "traits",                               /* of the model */
    "context_bytes", "capacity_bytes",      /* the card */
    "cublas_bytes",                         /* likewise */
    "model",         "allocator",           /* structs, whose fields are above */
    "chunk_layers",                         /* a list: test_pipeline_chunks.c */
};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof without_option / sizeof without_option[0]; i++)
        if (!strcmp(without_option[i], name))
            return true;
    for (int i = 0; i < FLIPS; i++) {
        const char *dot = strchr(flips[i].field, '.');
        if (!strcmp(dot ? dot + 1 : flips[i].field, name))
            return true;
    }
    return false;
}

/* Names before a comma or a semicolon, up to the brace that closes the struct. */
static int check_fields(const char *at)
{
    char name[64] = "";
    size_t length = 0;
    int fields = 0;
    for (; *at && *at != '}'; at++) {
        const char *comment = !strncmp(at, "/*", 2) ? strstr(at, "*/") : NULL;
        if (comment) {
            at = comment + 1;
        } else if (isalnum((unsigned char)*at) || *at == '_') {
            name[length++] = *at;
            name[length] = 0;
            ASSERT(length < sizeof name - 1);
        } else {
            if (strchr(",;", *at)) {
                ASSERT_MSG(is_known(name), "no launch says %s, and no test says why", name);
                fields++;
            }
            length = strchr(",; \n", *at) && !isspace((unsigned char)at[1]) ? 0 : length;
        }
    }
    return fields;
}

TEST(option_fields, "every field of a workload is turned by an option here, or known to have none")
{
    char *header;
    size_t length;
    struct error err = {0};
    ASSERT_OK(text_read_file("planner/frameworks/workload.h", 1 << 20, &header, &length, &err));
    const char *model = strstr(header, "struct workload_model {"),
               *workload = strstr(header, "struct workload {");
    ASSERT(model && workload);
    int fields = check_fields(strchr(model, '{') + 1) + check_fields(strchr(workload, '{') + 1);
    ASSERT(fields > 80);
    free(header);
}
