#include "model/work.h"

#include "base/checked.h"
#include "model/program_build.h"

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

/* Pairs of a query and a key that it sees, of the T x T of a sequence and head: half under a causal mask, W T - W^2 / 2 in a window
 * of W < T. A layer's are the mean over all, of which some are local and others not: every layer has the same block. */
static double pairs_of(const struct model *m, double T)
{
    double causal = T * T / 2, window = (double)m->window, local = 0;
    if (m->family == MODEL_ENCODER)
        return T * T;
    for (int64_t layer = 0; m->window && window < T && layer < m->layers; layer++)
        local += model_layer_is_local(m, layer);
    local /= (double)m->layers;
    return local * (window * T - window * window / 2) + (1 - local) * causal;
}

/* Scores and weighted sums: 2 products of D per pair and head forward, 5 backward. */
static double attention_flops(const struct program *p, const struct op *op)
{
    const struct layout *l = &p->layout;
    double pairs =
        (double)l->micro_batch * (double)(p->model.heads / l->tp) * pairs_of(&p->model, (double)l->seq_len);
    double products = op->kind == OP_ATTENTION ? 2 : 5;
    return products * 2 * pairs * (double)p->model.head_size;
}

bool work_communicates(enum op_kind kind)
{
    switch (kind) {
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_SUM_PARTIAL:
    case OP_MAX_PARTIAL:
    case OP_RECEIVE:
    case OP_SEND:
    case OP_ALL_REDUCE:
    case OP_SCATTER_GRADIENTS:
    case OP_REDUCE_LOSS:
    case OP_WAIT:
    case OP_REDUCE_NORMS:
    case OP_REDUCE_TIED:
    case OP_REDUCE_SQUARES:
    case OP_GATHER_WEIGHTS:
        return true;
    default:
        return false;
    }
}

bool work_is_half(enum op_kind kind)
{
    return kind == OP_ALL_GATHER || kind == OP_REDUCE_SCATTER || kind == OP_SCATTER_GRADIENTS ||
           kind == OP_GATHER_WEIGHTS;
}

/* Of a vector of V bytes, an all-reduce over n ranks moves 2 V and sends 2 (n-1)/n V. Its halves, which scatter the sum or
 * gather the parts, move the vector and one part, (n+1)/n V, and send (n-1)/n V. */
double work_sent(enum op_kind kind, double bytes_moved, int64_t ranks)
{
    return bytes_moved * (double)(ranks - 1) / (double)(work_is_half(kind) ? ranks + 1 : ranks);
}

/* rank = (stage * dp + replica) * tp + part */
struct work_group work_group_of(const struct layout *l, enum op_kind kind)
{
    int64_t stage = l->dp * l->tp, all = layout_ranks(l);
    struct work_group parts = {l->tp, 1, l->tp}, replicas = {l->dp, l->tp, stage};
    switch (kind) {
    case OP_ALL_GATHER:
    case OP_REDUCE_SCATTER:
    case OP_SUM_PARTIAL:
    case OP_MAX_PARTIAL:
    case OP_REDUCE_NORMS:
        return parts;
    case OP_ALL_REDUCE:
        return replicas;
    case OP_SCATTER_GRADIENTS:
    case OP_GATHER_WEIGHTS:
        return l->zero ? replicas : (struct work_group){0};
    case OP_RECEIVE:
    case OP_SEND:
    case OP_REDUCE_TIED:
        return l->pp > 1 ? (struct work_group){2, stage, all} : (struct work_group){0};
    case OP_REDUCE_LOSS:
        return (struct work_group){l->dp * l->pp, l->tp, all};
    case OP_REDUCE_SQUARES:
        return (struct work_group){l->zero ? all : l->tp * l->pp, 1, all};
    default:
        return (struct work_group){0};
    }
}

static struct work block_work(const struct program *p, const struct block *block, const struct op *op)
{
    struct work work = {.bytes_moved = bytes_touched(block, op)};
    const struct tensor *in0 = op->inputs[0] >= 0 ? &block->tensors[op->inputs[0]] : NULL;
    const struct tensor *in1 = op->inputs[1] >= 0 ? &block->tensors[op->inputs[1]] : NULL;
    const struct tensor *out = op->outputs[0] >= 0 ? &block->tensors[op->outputs[0]] : NULL;
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
    case OP_SUM_PARTIAL:
    case OP_MAX_PARTIAL:
        work.bytes_sent = work_sent(op->kind, work.bytes_moved, p->layout.tp);
        break;
    case OP_SEND:
        work.bytes_sent = (double)in0->bytes;
        work.bytes_moved *= 2; /* the buffer's side */
        break;
    case OP_RECEIVE:
        work.bytes_moved *= 2;
        break;
    default:
        work.m = dims_rows(out->dims);
        work.n = dims_columns(out->dims);
    }
    return work;
}

/* With ZeRO a rank's shard is all that it updates. The copy of a tied embedding is updated and not counted in the norm. */
static struct work update_work(const struct program *p, const struct step_op *op)
{
    struct work work = {0};
    const struct block *block = program_block(p, op->instance);
    for (int i = 0; i < block->parameter_count; i++) {
        if (op->kind == OP_SQUARE_SUM && program_parameter(p, op->instance, i).copy)
            continue;
        int64_t count = program_shard(p, op->instance, i, 0).padded_count;
        work.m += count;
        for (int state = 0; state < STATE_COUNT; state++) {
            if (!program_has_state(p, (enum state)state))
                continue;
            double bytes = (double)count * (double)dtype_bytes(program_state_dtype(p, (enum state)state));
            if (state == STATE_GRADIENT)
                work.bytes_moved += bytes;
            else if (op->kind == OP_ADAMW)
                work.bytes_moved += 2 * bytes;
        }
    }
    return work;
}

