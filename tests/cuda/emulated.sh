# shellcheck shell=bash
# What the checks of `--device cuda` on the emulated library have in common: where it is, verdicts, and a folder of their own.
# Sourced by a script that runs in bash from the root of the project.

build=${BUILD:-build}
memplan=${MEMPLAN:-$build/memplan}
library=$build/libmemplan_cuda_emulated.so
passed=0 failed=0
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-emulated.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT

# skip REASON: ends the check.
skip() {
    echo "skip  ${0##*/}: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
[ -e "$library" ] || skip "$library is not built (no CUDA headers?)"
MEMPLAN_CUDA_LIBRARY=$(realpath "$library")
export MEMPLAN_CUDA_LIBRARY

# What a failed verdict shows; scripts that know more replace it.
log=$folder/log
what_happened() { cat "$log"; }

# verdict SENTENCE CONDITION...: a line for a test whose condition is a command.
verdict() {
    local sentence=$1
    shift
    if "$@"; then
        echo "ok    $sentence"
        ((passed += 1))
    else
        echo "FAIL  $sentence"
        what_happened | sed 's/^/      /'
        ((failed += 1))
    fi
}

# run ARGUMENTS...: memplan, its answer in $log.out, all else in $log, its exit status in $status.
run() {
    "$memplan" "$@" >"$log.out" 2>"$log"
    status=$?
    return $status
}
