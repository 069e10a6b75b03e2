#!/bin/bash
# QLoRA of a Llama 8B with Axolotl on two GPUs: what it trains stands in its YAML.
axolotl train axolotl_qlora.yml --launcher torchrun -- --nproc_per_node=2
