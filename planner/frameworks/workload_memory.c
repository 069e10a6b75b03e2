/* The answer: stages asked, and what the card needs besides. */
#include "planner/frameworks/workload_parts.h"

#include "base/checked.h"

/* llm.c: its figure is a sum. */
static void llmc_memory(const struct workload *w, struct workload_memory *out)
{
    struct replay_census census = {0};
    workload_llmc_census(w, &census);
    for (int label = 0; label < LABELS; label++) {
        enum role role = workload_label_role(label);
        out->peak.bytes += census.bytes[label];
        out->peak.by_role[role] += census.bytes[label];
        out->states_bytes += role == ROLE_ACTIVATION ? 0 : census.bytes[label];
    }
    out->first_allocated_bytes = out->first_reserved_bytes = out->reserved_bytes = out->peak.bytes;
}

/* Of each communicator: prediction.c has the readings. */
static int64_t nccl_bytes(const struct workload *w)
{
    int64_t groups = (w->dp > 1) + (w->tp > 1) + (w->pp > 1) + (w->cp > 1) + (w->ep > 1);
    return groups * (160LL << 20);
}

/* Fragments that the replay does not see, of activations: logs of Megatron-LM have 4 to 6% of the peak where the replay has
 * none; of 492 layouts with outcomes 10% misses fewer than 6%, and is wrong no more often (docs/memory-model.md). And a
 * hundredth of the card, for handles and the driver: assumed. */
static const double unseen_share = 0.10;

/* The same steps on a card that gives `room` bytes: caches are given back before memory is out. */
static int replay_within(const struct workload *w, int64_t stage, int64_t room,
                         struct workload_memory *within, struct error *err)
{
    struct stage_replay ask = {.stage = stage, .capacity_bytes = max_i64(room, 1)};
    *within = (struct workload_memory){0};
    return workload_stage_replay(w, &ask, within, err);
}

/* Whether it fits with doubt, and what it reserves where that is more than there is and caches are given back. */
static int hold_against_card(const struct workload *w, struct workload_memory *out, struct error *err)
{
    struct workload_memory within;
    int64_t room = w->capacity_bytes - out->context_bytes - out->nccl_bytes;
    if (!w->capacity_bytes || out->reserved_bytes <= room - out->doubt_bytes)
        return 0;
    /* Tensors alone are too many: no replay finds room for them. */
    if (w->library == WORKLOAD_LLMC || out->peak.bytes > room - out->doubt_bytes) {
        out->out_of_memory = true;
        return 0;
    }
    if (replay_within(w, out->stage, room - out->doubt_bytes, &within, err))
        return -1;
    out->out_of_memory = within.out_of_memory;
    out->retries = within.retries;
    if (out->reserved_bytes <= room)
        return 0;
    if (replay_within(w, out->stage, room, &within, err))
        return -1;
    if (within.out_of_memory)
        return 0;
    out->reserved_bytes = within.reserved_bytes;
    out->first_reserved_bytes = within.first_reserved_bytes;
    out->forward_reserved_bytes = within.forward_reserved_bytes;
    return 0;
}

int workload_stage_memory(const struct workload *w, int64_t stage, struct workload_memory *out,
                          struct error *err)
{
    *out = (struct workload_memory){0};
    if (workload_check(w, err))
        return -1;
    if (w->library == WORKLOAD_LLMC)
        llmc_memory(w, out);
    else if (workload_stage_replay(w, &(struct stage_replay){.stage = stage}, out, err))
        return -1;
    out->context_bytes = w->context_bytes;
    out->nccl_bytes =
        w->library == WORKLOAD_LLMC ? 0 : nccl_bytes(w); /* it is in the reading of its context */
    /* What llm.c takes once leaves no fragments. */
    double unseen = w->library == WORKLOAD_LLMC ? 0 : unseen_share;
    out->doubt_bytes =
        (int64_t)(unseen * (double)out->peak.by_role[ROLE_ACTIVATION]) + w->capacity_bytes / 100;
    if (hold_against_card(w, out, err))
        return -1;
    out->device_bytes = out->reserved_bytes + out->context_bytes + out->nccl_bytes;
    return 0;
}

/* Of two stages without an end of the model the earlier has as many passes under way, or more. */
static bool holds_less(const struct workload *w, int64_t stage, int64_t earlier)
{
    for (int64_t chunk = 0; chunk < w->virtual_stages; chunk++)
        if (workload_chunk_layers(w, stage, chunk) > workload_chunk_layers(w, earlier, chunk))
            return false;
    return true;
}

static bool may_hold_most(const struct workload *w, int64_t stage)
{
    for (int64_t earlier = 1; stage < w->pp - 1 && earlier < stage; earlier++)
        if (holds_less(w, stage, earlier))
            return false;
    return true;
}

int workload_memory(const struct workload *w, struct workload_memory *out, struct error *err)
{
    *out = (struct workload_memory){0};
    for (int64_t stage = 0; stage < w->pp; stage++) {
        struct workload_memory one;
        if (stage && !may_hold_most(w, stage))
            continue;
        if (workload_stage_memory(w, stage, &one, err))
            return -1;
        one.out_of_memory |= out->out_of_memory;
        if (one.peak.bytes > out->peak.bytes)
            *out = one;
        else
            out->out_of_memory = one.out_of_memory;
    }
    return 0;
}
