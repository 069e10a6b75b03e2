#!/bin/bash
# A mixture of experts in torchtitan: experts over eight ranks, FSDP over 32.
torchrun --nnodes=4 --nproc-per-node=8 -m torchtitan.train --job.config-file deepseek_v3_16b.toml --training.seq-len=4096
