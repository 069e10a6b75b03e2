# shellcheck shell=bash
# What the checks under mpirun have in common. Sourced by a script that runs in bash from the root of the project; leaves it in
# an empty folder of its own, and $build the whole path of the build's.

build=$(realpath "${BUILD:-build}")
passed=0 failed=0

if ! command -v mpirun >/dev/null || [ ! -e "$build/libmemplan_mpi.so" ]; then
    echo "skip  ${0##*/}: no mpirun, or built without MPI (make deps, then make)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export MEMPLAN_MPI_LIBRARY=$build/libmemplan_mpi.so OMP_WAIT_POLICY=passive
folder=$(mktemp -d "${TMPDIR:-/tmp}/memplan-mpirun.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

start=(timeout 300 mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -x MEMPLAN_MPI_LIBRARY -x OMP_WAIT_POLICY)

# The most seconds that a run took which ended well: what starting and ending ranks costs here and now.
calm=0

# launch_program RANKS PROGRAM ARGUMENTS...: under mpirun; leaves the output in the files out and err, the exit status in $status
# and the seconds it took in $seconds.
launch_program() {
    local before=$SECONDS ranks=$1
    shift
    "${start[@]}" -np "$ranks" "$@" >out 2>err
    status=$?
    seconds=$((SECONDS - before))
    ((status == 0 && seconds > calm)) && calm=$seconds
    return 0
}

# Did a run that failed end within 10 s, however long its start took on a busy machine?
in_time() { [ "$seconds" -lt $((calm + 10)) ]; }

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

finish() {
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
