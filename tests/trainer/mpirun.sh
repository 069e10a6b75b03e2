# shellcheck shell=bash
# What the checks of `memplan train` under mpirun have in common. Sourced by a script that runs in bash from the root of the
# project; leaves it in an empty folder of its own.

build=${BUILD:-build}
memplan=$(realpath "${MEMPLAN:-$build/memplan}")
passed=0 failed=0

if ! command -v mpirun >/dev/null || [ ! -e "$build/libmemplan_mpi.so" ]; then
    echo "skip  ${0##*/}: no mpirun, or built without MPI (make deps, then make)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
MEMPLAN_MPI_LIBRARY=$(realpath "$build/libmemplan_mpi.so")
export MEMPLAN_MPI_LIBRARY OMP_WAIT_POLICY=passive
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-mpirun.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

start=(timeout 300 mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -x MEMPLAN_MPI_LIBRARY -x OMP_WAIT_POLICY)

# launch RANKS ARGUMENTS...: memplan under mpirun; leaves its output in the files out and err, its exit status in $status
# and the seconds it took in $seconds.
launch() {
    local before=$SECONDS ranks=$1
    shift
    "${start[@]}" -np "$ranks" "$memplan" "$@" --threads "$ranks" >out 2>err
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
        sed 's/^/      /' out err
        ((failed += 1))
    fi
}

# The tensors of the checkpoint in folder $1.
tensors() { echo "$1/$(sed -n 's/.*"tensors": "\([^"]*\)".*/\1/p' "$1/checkpoint.json")"; }
step_of() { sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$1/checkpoint.json"; }
same_checkpoint() { cmp "$(tensors "$1")" "$(tensors "$2")" && cmp "$1/checkpoint.json" "$2/checkpoint.json"; }

# Did it end in time, not as a success, and with one line of ours, which holds the text?
refused() {
    [ "$status" -ne 0 ] && [ "$seconds" -lt 10 ] && [ "$(grep -c '^memplan:' err)" -eq 1 ] &&
        grep -q "^memplan:.*$1" err
}

finish() {
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
