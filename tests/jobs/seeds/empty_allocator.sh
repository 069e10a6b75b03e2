#!/bin/bash
PYTORCH_CUDA_ALLOC_CONF= \
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --bf16
