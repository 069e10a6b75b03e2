#!/bin/bash
# `profile --device cuda` on this machine's CPU, under doubles of CUDA's libraries and of CUPTI (tests/cuda): who holds the GPU's
# memory, to the byte; who took some behind our back; when kernels ran and for which operation; and that nothing which goes
# wrong with the profiler harms the training.
set -u

. tests/cuda/emulated.sh
command -v sqlite3 >/dev/null || skip "no sqlite3 on the PATH"

what_happened() {
    cat "$log" "$log.out"
    ask "SELECT * FROM runtime_memory; SELECT * FROM notes"
}

# profile MODEL ARGUMENTS...: two steps into $db; the settings of the doubles are in $settings.
db=$folder/run.db
settings=()
profile() {
    local model=$1
    shift
    rm -f "$db"
    env "${settings[@]}" "$memplan" profile "$model" --data random --steps 2 --device cuda --json -o "$db" "$@" >"$log.out" 2>"$log"
}
ask() { sqlite3 "$db" "$1"; }
is() { [ "$(ask "$1")" = "$2" ]; }
losses() { sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' "$log.out"; }

runtime="SELECT SUM(bytes) FROM runtime_memory"
mib=$((1 << 20))
context=$((440 * mib)) # of the double

for model in gpt2-tiny llama-tiny qwen3-tiny olmo2-tiny gemma-tiny gemma3-tiny; do
    settings=(A=1)
    profile $model
    verdict "$model: every role takes the predicted bytes" is "SELECT COUNT(*), SUM(ABS(error_bytes)) FROM predicted_vs_measured" "8|0"
    verdict "$model: the driver's ledger has what the device took, and all of it is given back" \
        is "SELECT SUM(bytes), MAX(live_bytes) = (SELECT MAX(live_bytes) FROM memory_events) FROM driver_events" "0|1"
    verdict "$model: each of its rows has the operation of the tensor at that address" is \
        "SELECT COUNT(*) FROM driver_events d JOIN memory_events m USING (run_id, rank, address, bytes)
         WHERE d.bytes > 0 AND d.operation_id <> m.operation_id
           AND NOT EXISTS (SELECT 1 FROM memory_events n WHERE n.address = m.address AND n.bytes = m.bytes
               AND n.operation_id = d.operation_id)" 0
    verdict "$model: the context is measured, and no byte is left over" is \
        "SELECT bytes, how FROM runtime_memory WHERE name LIKE 'CUDA context%' OR name = 'unattributed' ORDER BY bytes" "0|residual
$context|measured"
    before=$(ask "$runtime")

    settings=(DOUBLE_CUPTI_BEHIND=23:250)
    profile $model
    verdict "$model: 23 MiB that somebody allocates are 23 MiB of runtime" is "$runtime" $((before + 23 * mib))
    verdict "$model: and nobody else's" is "SELECT COUNT(*), SUM(ABS(error_bytes)) FROM predicted_vs_measured" "8|0"
    verdict "$model: a row of their own" is "SELECT bytes FROM runtime_memory WHERE how = 'counted'" $((23 * mib))

    settings=(DOUBLE_CUPTI_HIDDEN=23:1)
    profile $model
    verdict "$model: 23 MiB that appear while the run is set up are in the row of that" is \
        "SELECT bytes FROM runtime_memory WHERE name = 'libraries while setting up'" $((23 * mib))
    settings=(DOUBLE_CUPTI_HIDDEN=23:250)
    profile $model
    verdict "$model: 23 MiB that appear later, and that no call shows, are the residual" is \
        "SELECT bytes FROM runtime_memory WHERE how = 'residual'" $((23 * mib))

    settings=(A=1)
    profile $model --timeline
    verdict "$model, timeline: the GPU memory that CUPTI takes for it is measured" is \
        "SELECT bytes FROM runtime_memory WHERE name = 'CUPTI'" $((12 * mib))
    verdict "$model, timeline: and predicted bytes stay as they are" is "SELECT SUM(ABS(error_bytes)) FROM predicted_vs_measured" 0
    verdict "$model, timeline: every operation that computes has a kernel in every step" is \
        "SELECT COUNT(*) FROM operations o, (SELECT 0 AS step UNION SELECT 1) s
         WHERE o.flops > 0 AND NOT EXISTS (SELECT 1 FROM gpu_spans g WHERE g.kind = 'kernel' AND g.step = s.step
             AND g.operation_id = o.operation_id)" 0
    verdict "$model, timeline: both steps have the same kernels for the same operations" is \
        "SELECT COUNT(*) FROM (SELECT operation_id, name, COUNT(*) AS n, SUM(step) * 2 AS twice FROM gpu_spans
         WHERE kind = 'kernel' AND operation_id >= 0 GROUP BY 1, 2) WHERE n <> twice" 0
    verdict "$model, timeline: kernels belong to the operations that they are named for" is \
        "SELECT COUNT(*) > 100, SUM((g.name LIKE '%cublasLtMatmul%') <> (o.kind LIKE 'matmul%')),
           SUM((g.name LIKE '%adamw%') <> (o.kind = 'adamw')), SUM(g.name LIKE '%attention%' AND o.kind NOT LIKE 'attention%')
         FROM gpu_spans g JOIN operations o USING (run_id, rank, operation_id) WHERE g.kind = 'kernel'" "1|0|0|0"
    verdict "$model, timeline: operations take as long as their kernels" is \
        "SELECT COUNT(*) > 0, COUNT(*) = (SELECT COUNT(*) FROM (SELECT DISTINCT step, operation_id FROM gpu_spans
         WHERE operation_id >= 0)), MIN(end_ns >= start_ns AND start_ns > 0) FROM kernels" "1|1|1"
