#!/bin/sh
# Compares two training steps of each model family with PyTorch: losses, every gradient, the weights after; what plain modules
# and whole layers of families keep for backward with the rules for other frameworks, and whole steps, with adapters and quantized weights too, with `memplan check`; and
# runs the listing of docs/guide.md.
#
# BUILD is the folder with tests/torch/dump_step. PyTorch is Debian's (python3-torch), so the Python is too.
set -eu

export PYTHONDONTWRITEBYTECODE=1
python=/usr/bin/python3
here=$(dirname "$0")
dump_step=${BUILD:-build}/tests/torch/dump_step

if ! $python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
    echo "skip  check-torch: $python has no PyTorch (make deps-torch, some 400 MB)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-torch.XXXXXX")
trap 'rm -rf "$folder"' EXIT

# dump NAME MODEL [options]
dump() {
    name=$1 model=$2
    shift 2
    "$dump_step" "$model" "$folder/$name.safetensors" "$@"
}

dump gpt2 gpt2-tiny --micro-batch 2
dump gpt2-odd gpt2-tiny --layers 3 --hidden 48 --seq-len 37 --vocab 251 --recompute 0-1=full,2=selective
dump gpt2-micro-batches gpt2-tiny --micro-batch 2 --global-batch 4
dump gpt2-bf16 gpt2-tiny --micro-batch 2 --precision bf16
dump llama llama-tiny --micro-batch 2
dump llama-recomputed llama-tiny --micro-batch 1 --global-batch 3 --seq-len 51 --recompute full
dump llama-bf16 llama-tiny --micro-batch 2 --precision bf16
dump qwen2 "$here/qwen2-like.json" --micro-batch 2 --seq-len 33
dump phi4 "$here/phi4-like.json" --micro-batch 2 --seq-len 33
dump qwen3 "$here/qwen3-like.json" --micro-batch 2 --seq-len 33
dump qwen3-recomputed qwen3-tiny --micro-batch 1 --global-batch 3 --seq-len 51 --recompute 0=qk_norm,1=full
dump qwen3-bf16 qwen3-tiny --micro-batch 2 --precision bf16
dump olmo2 "$here/olmo2-like.json" --micro-batch 2 --seq-len 33
dump olmo2-recomputed olmo2-tiny --micro-batch 1 --global-batch 3 --seq-len 51 --recompute 0=proj+qk_norm,1=full
dump olmo2-bf16 "$here/olmo2-like.json" --micro-batch 2 --seq-len 33 --precision bf16
dump gemma "$here/gemma-like.json" --micro-batch 2 --seq-len 33
dump gemma-recomputed gemma-tiny --micro-batch 1 --global-batch 3 --seq-len 51 --recompute 0=geglu,1=full
dump gemma-bf16 gemma-tiny --micro-batch 2 --precision bf16
dump mistral "$here/mistral-like.json" --micro-batch 2 --seq-len 33
dump gemma3 "$here/gemma3-like.json" --micro-batch 2 --seq-len 33
dump gemma3-recomputed gemma3-tiny --micro-batch 1 --global-batch 3 --seq-len 51 --recompute 0=proj+norm2,1=full
dump gemma3-bf16 gemma3-tiny --micro-batch 2 --precision bf16
dump encoder block-tiny --micro-batch 2 --global-batch 4
dump encoder-recomputed block-tiny --layers 3 --seq-len 29 --recompute full
dump encoder-bf16 block-tiny --precision bf16
dump block-768 block-768 --micro-batch 1 --seq-len 64
make/tally.sh "$python $here/compare_torch.py $folder/*.safetensors" "$python $here/compare_saved.py $here/saved.csv" \
    "$python $here/compare_families.py $here/families.csv" \
    "$python $here/compare_jobs.py ${BUILD:-build}/memplan" \
    "$python $here/compare_adapters.py ${BUILD:-build}/memplan" "$python $here/guide_listing.py"
