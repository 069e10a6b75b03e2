#include "model/recompute.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The block under transformation: its old operations, and for every tensor its second life or -1. */
struct rewriter {
    struct block *block;
    struct op old[BLOCK_OPS];
    int8_t again[BLOCK_TENSORS];
    bool dropped[BLOCK_TENSORS], overwritten[BLOCK_TENSORS], emitted[BLOCK_OPS];
};

static int second_life(struct rewriter *r, int tensor)
{
    if (r->again[tensor] < 0) {
        struct block *block = r->block;
        assert(block->tensor_count < BLOCK_TENSORS);
        struct tensor copy = block->tensors[tensor];
        copy.drop_bit = -1;
        copy.recomputed = true;
        r->again[tensor] = (int8_t)block->tensor_count;
        block->tensors[block->tensor_count++] = copy;
    }
    return r->again[tensor];
}

/* Appends a copy of `op` whose dropped tensors are replaced by their second lives. */
static void append(struct rewriter *r, const struct op *op, unsigned extra_flags)
{
    struct block *block = r->block;
    assert(block->op_count < BLOCK_OPS);
    struct op *copy = &block->ops[block->op_count++];
    *copy = *op;
    copy->flags |= extra_flags;
    for (int i = 0; i < OP_INPUTS; i++)
        if (op->inputs[i] >= 0 && r->dropped[op->inputs[i]])
            copy->inputs[i] = (int8_t)second_life(r, op->inputs[i]);
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] >= 0 && r->dropped[op->outputs[i]])
            copy->outputs[i] = (int8_t)second_life(r, op->outputs[i]);
}

static void make_again(struct rewriter *r, int tensor);

static void emit_forward(struct rewriter *r, int index)
{
    if (r->emitted[index])
        return;
    r->emitted[index] = true;
    const struct op *op = &r->old[index];
    for (int i = 0; i < OP_INPUTS; i++) {
        int input = op->inputs[i];
        if (input < 0 || block_op_writes(op, input))
            continue;
        assert(!r->overwritten[input] && "backward destroyed what recomputation needs");
        if (r->dropped[input])
            make_again(r, input);
    }
    append(r, op, OP_RECOMPUTE);
}

static void make_again(struct rewriter *r, int tensor)
{
    for (int i = 0; i < r->block->forward_count; i++)
        if (block_op_writes(&r->old[i], tensor))
            emit_forward(r, i);
}

/* Whatever the mask says, forward keeps nothing that it exchanged with other ranks: it is exchanged again. */
static bool is_dropped(const struct block *block, int tensor, uint32_t mask)
{
    const struct tensor *t = &block->tensors[tensor];
    if (t->role != ROLE_COMMUNICATION)
        return t->drop_bit >= 0 && (mask >> t->drop_bit & 1);
    for (int i = 0; i < block->forward_count; i++)
        if (block_op_writes(&block->ops[i], tensor))
            return true;
    return false;
}

void recompute_apply(struct block *block, uint32_t mask)
{
    struct rewriter r = {.block = block};
    int old_count = block->op_count;
    memcpy(r.old, block->ops, sizeof r.old);
    memset(r.again, -1, sizeof r.again);
    for (int t = 0; t < block->tensor_count; t++)
        r.dropped[t] = is_dropped(block, t, mask);
    block->dropped = mask;
    block->op_count = block->forward_count;
    for (int i = block->forward_count; i < old_count; i++) {
        const struct op *op = &r.old[i];
        for (int k = 0; k < OP_INPUTS; k++)
            if (op->inputs[k] >= 0 && r.dropped[op->inputs[k]])
                make_again(&r, op->inputs[k]);
        append(&r, op, 0);
        for (int k = 0; k < OP_OUTPUTS; k++)
            if (op->outputs[k] >= 0)
                r.overwritten[op->outputs[k]] = true;
    }
    block->input_count = block->op_count;
}

/* Names and bits do not depend on sizes, so the smallest shape serves. */
static void probe_block(const struct model *model, struct block *block)
{
    block_build_layer(block, model, (struct block_shape){.B = 1, .T = 1, .dtype = DTYPE_F32, .tp = 1}, false);
}

uint32_t recompute_full(const struct model *model)
{
    struct block block;
    probe_block(model, &block);
    uint32_t mask = 0;
    for (int t = 0; t < block.tensor_count; t++)
        if (block.tensors[t].drop_bit >= 0)
            mask |= 1u << block.tensors[t].drop_bit;
    return mask;
}

/* The tensor that a bit is named after, or -1 past the last bit. */
static int first_of_bit(const struct block *block, int bit)
{
    for (int t = 0; t < block->tensor_count; t++)
        if (block->tensors[t].drop_bit == bit)
            return t;
    return -1;
}

static int find_droppable(const struct block *block, const char *name, size_t length)
{
    for (int t = 0; t < block->tensor_count; t++)
        if (block->tensors[t].drop_bit >= 0 && strlen(block->tensors[t].name) == length &&
            !strncmp(block->tensors[t].name, name, length))
            return block->tensors[t].drop_bit;
    return -1;
}

