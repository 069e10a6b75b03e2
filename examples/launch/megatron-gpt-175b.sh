#!/bin/bash
#SBATCH --nodes=128
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8

# GPT-3 175B: one task per GPU, so that srun itself starts all ranks. All of a layer is recomputed.
DIR=$(pwd)
mkdir -p "$DIR/logs"

options="--num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
 --seq-length 2048 --max-position-embeddings 2048 \
 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 \
 --micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 \
 --attention-dropout 0 --hidden-dropout 0 \
 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
 --tokenizer-type GPT2BPETokenizer --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
 --train-samples 146484375 --lr 6.0e-5 --min-lr 6.0e-6 --lr-decay-style cosine \
 --use-distributed-optimizer --sequence-parallel --init-method-std 0.006 --bf16"

run_cmd="python -u ${DIR}/pretrain_gpt.py $options"

srun -l --output="$DIR/logs/%x_%j.log" sh -c "${run_cmd}"
