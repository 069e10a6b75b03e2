#!/bin/bash
#SBATCH --job-name=memplan-llama3-8b
#SBATCH --nodes=4
#SBATCH --ntasks=32
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --output=%x-%j.out
# memplan plan ...
set -euo pipefail

plan=plan.json
data=${1:?name the data: sbatch SCRIPT FILE}

exec srun --mpi=pmix --cpu-bind=none memplan train "$plan" --data "$data" --device cuda
