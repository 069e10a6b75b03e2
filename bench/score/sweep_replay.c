#include "bench/score/sweep_replay.h"

#include "planner/frameworks/workload_memory.h"

/* What the sweep's fork of Megatron-LM does, as far as its outcomes tell: logits are gathered, and the caller keeps them;
 * dropout in attention that has scores; two buckets of 5e8 elements. */
static struct workload workload_of(const struct job *job)
{
    static const enum workload_attention kernels[] = {[JOB_ATTENTION_EAGER] = WORKLOAD_EAGER,
                                                      [JOB_ATTENTION_SOFTMAX] = WORKLOAD_FUSED_SOFTMAX,
                                                      [JOB_ATTENTION_FLASH1] = WORKLOAD_FLASH,
                                                      [JOB_ATTENTION_FLASH2] = WORKLOAD_FLASH};
    static const enum workload_recompute policies[] = {
        [JOB_KEEPS_ALL] = WORKLOAD_KEEPS_ALL, [JOB_SELECTIVE] = WORKLOAD_CORE, [JOB_FULL] = WORKLOAD_FULL};
    const struct model *m = &job->model;
    const struct layout *l = &job->layout;
    struct workload w = workload_default(WORKLOAD_MEGATRON_LEGACY, WORKLOAD_ZERO1);
    w.model = (struct workload_model){.layers = m->layers,
                                      .hidden = m->hidden,
                                      .heads = m->heads,
                                      .kv_heads = m->kv_heads,
                                      .head_size = m->head_size,
                                      .ffn = m->ffn,
                                      .vocab = m->vocab,
                                      .gated = true,
                                      .rms_norm = true};
    w.dp = l->dp;
    w.tp = l->tp;
    w.pp = l->pp;
    w.micro_batch = l->micro_batch;
    w.sequence = l->seq_len;
    w.micro_batches = layout_micro_batches(l);
    w.sequence_parallel = l->sequence_parallel;
    w.gradient_bytes = job->gradient_bytes;
    w.loss = WORKLOAD_LOSS_UPCAST;
    w.logits_held = 2;
    w.logits_whole = w.old_torch = w.attention_dropout = true;
    w.norm = job->norm_fused ? WORKLOAD_NORM_FUSED : WORKLOAD_NORM_WRITTEN;
    w.attention = kernels[job->attention];
    w.recompute = policies[job->recompute];
    w.capacity_bytes = (int64_t)(79.15 * (1LL << 30));
    return w;
}

int sweep_replay(const struct verdicts *verdicts, struct outcomes *out, struct odds *odds, struct error *err)
{
    *out = (struct outcomes){0};
    *odds = (struct odds){.squares = 0};
    for (int i = 0; i < verdicts->count; i++) {
        struct workload w = workload_of(&verdicts->rows[i].job);
        struct workload_memory memory;
        if (workload_memory(&w, &memory, err))
            return -1;
        bool oom = verdicts->rows[i].out_of_memory;
        out->count++;
        out->missed += oom && !memory.out_of_memory;
        out->false_alarms += !oom && memory.out_of_memory;
        odds_add(odds, &w, &memory, oom);
    }
    return 0;
}
