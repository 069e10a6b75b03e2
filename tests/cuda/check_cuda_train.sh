#!/bin/bash
# Training with --device cuda on this machine's CPU: the CUDA back end over doubles of CUDA's libraries (tests/cuda) against the
# CPU device, on the same data: losses, memory to the byte, recorded steps, and one sentence for whatever a GPU can refuse.
set -u

. tests/cuda/emulated.sh

# train NAME MODEL ARGUMENTS...: the JSON lines of 20 steps in $folder/NAME.
train() {
    local name=$1 model=$2
    shift 2
    run train "$model" --data random --steps 20 --json --quiet "$@" && mv "$log.out" "$folder/$name"
}

# The largest difference of a key between two runs is at most as given, in as many lines.
within() {
    local key=$1 tolerance=$2
    paste -d' ' <(values "$3" "$key") <(values "$4" "$key") |
        awk -v tolerance="$tolerance" 'NF != 2 || ($1 - $2) ^ 2 > tolerance ^ 2 { exit 1 } END { if (NR != 20) exit 1 }'
}
values() { sed -n "s/.*\"$2\":\([-+0-9.e]*\).*/\1/p" "$folder/$1"; }
last_value() { tail -n 1 "$folder/$1" | sed -n "s/.*\"$2\":\[*\([0-9]*\).*/\1/p"; }

for model in gpt2-tiny llama-tiny qwen3-tiny olmo2-tiny gemma-tiny gemma3-tiny; do
    for precision in fp32 bf16; do
        tolerance=1e-5
        [ $precision = bf16 ] && tolerance=1e-2
        options="--precision $precision --seq-len 32 --global-batch 2"
        # shellcheck disable=SC2086
        {
            train cpu $model $options --device cpu
            train cuda $model $options --device cuda
            verdict "$model, $precision: the losses of 20 steps are those of the CPU" within loss $tolerance cpu cuda
            train eager $model $options --device cuda --no-graph
            verdict "$model, $precision: recorded steps give the very bits of steps run one by one" \
                cmp -s <(values cuda loss) <(values eager loss)
            train recomputed $model $options --device cuda --recompute full
            verdict "$model, $precision: with recomputation too" within loss $tolerance cpu recomputed
        }
    done
done

# gelus FILE: kernels of GELU and its slope that streams were asked for.
gelus() { grep -c gelu "$1"; }
options="--precision bf16 --seq-len 32 --global-batch 2"
# shellcheck disable=SC2086
{
    train cpu gpt2-tiny $options --device cpu
    DOUBLE_CUDA_LOG=$folder/joined train cuda gpt2-tiny $options --device cuda
    DOUBLE_CUBLAS_NO_GELU=1 DOUBLE_CUDA_LOG=$folder/apart train cuda-apart gpt2-tiny $options --device cuda
    verdict "GELU and its slope are part of products, where cuBLASLt can" test "$(gelus "$folder/joined")/$(gelus "$folder/apart")" = 0/16
    verdict "and kernels of their own where it cannot, with the CPU's losses" within loss 1e-2 cpu cuda-apart
    DOUBLE_CUDA_LOG=$folder/recorded train cuda-recorded gpt2-tiny $options --device cuda -o "$folder/joined.db"
    verdict "a recorded run has each operation by itself" test "$(gelus "$folder/recorded")" -eq 16
}

export DOUBLE_CUDA_DEVICES=2
train cpu gpt2-tiny --seq-len 32 --global-batch 4 --device cpu
for layout in "--dp 2" "--dp 2 --zero 1" "--tp 2" "--pp 2"; do
    # shellcheck disable=SC2086
    train cuda gpt2-tiny --seq-len 32 --global-batch 4 $layout --device cuda
    verdict "$layout over two GPUs: the losses of one CPU" within loss 1e-5 cpu cuda
done
unset DOUBLE_CUDA_DEVICES

# peak NAME: of the ledger; predicted OPTIONS...: what predict says, with what the kernels take.
same_peak() {
    [ "$(last_value "$1" peak_bytes)" -eq $(($(json peak_bytes) + $(json runtime))) ]
}
json() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$log.out" | tail -n 1; }

