# shellcheck shell=bash
# What the checks of `memplan train` under mpirun have in common. Sourced as tests/comm/mpirun.sh is.

memplan=$(realpath "${MEMPLAN:-${BUILD:-build}/memplan}")
. tests/comm/mpirun.sh

# launch RANKS ARGUMENTS...: memplan under mpirun, as launch_program does it.
launch() {
    local ranks=$1
    shift
    launch_program "$ranks" "$memplan" "$@" --threads "$ranks"
}

# The tensors of the checkpoint in folder $1.
tensors() { echo "$1/$(sed -n 's/.*"tensors": "\([^"]*\)".*/\1/p' "$1/checkpoint.json")"; }
step_of() { sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$1/checkpoint.json"; }
same_checkpoint() { cmp "$(tensors "$1")" "$(tensors "$2")" && cmp "$1/checkpoint.json" "$2/checkpoint.json"; }

# Did it end in time, not as a success, and with one line of ours, which holds the text?
refused() {
    [ "$status" -ne 0 ] && in_time && [ "$(grep -c '^memplan:' err)" -eq 1 ] &&
        grep -q "^memplan:.*$1" err
}
