#!/bin/bash
# Ranks that are processes, as mpirun and srun start them, and the GPU of each, on the emulated library. NCCL's double connects
# threads only, so a run gets as far as its first exchange.
set -u

. tests/comm/mpirun.sh
[ -e "$build/libmemplan_cuda_emulated.so" ] || {
    echo "skip  ${0##*/}: $build/libmemplan_cuda_emulated.so is not built (no CUDA headers?)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
export MEMPLAN_CUDA_LIBRARY=$build/libmemplan_cuda_emulated.so OMP_NUM_THREADS=1

# launch SETTINGS MODEL OPTIONS...: two ranks; the settings may name $rank.
launch() {
    local settings=$1
    shift
    rm -f contexts
    # shellcheck disable=SC2016
    launch_program 2 bash -c 'rank=$OMPI_COMM_WORLD_RANK; eval "export $0"; exec "$@"' \
        "DOUBLE_CUDA_CONTEXTS=$folder/contexts $settings" \
        "$build/memplan" train "$@" --data random --device cuda --steps 2 --threads 1
}

# says PIECE: the run ended with it, in the name of a rank.
says() { [ "$status" -eq 2 ] && grep -q "$1" err; }

connects_and_stops() { says "rank 1 stopped: GPU $1: ncclCommInitRankConfig failed: invalid usage.*this is another process"; }
devices() { awk '{ print $2 }' contexts | sort | tr '\n' ' '; }

launch 'DOUBLE_CUDA_DEVICES=4' gpt2-tiny --dp 2
verdict "processes that see all GPUs take those of their place" connects_and_stops 1
verdict "a process makes a context on its own GPU, and on no other" test "$(devices)" = "0 1 "

# shellcheck disable=SC2016
launch 'DOUBLE_CUDA_DEVICES=1 DOUBLE_CUDA_PLACE=$rank' gpt2-tiny --dp 2
verdict "processes that see one GPU each take that" connects_and_stops 0

launch 'DOUBLE_CUDA_DEVICES=1' gpt2-tiny --dp 2
verdict "two processes on one GPU" says 'ranks 0 and 1 have one GPU between them, emulated GPU 0 at 0000:00:00 of .*need one each'

# shellcheck disable=SC2016
launch 'DOUBLE_CUDA_DEVICES=2 DOUBLE_CUDA_MEMORY=4GiB,1600MiB' gpt2-tiny --dp 2
verdict "what a GPU of another process has free, its context and NCCL's share taken off, is too little" \
    says 'GPU emulated GPU 1 has 1160 MiB free, too little to work with'

launch 'DOUBLE_CUDA_DEVICES=2 DOUBLE_CUDA_MEMORY=8GiB,2GiB' gpt2-124m --dp 2 --seq-len 64 --micro-batch 1
[ "$status" -eq 1 ] && status_is_no=yes
verdict "the GPU with less memory counts, whosever it is" test "${status_is_no-no}" = yes

finish
