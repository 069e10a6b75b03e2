#!/bin/bash
#PBS -l select=2:ngpus=4
RANKS=$(wc -l < $PBS_NODEFILE)
echo "on $RANKS ranks"
mpiexec -n 8 -ppn 4 --hostfile $PBS_NODEFILE --cpu-bind depth -d 16 python -m torchtitan.train \
    --job.config_file ../../../examples/launch/llama3_8b.toml --parallelism.tensor_parallel_degree=2
