#include "trainer/step_memory.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

struct step_memory {
    const struct program *program;
    struct device *device;
    struct device_arena *arena; /* NULL under MEMORY_TENSOR */
    void **address;             /* by tensor id; NULL: not alive */
    struct arena *names_arena;
    const char **names; /* by tensor id of the states, the scalars and one micro-batch */
    int64_t first_repeated; /* the first id that repeats with every micro-batch */
};

const char *memory_policy_name(enum memory_policy policy)
{
    return policy == MEMORY_ARENA ? "arena" : "tensor";
}

/* "layer 3 qkv", "layer 3 qkv (moment1)", "loss": built once, because the ledger keeps pointers to them. */
static void name_states(struct step_memory *m)
{
    char instance_name[PROGRAM_NAME];
    for (int64_t i = 0; i < m->program->instances; i++) {
        program_instance_name(m->program, i, instance_name);
        for (int k = 0; k < program_block(m->program, i)->parameter_count; k++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(m->program, (enum state)state)) {
                    struct placed t = program_state(m->program, i, k, (enum state)state);
                    m->names[t.id] = state == STATE_WEIGHT
                                         ? arena_printf(m->names_arena, "%s %s", instance_name, t.name)
                                         : arena_printf(m->names_arena, "%s %s (%s)", instance_name, t.name,
                                                        state_name((enum state)state));
                }
    }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed t = program_scalar(m->program, (enum scalar)i);
        m->names[t.id] = t.name;
    }
}

static void name_tensors(struct step_memory *m)
{
    char instance_name[PROGRAM_NAME];
    for (int64_t i = 0; i < m->program->instances; i++) {
        const struct block *block = program_block(m->program, i);
        program_instance_name(m->program, i, instance_name);
        for (int k = 0; k < block->tensor_count; k++) {
            struct placed t = program_tensor(m->program, i, 0, k);
            if (t.instance == i && t.micro_batch == 0)
                m->names[t.id] = arena_printf(m->names_arena, "%s %s", instance_name, t.name);
        }
    }
}

static const char *name_of(const struct step_memory *m, const struct placed *t)
{
    int64_t id = t->id;
    if (id >= m->first_repeated)
        id = m->first_repeated + (id - m->first_repeated) % m->program->tensors_per_micro_batch;
    return m->names[id];
}

static struct memory_tag tag_of(const struct step_memory *m, const struct placed *t)
{
    return (struct memory_tag){.tensor = t->id, .role = t->role, .name = name_of(m, t)};
}

int step_memory_take(struct step_memory *m, const struct placed *t, struct error *err)
{
    assert(!m->address[t->id]);
    struct memory_tag tag = tag_of(m, t);
    void *address = m->arena ? device_arena_place(m->device, m->arena, t->offset, t->bytes, tag, err)
                             : device_alloc(m->device, t->bytes, tag, err);
    m->address[t->id] = address;
    return address ? 0 : -1;
}

void step_memory_give(struct step_memory *m, const struct placed *t)
{
    void *address = m->address[t->id];
    assert(address);
    if (m->arena)
        device_arena_remove(m->device, m->arena, address, t->bytes, tag_of(m, t));
    else
        device_free(m->device, address);
    m->address[t->id] = NULL;
}

void *step_memory_at(const struct step_memory *m, int64_t id)
{
    assert(m->address[id]);
    return m->address[id];
}

/* Calls `visit` for everything that lives as long as the run; stops at the first failure. */
static int each_state(struct step_memory *m, int (*visit)(struct step_memory *, const struct placed *, struct error *),
                      struct error *err)
{
    const struct program *p = m->program;
    for (int state = 0; state < STATE_COUNT; state++)
        for (int64_t i = 0; program_has_state(p, (enum state)state) && i < p->instances; i++)
            for (int k = 0; k < program_block(p, i)->parameter_count; k++) {
                struct placed t = program_state(p, i, k, (enum state)state);
                if (visit(m, &t, err))
                    return -1;
            }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed t = program_scalar(p, (enum scalar)i);
        if (visit(m, &t, err))
            return -1;
    }
    return 0;
}

static int give_if_alive(struct step_memory *m, const struct placed *t, struct error *err)
{
    (void)err;
    if (m->address[t->id])
        step_memory_give(m, t);
    return 0;
}

/* What a step that failed half way had taken. */
static void give_leftovers(struct step_memory *m)
{
    const struct program *p = m->program;
    for (int64_t i = 0; i < p->instances; i++)
        for (int64_t batch = 0; batch < p->micro_batches; batch++)
            for (int k = 0; k < program_block(p, i)->tensor_count; k++) {
                struct placed t = program_tensor(p, i, batch, k);
                if (t.instance == i && t.micro_batch >= 0)
                    give_if_alive(m, &t, NULL);
            }
}

int step_memory_open(const struct program *program, struct device *device, enum memory_policy policy,
                     struct step_memory **out, struct error *err)
{
    struct step_memory *m = host_alloc(sizeof *m);
    m->program = program;
    m->device = device;
    m->first_repeated = program_tensor_count(program) - program->micro_batches * program->tensors_per_micro_batch;
    m->address = host_alloc((size_t)program_tensor_count(program) * sizeof *m->address);
    m->names = host_alloc((size_t)(m->first_repeated + program->tensors_per_micro_batch) * sizeof *m->names);
    m->names_arena = arena_create();
    name_states(m);
    name_tensors(m);
    if (policy == MEMORY_ARENA && device_arena_open(device, program->arena_bytes, &m->arena, err))
        goto fail;
    if (each_state(m, step_memory_take, err))
        goto fail;
    *out = m;
    return 0;
fail:
    step_memory_close(m);
    return -1;
}

void step_memory_close(struct step_memory *m)
{
    if (!m)
        return;
    give_leftovers(m);
    each_state(m, give_if_alive, NULL);
    if (m->arena)
        device_arena_close(m->device, m->arena);
    arena_free(m->names_arena);
    free(m->names);
    free(m->address);
    free(m);
}
