#!/bin/bash
# FSDP2 as `accelerate config` wrote it down.
accelerate launch --config_file fsdp.yaml --main_process_ip "$MASTER_ADDR" --machine_rank "$NODE_RANK" \
    sft.py --model_name_or_path models/Llama-3.1-8B --torch_dtype bfloat16 \
    --dataset_name trl-lib/Capybara --max_length 4096 --packing \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --use_liger_kernel \
    --learning_rate 2.0e-5 --output_dir out
