/* The peak of a step without walking it. Every micro-batch repeats the same forward and backward, and within a run of equal
 * layers what is kept grows by the same amount per layer; so forward is highest at the last layer of a run, backward
 * at the layer of a run that it reaches first, and a handful of sums decides. */
#include "model/program.h"

#include <string.h>

/* Keeps the first of the highest. */
static void consider(struct program *p, int64_t base, enum phase phase, int64_t instance,
                     struct block_peak peak)
{
    if (peak.op < 0 || base + peak.bytes <= p->peak_bytes)
        return;
    p->peak_bytes = base + peak.bytes;
    p->peak = (struct program_peak){phase, instance, peak.op};
}

static void add_states(struct program *p, int64_t by_role[ROLE_COUNT])
{
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        for (int k = 0; k < block->parameter_count; k++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(p, (enum state)state)) {
                    struct placed s = program_state(p, run->first, k, (enum state)state);
                    by_role[s.role] += run->count * s.bytes;
                }
    }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed s = program_scalar(p, (enum scalar)i);
        by_role[s.role] += s.bytes;
    }
}

static void add_saved(const struct block *block, int64_t times, int64_t by_role[ROLE_COUNT])
{
    for (int t = 0; t < block->tensor_count; t++)
        if (block->tensors[t].saved)
            by_role[block->tensors[t].role] += times * block->tensors[t].bytes;
}

/* What is alive at p->peak: states, what the instances below keep, and the block itself. */
static void fill_at_peak(struct program *p, const int64_t states[ROLE_COUNT])
{
    memcpy(p->at_peak, states, sizeof p->at_peak);
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        int64_t below = p->peak.instance - run->first;
        if (below <= 0)
            break;
        add_saved(&p->blocks[run->block], below < run->count ? below : run->count, p->at_peak);
    }
    block_live_at(program_block(p, p->peak.instance), p->peak.op, p->at_peak);
}

void program_find_peak(struct program *p)
{
    int64_t states[ROLE_COUNT] = {0};
    add_states(p, states);
    p->persistent_bytes = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        p->persistent_bytes += states[role];
    p->peak_bytes = p->persistent_bytes;
    p->peak = (struct program_peak){PHASE_OPTIMIZER, -1, -1};
    int64_t base = p->persistent_bytes;
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        base += run->count * block->saved_bytes;
        consider(p, base - block->saved_bytes, PHASE_FORWARD, run->first + run->count - 1, block->forward);
    }
    for (int i = p->run_count - 1; i >= 0; i--) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        consider(p, base - block->saved_bytes, PHASE_BACKWARD, run->first + run->count - 1, block->backward);
        base -= run->count * block->saved_bytes;
    }
    if (p->peak.op < 0)
        memcpy(p->at_peak, states, sizeof p->at_peak);
    else
        fill_at_peak(p, states);
}
