#!/bin/bash
# Options in arrays, split over lines, with comments and trailing blanks; paths come as arguments.
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINTS=$1 # a folder
DATA=$2        # without .bin

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE 
    --nnodes $NUM_NODES 
    --master_addr localhost 
    --master_port 6000
)
MODEL_ARGS=(
    --num-layers 24 
    --hidden-size 2048 
    --num-attention-heads 16 
    --seq-length 2048 
    --max-position-embeddings 2048 
    --attention-backend auto # the fastest that works
)
TRAINING_ARGS=(
    --micro-batch-size 1 
    --global-batch-size $((WORLD_SIZE * 2)) 
    --fp16
    --lr 6.0e-5 
    --lr-decay-style cosine 
)
PARALLEL_ARGS=(
	--tensor-model-parallel-size 8 
	--pipeline-model-parallel-size 1 
)
DATA_ARGS=(
    --data-path 0.3 $DATA 0.7 /data/second_text_document
    --vocab-file vocab.json 
    --merge-file merges.txt 
    --split 949,50,1
    --tokenizer-type GPT2BPETokenizer
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${PARALLEL_ARGS[@]} \
    ${DATA_ARGS[@]} --save $CHECKPOINTS --load $CHECKPOINTS
