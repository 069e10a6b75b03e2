#!/bin/bash
# GPT-2 on one GPU, in fp32.
python run_clm.py \
    --model_name_or_path models/gpt2 \
    --dataset_name wikitext \
    --dataset_config_name wikitext-2-raw-v1 \
    --per_device_train_batch_size 8 \
    --per_device_eval_batch_size 8 \
    --do_train --do_eval \
    --output_dir /tmp/test-clm
