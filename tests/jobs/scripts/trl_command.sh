#!/bin/sh
set -eu
: "${MODEL:=../../../examples/launch/models/Qwen3-4B}"
ARGS="--model_name_or_path $MODEL"
ARGS="${ARGS} --max_length 4096"
if [ "${PACK:-1}" -gt 0 ]; then ARGS="$ARGS --packing"; fi
trl sft $ARGS --use_peft --lora_r 32 --lora_target_modules all-linear --per_device_train_batch_size 1 --output_dir out