uint32_t recompute_selective(const struct model *model)
{
    struct block block;
    probe_block(model, &block);
    return 1u << find_droppable(&block, "attention", 9);
}

static void list_droppable(const struct block *block, struct error *err)
{
    const char *before = "";
    for (int bit = 0, t; (t = first_of_bit(block, bit)) >= 0; bit++) {
        error_append(err, "%s%s", before, block->tensors[t].name);
        before = ", ";
    }
}

static int parse_set(const char *text, size_t length, const struct model *model, uint32_t *mask,
                     struct error *err)
{
    if (length == 4 && !strncmp(text, "none", 4))
        return *mask = 0, 0;
    if (length == 4 && !strncmp(text, "full", 4))
        return *mask = recompute_full(model), 0;
    if (length == 9 && !strncmp(text, "selective", 9))
        return *mask = recompute_selective(model), 0;
    struct block block;
    probe_block(model, &block);
    uint32_t found = 0;
    for (const char *name = text, *end = text + length; name <= end;) {
        const char *plus = memchr(name, '+', (size_t)(end - name));
        size_t size = (size_t)((plus ? plus : end) - name);
        int bit = find_droppable(&block, name, size);
        if (bit < 0) {
            error_set(err,
                      "recompute set \"%.*s\": a layer of %s keeps no tensor \"%.*s\"; use none, selective, "
                      "full, or a sum of ",
                      (int)length, text, model->name, (int)size, name);
            list_droppable(&block, err);
            return -1;
        }
        found |= 1u << bit;
        name += size + 1;
    }
    *mask = found;
    return 0;
}

int recompute_parse_set(const char *text, const struct model *model, uint32_t *mask, struct error *err)
{
    return parse_set(text, strlen(text), model, mask, err);
}

/* "FIRST-LAST=SET" or "LAYER=SET". */
static int parse_range(const char *text, size_t length, const struct model *model, uint32_t *masks,
                       struct error *err)
{
    const char *equals = memchr(text, '=', length);
    char *end;
    long long first = strtoll(text, &end, 10), last = first;
    bool valid = end != text;
    if (valid && *end == '-') {
        const char *second = end + 1;
        last = strtoll(second, &end, 10);
        valid = end != second;
    }
    if (!valid || end != equals)
        return error_set(err, "recompute range \"%.*s\" is not of the form FIRST-LAST=SET, such as 0-3=full",
                         (int)length, text);
    if (first < 0 || last < first || last >= model->layers)
        return error_set(err, "recompute range \"%.*s\": layers of %s go from 0 to %lld", (int)length, text,
                         model->name, (long long)model->layers - 1);
    uint32_t mask;
    if (parse_set(equals + 1, (size_t)(text + length - equals - 1), model, &mask, err))
        return -1;
    for (long long layer = first; layer <= last; layer++)
        masks[layer] = mask;
    return 0;
}

int recompute_parse(const char *text, const struct model *model, uint32_t *masks, struct error *err)
{
    if (!strchr(text, '=')) {
        uint32_t mask;
        if (recompute_parse_set(text, model, &mask, err))
            return -1;
        for (int64_t layer = 0; layer < model->layers; layer++)
            masks[layer] = mask;
        return 0;
    }
    memset(masks, 0, (size_t)model->layers * sizeof *masks);
    for (const char *piece = text; piece;) {
        const char *comma = strchr(piece, ',');
        size_t length = comma ? (size_t)(comma - piece) : strlen(piece);
        if (parse_range(piece, length, model, masks, err))
            return -1;
        piece = comma ? comma + 1 : NULL;
    }
    return 0;
}

void recompute_print_set(const struct model *model, uint32_t mask, struct text *out)
{
    if (!mask || mask == recompute_full(model) || mask == recompute_selective(model)) {
        text_add(out, !mask ? "none" : mask == recompute_full(model) ? "full" : "selective");
        return;
    }
    struct block block;
    probe_block(model, &block);
    const char *before = "";
    for (int bit = 0, t; (t = first_of_bit(&block, bit)) >= 0; bit++)
        if (mask >> bit & 1) {
            text_printf(out, "%s%s", before, block.tensors[t].name);
            before = "+";
        }
}

void recompute_print(const struct model *model, const uint32_t *masks, struct text *out)
{
    const char *before = "";
    for (int64_t first = 0, next; first < model->layers; first = next) {
        for (next = first + 1; next < model->layers && masks[next] == masks[first];)
            next++;
        if (first == 0 && next == model->layers) {
            recompute_print_set(model, masks[0], out);
            return;
        }
        if (!masks[first])
            continue;
        text_printf(out, first + 1 == next ? "%s%lld=" : "%s%lld-%lld=", before, (long long)first,
                    (long long)next - 1);
        recompute_print_set(model, masks[first], out);
        before = ",";
    }
}
