#!/bin/bash
# 8B at 131072 tokens: the sequence is split over four context-parallel ranks.
torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d pretrain_gpt.py \
    --num-layers=32 --hidden-size=4096 --ffn-hidden-size=14336 --num-attention-heads=32 \
    --group-query-attention --num-query-groups=8 --normalization=RMSNorm --swiglu \
    --position-embedding-type=rope --disable-bias-linear --untie-embeddings-and-output-weights \
    --attention-dropout=0 --hidden-dropout=0 \
    --seq-length=131072 --max-position-embeddings=131072 \
    --tensor-model-parallel-size=8 --context-parallel-size=4 --sequence-parallel \
    --micro-batch-size=1 --global-batch-size=32 --use-distributed-optimizer \
    --recompute-granularity=full --recompute-method=block --recompute-num-layers=16 \
    --tokenizer-type=NullTokenizer --vocab-size=128255 --train-iters=100 --lr=1e-5 --bf16
