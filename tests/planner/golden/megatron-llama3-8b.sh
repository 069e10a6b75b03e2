#!/bin/bash
# memplan plan ...
# Needs Megatron-LM's folder in MEGATRON; on several nodes NODE_RANK and MASTER_ADDR.
set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1
arguments=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000
    --normalization RMSNorm --swiglu
    --disable-bias-linear
    --group-query-attention --num-query-groups 8
    --norm-epsilon 1e-05 --attention-dropout 0 --hidden-dropout 0
    --untie-embeddings-and-output-weights
    --tokenizer-type NullTokenizer --vocab-size 128255 --padded-vocab-size 128256
    --micro-batch-size 1 --global-batch-size 64
    --tensor-model-parallel-size 4
    --sequence-parallel
    --pipeline-model-parallel-size 4
    --pipeline-model-parallel-layout 'Et*9|(t*8|)*2t*7L'
    --use-distributed-optimizer
    --overlap-grad-reduce --ddp-bucket-size 6553600
    --bf16 --accumulate-allreduce-grads-in-fp32
    --recompute-granularity full
    --recompute-method block --recompute-num-layers 2
    --mock-data
    --train-iters 100 --lr 3e-4
)
exec torchrun --nnodes 4 --nproc-per-node 8 \
    --node-rank "${NODE_RANK:-0}" --master-addr "${MASTER_ADDR:-localhost}" \
    --master-port "${MASTER_PORT:-29500}" \
    "${MEGATRON:-.}/pretrain_gpt.py" "${arguments[@]}" "$@"