train ledger gpt2-tiny --device cuda --micro-batch 2 --steps 2
run predict gpt2-tiny --device cuda --micro-batch 2 --json --quiet
verdict "the peak of the ledger is the one predicted, to the byte" same_peak ledger
needed=$(json needed_bytes)
verdict "the bytes predicted are enough" train least gpt2-tiny --device cuda --micro-batch 2 --steps 2 --memory "$needed"
train refused gpt2-tiny --device cuda --micro-batch 2 --memory $((needed - 1))
refused_at_launch() { [ "$status" -eq 1 ] && [ ! -s "$log.out" ] && grep -q 'does not fit' "$log"; }
verdict "one byte less is refused at launch" refused_at_launch

run profile llama-tiny --data random --steps 2 --device cuda -o "$folder/run.db" --quiet
run compare "$folder/run.db" "$folder/run.db" --json
run report "$folder/run.db"
no_errors() { grep -q 'total .* 0 B  100.0%' "$log.out"; }
verdict "profile: every tensor an allocation of its own, and each role as predicted" no_errors

printf 'to be or not to be, that is the question %.0s' {1..400} >"$folder/text"
run train gpt2-tiny --data "$folder/text" --steps 6 --device cuda --checkpoint "$folder/ckpt" --validate-every 2 --json --quiet
mv "$log.out" "$folder/whole"
run train gpt2-tiny --data "$folder/text" --steps 6 --device cpu --validate-every 2 --json --quiet
mv "$log.out" "$folder/whole-cpu"
close_validation() {
    paste -d' ' <(values whole validation_loss) <(values whole-cpu validation_loss) |
        awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 { exit 1 } END { if (NR != 3) exit 1 }'
}
verdict "validation between recorded steps gives the CPU's losses" close_validation
run train gpt2-tiny --data "$folder/text" --steps 9 --device cpu --resume "$folder/ckpt" --json --quiet
verdict "a checkpoint written on the GPU is resumed on the CPU" test "$status" -eq 0

rm -rf "$folder/ckpt"
DOUBLE_CUDA_FAIL=cudaStreamSynchronize:40:719 run train gpt2-tiny --data "$folder/text" --steps 1 --device cuda --checkpoint "$folder/ckpt" --quiet
no_checkpoint() {
    [ "$status" -eq 2 ] && grep -q 'cudaStreamSynchronize failed' "$log" && grep -q '^step    1/1' "$log.out" && [ ! -e "$folder/ckpt/checkpoint.json" ]
}
verdict "weights that cannot be read from the GPU become no checkpoint" no_checkpoint

# What a tool hears that listens to NVTX: three steps and a validation, the first two operation by operation.
ranges() {
    NVTX_INJECTION64_PATH=$MEMPLAN_CUDA_LIBRARY DOUBLE_NVTX_LOG=$folder/ranges run train gpt2-tiny --data "$folder/text" --steps 3 \
        --global-batch 2 --micro-batch 1 --validate-every 2 --device cuda --quiet
}
names_all() {
    [ "$(grep '^0' "$folder/ranges" | tr '\n' ',')" = "0 memplan step 1,0 memplan step 2,0 memplan validation after step 2,0 memplan step 3,0 memplan validation after step 3," ] &&
        [ "$(grep -c '^1 memplan backward of micro-batch 1$' "$folder/ranges")" -eq 2 ] &&
        [ "$(grep -c '^2 memplan layer 0 matmul_wgrad: qkv' "$folder/ranges")" -eq 4 ]
}
ranges
verdict "a tool that listens to NVTX hears steps, phases and operations by name; of recorded steps the step alone" names_all