done

# Somebody's library, with a name.
cat >"$folder/somebody.c" <<'C'
#include <stddef.h>
int somebody_asks(int (*allocate)(void **, size_t), void **memory, size_t bytes)
{
    int volatile status = allocate(memory, bytes);
    return status;
}
C
"${CC:-cc}" -O0 -shared -fPIC -o "$folder/libsomebody.so.7" "$folder/somebody.c"
settings=(DOUBLE_CUPTI_BEHIND=23:100 "DOUBLE_CUPTI_LIBRARY=$folder/libsomebody.so.7")
profile gpt2-tiny
verdict "the row says which library called the driver" is \
    "SELECT name, bytes FROM runtime_memory WHERE how = 'counted'" "allocated by libsomebody.so.7|$((23 * mib))"
verdict "and so does the row of the allocation, with its call" is \
    "SELECT call, bytes FROM driver_events WHERE owner = 'libsomebody.so.7' AND bytes > 0" "cuMemAlloc_v2|$((23 * mib))"
names_it() { "$memplan" report "$db" >"$log.out" 2>"$log" && grep -q 'libsomebody.so.7 .*23.00 MiB' "$log.out"; }
verdict "the report names it too" names_it

settings=(A=1)
profile gpt2-tiny --event-steps 1
verdict "only the steps that were asked for are recorded" is \
    "SELECT MAX(step), COUNT(*) > 100 FROM driver_events" "0|1"
profile gpt2-tiny --policy arena
verdict "one arena is claimed by the tensors in it" is \
    "SELECT COUNT(*), SUM(how = 'residual' AND bytes = 0) FROM runtime_memory WHERE how <> 'measured'" "1|1"

settings=(DOUBLE_CUDA_DEVICES=2 DOUBLE_CUPTI_BEHIND=23:30)
profile gpt2-tiny --dp 2 --timeline
verdict "two ranks: each has the rows of its own GPU" is \
    "SELECT rank, SUM((how = 'counted') * bytes), SUM((how = 'residual') * bytes), SUM(name = 'CUPTI') FROM runtime_memory GROUP BY 1" \
    "0|$((23 * mib))|0|1
1|$((23 * mib))|0|1"
verdict "two ranks: the same kernels on both, for the same operations" is \
    "SELECT COUNT(*), SUM(n <> 2) FROM (SELECT COUNT(DISTINCT rank) AS n FROM gpu_spans WHERE operation_id >= 0
     GROUP BY step, operation_id, name) HAVING COUNT(*) > 100" "$(ask "SELECT COUNT(*) FROM (SELECT DISTINCT step, operation_id, name FROM gpu_spans WHERE operation_id >= 0)")|0"
verdict "two ranks: ranges that NCCL names are there, and none of our own, which are operations" is \
    "SELECT COUNT(*) > 10, MIN(name), MAX(name), MIN(end_ns >= start_ns AND start_ns > 0) FROM gpu_spans WHERE kind = 'range'" \
    "1|ncclAllReduce|ncclAllReduce|1"
verdict "two ranks: every role takes the predicted bytes" is "SELECT COUNT(*), SUM(ABS(error_bytes)) FROM predicted_vs_measured" "16|0"

settings=(A=1)
profile gpt2-tiny
plain=$(losses)

# harmless SENTENCE-PIECE SETTING...: the losses are as ever, the status 0, and a note has the piece, in the file and on stderr.
harmless() {
    local piece=$1
    shift
    settings=("$@")
    profile gpt2-tiny --timeline || return 1
    [ -n "$plain" ] && [ "$(losses)" = "$plain" ] && grep -q "$piece" "$log" && ask "SELECT note FROM notes" | grep -q "$piece" &&
        is "SELECT SUM(ABS(error_bytes)) FROM predicted_vs_measured" 0
}
verdict "another profiler: its name, and the training goes on" harmless "held by Nsight Compute; end that" \
    DOUBLE_CUPTI_HOLDER="Nsight Compute"
verdict "one that CUPTI does not name is known by its environment" harmless "held by Nsight Systems" \
    DOUBLE_CUPTI_HOLDER= NSYS_PROFILING_SESSION_ID=1
verdict "no permission: the option of the driver" harmless "NVreg_RestrictProfilingToAdminUsers=0" \
    DOUBLE_CUPTI_FAIL=cuptiSubscribe_v2:35
verdict "permission for callbacks and none for records" harmless "no memory records: .*NVreg_Restrict" \
    DOUBLE_CUPTI_FAIL=cuptiActivityEnable:35
verdict "without records there still is a ledger" is "SELECT COUNT(*) > 100 FROM driver_events" 1
verdict "no callbacks" harmless "cuptiEnableCallback failed" DOUBLE_CUPTI_FAIL=cuptiEnableCallback:999
verdict "no CUPTI: where to look" harmless "LD_LIBRARY_PATH" MEMPLAN_CUPTI_LIBRARY=/nowhere/libcupti.so
verdict "no buffers" harmless "cuptiActivityRegisterCallbacks failed" DOUBLE_CUPTI_FAIL=cuptiActivityRegisterCallbacks:1
verdict "records that CUPTI drops are counted" harmless "^\(rank [0-9]*: \)\?7 records were dropped" DOUBLE_CUPTI_DROP=7
verdict "an allocation without a record of CUPTI" harmless "one of them misses some" DOUBLE_CUPTI_SILENT=1
verdict "records that CUPTI keeps to the end and does not hand over" harmless "last records are missing" DOUBLE_CUPTI_FAIL=cuptiActivityFlushAll:999

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
