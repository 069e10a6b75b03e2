/* The walk: every operation of a step in the order of execution, with its id. */
#include "model/program.h"

#include <string.h>

/* The tail after the buckets: kinds in order, each once or once per instance. */
struct tail_stretch {
    enum op_kind kind;
    enum phase phase;
    bool present;
    enum { ONCE, PER_INSTANCE, PER_BUCKET } times;
};

enum { TAIL_STRETCHES = 9 };

static void list_tail(const struct program *p, struct tail_stretch out[TAIL_STRETCHES])
{
    const struct layout *l = &p->layout;
    bool reduces = l->dp > 1 || l->pp > 1, shards = l->zero && l->dp > 1;
    const struct tail_stretch list[TAIL_STRETCHES] = {
        {OP_REDUCE_LOSS, PHASE_REDUCE, reduces, ONCE},
        {OP_WAIT, PHASE_REDUCE, reduces, ONCE},
        {OP_REDUCE_NORMS, PHASE_REDUCE, program_reduces_norms(p), ONCE},
        {OP_REDUCE_TIED, PHASE_REDUCE, p->tied_copy, ONCE},
        {OP_SQUARE_SUM, PHASE_OPTIMIZER, true, PER_INSTANCE},
        {OP_REDUCE_SQUARES, PHASE_OPTIMIZER, l->tp > 1 || l->pp > 1 || shards, ONCE},
        {OP_ADAMW, PHASE_OPTIMIZER, true, PER_INSTANCE},
        {OP_GATHER_WEIGHTS, PHASE_OPTIMIZER, shards, PER_BUCKET},
        {OP_WAIT, PHASE_OPTIMIZER, shards, ONCE},
    };
    memcpy(out, list, sizeof list);
}

static int64_t stretch_length(const struct program *p, const struct tail_stretch *stretch)
{
    return !stretch->present                ? 0
           : stretch->times == PER_INSTANCE ? p->instances
           : stretch->times == PER_BUCKET   ? p->bucket_count
                                            : 1;
}

/* Ids of the tail come after those of all micro-batches: buckets, then the stretches. */
static int64_t tail_base(const struct program *p)
{
    return p->micro_batches * p->ops_per_micro_batch;
}

int64_t program_op_count(const struct program *p)
{
    struct tail_stretch tail[TAIL_STRETCHES];
    int64_t count = tail_base(p) + p->bucket_count;
    list_tail(p, tail);
    for (int i = 0; i < TAIL_STRETCHES; i++)
        count += stretch_length(p, &tail[i]);
    return count;
}

/* Which stretch the tail's operation `at` (buckets not counted) is in; *at becomes its place there. TAIL_STRETCHES: none. */
static int find_stretch(const struct program *p, struct tail_stretch tail[TAIL_STRETCHES], int64_t *at)
{
    int i = 0;
    list_tail(p, tail);
    while (i < TAIL_STRETCHES && *at >= stretch_length(p, &tail[i]))
        *at -= stretch_length(p, &tail[i++]);
    return i;
}

static int64_t tail_instance(const struct program *p, int64_t at)
{
    struct tail_stretch tail[TAIL_STRETCHES];
    if (at < p->bucket_count)
        return p->buckets[at].first;
    at -= p->bucket_count;
    const struct tail_stretch *found = &tail[find_stretch(p, tail, &at)];
    return found->times == PER_INSTANCE ? at : found->times == PER_BUCKET ? p->buckets[at].first : -1;
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
    struct schedule_shape shape = layout_schedule(&program->layout);
    struct program_cursor c = {.program = program,
                               .schedule = schedule_walk(&shape, program->stage),
                               .item_number = -1,
                               .stretch = WALK_ITEMS};
    return c;
}

struct program_cursor program_walk_forward(const struct program *program)
{
    return (struct program_cursor){
        .program = program, .item_number = -1, .stretch = WALK_ITEMS, .forward_only = true};
}

/* The operations of a block that belong to this work: [*from, *to). */
static void find_ops(const struct block *block, enum schedule_work work, int *from, int *to)
{
    *from = work == SCHEDULE_FORWARD           ? 0
            : work == SCHEDULE_BACKWARD_WEIGHT ? block->input_count
                                               : block->forward_count;
    *to = work == SCHEDULE_FORWARD          ? block->forward_count
          : work == SCHEDULE_BACKWARD_INPUT ? block->input_count
                                            : block->op_count;
}

