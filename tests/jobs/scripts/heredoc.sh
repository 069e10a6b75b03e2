#!/bin/bash
BATCH=2
cat <<EOT > ds.json
{ "train_micro_batch_size_per_gpu": ${BATCH},
  "zero_optimization": { "stage": 2, "offload_optimizer": { "device": "cpu" } },
  "bf16": { "enabled": true } }
EOT
time env CUDA_VISIBLE_DEVICES=0,1,2,3 OMP_NUM_THREADS=8 deepspeed --include localhost:0,1,2,3 run_clm.py \
    --deepspeed ds.json --model_name_or_path ../../../examples/launch/models/Llama-3.1-8B \
    --per_device_train_batch_size ${BATCH} --bf16 --block_size=2048 --output_dir out |& tee log.txt