# fails SENTENCE-PIECE SETTING...: a run with these settings of the double ends with status 2 and one line that has the piece.
fails() {
    local piece=$1
    shift
    env "$@" "$memplan" train gpt2-tiny --data random --steps 4 --device cuda --quiet >"$log.out" 2>"$log"
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l <"$log")" -eq 1 ] && grep -q "$piece" "$log"
}
verdict "no driver" fails 'no NVIDIA driver is loaded' DOUBLE_CUDA_DRIVER=0
verdict "an old driver" fails 'the NVIDIA driver is for CUDA 12.4' DOUBLE_CUDA_DRIVER=12040
verdict "no GPU" fails 'no CUDA-capable device is detected' DOUBLE_CUDA_DEVICES=0
verdict "an old GPU" fails 'has compute capability 7.5 and the kernels need 8.0' DOUBLE_CUDA_CAPABILITY=75
verdict "a GPU that another process has" fails 'another process has the GPU for itself' DOUBLE_CUDA_FAIL=cudaStreamCreateWithFlags:1:46
verdict "a failing copy" fails 'cudaMemcpyAsync failed' DOUBLE_CUDA_FAIL=cudaMemcpyAsync:5:719
verdict "a library without kernels for the GPU" fails 'build for the GPU with .make cuda CUDA_CODE=-arch=native' DOUBLE_CUDA_FAIL=cudaMemcpyAsync:5:209
verdict "a failing product" fails 'step 1, forward .*cublasLtMatmul failed' DOUBLE_CUDA_FAIL=cublasLtMatmul:9
verdict "an illegal access, seen at the end of a step" fails 'step 1: GPU 0: cudaStreamSynchronize failed' DOUBLE_CUDA_FAIL=cudaStreamSynchronize:3:700
verdict "a failing graph" fails 'cudaGraphLaunch failed' DOUBLE_CUDA_FAIL=cudaGraphLaunch:2:700
verdict "no library" fails 'the CUDA back end cannot be loaded' MEMPLAN_CUDA_LIBRARY="$folder/none.so"

full() {
    env "$1" "$memplan" train gpt2-tiny --data random --steps 1 --device cuda --quiet >"$log.out" 2>"$log"
    [ $? -eq 1 ] && grep -q 'the machine has no more to give' "$log"
}
verdict "a GPU that is full refuses the arena, as an answer" full DOUBLE_CUDA_FAIL=cudaMalloc:1
verdict "and the kernels' scratch memory" full DOUBLE_CUDA_FAIL=cudaMallocFromPoolAsync:1

falls_back() {
    env "$1" "$memplan" train gpt2-tiny --data random --steps 4 --device cuda >"$log.out" 2>"$log" &&
        grep -q "steps are not recorded, and run operation by operation: .*$2" "$log" && [ "$(grep -c '^step' "$log.out")" -eq 4 ]
}
verdict "where a step cannot be recorded, a note says why, and it runs" falls_back DOUBLE_CUDA_FAIL=cudaStreamBeginCapture:1:900 cudaStreamBeginCapture
verdict "nor made a graph" falls_back DOUBLE_CUDA_FAIL=cudaGraphInstantiate:1:801 cudaGraphInstantiate

names_gpu() {
    run env --json && grep -q '"name": "emulated GPU 0"' "$log.out" && [ "$(json capability)" -eq 90 ] &&
        grep -q 'never yet run on a GPU by its authors; proved by emulation' "$log.out"
}
verdict "env says which GPU there is, and what is proved" names_gpu

differ() {
    DOUBLE_CUDA_DEVICES=2 DOUBLE_CUDA_MEMORY=4GiB,2GiB "$memplan" predict gpt2-tiny --dp 2 --device cuda --json >"$log.out" 2>"$log"
    grep -q 'the GPUs differ: the one with the least memory free' "$log" && [ "$(json capacity_bytes)" -lt $((2 << 30)) ]
}
verdict "of two GPUs the one with less memory counts, and a note says so" differ

# Of a part of check-gpu that fails, all that the command at work has said is there to read, on the terminal and in the file.
tells() {
    EMULATED=1 ONLY=ledger FRESH=1 RESULTS=$folder/results BUILD=$build DOUBLE_CUDA_FAIL=cudaMalloc:1:700 \
        python3 tests/cuda/check_gpu.py >"$log" 2>&1
    [ $? -eq 1 ] && grep -q '^      memplan: GPU 0: cudaMalloc failed: an illegal memory access' "$log" &&
        grep -q '"said": "memplan: GPU 0: cudaMalloc failed' "$folder"/results/*.json
}
if command -v python3 >/dev/null; then
    verdict "check-gpu tells what a command that failed has said" tells
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
