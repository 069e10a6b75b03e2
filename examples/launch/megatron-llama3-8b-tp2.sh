#!/bin/bash
# Llama 3 8B with tensor and sequence parallelism on one machine of 8 GPUs.
set -euo pipefail

TP=${TP:-2}
PP=1
GPUS_PER_NODE=8

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
)

TOKENIZER_ARGS=(
    --tokenizer-type NullTokenizer
    --vocab-size 128255   # one more is the end of a document
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-samples 1953125000
    --lr 0.00015
    --min-lr 0.00001
    --clip-grad 1.0
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --bf16
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 1 --master_port 6000 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TOKENIZER_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PARALLEL_ARGS[@]}" \
    --mock-data --log-throughput "$@"
