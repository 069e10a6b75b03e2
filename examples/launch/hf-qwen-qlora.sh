#!/bin/bash
# QLoRA on one GPU: 4-bit weights, adapters on all linear layers.
MODEL=${1:-models/Qwen3-4B}
accelerate launch --num_processes 1 --mixed_precision bf16 sft.py \
    --model_name_or_path "$MODEL" \
    --dataset_name trl-lib/Capybara \
    --max_length 2048 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 \
    --gradient_checkpointing \
    --bf16 \
    --optim paged_adamw_8bit \
    --use_peft --load_in_4bit --use_bnb_nested_quant \
    --lora_r 64 --lora_alpha 16 --lora_dropout 0.1 \
    --lora_target_modules q_proj k_proj v_proj o_proj gate_proj up_proj down_proj \
    --learning_rate 2.0e-4 --output_dir out
