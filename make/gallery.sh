#!/bin/bash
# Draws the pictures of docs/gallery.md anew, from small runs and plans that it makes for them.
#
#     MEMPLAN=build/memplan make/gallery.sh
set -eu

memplan=$(realpath "${MEMPLAN:-build/memplan}")
pictures=$(realpath docs/gallery)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive LC_ALL=C

for ((i = 0; i < 2000; i++)); do
    echo "line $i of the corpus: the quick brown fox jumps over the lazy dog."
done >corpus.txt
profile() {
    "$memplan" profile gpt2-tiny --data corpus.txt --steps 3 -q "$@" >/dev/null
}
draw() {
    "$memplan" report "$1" -q -o "$pictures/$2"
}
profile --memory 3MiB -o run.db
profile --memory 3MiB --recompute full -o recompute.db
profile --layers 6 --dp 2 --pp 2 --micro-batch 2 --global-batch 16 --recompute selective -o pipeline.db
"$memplan" plan gpt2-small-bytes --cluster '1x4:cpu(300MiB)' --global-batch 32 --micro-batch 4 --pp 4 \
    --pipeline-schedule zb-h1 -q -o plan.json >/dev/null
draw run.db run.svg
draw pipeline.db pipeline.svg
draw plan.json plan.svg
"$memplan" compare run.db recompute.db -q -o "$pictures/compare.svg"
