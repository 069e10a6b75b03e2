#!/bin/bash
# Functions, conditions and what they add.
set -euo pipefail
NNODES=${NNODES:-2}
: "${GPUS:=8}"
TP=${1:-4}

usage() {
    echo "usage: $0 [TP]" >&2
    exit 1
}
[[ $# -gt 1 ]] && usage

OPTIONS=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096)
if [[ "${CHECK_NANS:-0}" == 1 ]]; then
    OPTIONS+=(--check-for-nan-in-loss-and-grad)
fi

train() {
    local tp=$1
    shift
    torchrun --nnodes "$NNODES" --nproc-per-node "$GPUS" --rdzv-backend=c10d \
        --rdzv-endpoint="${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}" \
        pretrain_gpt.py --tensor-model-parallel-size "$tp" "$@" 2>&1 | tee train.log
}

main() {
    train "$TP" "${OPTIONS[@]}" --micro-batch-size 1 --global-batch-size 64 --bf16 \
        --tokenizer-type NullTokenizer --vocab-size 50303
}

main "$@"
