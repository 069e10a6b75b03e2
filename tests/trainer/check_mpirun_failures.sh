#!/bin/bash
# `memplan train` under mpirun when something happens to a rank: all end in time, with one message, and the last checkpoint
# goes on as if nothing had happened.
set -u
data=$(realpath docs/design.md)
. tests/trainer/launched_training.sh

tiny=(gpt2-tiny --data "$data" --seq-len 16 --micro-batch 1)

well() { [ "$status" -eq 0 ]; }
launch 2 train "${tiny[@]}" --dp 2 --steps 50
verdict "a run to which nothing happens ends well" well

for layout in --dp --tp --pp; do
    launch 2 train "${tiny[@]}" $layout 2 --lr 900 --clip 0 --steps 50
    verdict "a run that diverges ends with one message: $layout 2" \
        refused "rank [01]: step [0-9]*, [a-z]* .*\(norm\|loss\) is .*; lower --lr"
done
launch 2 profile "${tiny[@]}" --pp 2 --memory 400KiB -o memory.db
held() {
    refused "rank 0: step 1, .* are left" && [ "$status" -eq 1 ] && [ "$(ls memory.db*)" = memory.db ] &&
        "$memplan" report memory.db | grep -q "ranks *2 with peaks"
}
verdict "a rank without memory ends the others, and what all held is recorded" held

# lose LAYOUT: kills the last of two ranks once a checkpoint stands, goes on from there, and compares with a run that nothing
# has happened to.
lose() {
    local run=("${tiny[@]}" "$@" --steps 600 --checkpoint-every 20 --quiet) before mpirun rank
    rm -rf threads launched
    "$memplan" train "${run[@]}" --threads 2 --checkpoint threads >/dev/null
    "${start[@]}" -np 2 "$memplan" train "${run[@]}" --threads 2 --checkpoint launched >out 2>err &
    mpirun=$!
    while [ ! -e launched/checkpoint.json ] && kill -0 $mpirun 2>/dev/null; do sleep 0.02; done
    # The parent of the ranks is mpirun, and its parent is timeout.
    rank=$(pgrep -P "$(pgrep -P $mpirun)" 2>/dev/null | tail -1)
    before=$SECONDS
    [ -n "$rank" ] && kill -KILL "$rank"
    wait $mpirun
    status=$? seconds=$((SECONDS - before)) lost_at=$(step_of launched 2>/dev/null)
    verdict "a rank that is killed ends the others within 10 s, and mpirun names it: $*" killed
    launch 2 train "${run[@]}" --checkpoint launched --resume launched
    verdict "what it had saved at step $lost_at goes on to the same bits: $*" went_on
}
killed() { [ "$status" -ne 0 ] && [ "$seconds" -lt 10 ] && grep -q "process rank 1 .*signal 9" err; }
went_on() { [ "$status" -eq 0 ] && [ "${lost_at:-600}" -lt 600 ] && same_checkpoint threads launched; }
lose --dp 2
lose --tp 2
lose --pp 2

# ask LAYOUT: asks one of two ranks to stop, once a checkpoint stands; mpirun itself would kill all of them a second later.
ask() {
    local run=("${tiny[@]}" "$@" --steps 600 --quiet) before mpirun rank
    rm -rf launched asked.db*
    "${start[@]}" -np 2 "$memplan" train "${run[@]}" --threads 2 --checkpoint launched --checkpoint-every 20 -o asked.db >out 2>err &
    mpirun=$!
    while [ ! -e launched/checkpoint.json ] && kill -0 $mpirun 2>/dev/null; do sleep 0.02; done
    rank=$(pgrep -P "$(pgrep -P $mpirun)" 2>/dev/null | tail -1)
    before=$SECONDS
    [ -n "$rank" ] && kill -TERM "$rank"
    wait $mpirun
    status=$? seconds=$((SECONDS - before)) lost_at=$(step_of launched 2>/dev/null)
    verdict "one rank is asked to stop, and all do after the same step, recorded as finished: $*" asked
    rm -rf threads
    "$memplan" train "${run[@]}" --threads 2 --checkpoint threads >/dev/null
    launch 2 train "${run[@]}" --checkpoint launched --resume launched
    verdict "from step $lost_at they go on to the same bits: $*" went_on
}
asked() {
    [ "$status" -eq 143 ] && [ "$seconds" -lt 10 ] && [ "$(ls asked.db*)" = asked.db ] && [ "$(grep -c ^step out)" = "$lost_at" ] &&
        "$memplan" report asked.db --rank 0 | grep -q "ended early, after $lost_at of 600 steps" &&
        "$memplan" report asked.db --rank 1 | grep -q "stopped by SIGTERM after step $lost_at"
}
ask --dp 2
ask --pp 2

finish
