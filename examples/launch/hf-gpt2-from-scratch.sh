#!/bin/bash
# GPT-2 medium from nothing, compiled, bf16.
torchrun --nproc-per-node 4 run_clm.py --model_type gpt2 \
    --config_overrides="n_embd=1024,n_head=16,n_layer=24,n_positions=1024" \
    --tokenizer_name gpt2 --dataset_name openwebtext --do_train \
    --block_size 1024 --per_device_train_batch_size 16 --gradient_accumulation_steps 4 \
    --bf16 --torch_compile --optim adamw_torch_fused --learning_rate 3e-4 --output_dir out
