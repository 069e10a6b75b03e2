#!/bin/bash
# memplan plan ...
# Needs Megatron-LM's folder in MEGATRON; on several nodes NODE_RANK and MASTER_ADDR.
set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1
arguments=(
    --num-layers 12 --hidden-size 768 --ffn-hidden-size 3072
    --num-attention-heads 12 --kv-channels 64
    --seq-length 1024 --max-position-embeddings 1024
    --position-embedding-type learned_absolute --normalization LayerNorm
    --norm-epsilon 1e-05 --attention-dropout 0 --hidden-dropout 0
    --tokenizer-type NullTokenizer --vocab-size 50256 --padded-vocab-size 50257
    --micro-batch-size 2 --global-batch-size 64
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 2
    --num-virtual-stages-per-pipeline-rank 3
    --overlap-grad-reduce --ddp-bucket-size 6553600
    --recompute-granularity selective --recompute-modules core_attn mlp
    --mock-data
    --train-iters 100 --lr 3e-4
)
exec torchrun --nnodes 1 --nproc-per-node 8 \
    --node-rank "${NODE_RANK:-0}" --master-addr "${MASTER_ADDR:-localhost}" \
    --master-port "${MASTER_PORT:-29500}" \
    "${MEGATRON:-.}/pretrain_gpt.py" "${arguments[@]}" "$@"
