#!/bin/bash
# Megatron-DeepSpeed: the script writes DeepSpeed's configuration itself.
ZERO_STAGE=1
MICRO_BATCH_SIZE=2
GLOBAL_BATCH_SIZE=512
config_json="./ds_config.json"

cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO_BATCH_SIZE,
  "train_batch_size": $GLOBAL_BATCH_SIZE,
  "gradient_clipping": 1.0,
  "zero_optimization": {
    "stage": $ZERO_STAGE
  },
  "bf16": {
    "enabled": true
  },
  "steps_per_print": 2000
}
EOT

DEEPSPEED_ARGS=" \
    --deepspeed \
    --deepspeed_config ${config_json} \
    --zero-stage ${ZERO_STAGE} \
    --deepspeed-activation-checkpointing"

deepspeed --num_nodes 4 --num_gpus 8 --hostfile hosts pretrain_gpt.py \
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \
    --num-layers 40 --hidden-size 5120 --num-attention-heads 40 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size $MICRO_BATCH_SIZE --global-batch-size $GLOBAL_BATCH_SIZE \
    --tokenizer-type GPT2BPETokenizer --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
    --train-samples 1000000 --lr 1e-4 --checkpoint-activations --bf16 $DEEPSPEED_ARGS
