#include "planner/frameworks/rank_rules.h"

/* name, role, formula, source. "parameters" are those of the part on this rank: after tensor, pipeline and expert parallelism,
 * before any sharding. */
const struct rank_rule_row rank_rules[RANK_RULES] = {
    [RANK_WEIGHT] = {"weights", ROLE_PARAMETER, "weight_bytes x parameters / shards",
                     "shards: FSDP and ZeRO-3 alone split weights (Rajbhandari et al. 2020, section 5)"},
    [RANK_ADAPTER] =
        {"adapters", ROLE_PARAMETER, "4 or weight_bytes x parameters of adapters / shards",
         "PEFT tuners/tuners_utils.py, cast_adapter_dtype(): in fp32 where the model is in 16 bits"},
    [RANK_FROZEN] = {"frozen weights", ROLE_PARAMETER, "frozen_bits / 8 x parameters / shards",
                     "Dettmers et al. 2023, section 3: NF4 with scales that are quantized, 4.127 bits"},
    [RANK_CUBLAS] = {"cuBLAS workspace", ROLE_WORKSPACE, "8.125 MiB, on Hopper 32 MiB",
                     "aten/src/ATen/cuda/CublasHandlePool.cpp"},
    [RANK_MEMORY_BUFFER] =
        {"Megatron's global memory buffer", ROLE_WORKSPACE,
         "compute_bytes x tokens x (heads x sequence / tp without flash, or hidden)",
         "Megatron-LM dot_product_attention.py, layers.py: GlobalMemoryBuffer, never given back"},
    [RANK_GRADIENT_BUFFER] = {"gradient buffer", ROLE_GRADIENT, "gradient_bytes x parameters",
                              "Megatron-LM param_and_grad_buffer.py; llm.c: one buffer from the start"},
    [RANK_HEAD_GRADIENT] = {"gradient of the head", ROLE_GRADIENT, "compute_bytes x vocab x hidden / tp",
                            "seen in Megatron's golden logs of pipelines: stays on the last stage"},
    [RANK_MASTER] = {"master weights", ROLE_OPTIMIZER, "master_bytes x parameters / shards",
                     "Micikevicius et al. 2018, section 3.1"},
    [RANK_MOMENT_1] = {"first moments", ROLE_OPTIMIZER, "moment_bytes x parameters / shards",
                       "torch/optim/adam.py: exp_avg; of SGD, momentum_buffer"},
    [RANK_MOMENT_2] = {"second moments", ROLE_OPTIMIZER, "moment_bytes x parameters / shards",
                       "torch/optim/adam.py: exp_avg_sq"},
    [RANK_MOMENTS_8BIT] = {"8-bit moments", ROLE_OPTIMIZER, "(1 + 4 / 2048) x parameters / shards",
                           "Dettmers et al. 2022, section 2: blocks of 2048, each with a scale"},
    [RANK_MOMENTS_EMBEDDING] = {"moments in fp32 besides", ROLE_OPTIMIZER, "3 x parameters",
                                "Transformers' Trainer: GlobalOptimManager keeps embeddings in 32 bits"},
    [RANK_DDP_BUCKETS] = {"DDP buckets", ROLE_COMMUNICATION, "weight_bytes x parameters",
                          "torch/csrc/distributed/c10d/reducer.cpp: gradient_as_bucket_view is off"},
    [RANK_PARTITION_GRADIENT] = {"gradients of the partition", ROLE_GRADIENT,
                                 "gradient_bytes x parameters / shards",
                                 "DeepSpeed 0.19.8 stage_1_and_2.py, copy_grads_in_partition(): from "
                                 "backward to the step; stage3.py, grad_partitions_flat_buffer: always"},
    [RANK_FLAT_BUCKET] = {"reduction bucket", ROLE_COMMUNICATION,
                          "reduce_bucket_size x compute_bytes (ZeRO-1: gradient_bytes)",
                          "DeepSpeed 0.19.8 stage_1_and_2.py, setup_buckets(): two where communication "
                          "overlaps, in backward; stage3.py: one, always"},
    [RANK_BUCKET_COPY] = {"copy of a bucket", ROLE_COMMUNICATION, "compute_bytes x elements in the bucket",
                          "DeepSpeed 0.19.8 stage_1_and_2.py, allreduce_bucket(): flattened; "
                          "coalesced_collectives.py, reduce_scatter_coalesced(): torch.cat"},
    [RANK_OFFLOAD_BUFFER] = {"gradient on its way to the host", ROLE_COMMUNICATION,
                             "compute_bytes x parameters of the largest",
                             "DeepSpeed 0.19.8 stage_1_and_2.py, temp_grad_buffer_for_gpu_offload"},
    [RANK_GATHERED] = {"gathered weights, one buffer", ROLE_COMMUNICATION, "compute_bytes x parameters",
                       "FSDP _flat_param.py; FSDP2 _fsdp_param_group.py, unshard(); DeepSpeed stage3.py"},
    [RANK_WHOLE] = {"gathered weights", ROLE_PARAMETER, "compute_bytes x parameters",
                    "FSDP2 _fsdp_param_group.py, wait_for_unshard(): copied out of the buffer"},
    [RANK_FP8_WEIGHT] = {"weights in fp8, and transposed", ROLE_WORKSPACE, "2 x parameters",
                         "Transformer Engine 2.20 module/linear.py, layernorm_linear.py: rowwise and "
                         "columnwise, cached"},
    [RANK_WIDENED] = {"quantized weights while they are used", ROLE_WORKSPACE,
                      "compute_bytes x parameters of one matrix",
                      "bitsandbytes 0.50.2 backends/cuda/ops.py, gemm_4bit(): beyond few rows; "
                      "autograd/_functions.py, MatMul4Bit.backward(), MatMul8bitLt.backward()"},
    [RANK_FLATTENED] = {"weights while they are flattened", ROLE_PARAMETER, "weight_bytes x parameters",
                        "FSDP _flat_param.py, flatten_tensors(): torch.cat of a unit's whole parameters"},
    [RANK_CAST] =
        {"weights cast by autocast", ROLE_WORKSPACE, "compute_bytes x parameters",
         "aten/src/ATen/autocast_mode.cpp, cached_cast(): those that are trained stay; of frozen ones what "
         "backward reads"},
    [RANK_WEIGHT_GRADIENT] = {"gradients, before they are reduced", ROLE_GRADIENT,
                              "gradient bytes x parameters", "autograd: in the type of the weight"},
    [RANK_FLAT_GRADIENT] = {"gradients, flattened", ROLE_GRADIENT, "compute_bytes x parameters",
                            "FSDP _flat_param.py: views are a split, whose backward concatenates"},
    [RANK_REDUCE_INPUT] = {"input of the reduction", ROLE_COMMUNICATION, "reduce_bytes x parameters",
                           "FSDP2 _fsdp_collectives.py, foreach_reduce(): lives until the next unit's"},
    [RANK_SHARD_GRADIENT] = {"gradients", ROLE_GRADIENT, "weight_bytes x parameters / shards",
                             "FSDP2 _fsdp_collectives.py: the result of the reduction"},
    [RANK_STEP_FLAT] = {"gradients of the partition, flattened", ROLE_WORKSPACE,
                        "gradient_bytes x parameters / shards",
                        "DeepSpeed 0.19.8 stage_1_and_2.py, step(); stage3.py: 1e9 at a time"},
    [RANK_STEP_CAST] = {"gradients cast for the optimizer", ROLE_WORKSPACE,
                        "master_bytes x parameters / shards",
                        "Float16OptimizerWithFloat16Params; stage_1_and_2.py; stage3.py: 1e9 at a time"},
    [RANK_STEP_FOREACH] = {"foreach step: square roots", ROLE_WORKSPACE, "weight bytes x parameters / shards",
                           "torch/optim/adamw.py, _multi_tensor_adamw: _foreach_sqrt of all at once"},
    [RANK_STEP_LOOP] = {"step: square root and ratio", ROLE_WORKSPACE,
                        "weight bytes x parameters of the largest",
                        "torch/optim/adamw.py, _single_tensor_adamw"},
    [RANK_TOKENS] = {"tokens and targets", ROLE_INPUT, "8 x tokens", "int64"},
    [RANK_EMBEDDING_MASK] = {"embedding dropout mask", ROLE_ACTIVATION, "hidden x tokens / tp",
                             "Korthikanti et al. 2022, section 4.3"},
    [RANK_HEAD_INPUT] = {"input of the last norm", ROLE_ACTIVATION, "compute_bytes x hidden x tokens / tp",
                         "Korthikanti et al. 2022, section 4.3"},
    [RANK_HEAD_NORM] = {"input of the head", ROLE_ACTIVATION, "compute_bytes x hidden x tokens / tp",
                        "Korthikanti et al. 2022, section 4.3"},
    [RANK_STREAM_GRADIENT] = {"gradient of the residual stream", ROLE_ACTIVATION,
                              "compute_bytes x hidden x tokens / tp", "autograd: added to at each branch"},
    [RANK_LLMC_ENCODED] = {"encoded tokens and the last norm", ROLE_ACTIVATION,
                           "compute_bytes x hidden x tokens",
                           "llm.c train_gpt2.cu, fill_in_activation_sizes()"},
    [RANK_LLMC_GRADIENTS] = {"gradients of activations", ROLE_ACTIVATION,
                             "5 x compute_bytes x hidden x tokens",
                             "llm.c train_gpt2.cu, fill_in_grad_act_sizes(): two buffers for all layers; "
                             "since 2024-06-14 (cbe82e7) scratch_bt4c, scratch_btc"},
    [RANK_LLMC_GELU] = {"GELU of the layer that runs", ROLE_ACTIVATION, "4 x compute_bytes x hidden x tokens",
                        "llm.c train_gpt2.cu at f1e2ace6, fill_in_activation_sizes(): fch_gelu from -r 1 on"},
};

const char *model_part_name(enum model_part part)
{
    static const char *const names[MODEL_PARTS] = {"", "layers", "experts", "embedding", "head"};
    return names[part];
}
