#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node 8
#SBATCH --gres gpu:8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
CMD="pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 40 --hidden-size 5120 --num-attention-heads 40
     --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 128 --bf16
     --vocab-size 50257 --use-distributed-optimizer"
srun --cpu-bind=none --mpi=pmix --export=ALL,PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
    apptainer exec --nv image.sif python $CMD
