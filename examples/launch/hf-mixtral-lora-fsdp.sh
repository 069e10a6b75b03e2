#!/bin/bash
# Mixtral with adapters under FSDP, from options alone.
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_id 7 sft.py \
    --model_name_or_path models/Mixtral-8x7B --torch_dtype bfloat16 --attn_implementation sdpa \
    --fsdp "full_shard auto_wrap" --fsdp_config fsdp_config.json \
    --use_peft --lora_r 16 --lora_target_modules all-linear \
    --max_length 2048 --per_device_train_batch_size 2 --dataset_name timdettmers/openassistant-guanaco \
    --bf16 --output_dir out
