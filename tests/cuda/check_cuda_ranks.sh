#!/bin/bash
# Training on several GPUs, emulated on this machine's CPU: every layout over NCCL's double against the same layout on CPU
# ranks; gradients that travel while backward goes on; and one message, soon, whatever fails on one of the ranks.
set -u

. tests/cuda/emulated.sh
export DOUBLE_CUDA_DEVICES=8

# train NAME MODEL ARGUMENTS...: the JSON lines in $folder/NAME.
train() {
    local name=$1 model=$2
    shift 2
    : >"$folder/$name"
    run train "$model" --layers 4 --steps 4 --micro-batch 2 --threads 1 --json --quiet "$@" && mv "$log.out" "$folder/$name"
}

values() { sed -n "s/.*\"$2\":\([-+0-9.e]*\).*/\1/p" "$folder/$1"; }
last_value() { tail -n 1 "$folder/$1" | sed -n "s/.*\"$2\":\[*\([0-9,]*\).*/\1/p"; }
json() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$log.out" | head -n 1; }

# within KEY TOLERANCE LINES A B: the largest difference of a key between two runs, in so many lines.
within() {
    paste -d' ' <(values "$4" "$1") <(values "$5" "$1") |
        awk -v tolerance="$2" -v lines="$3" 'NF != 2 || ($1 - $2) ^ 2 > tolerance ^ 2 { exit 1 } END { if (NR != lines) exit 1 }'
}

# ---- layouts ----

printf 'to be or not to be, that is the question %.0s' {1..400} >"$folder/text"
compare() {
    local model=$1 tolerance=$2
    shift 2
    train cpu "$model" --data "$folder/text" --device cpu "$@"
    train cuda "$model" --data "$folder/text" --device cuda "$@"
    verdict "$model $*: the losses of 4 steps are those of CPU ranks" within loss "$tolerance" 4 cpu cuda
}
compare gpt2-tiny 1e-5 --dp 2 --global-batch 8
compare llama-tiny 1e-5 --dp 4 --zero 1 --global-batch 8 --bucket-bytes 65536
compare gpt2-tiny 1e-5 --tp 2 --global-batch 4
compare llama-tiny 1e-5 --tp 2 --sequence-parallel --global-batch 4
compare qwen3-tiny 1e-5 --tp 2 --global-batch 4
compare gemma-tiny 1e-5 --tp 2 --global-batch 4
compare gemma3-tiny 1e-5 --tp 2 --sequence-parallel --pp 2 --global-batch 4
compare gpt2-tiny 1e-5 --pp 2 --global-batch 8
compare olmo2-tiny 1e-5 --dp 2 --pp 2 --zero 1 --global-batch 8
compare llama-tiny 1e-5 --pp 2 --virtual-stages 2 --global-batch 8
compare gpt2-tiny 1e-5 --pp 4 --pipeline-schedule zb-h1 --global-batch 16
compare gpt2-tiny 1e-5 --dp 2 --tp 2 --zero 1 --sequence-parallel --global-batch 8
compare gpt2-tiny 1e-5 --dp 2 --tp 2 --pp 2 --zero 1 --sequence-parallel --global-batch 8 --validate-every 2
verdict "validation across stages gives the loss of CPU ranks" within validation_loss 1e-5 2 cpu cuda
compare llama-tiny 1e-2 --dp 2 --tp 2 --precision bf16 --global-batch 8
compare qwen3-tiny 1e-2 --dp 2 --tp 2 --sequence-parallel --zero 1 --precision bf16 --global-batch 8

# ---- recorded steps ----

# record OPTIONS...: the losses of recorded steps, in $folder/recorded; of steps run one by one, in $folder/eager.
same_bits() { [ "$(values recorded loss | wc -l)" -eq 6 ] && cmp -s <(values recorded loss) <(values eager loss); }
record() {
    train recorded gpt2-tiny --data "$folder/text" --device cuda --steps 6 "$@"
    train eager gpt2-tiny --data "$folder/text" --device cuda --steps 6 --no-graph "$@"
    verdict "$*: recorded exchanges give the very bits of steps run one by one" same_bits
}
record --dp 2 --global-batch 8 --bucket-bytes 1024
record --tp 2 --global-batch 4 --validate-every 2
record --pp 2 --global-batch 8
record --dp 2 --tp 2 --pp 2 --zero 1 --sequence-parallel --global-batch 8

# Streams are asked for collectives in the first step and while the second is recorded, and no more.
asked() {
    DOUBLE_CUDA_LOG=$folder/streams train log gpt2-tiny --data random --device cuda --dp 2 --tp 2 --global-batch 8 --steps "$1"
    awk '$3 ~ /^nccl/ { asked++ } END { print asked + 0 }' "$folder/streams"
}
asked_no_more() { [ "$(asked 2)" -gt 0 ] && [ "$(asked 2)" -eq "$(asked 5)" ]; }
verdict "steps after the second ask NCCL for nothing: they are launches of a graph" asked_no_more

# ---- memory and checkpoints ----

