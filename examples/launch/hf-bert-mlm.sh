#!/bin/bash
# BERT's masked words on four GPUs; the number of GPUs comes from outside, and is four when it does not.
NUM_GPUS=${NUM_GPUS:-4}
torchrun --nproc_per_node "$NUM_GPUS" run_mlm.py \
    --model_name_or_path models/bert-base-uncased --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 \
    --max_seq_length 512 --per_device_train_batch_size 32 --fp16 --do_train --output_dir out
