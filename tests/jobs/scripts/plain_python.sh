#!/usr/bin/env bash
export CUDA_VISIBLE_DEVICES=0
ARGS="--model_name_or_path ../../../examples/launch/models/gpt2 --dataset_name wikitext"
eval "python examples/pytorch/language-modeling/run_clm.py $ARGS \
  --do_train --per_device_train_batch_size=4 --fp16 --output_dir=/tmp/out $*"
