#!/bin/bash
# Ranks as processes: the same bits as between threads, and an end in time, with one message, however a rank fails.
set -u

build=${BUILD:-build}
program=$build/tests/comm/launched_ranks
passed=0 failed=0
output=$(mktemp "${TMPDIR:-/tmp}/memplan-mpi.XXXXXX") || exit 1
trap 'rm -f "$output"' EXIT

if ! command -v mpirun >/dev/null || [ ! -e "$build/libmemplan_mpi.so" ]; then
    echo "skip  check-mpi: no mpirun, or built without MPI (make deps, then make)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
MEMPLAN_MPI_LIBRARY=$(realpath "$build/libmemplan_mpi.so")
export MEMPLAN_MPI_LIBRARY

# launch RANKS WORD: the ranks' output is in $output, the exit status in $status, and the seconds it took in $seconds.
launch() {
    local before=$SECONDS
    timeout 60 mpirun --allow-run-as-root --oversubscribe -x MEMPLAN_MPI_LIBRARY -np "$1" "$program" "$2" >"$output" 2>&1
    status=$?
    seconds=$((SECONDS - before))
}

# verdict SENTENCE CONDITION...: a line for a test whose condition is a command.
verdict() {
    local sentence=$1
    shift
    if "$@"; then
        echo "ok    $sentence"
        ((passed += 1))
    else
        echo "FAIL  $sentence (status $status after $seconds s)"
        sed 's/^/      /' "$output"
        ((failed += 1))
    fi
}

all_same() { [ "$status" -eq 0 ] && [ "$(grep -c 'are the same' "$output")" -eq "$1" ]; }

# In time, not as a success, with COUNT lines of ours, which all hold TEXT.
ended() {
    [ "$status" -ne 0 ] && [ "$seconds" -lt 10 ] && [ "$(grep -c '^launched_ranks:' "$output")" -eq "$1" ] &&
        [ "$(grep -c "^launched_ranks:.*$2" "$output")" -eq "$1" ]
}

for ranks in 1 2 3 4; do
    launch $ranks compare
    verdict "every call between $ranks processes gives the bits that threads give" all_same $ranks
done
launch 4 abort
verdict "a rank that aborts ends the others, and only its message is shown" ended 1 "loss is NaN in step 3"
launch 4 together
verdict "of ranks that fail at the same moment one is heard" ended 1 "loss is NaN in step 3"
launch 4 killed
verdict "a rank that is killed ends the others; the launcher says so" ended 0 ""
launch 4 differ
verdict "ranks that call differently are told once" ended 1 "rank 0 meets all-reduce (maximum) of 1000 F32 on rank 1"
launch 3 leave
verdict "a rank that closes early ends those that wait for it" ended 1 "rank 1 stopped: closed while other ranks went on"
launch 4 stuck
verdict "a rank that hears nothing is ended with the others" ended 1 "loss is NaN in step 3"

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