/* Weights of a bucket's instances. */
static double weight_bytes(const struct program *p, const struct bucket *bucket)
{
    double bytes = 0;
    int64_t size = dtype_bytes(program_state_dtype(p, STATE_WEIGHT));
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        int64_t count =
            min_i64(run->first + run->count - 1, bucket->last) - max_i64(run->first, bucket->first) + 1;
        const struct block *block = &p->blocks[run->block];
        for (int k = 0; count > 0 && k < block->parameter_count; k++)
            bytes += (double)count *
                     (double)(program_state_elements(p, &block->parameters[k], STATE_WEIGHT) * size);
    }
    return bytes;
}

/* Of what OP_REDUCE_NORMS adds up. */
static bool is_norm_in_parts(const struct layout *l, enum parameter_id id)
{
    if (id == PARAM_Q_NORM || id == PARAM_K_NORM)
        return true;
    if (!l->sequence_parallel)
        return false;
    return id == PARAM_NORM1 || id == PARAM_NORM1_BIAS || id == PARAM_NORM2 || id == PARAM_NORM2_BIAS ||
           id == PARAM_POST_NORM1 || id == PARAM_POST_NORM2 || id == PARAM_FINAL_NORM ||
           id == PARAM_FINAL_NORM_BIAS;
}

/* Gradients, or with ZeRO a rank's shards of them: of the norms, or of the tied embedding. */
static double gradient_bytes(const struct program *p, enum op_kind kind)
{
    double bytes = 0;
    int64_t size = dtype_bytes(program_state_dtype(p, STATE_GRADIENT));
    for (int i = 0; i < p->run_count; i++) {
        const struct run *run = &p->runs[i];
        const struct block *block = &p->blocks[run->block];
        for (int k = 0; k < block->parameter_count; k++) {
            struct parameter_name name = program_parameter(p, run->first, k);
            if (kind == OP_REDUCE_NORMS ? !is_norm_in_parts(&p->layout, name.id) : name.id != PARAM_WTE)
                continue;
            bytes += (double)(run->count * program_shard(p, run->first, k, 0).padded_count * size);
        }
    }
    return bytes;
}

static double reduce_bytes_moved(const struct program *p, const struct step_op *op, int64_t ranks)
{
    double part_and_whole = 1 + 1 / (double)ranks;
    switch (op->kind) {
    case OP_ALL_REDUCE:
        return 2 * (double)p->buckets[op->bucket].bytes;
    case OP_SCATTER_GRADIENTS:
        return part_and_whole * (double)p->buckets[op->bucket].bytes;
    case OP_GATHER_WEIGHTS:
        return part_and_whole * weight_bytes(p, &p->buckets[op->bucket]);
    case OP_REDUCE_LOSS:
        return 2 * (double)program_scalar(p, SCALAR_LOSS).bytes;
    case OP_REDUCE_SQUARES:
        return 2 * (double)program_scalar(p, SCALAR_SQUARE_SUM).bytes;
    case OP_REDUCE_NORMS:
    case OP_REDUCE_TIED:
        return 2 * gradient_bytes(p, op->kind);
    default:
        return 0; /* OP_WAIT */
    }
}

static struct work reduce_work(const struct program *p, const struct step_op *op, struct work_group group)
{
    struct work work = {0};
    if (group.ranks > 1) {
        work.bytes_moved = reduce_bytes_moved(p, op, group.ranks);
        work.bytes_sent = work_sent(op->kind, work.bytes_moved, group.ranks);
    }
    return work;
}

struct work work_of(const struct program *program, const struct step_op *op)
{
    struct work_group group = work_group_of(&program->layout, op->kind);
    struct work work = op->op ? block_work(program, op->block, op->op)
                       : op->kind == OP_SQUARE_SUM || op->kind == OP_ADAMW ? update_work(program, op)
                                                                           : reduce_work(program, op, group);
    work.group = group;
    return work;
}

/* Parameters of an instance that count into N: not the tied embedding where its copy is the matrix of the head. */
static int64_t counted_parameters(const struct program *p, const struct block *block)
{
    int64_t count = 0;
    for (int i = 0; i < block->parameter_count; i++) {
        const struct parameter *parameter = &block->parameters[i];
        if (!(p->tied_copy && block->part == PART_EMBED && parameter->id == PARAM_WTE))
            count += parameter->full_count;
    }
    return count;
}

double work_model_flops(const struct program *program)
{
    const struct model *m = &program->model;
    int64_t parameters = 0, layers = 0;
    for (int i = 0; i < program->run_count; i++) {
        const struct run *run = &program->runs[i];
        const struct block *block = &program->blocks[run->block];
        parameters += run->count * counted_parameters(program, block);
        layers += block->part == PART_LAYER ? run->count : 0;
    }
    double tokens = (double)program->micro_batches * (double)program->layout.micro_batch *
                    (double)program->layout.seq_len;
    double width = (double)m->heads * (double)m->head_size;
    double T = (double)program->layout.seq_len;
    double flops =
        6 * (double)parameters * tokens + 12 * (double)layers * width * pairs_of(m, T) / T * tokens;
    return flops / (double)program->layout.tp;
}
