#!/bin/bash
#SBATCH --job-name=llama2-70b
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive

# Llama 2 70B, tensor 8, pipeline 4 in interleaved chunks, over 8 machines.

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
NUM_LAYERS=80
PP=4
CHUNKS=2

OPTIONS=" \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size $PP \
    --num-layers-per-virtual-pipeline-stage $((NUM_LAYERS / PP / CHUNKS)) \
    --sequence-parallel \
    --use-distributed-optimizer \
    --num-layers $NUM_LAYERS \
    --hidden-size 8192 \
    --ffn-hidden-size 28672 \
    --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 \
    --seq-length 4096 --max-position-embeddings 4096 \
    --position-embedding-type rope --normalization RMSNorm --swiglu \
    --disable-bias-linear --untie-embeddings-and-output-weights \
    --attention-dropout 0 --hidden-dropout 0 \
    --micro-batch-size 1 --global-batch-size 256 \
    --recompute-activations --use-flash-attn \
    --tokenizer-type NullTokenizer --vocab-size 31999 \
    --train-iters 1000 --lr 1.5e-4 --bf16"

srun --label bash -c "torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 \
    --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29500 pretrain_gpt.py $OPTIONS"
