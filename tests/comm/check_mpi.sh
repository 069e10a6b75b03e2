#!/bin/bash
# Ranks as processes: the same bits as between threads, and an end in time, with one message, however a rank fails.
set -u

. tests/comm/mpirun.sh

launch() { launch_program "$1" "$build/tests/comm/launched_ranks" "$2"; }

all_same() { [ "$status" -eq 0 ] && [ "$(grep -c 'are the same' out)" -eq "$1" ]; }

# In time, not as a success, with COUNT lines of ours, which all hold TEXT.
ended() {
    [ "$status" -ne 0 ] && in_time && [ "$(grep -c '^launched_ranks:' err)" -eq "$1" ] &&
        [ "$(grep -c "^launched_ranks:.*$2" err)" -eq "$1" ]
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

finish
