#include "model/work.h"

#include "base/checked.h"

static int64_t columns_of(const struct tensor *t)
{
    return dims_columns(t->dims);
}

/* Bytes of the tensors an operation names, each counted once to read and once to write. */
static double bytes_touched(const struct block *block, const struct op *op)
{
    double bytes = 0;
    for (int i = 0; i < OP_INPUTS; i++)
        if (op->inputs[i] >= 0)
            bytes += (double)block->tensors[op->inputs[i]].bytes;
    for (int i = 0; i < OP_OUTPUTS; i++)
        if (op->outputs[i] >= 0)
            bytes += (double)block->tensors[op->outputs[i]].bytes;
    return bytes;
}

static void shape_of(struct work *work, int64_t m, int64_t n, int64_t k)
{
    work->m = m;
    work->n = n;
    work->k = k;
    work->flops = 2.0 * (double)m * (double)n * (double)k;
}

/* Scores and weighted sums: 2 products of T x T x D per head forward, 5 backward; a causal mask halves them. */
static double attention_flops(const struct program *p, const struct op *op)
{
    const struct layout *l = &p->layout;
    double square =
        (double)l->micro_batch * (double)(p->model.heads / l->tp) * (double)l->seq_len * (double)l->seq_len;
    double products = op->kind == OP_ATTENTION ? 2 : 5;
    return products * 2 * square * (double)p->model.head_size * (op->flags & OP_CAUSAL ? 0.5 : 1);
}

/* What a rank sends of a vector that `ranks` ranks reduce and scatter, or gather: all but its own part. Twice that is an
 * all-reduce. */
static double share_sent(int64_t ranks)
{
    return (double)(ranks - 1) / (double)ranks;
}

static struct work block_work(const struct program *p, const struct block *block, const struct op *op)
{
    struct work work = {.bytes_moved = bytes_touched(block, op)};
    const struct tensor *in0 = op->inputs[0] >= 0 ? &block->tensors[op->inputs[0]] : NULL;
    const struct tensor *in1 = op->inputs[1] >= 0 ? &block->tensors[op->inputs[1]] : NULL;
    const struct tensor *out = &block->tensors[op->outputs[0]];
    int64_t rows = p->layout.micro_batch * p->layout.seq_len;
    switch (op->kind) {
    case OP_MATMUL:
    case OP_MATMUL_DGRAD:
        shape_of(&work, rows, columns_of(out), columns_of(in0));
        break;
    case OP_MATMUL_WGRAD:
        shape_of(&work, columns_of(in0), columns_of(in1), rows);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
        work.flops = attention_flops(p, op);
        work.m = rows;
        break;
    case OP_EMBED:
    case OP_EMBED_GRAD: {
        /* One row per token, not the table. */
        const struct tensor *x = op->kind == OP_EMBED ? out : in0;
        double row_bytes =
            (double)columns_of(x) * (double)dtype_bytes(op->kind == OP_EMBED ? x->dtype : out->dtype);
        work.bytes_moved = (double)x->bytes + 2 * (double)rows * row_bytes;
        if (op->kind == OP_EMBED_GRAD && !(op->flags & OP_ADD_GRAD))
            work.bytes_moved += (double)out->bytes;
        work.m = rows;
        work.n = columns_of(x);
        break;
    }
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
        work.bytes_sent = share_sent(p->layout.tp) * (double)max_i64(in0->bytes, out->bytes);
        break;
    case OP_SUM_PARTIAL:
    case OP_MAX_PARTIAL:
        work.bytes_sent = 2 * share_sent(p->layout.tp) * (double)out->bytes;
        break;
    default:
        work.m = dims_rows(out->dims);
        work.n = dims_columns(out->dims);
    }
    return work;
}

static struct work update_work(const struct program *p, const struct step_op *op)
{
    struct work work = {0};
    const struct block *block = program_block(p, op->instance);
    for (int i = 0; i < block->parameter_count; i++) {
        work.m += block->parameters[i].count;
        for (int state = 0; state < STATE_COUNT; state++) {
            if (!program_has_state(p, (enum state)state))
                continue;
            double bytes = (double)program_state(p, op->instance, i, (enum state)state).bytes;
            if (state == STATE_GRADIENT)
                work.bytes_moved += bytes;
            else if (op->kind == OP_ADAMW)
                work.bytes_moved += 2 * bytes;
        }
    }
    return work;
}

static struct work reduce_work(const struct program *p, const struct step_op *op)
{
    struct work work = {0};
    if (op->bucket < 0)
        return work;
    double bytes = (double)p->buckets[op->bucket].bytes;
    work.bytes_sent = (op->kind == OP_ALL_REDUCE ? 2 : 1) * share_sent(p->layout.dp) * bytes;
    work.bytes_moved = 2 * bytes;
    return work;
}

struct work work_of(const struct program *program, const struct step_op *op)
{
    if (op->op)
        return block_work(program, op->block, op->op);
    if (op->kind == OP_SQUARE_SUM || op->kind == OP_ADAMW)
        return update_work(program, op);
    return reduce_work(program, op);
}

double work_model_flops(const struct program *program)
{
    const struct model *m = &program->model;
    double tokens = (double)program->micro_batches * (double)program->layout.micro_batch *
                    (double)program->layout.seq_len;
    double width = (double)m->heads * (double)m->head_size;
    double attention = m->family == MODEL_ENCODER ? 12 : 6;
    double flops = 6 * (double)model_parameters(m) * tokens +
                   attention * (double)m->layers * width * (double)program->layout.seq_len * tokens;
    return flops / (double)program->layout.tp;
}
