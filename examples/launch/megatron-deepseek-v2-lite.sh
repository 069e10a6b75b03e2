#!/bin/bash
# DeepSeek-V2-Lite: latent attention; the first layer is dense, the others have 64 experts and two shared ones.
export NVTE_FUSED_ATTN=1
torchrun --nproc_per_node 8 pretrain_gpt.py \
    --num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 \
    --multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \
    --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 \
    --moe-layer-freq "([0]*1+[1]*26)" --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
    --expert-model-parallel-size 8 --tensor-model-parallel-size 1 \
    --normalization RMSNorm --swiglu --position-embedding-type rope --disable-bias-linear \
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 \
    --seq-length 4096 --max-position-embeddings 163840 --make-vocab-size-divisible-by 3200 \
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model deepseek-ai/DeepSeek-V2-Lite --vocab-size 102400 \
    --micro-batch-size 1 --global-batch-size 512 --train-iters 1000 --lr 4e-4 --bf16 --use-distributed-optimizer
