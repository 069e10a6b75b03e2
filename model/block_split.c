/* Backward in two halves, as ZB-H1 runs them: the products that make gradients of weight matrices move behind all else. Their
 * factors live on until then, except that a gradient which is changed in place meanwhile is copied first. */
#include "model/block.h"

#include <assert.h>
#include <string.h>

/* Does the input half go on to change this tensor after `op`? The stream always: it is the blocks' below. */
static bool changes_later(const struct block *block, const struct op *old, int op, int old_count, int tensor)
{
    bool changes = block->tensors[tensor].span == SPAN_STREAM;
    for (int i = op + 1; i < old_count && !changes; i++)
        changes = block_op_writes(&old[i], tensor);
    return changes;
}

static int8_t add_copy(struct block *block, int tensor, int copies)
{
    static const char *const names[] = {"d_kept1", "d_kept2", "d_kept3"};
    assert(copies < (int)(sizeof names / sizeof *names));
    assert(block->tensor_count < BLOCK_TENSORS && block->op_count < BLOCK_OPS);
    struct tensor copy = block->tensors[tensor];
    copy.name = names[copies];
    copy.span = SPAN_LOCAL;
    copy.drop_bit = -1;
    int8_t index = (int8_t)block->tensor_count;
    block->tensors[block->tensor_count++] = copy;
    block->ops[block->op_count++] =
        (struct op){.kind = OP_COPY, .inputs = {(int8_t)tensor, -1, -1, -1, -1}, .outputs = {index, -1, -1}};
    return index;
}

void block_split_backward(struct block *block)
{
    struct op old[BLOCK_OPS], delayed[BLOCK_OPS];
    int old_count = block->op_count, delayed_count = 0, copies = 0;
    memcpy(old, block->ops, sizeof old);
    block->op_count = block->forward_count;
    for (int i = block->forward_count; i < old_count; i++) {
        if (old[i].kind != OP_MATMUL_WGRAD) {
            block->ops[block->op_count++] = old[i];
            continue;
        }
        struct op *wgrad = &delayed[delayed_count++];
        *wgrad = old[i];
        assert(!changes_later(block, old, i, old_count, wgrad->inputs[1]));
        if (changes_later(block, old, i, old_count, wgrad->inputs[0]))
            wgrad->inputs[0] = add_copy(block, wgrad->inputs[0], copies++);
    }
    block->input_count = block->op_count;
    assert(block->op_count + delayed_count <= BLOCK_OPS);
    memcpy(&block->ops[block->op_count], delayed, (size_t)delayed_count * sizeof *delayed);
    block->op_count += delayed_count;
}
