#!/bin/bash
#SBATCH --nodes=8
#SBATCH --ntasks=8
#SBATCH --gpus-per-task=8
# Llama 3 70B on 64 GPUs: tensor 8 inside a machine, sharded over the machines. Options replace keys of the file.
head_node_ip=$(srun --nodes=1 --ntasks=1 hostname --ip-address)
srun torchrun --nnodes 8 --nproc_per_node 8 --rdzv_id 101 --rdzv_backend c10d \
    --rdzv_endpoint "$head_node_ip:29500" -m torchtitan.train --job.config_file llama3_70b.toml \
    --training.local_batch_size=4 --training.seq_len 4096 --parallelism.enable_async_tensor_parallel --compile.enable
