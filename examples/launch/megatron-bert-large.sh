#!/bin/bash
# BERT large, the old launcher.
GPUS=8
python -m torch.distributed.launch --nproc_per_node=$GPUS --nnodes=1 pretrain_bert.py \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 1 \
    --encoder-num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
    --seq-length 512 --max-position-embeddings 512 \
    --micro-batch-size 8 --global-batch-size 64 \
    --vocab-file bert-vocab.txt --vocab-size 30522 --tokenizer-type BertWordPieceLowerCase \
    --lr 0.0001 --train-iters 1000000 --fp16 --transformer-impl local
