#!/bin/bash
accelerate launch --use_deepspeed --num_processes 8 --mixed_precision=bf16 --dynamo_backend no -- \
    run_clm.py --model_name_or_path ../../../examples/launch/models/Mixtral-8x7B --block_size 2048 \
    --per_device_train_batch_size 1 --output_dir out $EXTRA
