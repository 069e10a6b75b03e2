#!/bin/bash
# The PTX that nvcc makes of the kernels, for sm_80 and sm_90, interpreted: the tests of the interpreter, those of every kernel
# against kernels/reference/, and a few steps of training on it, whose losses must be the CPU's.
set -u

build=${BUILD:-build}
memplan=${MEMPLAN:-$build/memplan}
tests=$build/run-ptx-tests
passed=0 failed=0
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
if [ ! -e "$tests" ]; then
    echo "skip  check-ptx: no nvcc on the PATH or in \$CUDA_HOME/bin; install the CUDA toolkit or set CUDA_HOME"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-ptx.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

# verdict SENTENCE COMMAND...
verdict() {
    local sentence=$1
    shift
    if "$@"; then
        echo "ok    $sentence"
        ((passed += 1))
    else
        echo "FAIL  $sentence"
        ((failed += 1))
    fi
}

# run_tests TARGET FILTER...: adds up its closing line.
run_tests() {
    local target=$1 closing
    shift
    PTX_TARGET=$target PTX_KERNELS=$folder/kernels.$target "$tests" --jobs "${TEST_JOBS:-2}" "$@" >"$folder/log"
    grep -v '^ok' "$folder/log"
    closing=$(grep -E '^[0-9]+ passed' "$folder/log" | tail -n 1)
    read -r -a counts <<<"${closing//[^0-9]/ }"
    ((passed += ${counts[0]:-0}, failed += ${counts[1]:-1}))
}

# Kernels that are in the objects and that no test launched.
missing() { comm -23 <(sed -n 's/^registered //p' "$1" | sort -u) <(sed -n 's/^launched //p' "$1" | sort -u); }
none_missing() {
    missing "$1" >"$folder/missing"
    sed 's/^/      /' "$folder/missing"
    [ -s "$1" ] && [ ! -s "$folder/missing" ]
}

run_tests 90
run_tests 80 cuda_kernels cuda_attention cuda_matmul_wgrad_alone
for target in 80 90; do
    verdict "sm_$target: each of $(grep -c '^registered' "$folder/kernels.$target") kernels was launched" none_missing "$folder/kernels.$target"
done

# ---- training ----

losses() { sed -n 's/.*"loss":\([-+0-9.e]*\).*/\1/p' "$1"; }

# train NAME DEVICE ARGUMENTS...: the JSON lines of 3 steps.
train() {
    local name=$1 device=$2
    shift 2
    "$memplan" train "$@" --device "$device" --data random --steps 3 --global-batch 2 --seq-len 32 --json --quiet >"$folder/$name" 2>"$folder/$name.log"
}

near() {
    cat "$folder/ptx.log"
    paste -d' ' <(losses "$folder/cpu") <(losses "$folder/ptx") |
        awk -v most="$1" 'NF != 2 || ($1 - $2) ^ 2 > most ^ 2 { exit 1 } END { if (NR != 3) exit 1 }'
}

MEMPLAN_CUDA_LIBRARY=$(realpath "$build/libmemplan_cuda_ptx.so")
export MEMPLAN_CUDA_LIBRARY
for model in gpt2-tiny llama-tiny; do
    for precision in fp32 bf16; do
        train cpu cpu $model --precision $precision
        train ptx cuda $model --precision $precision
        verdict "$model, $precision: the losses of three steps, the second captured, are those of the CPU" \
            near "$([ $precision = bf16 ] && echo 1e-2 || echo 1e-5)"
    done
done

# The other target's, of models with kernels that the others have not.
for model in qwen3-tiny olmo2-tiny gemma3-tiny; do
    train cpu cpu $model --precision bf16
    PTX_TARGET=80 train ptx cuda $model --precision bf16
    verdict "$model, bf16, sm_80: the losses of three steps are those of the CPU" near 1e-2
done

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
