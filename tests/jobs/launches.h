/* Small launches of each framework that tests add an option to, and the workload that one becomes. Options stand at the end: a
 * later one replaces an earlier. */
#ifndef MEMPLAN_TESTS_JOBS_LAUNCHES_H
#define MEMPLAN_TESTS_JOBS_LAUNCHES_H

#include "jobs/job_workload.h"
#include "jobs/jobs.h"

#include <string.h>

#define GPT                                                                                                  \
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 4 "   \
    "--seq-length 32 --max-position-embeddings 48 --micro-batch-size 1 --vocab-size 100 "
#define MEGATRON GPT "--bf16 "
#define HF       "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path models/Llama-3.1-8B --block_size 64 "
#define GPT2     "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path gpt2-124m --block_size 64 "
#define TITAN    "torchrun --nproc_per_node 8 -m torchtitan.train --model.flavor 8B "
#define DEEPSPEED(json, options)                                                                             \
    "cat > ds.json <<'EOF'\n{" json "}\nEOF\n" HF "--bf16 --deepspeed ds.json " options
#define ZERO(json) DEEPSPEED("\"bf16\": {\"enabled\": true}, " json, "")
#define ACCELERATE(yaml)                                                                                     \
    "cat > acc.yaml <<'EOF'\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n" yaml               \
    "\nEOF\naccelerate launch --config_file acc.yaml run_clm.py --block_size 64 "                            \
    "--model_name_or_path models/Llama-3.1-8B "
#define FSDP "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"

/* A script as if it stood beside the examples, whose models it may name. */
static inline int launch_workload(const char *script, struct arena *arena, struct workload *w, struct error *err)
{
    struct training_job job;
    struct jobs_request request = {0};
    return jobs_read_text(&request, "examples/launch/run.sh", script, strlen(script), arena, &job, err) ||
                   job_workload(&job, w, err)
               ? -1
               : 0;
}

#endif
