/* The walk: every operation of a step in the order of execution, with its id. */
#include "model/program.h"

/* The stretches of a step. After the micro-batches come the tail's operations, one by one. */
enum stage { STAGE_FORWARD, STAGE_BACKWARD, STAGE_BUCKETS, STAGE_TAIL, STAGE_END };

/* Ids of the tail: buckets, the loss, wait, square sums, updates. */
static int64_t tail_base(const struct program *p)
{
    return p->micro_batches * p->ops_per_micro_batch;
}

static bool reduces(const struct program *p)
{
    return p->bucket_count > 0;
}

int64_t program_op_count(const struct program *p)
{
    return tail_base(p) + (reduces(p) ? p->bucket_count + 2 : 0) + 2 * p->instances;
}

static int64_t tail_instance(const struct program *p, int64_t tail)
{
    int64_t updates = tail - (reduces(p) ? p->bucket_count + 2 : 0);
    if (updates >= 0)
        return updates % p->instances;
    return tail < p->bucket_count ? p->buckets[tail].first : -1;
}

int64_t program_op_instance(const struct program *p, int64_t id)
{
    if (id < 0 || id >= program_op_count(p))
        return -1;
    if (id >= tail_base(p))
        return tail_instance(p, id - tail_base(p));
    int64_t within = id % p->ops_per_micro_batch;
    const struct run *run = &p->runs[p->run_count - 1];
    while (run->op_base > within)
        run--;
    return run->first + (within - run->op_base) / p->blocks[run->block].op_count;
}

struct program_cursor program_walk(const struct program *program)
{
    return (struct program_cursor){.program = program, .stage = STAGE_FORWARD};
}

static bool emit_block_op(struct program_cursor *c, int from, int to, enum phase phase, struct step_op *out)
{
    const struct program *p = c->program;
    const struct run *run = program_run(p, c->instance);
    const struct block *block = &p->blocks[run->block];
    int64_t index = from + c->position;
    if (index >= to)
        return false;
    *out = (struct step_op){
        .id = c->micro_batch * p->ops_per_micro_batch + run->op_base +
              (c->instance - run->first) * block->op_count + index,
        .kind = block->ops[index].kind,
        .phase = phase,
        .instance = c->instance,
        .micro_batch = c->micro_batch,
        .block = block,
        .op = &block->ops[index],
        .add_gradient = c->micro_batch > 0,
        .bucket = -1,
    };
    c->position++;
    return true;
}

static struct step_op tail_op(enum op_kind kind, enum phase phase, int64_t instance, int64_t bucket,
                              int64_t id)
{
    return (struct step_op){
        .id = id, .kind = kind, .phase = phase, .instance = instance, .micro_batch = -1, .bucket = bucket};
}

/* Buckets whose last gradient the instance just finished. */
static bool emit_bucket(struct program_cursor *c, struct step_op *out)
{
    const struct program *p = c->program;
    bool last = c->micro_batch == p->micro_batches - 1;
    if (!last || c->next_bucket >= p->bucket_count || p->buckets[c->next_bucket].first != c->instance)
        return false;
    *out = tail_op(OP_ALL_REDUCE, PHASE_REDUCE, c->instance, c->next_bucket, tail_base(p) + c->next_bucket);
    c->next_bucket++;
    return true;
}

/* The loss, wait, square sums and updates, by position. */
static bool emit_tail(struct program_cursor *c, struct step_op *out)
{
    const struct program *p = c->program;
    int64_t at = c->position++, id = tail_base(p) + p->bucket_count + at;
    if (reduces(p)) {
        if (at == 0)
            return *out = tail_op(OP_ALL_REDUCE, PHASE_REDUCE, -1, -1, id), true;
        if (at == 1)
            return *out = tail_op(OP_WAIT, PHASE_REDUCE, -1, -1, id), true;
        at -= 2;
    }
    if (at >= 2 * p->instances)
        return false;
    enum op_kind kind = at < p->instances ? OP_SQUARE_SUM : OP_ADAMW;
    *out = tail_op(kind, PHASE_OPTIMIZER, at % p->instances, -1, id);
    return true;
}

/* Moves on to the next block in this direction, or turns round at the head and at the embedding. */
static void advance(struct program_cursor *c)
{
    const struct program *p = c->program;
    c->position = 0;
    if (c->stage == STAGE_FORWARD) {
        if (c->instance == p->instances - 1)
            c->stage = STAGE_BACKWARD;
        else
            c->instance++;
        return;
    }
    if (c->instance > 0) {
        c->instance--;
        c->stage = STAGE_BACKWARD;
    } else if (c->micro_batch + 1 < p->micro_batches) {
        c->micro_batch++;
        c->stage = STAGE_FORWARD;
    } else {
        c->stage = STAGE_TAIL;
    }
}

bool program_next(struct program_cursor *c, struct step_op *out)
{
    while (c->stage != STAGE_END) {
        if (c->stage == STAGE_TAIL) {
            if (emit_tail(c, out))
                return true;
            c->stage = STAGE_END;
            break;
        }
        const struct block *block = program_block(c->program, c->instance);
        if (c->stage == STAGE_FORWARD) {
            if (emit_block_op(c, 0, block->forward_count, PHASE_FORWARD, out))
                return true;
        } else if (c->stage == STAGE_BACKWARD) {
            if (emit_block_op(c, block->forward_count, block->op_count, PHASE_BACKWARD, out))
                return true;
            c->stage = STAGE_BUCKETS;
        }
        if (c->stage == STAGE_BUCKETS && emit_bucket(c, out))
            return true;
        advance(c);
    }
    return false;
}