static bool emit_block_op(struct program_cursor *c, struct step_op *out)
{
    const struct program *p = c->program;
    const struct run *run = program_run(p, c->instance);
    const struct block *block = &p->blocks[run->block];
    int from, to;
    find_ops(block, c->item.work, &from, &to);
    int64_t index = from + c->position;
    if (index >= to)
        return false;
    *out = (struct step_op){
        .id = c->item.micro_batch * p->ops_per_micro_batch + run->op_base +
              (c->instance - run->first) * block->op_count + index,
        .kind = block->ops[index].kind,
        .phase = c->item.work == SCHEDULE_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD,
        .instance = c->instance,
        .micro_batch = c->item.micro_batch,
        .block = block,
        .op = &block->ops[index],
        .add_gradient = c->item.micro_batch > 0,
        .bucket = -1,
        .item = c->item_number,
    };
    c->position++;
    return true;
}

static struct step_op tail_op(enum op_kind kind, enum phase phase, int64_t instance, int64_t bucket,
                              int64_t id)
{
    return (struct step_op){.id = id,
                            .kind = kind,
                            .phase = phase,
                            .instance = instance,
                            .micro_batch = -1,
                            .bucket = bucket,
                            .item = -1};
}

/* Does this work leave the gradients of its instances as the step needs them? */
static bool finishes_gradients(const struct program_cursor *c)
{
    const struct program *p = c->program;
    enum schedule_work last =
        p->layout.schedule == SCHEDULE_ZB_H1 ? SCHEDULE_BACKWARD_WEIGHT : SCHEDULE_BACKWARD;
    return c->item.work == last && c->item.micro_batch == p->micro_batches - 1;
}

/* Buckets whose last gradient the instance just finished. */
static bool emit_bucket(struct program_cursor *c, struct step_op *out)
{
    const struct program *p = c->program;
    if (!finishes_gradients(c) || c->next_bucket >= p->bucket_count ||
        p->buckets[c->next_bucket].first != c->instance)
        return false;
    *out = tail_op(p->layout.zero ? OP_SCATTER_GRADIENTS : OP_ALL_REDUCE, PHASE_REDUCE, c->instance,
                   c->next_bucket, tail_base(p) + c->next_bucket);
    c->next_bucket++;
    return true;
}

static bool emit_tail(struct program_cursor *c, struct step_op *out)
{
    const struct program *p = c->program;
    struct tail_stretch tail[TAIL_STRETCHES];
    int64_t at = c->position++, id = tail_base(p) + p->bucket_count + at;
    int found = find_stretch(p, tail, &at);
    if (found == TAIL_STRETCHES)
        return false;
    *out = tail_op(tail[found].kind, tail[found].phase, tail_instance(p, p->bucket_count + c->position - 1),
                   tail[found].times == PER_BUCKET ? at : -1, id);
    return true;
}

static bool next_item(struct program_cursor *c)
{
    if (!c->forward_only)
        return schedule_next(&c->schedule, &c->item);
    c->item = (struct schedule_item){.work = SCHEDULE_FORWARD, .chunk = (int)c->item_number + 1};
    return c->item.chunk < c->program->chunk_count;
}

/* Moves on to the next block in the direction of the work, or begins the next item, or the tail. */
static void advance(struct program_cursor *c)
{
    const struct program *p = c->program;
    c->position = 0;
    c->stretch = WALK_ITEMS;
    if (c->item_number >= 0) {
        const struct chunk *chunk = &p->chunks[c->item.chunk];
        bool forward = c->item.work == SCHEDULE_FORWARD;
        if (c->instance != (forward ? chunk->first + chunk->count - 1 : chunk->first)) {
            c->instance += forward ? 1 : -1;
            return;
        }
    }
    if (!next_item(c)) {
        c->stretch = c->forward_only ? WALK_END : WALK_TAIL;
        return;
    }
    c->item_number++;
    const struct chunk *chunk = &p->chunks[c->item.chunk];
    c->instance = c->item.work == SCHEDULE_FORWARD ? chunk->first : chunk->first + chunk->count - 1;
}

bool program_next(struct program_cursor *c, struct step_op *out)
{
    if (c->item_number < 0)
        advance(c);
    while (c->stretch != WALK_END) {
        if (c->stretch == WALK_TAIL) {
            if (emit_tail(c, out))
                return true;
            c->stretch = WALK_END;
            break;
        }
        if (c->stretch == WALK_ITEMS && emit_block_op(c, out))
            return true;
        c->stretch = WALK_BUCKETS;
        if (emit_bucket(c, out))
            return true;
        advance(c);
    }
    return false;
}
