/* Every field of planner/frameworks/workload.h, and an option of each framework that reaches it. A field that is added there
 * fails the last test until it is here too. */
#include "tests/test.h"

#include "base/text.h"
#include "jobs/job_workload.h"
#include "jobs/jobs.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define GPT                                                                                                  \
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 "   \
    "--seq-length 32 --max-position-embeddings 48 --micro-batch-size 1 --vocab-size 100 "
#define MEGATRON GPT "--bf16 "
#define FP16     GPT "--fp16 "
#define HF       "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path models/Llama-3.1-8B --block_size 64 "
#define GPT2     "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path gpt2-124m --block_size 64 "
#define SFT      "torchrun --nproc_per_node 8 sft.py --model_name_or_path models/Llama-3.1-8B "
#define MIXTRAL  "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path models/Mixtral-8x7B "
#define BERT     "torchrun --nproc_per_node 8 run_mlm.py --model_name_or_path models/bert-base-uncased "
#define TITAN    "torchrun --nproc_per_node 8 -m torchtitan.train --model.flavor 8B "
#define DEEPSEEK                                                                                             \
    "torchrun --nproc_per_node 8 -m torchtitan.train --model.name deepseek_v3 --model.flavor 16B "
#define ZERO(json)                                                                                           \
    "cat > ds.json <<'EOF'\n{\"bf16\": {\"enabled\": true}, " json "}\nEOF\n" HF "--bf16 --deepspeed "       \
    "ds.json "
#define ACCELERATE(yaml)                                                                                     \
    "cat > acc.yaml <<'EOF'\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n" yaml               \
    "\nEOF\naccelerate launch --config_file acc.yaml run_clm.py --block_size 64 "                            \
    "--model_name_or_path models/Llama-3.1-8B "
#define FSDP "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"

struct row {
    const char *script, *field;
    size_t offset, size;
    int64_t value;
};

#define ROW(field, value, script)                                                                            \
    {                                                                                                        \
        script, #field, offsetof(struct workload, field), sizeof(((struct workload *)0)->field), value       \
    }

