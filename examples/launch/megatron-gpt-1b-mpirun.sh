#!/bin/bash
# GPT 1.3B over two machines, started by MPI.
NODES=${NODES:-2}
GPUS=8

mpirun --allow-run-as-root -np $((NODES * GPUS)) --map-by ppr:$GPUS:node \
    -x NCCL_DEBUG=WARN -x MASTER_ADDR -mca btl ^openib \
    python3 -u pretrain_gpt.py \
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 4 --global-batch-size 256 \
    --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \
    --attention-dropout 0 --hidden-dropout 0 \
    --use-distributed-optimizer --overlap-grad-reduce \
    --lr 2e-4 --train-samples 300000 --bf16