train ledger gpt2-tiny --data random --device cuda --dp 2 --pp 2 --zero 1 --global-batch 8
run predict gpt2-tiny --layers 4 --micro-batch 2 --device cuda --dp 2 --pp 2 --zero 1 --global-batch 8 --json --quiet
same_peak() {
    local peaks
    peaks=$(last_value ledger peak_bytes)
    [ "$(tr , '\n' <<<"$peaks" | sort -n | tail -n 1)" -eq $(($(json peak_bytes) + $(json runtime))) ]
}
# Of the first stage, which needs most and is the first that predict names.
verdict "the highest peak of four ranks is the one predicted, to the byte" same_peak

train four gpt2-tiny --data "$folder/text" --device cuda --dp 2 --tp 2 --global-batch 8 --checkpoint "$folder/ckpt"
train again gpt2-tiny --data "$folder/text" --device cpu --pp 2 --global-batch 8 --steps 6 --resume "$folder/ckpt"
verdict "a checkpoint written by four GPUs is resumed by two CPU ranks in another layout" test "$(values again loss | wc -l)" -eq 2

# ---- overlap ----

# In the log of what streams were asked: for every reduction of a bucket on GPU 0, what the compute stream was asked between the
# event for which the reduction waits and its own wait for the reduction. Prints reductions, and those with kernels between.
overlapped() {
    awk '$1 != 0 { next }
         $3 == "records" && !($4 in recorded) { recorded[$4] = works[$2]; by[$4] = $2 }
         $3 == "records" && ($2 in reducing) { ready[$4] = reducing[$2]; delete reducing[$2]; next }
         $3 == "waits" && ($4 in ready) { total++; hidden += works[$2] > ready[$4]; delete ready[$4]; next }
         $3 == "waits" { since[$2] = recorded[$4]; next }
         $3 == "ncclAllReduce" || $3 == "ncclReduceScatter" { reducing[$2] = since[$2] }
         $3 !~ /^(records|nccl|cudaMem)/ { works[$2]++ }
         END { print total + 0, hidden + 0 }' "$folder/streams"
}
# Five buckets a step, and the loss, in the second of the two steps that ask for them: in the first, buckets have the GPU for
# themselves. What is reduced last has nothing left to hide behind.
hides() {
    local total hidden
    read -r total hidden <<<"$(overlapped)"
    echo "of $total reductions on GPU 0, computation went on beside $hidden" >>"$log"
    [ "$total" -ge 5 ] && [ "$hidden" -ge "$1" ] && [ "$hidden" -le "$2" ]
}
for zero in 0 1; do
    DOUBLE_CUDA_LOG=$folder/streams train log gpt2-tiny --data random --device cuda --dp 2 --zero $zero --global-batch 4 --bucket-bytes 1024
    verdict "zero $zero: buckets are reduced on a stream of their own while backward goes on" hides 4 6
    DOUBLE_CUDA_LOG=$folder/streams train log gpt2-tiny --data random --device cuda --dp 2 --zero $zero --global-batch 4 --bucket-bytes 1024 --steps 1
    verdict "zero $zero: nothing goes on beside those of the first step, in which NCCL connects and kernels are loaded" hides 0 0
done

# ---- failures ----

# fails PIECE SETTING...: a run of four ranks with these settings of the doubles ends with status 2 within 10 s, and with one
# line that has the piece.
fails() {
    local piece=$1 before=$SECONDS
    shift
    timeout 60 env "$@" "$memplan" train gpt2-tiny --layers 4 --data random --steps 4 --device cuda --dp 2 --tp 2 --quiet >"$log.out" 2>"$log"
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l <"$log")" -eq 1 ] && grep -q "$piece" "$log" && [ $((SECONDS - before)) -lt 10 ]
}
verdict "fewer GPUs than ranks" fails '4 ranks need a GPU each and this process sees 2' DOUBLE_CUDA_DEVICES=2
verdict "NCCL cannot connect" fails 'rank [0-3].*: GPU [0-3]: ncclCommInitRankConfig failed: unhandled system error' DOUBLE_NCCL_FAIL=ncclCommInitRankConfig:3
verdict "NCCL loses a peer" fails 'remote process exited or there was a network error' DOUBLE_NCCL_FAIL=ncclCommGetAsyncError:100:6
verdict "a sum that cannot be asked for" fails 'all-reduce failed: unhandled cuda error' DOUBLE_NCCL_FAIL=ncclAllReduce:40:1
verdict "a product that fails on one rank" fails 'rank [0-3]: step 1, .*cublasLtMatmul failed' DOUBLE_CUDA_FAIL=cublasLtMatmul:41
verdict "an illegal access on one rank" fails 'GPU [0-3]: cudaStreamSynchronize failed' DOUBLE_CUDA_FAIL=cudaStreamSynchronize:20:700

verdict "a graph that fails on one rank, when others wait in theirs" fails 'cudaGraphLaunch failed' DOUBLE_CUDA_FAIL=cudaGraphLaunch:6:700
verdict "a step that one rank cannot record" fails 'step 2 cannot be recorded, and other ranks may have done so; use --no-graph' DOUBLE_CUDA_FAIL=cudaGraphInstantiate:3:801
verdict "NCCL loses a peer while graphs run" fails 'remote process exited or there was a network error' DOUBLE_NCCL_FAIL=ncclCommGetAsyncError:400:6

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
