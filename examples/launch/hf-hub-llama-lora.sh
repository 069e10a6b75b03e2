#!/bin/bash
# LoRA on Llama 3.1 8B, named as the hub names it. Where its cache has nothing, memplan knows the sizes.
export HF_HOME=/scratch/shared/hf
accelerate launch --num_processes 4 --mixed_precision bf16 sft.py \
    --model_name_or_path meta-llama/Llama-3.1-8B-Instruct --model_revision main \
    --torch_dtype bfloat16 --attn_implementation flash_attention_2 \
    --dataset_name trl-lib/Capybara --max_length 4096 --packing True \
    --use_peft --lora_r 32 --lora_alpha 64 --lora_target_modules q_proj k_proj v_proj o_proj \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --gradient_checkpointing True --bf16 True --learning_rate 1e-4 --output_dir out
