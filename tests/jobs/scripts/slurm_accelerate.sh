#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --output=%x-%j.out
set -euo pipefail
module load cuda
source ~/venv/bin/activate
export HF_HOME=/scratch/$USER/hf
head_node=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
GPUS_PER_NODE=${GPUS_PER_NODE:-8}

export LAUNCHER="accelerate launch \
    --config_file fsdp.yaml \
    --num_processes $(( SLURM_NNODES * GPUS_PER_NODE )) \
    --num_machines $SLURM_NNODES \
    --main_process_ip $head_node \
    --main_process_port 29500 \
    --machine_rank \$SLURM_PROCID \
    --role \$(hostname -s): --tee 3 \
    "
export SCRIPT_ARGS=" \
    --model_name_or_path ../../../examples/launch/models/Llama-3.1-8B \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --max_length 4096 \
    --output_dir out \
    "
export CMD="$LAUNCHER sft.py $SCRIPT_ARGS"
srun --jobid $SLURM_JOB_ID bash -c "$CMD"
