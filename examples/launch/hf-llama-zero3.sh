#!/usr/bin/env bash
# Llama 3.1 8B under ZeRO-3; DeepSpeed's "auto" values come from the options here.
deepspeed --num_gpus=8 --master_port 29501 run_clm.py \
    --deepspeed ds_zero3.json \
    --model_name_or_path models/Llama-3.1-8B \
    --attn_implementation flash_attention_2 \
    --dataset_name wikitext --block_size 4096 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \
    --gradient_checkpointing True --bf16 True \
    --learning_rate 2e-5 --num_train_epochs 1 --do_train --output_dir out
