#!/bin/bash
: "${GPUS:=}8"
torchrun --nproc_per_node "$GPUS" pretrain_gpt.py --num-layers 2 --bf16
