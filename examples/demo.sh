#!/bin/sh
# The main job of memplan, end to end, on the sources of this repository as text: profile, predict, plan, train, report.
#
#     examples/demo.sh [MEMPLAN [FOLDER]]
#
# Each command is printed before it runs. Everything it writes goes to FOLDER (default ./demo).
set -eu

memplan=${1:-${MEMPLAN:-build/memplan}}
folder=${2:-demo}
cap=160MiB       # what each of the two ranks may hold
batch=16         # sequences per step over both ranks
steps=60

say() { printf '\n== %s\n' "$*"; }

# Prints and runs a memplan command.
run() {
    printf '\n$ memplan %s\n' "$*"
    "$memplan" "$@"
}

# The same for a command whose answer is expected to be "no" (exit 1).
run_no() {
    printf '\n$ memplan %s\n' "$*"
    status=0
    "$memplan" "$@" || status=$?
    [ "$status" -eq 1 ] || { echo "demo: expected the answer no (exit 1), got $status" >&2; exit 1; }
    printf '(exit status 1: it does not fit)\n'
}

rm -rf "$folder"
mkdir -p "$folder"
corpus=$folder/corpus.txt
find base model device kernels comm trainer profiler planner reports cli docs \
    \( -name '*.c' -o -name '*.h' -o -name '*.md' \) -print | LC_ALL=C sort | xargs cat > "$corpus"
say "The text: $(wc -c < "$corpus") bytes of this repository's own sources"

say "1. Profile: three real steps, every tensor an allocation of its own, recorded"
run profile gpt2-small-bytes --data "$corpus" --dp 2 --micro-batch 2 --global-batch 4 --steps 3 -o "$folder/profile.db"

say "   and three steps in one arena, as train runs them: fresh pages, which each allocation above brings, distort times"
run profile gpt2-small-bytes --data "$corpus" --dp 2 --micro-batch 2 --global-batch 4 --steps 3 --policy arena \
    -o "$folder/profile.db"
run calibrate "$folder/profile.db" -o "$folder/calibration.json"

say "2. Predict: plain data parallelism on two ranks of $cap, before anything is launched"
run_no predict gpt2-small-bytes --dp 2 --micro-batch 8 --global-batch $batch --memory $cap
run_no train gpt2-small-bytes --data "$corpus" --dp 2 --micro-batch 8 --global-batch $batch --memory $cap

say "3. Plan: the fastest configuration that fits"
run plan gpt2-small-bytes --cluster "1x2:cpu($cap)" --global-batch $batch \
    --dp 2 --calibration "$folder/calibration.json" -o "$folder/plan.json"

say "4. Train the plan under the cap"
run train "$folder/plan.json" --data "$corpus" --steps $steps --lr 1e-3 --warmup 10 --validate-every 20 \
    --checkpoint "$folder/checkpoint" -o "$folder/train.db"

say "5. Predicted against measured, rank by rank"
run compare "$folder/plan.json" "$folder/train.db"
run report "$folder/train.db"

say "What was written, and the command that reads it"
cat <<END
  $folder/profile.db        $memplan report $folder/profile.db
  $folder/calibration.json  $memplan plan ... --calibration $folder/calibration.json
  $folder/plan.json         $memplan report $folder/plan.json
  $folder/train.db          $memplan report $folder/train.db
                            sqlite3 $folder/train.db 'select * from predicted_vs_measured'
  $folder/checkpoint        $memplan train $folder/plan.json --data $corpus --resume $folder/checkpoint --steps 80
END