static const struct row rows[] = {
    /* the model */
    ROW(model.layers, 8, MEGATRON),
    ROW(model.layers, 32, HF),
    ROW(model.hidden, 64, MEGATRON),
    ROW(model.heads, 4, MEGATRON),
    ROW(model.kv_heads, 2, MEGATRON "--group-query-attention --num-query-groups 2"),
    ROW(model.kv_heads, 8, TITAN),
    ROW(model.head_size, 16, MEGATRON),
    ROW(model.head_size, 32, MEGATRON "--kv-channels 32"),
    ROW(model.ffn, 256, MEGATRON),
    ROW(model.ffn, 128, MEGATRON "--swiglu"), /* 2/3 of 256 in whole 64s */
    ROW(model.vocab, 1024, MEGATRON "--tensor-model-parallel-size 8"),
    ROW(model.vocab, 112, MEGATRON "--make-vocab-size-divisible-by 16"),
    ROW(model.positions, 48, MEGATRON),
    ROW(model.positions, 0, MEGATRON "--position-embedding-type rope"),
    ROW(model.token_types, 2, BERT),
    ROW(model.encoder, 1, BERT),
    ROW(model.gated, 1, MEGATRON "--swiglu"),
    ROW(model.gated, 1, MEGATRON "--quick-geglu"),
    ROW(model.tied, 1, MEGATRON),
    ROW(model.tied, 0, MEGATRON "--untie-embeddings-and-output-weights"),
    ROW(model.rms_norm, 1, MEGATRON "--normalization RMSNorm"),
    ROW(model.bias, 1, MEGATRON),
    ROW(model.bias, 0, MEGATRON "--disable-bias-linear"),
    ROW(model.qkv_bias, 1, MEGATRON "--disable-bias-linear --add-qkv-bias"),
    ROW(model.qk_norm, 1, MEGATRON "--qk-layernorm"),
    ROW(model.pooler, 0, BERT), /* BertForMaskedLM has none */
    ROW(model.experts, 8, MIXTRAL),
    ROW(model.experts, 16, MEGATRON "--num-experts 16"),
    ROW(model.active_experts, 2, MEGATRON "--num-experts 16"),
    ROW(model.active_experts, 6, DEEPSEEK),
    ROW(model.expert_ffn, 256, MEGATRON "--num-experts 16"),
    ROW(model.expert_ffn, 1408, DEEPSEEK),
    ROW(model.shared_ffn, 96, MEGATRON "--num-experts 16 --moe-shared-expert-intermediate-size 96"),
    ROW(model.dense_layers, 3, MEGATRON "--num-experts 16 --moe-layer-freq '([0]*3+[1]*5)'"),
    ROW(model.q_rank, 24, MEGATRON "--multi-latent-attention --q-lora-rank 24"),
    ROW(model.kv_rank, 32, MEGATRON "--multi-latent-attention"),
    ROW(model.kv_rank, 512, DEEPSEEK),
    ROW(model.rope_size, 16, MEGATRON "--multi-latent-attention --qk-pos-emb-head-dim 16"),
    ROW(model.nope_size, 48, MEGATRON "--multi-latent-attention --qk-head-dim 48"),
    ROW(model.nope_size, 128, MEGATRON "--multi-latent-attention --kv-lora-rank 512"),
    ROW(model.value_size, 40, MEGATRON "--multi-latent-attention --v-head-dim 40"),

    /* who computes, and who has which states */
    ROW(library, WORKLOAD_MEGATRON, MEGATRON),
    ROW(library, WORKLOAD_MEGATRON_LEGACY, MEGATRON "--transformer-impl local"),
    ROW(library, WORKLOAD_TRANSFORMERS, HF),
    ROW(library, WORKLOAD_TITAN, TITAN),
    ROW(sharding, WORKLOAD_REPLICATED, MEGATRON),
    ROW(sharding, WORKLOAD_DISTRIBUTED_OPTIMIZER, MEGATRON "--use-distributed-optimizer"),
    ROW(sharding, WORKLOAD_FSDP2, MEGATRON "--use-torch-fsdp2"),
    ROW(sharding, WORKLOAD_REPLICATED, MEGATRON "--use-distributed-optimizer --use-custom-fsdp"),
    ROW(sharding, WORKLOAD_FSDP2,
        MEGATRON "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params"),
    ROW(sharding, WORKLOAD_ZERO1, ZERO("\"zero_optimization\": {\"stage\": 1}")),
    ROW(sharding, WORKLOAD_ZERO2, ZERO("\"zero_optimization\": {\"stage\": 2}")),
    ROW(sharding, WORKLOAD_ZERO2, ACCELERATE("distributed_type: DEEPSPEED")),
    ROW(sharding, WORKLOAD_ZERO3,
        ACCELERATE("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3")),
    ROW(sharding, WORKLOAD_FSDP1, HF "--fsdp full_shard"),
    ROW(sharding, WORKLOAD_REPLICATED, HF "--fsdp no_shard"),
    ROW(sharding, WORKLOAD_FSDP2, ACCELERATE(FSDP "  fsdp_version: 2")),
    ROW(sharding, WORKLOAD_FSDP2, TITAN),
    ROW(sharding, WORKLOAD_REPLICATED,
        TITAN "--parallelism.data_parallel_replicate_degree 8 --parallelism.data_parallel_shard_degree 1"),

    /* the layout and the batch */
    ROW(dp, 8, MEGATRON),
    ROW(dp, 8, HF),
    ROW(tp, 4, MEGATRON "--tensor-model-parallel-size 4"),
    ROW(tp, 2, TITAN "--parallelism.tensor_parallel_degree 2"),
    ROW(pp, 4, MEGATRON "--pipeline-model-parallel-size 4"),
    ROW(pp, 2, TITAN "--parallelism.pipeline_parallel_degree 2"),
    ROW(cp, 2, MEGATRON "--context-parallel-size 2"),
    ROW(cp, 2, TITAN "--parallelism.context_parallel_degree 2"),
    ROW(ep, 4, MEGATRON "--num-experts 8 --expert-model-parallel-size 4"),
    ROW(ep, 8, DEEPSEEK "--parallelism.expert_parallel_degree 8"),
    ROW(shard_ranks, 0, HF "--fsdp full_shard"),
    ROW(shard_ranks, 8, ACCELERATE(FSDP "  fsdp_sharding_strategy: HYBRID_SHARD")),
    ROW(shard_ranks, 4, TITAN "--parallelism.data_parallel_replicate_degree 2"),
    ROW(shard_ranks, 2, MEGATRON "--use-distributed-optimizer --num-distributed-optimizer-instances 4"),
    ROW(virtual_stages, 2,
        MEGATRON "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1"),
    ROW(virtual_stages, 2,
        MEGATRON "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"),
    ROW(virtual_stages, 2,
        MEGATRON "--num-layers 6 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
                 "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"),
    ROW(virtual_stages, 2,
        TITAN
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B"),
    ROW(virtual_stages, 3,
        TITAN
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Interleaved1F1B "
        "--parallelism.pipeline_parallel_layers_per_stage 6"),
    ROW(sequence_parallel, 1, MEGATRON "--tensor-model-parallel-size 2 --sequence-parallel"),
    ROW(sequence_parallel, 0, MEGATRON "--sequence-parallel"),
    ROW(sequence_parallel, 1, TITAN "--parallelism.tensor_parallel_degree 2"),
    ROW(v_shaped, 1,
        TITAN
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule ZBVZeroBubble"),
    ROW(schedule, SCHEDULE_GPIPE,
        TITAN "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule GPipe"),
    ROW(schedule, SCHEDULE_ZB_H1, MEGATRON "--pipeline-model-parallel-size 2 --enable-zbh1-pipeline"),
    ROW(micro_batch, 1, MEGATRON),
    ROW(micro_batch, 8, HF),
    ROW(micro_batch, 3, HF "--per_device_train_batch_size 3"),
    ROW(micro_batch, 1, TITAN "--parallelism.pipeline_parallel_degree 2"),
    ROW(micro_batch, 5, ZERO("\"train_micro_batch_size_per_gpu\": 5")),
    ROW(sequence, 32, MEGATRON),
    ROW(sequence, 64, HF),
    ROW(sequence, 1024, SFT),
    ROW(sequence, 2048, TITAN),
    ROW(micro_batches, 4, MEGATRON "--global-batch-size 32"),
    ROW(micro_batches, 6, HF "--gradient_accumulation_steps 6"),
    ROW(micro_batches, 2, TITAN "--training.global_batch_size 128"),
    ROW(micro_batches, 3, ACCELERATE("gradient_accumulation_steps: 3") "--gradient_accumulation_steps 3"),

    /* precision */
    ROW(weight_bytes, 2, MEGATRON),
    ROW(weight_bytes, 4, HF "--bf16"),
    ROW(weight_bytes, 2, HF "--bf16 --torch_dtype bfloat16"),
    ROW(weight_bytes, 4, HF "--bf16 --torch_dtype bfloat16 --fsdp full_shard"),
    ROW(weight_bytes, 2, HF "--dtype auto"),
    ROW(weight_bytes, 2, ZERO("\"zero_optimization\": {\"stage\": 2}")),
    ROW(weight_bytes, 4, TITAN),
    ROW(weight_bytes, 2, TITAN "--training.dtype bfloat16"),
    ROW(compute_bytes, 2, TITAN),
    ROW(compute_bytes, 4, TITAN "--training.mixed_precision_param float32"),
    ROW(compute_bytes, 4, HF),
    ROW(autocast, 1, HF "--fp16"),
    ROW(autocast, 0, HF "--bf16 --fsdp full_shard"),
    ROW(gradient_bytes, 4, MEGATRON),
    ROW(gradient_bytes, 2, MEGATRON "--grad-reduce-in-bf16"),
    ROW(gradient_bytes, 2, MEGATRON "--use-precision-aware-optimizer --main-grads-dtype bf16"),
    ROW(gradient_bytes, 2, ZERO("\"zero_optimization\": {\"stage\": 1}")),
    ROW(gradient_bytes, 4,
        ZERO("\"zero_optimization\": {\"stage\": 1}, \"data_types\": {\"grad_accum_dtype\": \"fp32\"}")),
    ROW(master_bytes, 4, MEGATRON),
    ROW(master_bytes, 2, MEGATRON "--use-distributed-optimizer --use-precision-aware-optimizer"),
    ROW(master_bytes, 4, FP16 "--use-distributed-optimizer --use-precision-aware-optimizer"),
    ROW(master_bytes, 2, FP16 "--use-precision-aware-optimizer --main-params-dtype fp16"),
    ROW(master_bytes, 0, HF "--bf16 --torch_dtype bfloat16"),
    ROW(moment_bytes, 4, MEGATRON),
    ROW(moment_bytes, 2,
        MEGATRON "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"),
    ROW(moment_bytes, 1,
        MEGATRON "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8"),
    ROW(moment_bytes, 4,
        MEGATRON "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8"), /* without it they are ignored */
    ROW(moment_bytes, 2,
        "cat > ds.json <<'EOF'\n{\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
        "\"bf16_optimizer_states\": true}, \"zero_optimization\": {\"stage\": 2}}\nEOF\n" HF
        "--bf16 --deepspeed ds.json"),
    ROW(reduce_bytes, 4, TITAN),
    ROW(reduce_bytes, 2, HF "--bf16 --fsdp full_shard"),
    ROW(reduce_bytes, 2, MEGATRON "--grad-reduce-in-bf16"),

    /* the optimizer */
    ROW(optimizer, WORKLOAD_ADAM, HF),
    ROW(optimizer, WORKLOAD_ADAM8, HF "--optim adamw_bnb_8bit"),
    ROW(optimizer, WORKLOAD_PAGED_ADAM, HF "--optim paged_adamw_8bit"),
    ROW(optimizer, WORKLOAD_ADAFACTOR, HF "--adafactor"),
    ROW(optimizer, WORKLOAD_SGD, HF "--optim sgd"),
    ROW(optimizer, WORKLOAD_SGD_MOMENTUM, HF "--optim lion_8bit"),
    ROW(optimizer, WORKLOAD_SGD_MOMENTUM, MEGATRON "--optimizer sgd"),
    ROW(optimizer, WORKLOAD_SGD, MEGATRON "--optimizer sgd --sgd-momentum 0"),
    ROW(moment_bytes, 1, HF "--optim lion_8bit"),
    ROW(step, WORKLOAD_STEP_FUSED, HF),
    ROW(step, WORKLOAD_STEP_FOREACH, HF "--optim adamw_torch"),
    ROW(step, WORKLOAD_STEP_LOOP, TITAN "--optimizer.implementation for-loop"),
    ROW(step, WORKLOAD_STEP_FUSED, MEGATRON),
    ROW(step_in_backward, 1, TITAN "--optimizer.early_step_in_backward"),
    ROW(offload_optimizer, 1,
        ZERO("\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}")),
    ROW(offload_optimizer, 1, ZERO("\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}")),
    ROW(offload_optimizer, 1, MEGATRON "--use-precision-aware-optimizer --optimizer-cpu-offload"),
    ROW(offload_optimizer, 1, TITAN "--training.enable_cpu_offload"),
    ROW(offload_weights, 1,
        ZERO("\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}}")),
    ROW(offload_weights, 1, ACCELERATE(FSDP "  fsdp_offload_params: true")),
    ROW(offload_weights, 1, HF "--fsdp full_shard auto_wrap offload"),
    ROW(accumulates_without_sync, 1, HF "--fsdp full_shard --gradient_accumulation_steps 2"),
    ROW(accumulates_without_sync, 0, HF "--fsdp full_shard"),
    ROW(accumulates_without_sync, 0, HF "--gradient_accumulation_steps 2"),
    ROW(accumulates_without_sync, 0, TITAN "--training.global_batch_size 128"),

    /* what is made again */
    ROW(recompute, WORKLOAD_KEEPS_ALL, MEGATRON),
    ROW(recompute, WORKLOAD_CORE, MEGATRON "--recompute-activations"),
    ROW(recompute, WORKLOAD_FULL,
        MEGATRON "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
    ROW(recompute, WORKLOAD_EXPERTS,
        MEGATRON "--num-experts 8 --recompute-granularity selective --recompute-modules moe core_attn"),
    ROW(recompute, WORKLOAD_EXPERTS_AND_NORMS,
        MEGATRON "--num-experts 8 --recompute-granularity selective --recompute-modules moe layernorm"),
    ROW(recompute, WORKLOAD_EXPERTS, MEGATRON "--num-experts 8 --moe-layer-recompute"),
    ROW(recompute, WORKLOAD_ALTERNATE, TITAN),
    ROW(recompute, WORKLOAD_EVERY_SECOND, TITAN "--activation_checkpoint.selective_ac_option op"),
    ROW(recompute, WORKLOAD_FULL, TITAN "--activation_checkpoint.selective_ac_option 1"),
    ROW(recompute, WORKLOAD_FULL, TITAN "--activation_checkpoint.mode full"),
    ROW(recompute, WORKLOAD_KEEPS_ALL, TITAN "--activation_checkpoint.mode none"),
    ROW(recompute, WORKLOAD_KEEPS_ALL, HF),
    ROW(recompute, WORKLOAD_FULL, HF "--gradient_checkpointing"),
    ROW(recompute, WORKLOAD_FULL, SFT),
    ROW(recompute, WORKLOAD_KEEPS_ALL, SFT "--gradient_checkpointing False"),
    ROW(recompute, WORKLOAD_FULL, ACCELERATE(FSDP "  fsdp_activation_checkpointing: true")),
    ROW(remade_layers, 0, HF "--gradient_checkpointing"),
    ROW(remade_layers, 3,
        MEGATRON "--recompute-granularity full --recompute-method block --recompute-num-layers 3"),
    ROW(inputs_offloaded, 1, SFT "--activation_offloading"),
    ROW(inputs_offloaded, 0,
        ZERO("\"activation_checkpointing\": {\"cpu_checkpointing\": true}") "--gradient_checkpointing"),

    /* kernels */
    ROW(attention, WORKLOAD_FLASH, MEGATRON),
    ROW(attention, WORKLOAD_EAGER, HF "--attn_implementation eager"),
    ROW(attention, WORKLOAD_FLASH, HF),
    ROW(attention, WORKLOAD_FUSED_SOFTMAX, MEGATRON "--attention-backend unfused"),
    ROW(attention, WORKLOAD_EAGER, MEGATRON "--transformer-impl local --no-masked-softmax-fusion"),
    ROW(attention, WORKLOAD_FLASH, MEGATRON "--transformer-impl local --use-flash-attn"),
    ROW(first_flash, 1, MEGATRON "--transformer-impl local --use-flash-attn-v1"),
    ROW(norm, WORKLOAD_NORM_WRITTEN, HF),
    ROW(norm, WORKLOAD_NORM_FUSED, HF "--use_liger_kernel"),
    ROW(norm, WORKLOAD_NORM_FUSED, MEGATRON),
    ROW(model.activation, WORKLOAD_ACTIVATION_NEW, GPT2),
    ROW(model.activation, WORKLOAD_ACTIVATION_KERNEL, BERT),
    ROW(model.activation, WORKLOAD_ACTIVATION_KERNEL, MEGATRON),
    ROW(bias_apart, 0, MEGATRON),
    ROW(bias_apart, 1, MEGATRON "--no-bias-gelu-fusion"),
    ROW(bias_apart, 0, GPT2),
    ROW(gate, WORKLOAD_GATE_FUSED, MEGATRON),
    ROW(gate, WORKLOAD_GATE_WRITTEN, MEGATRON "--no-bias-swiglu-fusion"),
    ROW(gate, WORKLOAD_GATE_FUSED, HF "--use_liger_kernel"),
    ROW(loss, WORKLOAD_LOSS_UPCAST, HF),
    ROW(loss, WORKLOAD_LOSS_LINEAR, HF "--use_liger_kernel"),
    ROW(loss_chunks, 31, HF "--use_liger_kernel"), /* 128,256 words by 4,096 */
    ROW(loss, WORKLOAD_LOSS_VOCABULARY, MEGATRON "--cross-entropy-loss-fusion"),
    ROW(loss, WORKLOAD_LOSS_FUSED, MEGATRON "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"),
    ROW(logits_held, 0, HF "--use_liger_kernel"),
    ROW(logits_whole, 1, TITAN "--parallelism.tensor_parallel_degree 2 --parallelism.disable_loss_parallel"),
    ROW(logits_whole, 0, TITAN "--parallelism.tensor_parallel_degree 2"),
    ROW(hidden_dropout, 1, MEGATRON),
    ROW(hidden_dropout, 0, MEGATRON "--hidden-dropout 0"),
    ROW(attention_dropout, 1, MEGATRON),
    ROW(attention_dropout, 0, MEGATRON "--attention-dropout 0.0"),
    ROW(embedding_dropout, 1, BERT),
    ROW(keys_expanded, 0, MEGATRON),
    ROW(keys_expanded, 1, HF),
    ROW(keys_expanded, 0, HF "--attn_implementation flash_attention_2"),
    ROW(compiled, 1, HF "--torch_compile"),
    ROW(compiled, 1, HF "--torch_compile_mode reduce-overhead"),
    ROW(compiled, 1, ACCELERATE("dynamo_config:\n  dynamo_backend: INDUCTOR")),
    ROW(compiled, 0, ACCELERATE("dynamo_config:\n  dynamo_backend: 'NO'")),
    ROW(compiled, 1, TITAN "--compile.enable"),
    ROW(compiled, 1, TITAN "--training.compile"),

    /* shards */
    ROW(reshards_after_forward, 1, HF "--fsdp full_shard"),
    ROW(reshards_after_forward, 0, HF "--fsdp shard_grad_op"),
    ROW(reshards_after_forward, 0, ACCELERATE(FSDP "  fsdp_sharding_strategy: 2")),
    ROW(reshards_after_forward, 1,
        ACCELERATE(FSDP "  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP")),
    ROW(reshards_after_forward, 0, ACCELERATE(FSDP "  fsdp_version: 2\n  fsdp_reshard_after_forward: false")),
    ROW(reshards_after_forward, 1, TITAN),
    ROW(reshards_after_forward, 0, TITAN "--parallelism.fsdp_reshard_after_forward never"),
    ROW(reshards_after_forward, 0, TITAN "--parallelism.pipeline_parallel_degree 2"),
    ROW(reshards_after_forward, 1, MEGATRON "--use-torch-fsdp2"),
    ROW(reshards_after_forward, 0, MEGATRON "--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward"),
    ROW(wraps_layers, 0, HF "--fsdp full_shard"),
    ROW(wraps_layers, 1, HF "--fsdp full_shard auto_wrap"),
    ROW(wraps_layers, 1, ACCELERATE(FSDP)),
    ROW(wraps_layers, 0,
        ACCELERATE("distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: NO_WRAP")),
    ROW(wraps_layers, 1, TITAN),
    ROW(in_buckets, 1, HF),
    ROW(in_buckets, 0, MEGATRON),
    ROW(bucket_elements, 500000000, ZERO("\"zero_optimization\": {\"stage\": 2}")),
    ROW(bucket_elements, 1000, ZERO("\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1e3}")),
    ROW(bucket_elements, 16777216,
        ZERO("\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": \"auto\"}")),
    ROW(bucket_elements, 0, MEGATRON "--ddp-bucket-size 1000"),
    ROW(reuse_elements, 1000000000, ZERO("\"zero_optimization\": {\"stage\": 3}")),
    ROW(reuse_elements, 7000,
        ZERO("\"zero_optimization\": {\"stage\": 3, \"stage3_max_reuse_distance\": 7e3}")),
    ROW(overlaps_gradients, 1, MEGATRON "--overlap-grad-reduce"),
    ROW(overlaps_gradients, 0, MEGATRON),
    ROW(overlaps_gradients, 0, ZERO("\"zero_optimization\": {\"stage\": 2}")),
    ROW(overlaps_gradients, 1, ZERO("\"zero_optimization\": {\"stage\": 3}")),

    ROW(fp8, 0, MEGATRON),
    ROW(fp8, 1, MEGATRON "--fp8-format hybrid"),
    ROW(fp8, 0, TITAN "--model.converters float8"),

    /* adapters */
    ROW(lora_rank, 0, SFT),
    ROW(lora_rank, 16, SFT "--use_peft"),
    ROW(lora_matrices, 2, SFT "--use_peft"),
    ROW(lora_matrices, 7, SFT "--use_peft --lora_target_modules all-linear"),
    ROW(lora_matrices, 4, SFT "--use_peft --lora_target_modules q_proj k_proj v_proj o_proj"),
    ROW(lora_matrices, 4, GPT2 "--use_peft --lora_target_modules all-linear"),
    ROW(frozen_bits, 32, SFT "--use_peft"),
    ROW(frozen_bits, 16, SFT "--use_peft --torch_dtype bfloat16"),
    ROW(frozen_bits, 4, SFT "--use_peft --load_in_4bit"),
    ROW(frozen_bits, 8, SFT "--use_peft --load_in_8bit"),
    ROW(moment_bytes, 4, SFT "--use_peft --torch_dtype bfloat16"),

    /* the allocator */
    ROW(allocator.expandable_segments, 0, HF),
    ROW(allocator.expandable_segments, 1, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" HF),
    ROW(allocator.expandable_segments, 1, "PYTORCH_ALLOC_CONF=expandable_segments:True " HF),
    ROW(allocator.max_split_bytes, 128 << 20,
        "export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.6,max_split_size_mb:128\n" HF),
    ROW(allocator.max_rounding_bytes, 64 << 20,
        "export PYTORCH_CUDA_ALLOC_CONF=max_non_split_rounding_mb:64\n" HF),
    ROW(allocator.power2_divisions[3], 8, "export PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:8\n" HF),
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* Of a bool, an int, an enum or an int64_t. */
static int64_t value_of(const struct workload *w, const struct row *row)
{
    const char *at = (const char *)w + row->offset;
    int32_t half = 0;
    int64_t whole = 0;
    memcpy(&half, at, row->size == 4 ? 4 : 0);
    memcpy(&whole, at, row->size == 8 ? 8 : 0);
    return row->size == 1 ? *(const bool *)at : row->size == 4 ? half : whole;
}

static int read_workload(const char *script, struct arena *arena, struct workload *w, struct error *err)
{
    struct training_job job;
    struct jobs_request request = {0};
    return jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, err) ||
           job_workload(&job, w, err);
}

TEST(workload_fields, "options of each framework reach the fields of a workload")
{
    for (int i = 0; i < ROWS; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(!read_workload(rows[i].script, arena, &w, &err), "%s: %s", rows[i].script, err.text);
        ASSERT_MSG(value_of(&w, &rows[i]) == rows[i].value, "%s: %s is %lld, not %lld", rows[i].script,
                   rows[i].field, (long long)value_of(&w, &rows[i]), (long long)rows[i].value);
        arena_free(arena);
    }
}

TEST(workload_expert_capacity, "a capacity factor counts where experts' inputs are padded to it")
{
    static const struct {
        const char *script;
        double capacity;
    } cases[] = {{MEGATRON "--num-experts 8 --moe-expert-capacity-factor 1.5", 0},
                 {MEGATRON
                  "--num-experts 8 --moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity",
                  1.5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(!read_workload(cases[i].script, arena, &w, &err), "%s", err.text);
        ASSERT_NEAR(w.expert_capacity, cases[i].capacity, 1e-12);
        arena_free(arena);
    }
}

#define STAGES(n)       MEGATRON "--pipeline-model-parallel-size " #n " "
#define LAYOUT          "--pipeline-model-parallel-layout "
#define TITAN_STAGES(n) TITAN "--parallelism.pipeline_parallel_degree " #n " "
#define PARTS           "--parallelism.module_fqns_per_model_part "
#define DEBUG_STAGES                                                                                         \
    "torchrun --nproc_per_node 8 -m torchtitan.train --model.flavor debugmodel "                             \
    "--parallelism.pipeline_parallel_degree 2 "

/* Of 8 layers, of torchtitan's 8B 32, of its debugmodel 6; chunks in the model's order. */
static const struct {
    const char *script, *layers;
} chunk_rows[] = {
    {MEGATRON, "even"},
    {STAGES(4), "2 2 2 2"},
    {STAGES(2) "--num-virtual-stages-per-pipeline-rank 2", "2 2 2 2"},
    {STAGES(2) "--num-layers-per-virtual-pipeline-stage 1", "1 1 1 1 1 1 1 1"},
    {STAGES(4) "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3", "1 2 2 3"},
    {STAGES(2) "--decoder-first-pipeline-num-layers 2", "2 6"},
    {STAGES(2) "--decoder-last-pipeline-num-layers 2 --num-virtual-stages-per-pipeline-rank 2", "3 1 3 1"},
    {STAGES(2) "--num-layers 7 --account-for-loss-in-pipeline-split", "4 3"},
    {STAGES(4) "--num-layers 14 --account-for-embedding-in-pipeline-split "
               "--account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2",
     "1 2 2 2 2 2 2 1"},
    {STAGES(2) LAYOUT "'Et*5|t*3L'", "5 3"},
    {STAGES(4) LAYOUT "'E|(tt|)*2,t*4L'", "0 2 2 4"},
    {STAGES(2) LAYOUT "'Et,*3|(t|t,)*2tL'", "3 1 2 2"},
    /* 34 of them, with the ends: 9 9 8 8 */
    {TITAN_STAGES(4), "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_schedule Interleaved1F1B", "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
                     "--parallelism.pipeline_parallel_layers_per_stage 9",
     "8 9 8 7"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_first_stage_less_layers 4 "
                     "--parallelism.pipeline_parallel_last_stage_less_layers 0",
     "14 18"},
    {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.12", "12 20"},
    {DEBUG_STAGES PARTS "'tok_embeddings,layers.0;layers.1,layers.2,layers.3,layers.4,layers.5,norm,output'",
     "1 5"},
    {"cat > t.toml <<'EOF'\n[model]\nflavor = \"debugmodel\"\n[parallelism]\npipeline_parallel_degree = 2\n"
     "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\", \"layers.1\"],\n"
     "  [\"layers.2\", \"layers.3\", \"layers.4\", \"layers.5\", \"norm\", \"output\"],]\nEOF\n"
     "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file t.toml",
     "2 4"},
};

static void list_chunks(const struct workload *w, struct text *out)
{
    for (int64_t i = 0; w->chunk_layers && i < w->pp * w->virtual_stages; i++) {
        ASSERT_INT(workload_chunk_layers(w, i % w->pp, i / w->pp), w->chunk_layers[i]);
        text_printf(out, i ? " %lld" : "%lld", (long long)w->chunk_layers[i]);
    }
    if (!w->chunk_layers)
        text_add(out, "even");
}

TEST(workload_chunks, "each chunk of a pipeline has the layers that the framework gives it")
{
    for (size_t i = 0; i < sizeof chunk_rows / sizeof chunk_rows[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct text list = {0};
        struct workload w;
        ASSERT_MSG(!read_workload(chunk_rows[i].script, arena, &w, &err), "%s: %s", chunk_rows[i].script,
                   err.text);
        list_chunks(&w, &list);
        ASSERT_MSG(!strcmp(list.data, chunk_rows[i].layers), "%s: %s", chunk_rows[i].script, list.data);
        ASSERT_OK(workload_check(&w, &err));
        text_free(&list);
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

TEST(workload_activations, "an activation by transformers' name keeps what that name computes")
{
    static const struct {
        const char *name;
        enum workload_activation activation;
    } names[] = {
        {"gelu", WORKLOAD_ACTIVATION_KERNEL},          {"gelu_pytorch_tanh", WORKLOAD_ACTIVATION_KERNEL},
        {"silu", WORKLOAD_ACTIVATION_KERNEL},          {"swish", WORKLOAD_ACTIVATION_KERNEL},
        {"leaky_relu", WORKLOAD_ACTIVATION_KERNEL},    {"relu6", WORKLOAD_ACTIVATION_KERNEL},
        {"relu", WORKLOAD_ACTIVATION_RESULT},          {"sigmoid", WORKLOAD_ACTIVATION_RESULT},
        {"tanh", WORKLOAD_ACTIVATION_RESULT},          {"gelu_new", WORKLOAD_ACTIVATION_NEW},
        {"gelu_python_tanh", WORKLOAD_ACTIVATION_NEW}, {"gelu_accurate", WORKLOAD_ACTIVATION_NEW},
        {"gelu_fast", WORKLOAD_ACTIVATION_FAST},       {"gelu_python", WORKLOAD_ACTIVATION_ERF},
        {"quick_gelu", WORKLOAD_ACTIVATION_QUICK},     {"gelu_10", WORKLOAD_ACTIVATION_CLIPPED},
    };
    struct error err = {0};
    struct workload w;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ASSERT_OK(read_activation(names[i].name, false, &w, &err));
        ASSERT_MSG(w.model.activation == names[i].activation, "%s: %d", names[i].name, w.model.activation);
    }
    ASSERT(read_activation("laplace", false, &w, &err) == -1);
    ASSERT(strstr(err.text, "no rule is about the activation laplace"));
    ASSERT_OK(read_activation("laplace", true, &w, &err));
}

/* ---- that no field is left out ---- */

/* What no launch says: the program's own habits (workload_default()), the card, how old PyTorch is, and what is counted. */
static const char *const without_option[] = {
    "classes",         "wraps_ends",       "parameters",          "loss_chunks",
    "inputs_whole",    "pads_heads_to",    "old_torch",           "context_bytes",
    "capacity_bytes",  "cublas_bytes",     "softmax_keeps_input", "model",
    "wraps_ends",                          /* by version */
    "buckets_early",   "projections_kept", /* likewise */
    "expert_capacity",                     /* no whole number: the test below */
    "allocator",                           /* a struct, whose fields are in the table */
    "chunk_layers",                        /* a list: the test below the table */
};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof without_option / sizeof without_option[0]; i++)
        if (!strcmp(without_option[i], name))
            return true;
    for (int i = 0; i < ROWS; i++) {
        const char *dot = strchr(rows[i].field, '.');
        if (!strcmp(dot ? dot + 1 : rows[i].field, name))
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

TEST(workload_fields_complete, "every field of a workload is in the table, or known to have no option")
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

/* ---- what no rule is about ---- */

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
        {STAGES(4) "--decoder-first-pipeline-num-layers 3",
         "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3: the other stages cannot "
         "share 5 layers"},
        {STAGES(4) "--num-layers 7", "--pipeline-model-parallel-size 4: the other stages cannot share 7"},
        {STAGES(2) "--decoder-last-pipeline-num-layers 9", "--decoder-last-pipeline-num-layers 9: the model"},
        {STAGES(2) "--decoder-last-pipeline-num-layers 3 --num-virtual-stages-per-pipeline-rank 2",
         "2 virtual stages cannot share the 5 layers of stage 0"},
        {STAGES(2) "--decoder-first-pipeline-num-layers 4 --num-layers-per-virtual-pipeline-stage 2",
         "--num-layers-per-virtual-pipeline-stage 2 does not go with --decoder-first-pipeline-num-layers 4"},
        {STAGES(2) "--decoder-first-pipeline-num-layers 4 --account-for-loss-in-pipeline-split",
         "--decoder-first-pipeline-num-layers 4 and --account-for-loss-in-pipeline-split"},
        {STAGES(2) LAYOUT "'Et*5|t*2L'", LAYOUT "Et*5|t*2L: it has 7 layers (t), and the model 8"},
        {STAGES(2) LAYOUT "'Et*4|t*2|t*2L'", LAYOUT "Et*4|t*2|t*2L: 3 parts, which 2 stages cannot share"},
        {STAGES(2) LAYOUT "'Et*4|t*4'", "end with L"},
        {STAGES(2) LAYOUT "'Et*4|x*4L'", "'x' stands where it means nothing"},
        {STAGES(2) LAYOUT "'E(t|)*99999999999L'", "no layout that can be written out"},
        {STAGES(2) LAYOUT "'Et*4|t*4mL'", "(m) 1, and the model 0"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.12,layers.20",
         "parallelism.pipeline_parallel_split_points layers.12,layers.20: 3 chunks, which 1F1B over 2 ranks"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_split_points layers.33", "layers.33: its layers"},
        {TITAN_STAGES(2) "--parallelism.pipeline_parallel_first_stage_less_layers 33",
         "first_stage_less_layers 33: the model has 32 layers"},
        {DEBUG_STAGES PARTS "'layers.0,layers.2;layers.1,layers.3,layers.4,layers.5'",
         "parallelism.module_fqns_per_model_part layers.0,layers.2;layers.1,layers.3,layers.4,layers.5: its "
         "layers are not"},
        {DEBUG_STAGES PARTS "'layers.0,layers.1;layers.2'", "it has not as many layers as the model"},
        {MEGATRON "--num-experts 8 --moe-layer-freq 2", "every so many-th"},
        {MEGATRON "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
         "in chunks of several layers"},
        {MEGATRON "--recompute-granularity selective --recompute-modules mlp", "chosen modules"},
        {HF "--optim galore_adamw", "the optimizer galore_adamw"},
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
        ASSERT_MSG(read_workload(refused[i].script, arena, &w, &err), "%s is not refused", refused[i].script);
        ASSERT_MSG(strstr(err.text, refused[i].message), "%s: %s", refused[i].script, err.text);
        arena_free(arena);
    }
}

TEST(workload_harmless, "options that ask for nothing, and stages that come out even, are no obstacle")
{
    static const char *const scripts[] = {
        MEGATRON "--optimizer-cpu-offload --optimizer-offload-fraction 1",
        MEGATRON "--num-layers 14 --pipeline-model-parallel-size 4 --account-for-embedding-in-pipeline-split "
                 "--account-for-loss-in-pipeline-split",
        MEGATRON "--num-layers 14 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3 "
                 "--decoder-last-pipeline-num-layers 3",
        HF "--use_dora False",
        ZERO(
            "\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 1, \"mics_shard_size\": -1}"),
        TITAN "--float8.recipe_name rowwise",
        TITAN "--parallelism.pipeline_parallel_first_stage_less_layers 1",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        struct arena *arena = arena_create();
        struct error err = {0};
        struct workload w;
        ASSERT_MSG(!read_workload(scripts[i], arena, &w, &err), "%s: %s", scripts[i], err.text);
        arena_free(arena);
    }
}
