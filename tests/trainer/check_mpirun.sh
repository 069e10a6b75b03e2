#!/bin/bash
# `memplan train` under mpirun, where each rank is a process: every bit as threads have it, one database of them all, and one
# voice when what was asked for cannot be.
set -u
data=$(realpath docs/design.md) batch_script=$(realpath examples/train.sbatch)
. tests/trainer/launched_training.sh

# What a run says, but for how long it took.
without_times() { sed -E 's/"(step_seconds|tokens_per_second)":[^,}]*,?//g' "$1"; }

same_run() {
    [ "$status" -eq 0 ] && [ "$(wc -l <out)" -ge 4 ] &&
        diff <(without_times threads.out) <(without_times out) && same_checkpoint threads launched
}

# as_threads RANKS MODEL LAYOUT...: 3 steps, a validation and a checkpoint.
as_threads() {
    local ranks=$1
    shift
    local run=("$@" --data "$data" --seq-len 16 --steps 3 --lr 1e-3 --validate-every 2 --json --quiet)
    rm -rf threads launched
    "$memplan" train "${run[@]}" --threads "$ranks" --checkpoint threads >threads.out 2>&1
    launch "$ranks" train "${run[@]}" --checkpoint launched
    verdict "$ranks processes train as threads do, bit for bit: $*" same_run
}

gpt2=(gpt2-tiny --layers 4) llama=(llama-tiny --layers 4)
as_threads 2 "${gpt2[@]}" --dp 2 --global-batch 4
as_threads 2 "${llama[@]}" --dp 2 --zero 1 --global-batch 4
as_threads 4 "${gpt2[@]}" --dp 4 --zero 1 --precision bf16
as_threads 2 "${llama[@]}" --tp 2
as_threads 2 "${gpt2[@]}" --tp 2 --sequence-parallel
as_threads 4 "${llama[@]}" --dp 2 --tp 2 --sequence-parallel --precision bf16
as_threads 2 "${gpt2[@]}" --pp 2 --global-batch 4
as_threads 2 "${llama[@]}" --pp 2 --pipeline-schedule gpipe --global-batch 4
as_threads 2 "${gpt2[@]}" --pp 2 --virtual-stages 2 --global-batch 4
as_threads 3 "${llama[@]}" --pp 3 --stage-layers 2,1,1 --pipeline-schedule zb-h1 --global-batch 4
as_threads 4 "${gpt2[@]}" --dp 2 --pp 2 --zero 1 --pipeline-schedule zb-h1 --global-batch 8
as_threads 8 "${llama[@]}" --dp 2 --tp 2 --pp 2 --zero 1 --sequence-parallel --global-batch 8

tiny=(gpt2-tiny --data "$data" --seq-len 16 --micro-batch 1)
"$memplan" plan gpt2-tiny --dp 2 --cluster 1x2:cpu --global-batch 4 --seq-len 16 -o plan.json >/dev/null 2>&1
launch 4 train plan.json --data "$data"
verdict "a plan for other ranks than there are processes is refused once, with what to change" \
    refused "the plan has 2 ranks (dp 2 x tp 1 x pp 1), but 4 processes were started; start 2 .* or make a plan for 4"
launch 2 train "${tiny[@]}" --bogus
verdict "an option that does not exist is told once" refused "unknown option --bogus"

recorded() {
    [ "$status" -eq 0 ] && [ "$(ls run.db*)" = run.db ] &&
        "$memplan" compare run.db run.db --json | grep -q '"max_error_bytes": *0' &&
        "$memplan" report run.db | grep -q "ranks *4 with peaks"
}
launch 4 profile "${tiny[@]}" --dp 2 --pp 2 --zero 1 -o run.db
verdict "a run of four processes is recorded in one database, as predicted" recorded

# A stand-in for srun, which starts two tasks.
cat >srun <<'END'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec env -u SLURM_JOB_ID mpirun --allow-run-as-root --oversubscribe -np 2 "$@"
END
chmod +x srun

# submit STEPS: the example's script, as Slurm would run it.
submit() {
    local before=$SECONDS
    PATH=$PWD:$PATH MEMPLAN=$memplan SLURM_JOB_ID=7 SLURM_CPUS_PER_TASK=1 STEPS=$1 \
        bash "$batch_script" plan.json "$data" batch >out 2>err
    status=$? seconds=$((SECONDS - before))
}
steps_from() { [ "$status" -eq 0 ] && [ "$(sed -n 's/^step *\([0-9]*\).*/\1/p' out | head -1)" = "$1" ]; }
went_on() {
    steps_from 5 && [ "$(step_of batch/checkpoint)" = 6 ] && [ "$(ls batch)" = "$(printf 'checkpoint\nrun-7.db')" ] &&
        "$memplan" report batch/run-7.db | grep -q "run *2, .*finished"
}
submit 4
verdict "the example's batch script trains a plan" steps_from 1
submit 6
verdict "submitted again it goes on from the last checkpoint" went_on

finish
