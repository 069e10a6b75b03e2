#!/bin/bash
# ZeRO-2 with the optimizer on the host. Its file gives the sizes.
torchrun --standalone --nproc_per_node=4 run_clm.py \
    --deepspeed ds_zero2_offload.json \
    --model_name_or_path models/Llama-3.1-8B --block_size 2048 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --gradient_checkpointing --bf16 --do_train --train_file corpus.txt --output_dir out
