/* Lives and peaks of one block's tensors. */
#include "model/block.h"

#include <assert.h>
#include <string.h>

/* From the first to the last operation of the block that touches each tensor. */
static void find_lives(struct block *block)
{
    for (int i = 0; i < block->tensor_count; i++)
        block->tensors[i].first = block->tensors[i].last = -1;
    for (int i = 0; i < block->op_count; i++)
        for (int k = 0; k < OP_INPUTS + OP_OUTPUTS; k++) {
            const struct op *op = &block->ops[i];
            int index = k < OP_INPUTS ? op->inputs[k] : op->outputs[k - OP_INPUTS];
            if (index < 0)
                continue;
            struct tensor *t = &block->tensors[index];
            t->first = t->first < 0 ? i : t->first;
            t->last = i;
        }
}

/* What is kept of it between passes. */
static void find_frame(const struct block *block, struct tensor *t)
{
    bool ours = (t->span == SPAN_LOCAL || t->span == SPAN_INPUT) && t->first >= 0;
    bool from_forward = t->first < block->forward_count, to_weight = t->last >= block->input_count;
    t->saved = ours && from_forward && t->last >= block->forward_count;
    t->frame = t->saved && to_weight                                ? FRAME_WEIGHT
               : t->saved                                           ? FRAME_INPUT
               : ours && to_weight && t->first < block->input_count ? FRAME_DELAYED
                                                                    : FRAME_NONE;
}

static bool begins_here(const struct block *block, const struct tensor *t)
{
    return t->span == SPAN_LOCAL || t->span == SPAN_OUTPUT ||
           (t->span == SPAN_STREAM && (block->part == PART_HEAD || block->part == PART_SEND));
}

static bool ends_here(const struct block *block, const struct tensor *t)
{
    return t->span == SPAN_LOCAL || t->span == SPAN_INPUT || (t->span == SPAN_STREAM && block->stream_ends);
}

static void list_births_and_deaths(struct block *block)
{
    for (int i = 0; i < block->op_count; i++)
        block->ops[i].birth_count = block->ops[i].death_count = 0;
    for (int index = 0; index < block->tensor_count; index++) {
        struct tensor *t = &block->tensors[index];
        if (t->first < 0)
            continue;
        struct op *born = &block->ops[t->first], *dies = &block->ops[t->last];
        if (begins_here(block, t)) {
            assert(born->birth_count < sizeof born->births);
            born->births[born->birth_count++] = (uint8_t)index;
        }
        if (ends_here(block, t)) {
            assert(dies->death_count < sizeof dies->deaths);
            dies->deaths[dies->death_count++] = (uint8_t)index;
        }
    }
}

bool block_counts(const struct block *block, const struct tensor *t, int *from, int *to)
{
    if (t->span == SPAN_WEIGHT || t->span == SPAN_GRADIENT || t->span == SPAN_LOSS || t->first < 0)
        return false;
    *from = begins_here(block, t) ? t->first : t->span == SPAN_STREAM ? block->forward_count : 0;
    *to = ends_here(block, t)      ? t->last
          : t->span == SPAN_OUTPUT ? block->forward_count - 1
                                   : block->input_count - 1;
    return true;
}

int64_t block_live_at(const struct block *block, int op, int64_t by_role[ROLE_COUNT])
{
    int64_t total = 0;
    int from, to;
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if (!block_counts(block, t, &from, &to) || op < from || op > to)
            continue;
        by_role[t->role] += t->bytes;
        total += t->bytes;
    }
    return total;
}

/* Live bytes at every operation. Searches weigh hundreds of blocks, so each tensor is looked at once. */
static void list_live(const struct block *block, int64_t live[BLOCK_OPS + 1])
{
    int from, to;
    memset(live, 0, (BLOCK_OPS + 1) * sizeof *live);
    for (int i = 0; i < block->tensor_count; i++) {
        const struct tensor *t = &block->tensors[i];
        if (!block_counts(block, t, &from, &to) || from > to)
            continue;
        live[from] += t->bytes;
        live[to + 1] -= t->bytes;
    }
    for (int i = 1; i < block->op_count; i++)
        live[i] += live[i - 1];
}

static struct block_peak find_peak(const int64_t *live, int from, int to)
{
    struct block_peak peak = {0, -1};
    for (int op = from; op < to; op++)
        if (live[op] > peak.bytes)
            peak = (struct block_peak){live[op], op};
    return peak;
}

void block_weigh(struct block *block)
{
    int64_t live[BLOCK_OPS + 1];
    block->saved_bytes = block->later_bytes = 0;
    find_lives(block);
    for (int i = 0; i < block->tensor_count; i++) {
        struct tensor *t = &block->tensors[i];
        find_frame(block, t);
        if (t->saved)
            block->saved_bytes += t->bytes;
        if (t->frame == FRAME_WEIGHT || t->frame == FRAME_DELAYED)
            block->later_bytes += t->bytes;
        assert(t->first < block->input_count || t->span == SPAN_WEIGHT || t->span == SPAN_GRADIENT);
    }
    assert(block->output < 0 || block->tensors[block->output].last < block->forward_count);
    assert(block->input < 0 || block->tensors[block->input].saved || block->part == PART_SEND);
    list_births_and_deaths(block);
    list_live(block, live);
    block->forward = find_peak(live, 0, block->forward_count);
    block->backward = find_peak(live, block->forward_count, block->input_count);
    block->weight = find_peak(live, block->input_count, block->op_count);
}
