#include "trainer/step_memory.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

/* A tensor that may be alive. Where micro-batches follow one another, the same tensor of each has the same slot. */
struct slot {
    void *address; /* NULL: not alive */
    struct placed tensor;
};

struct step_memory {
    const struct program *program;
    struct device *device;
    struct device_arena *arena; /* NULL under MEMORY_TENSOR */
    struct arena *names_arena;
    /* By tensor id: what lives as long as the run, then program->slot_micro_batches micro-batches. */
    struct slot *slots;
    int64_t lasting_count, slot_count;
    /* Of what lasts and of one micro-batch; built once, because the ledger keeps pointers to them. */
    const char **names;
};

const char *memory_policy_name(enum memory_policy policy)
{
    return policy == MEMORY_ARENA ? "arena" : "tensor";
}

static struct slot *slot_of(const struct step_memory *m, int64_t id)
{
    int64_t passing = m->slot_count - m->lasting_count;
    return &m->slots[id < m->lasting_count ? id : m->lasting_count + (id - m->lasting_count) % passing];
}

static const char **name_of(const struct step_memory *m, int64_t id)
{
    int64_t repeated = m->program->tensors_per_micro_batch;
    return &m->names[id < m->lasting_count ? id : m->lasting_count + (id - m->lasting_count) % repeated];
}

/* "layer 3 qkv", "layer 3 qkv (moment1)", "loss". */
static void name_states(struct step_memory *m)
{
    char instance_name[PROGRAM_NAME];
    for (int64_t i = 0; i < m->program->instances; i++) {
        program_instance_name(m->program, i, instance_name);
        for (int k = 0; k < program_block(m->program, i)->parameter_count; k++)
            for (int state = 0; state < STATE_COUNT; state++)
                if (program_has_state(m->program, (enum state)state)) {
                    struct placed t = program_state(m->program, i, k, (enum state)state);
                    *name_of(m, t.id) = state == STATE_WEIGHT
                                            ? arena_printf(m->names_arena, "%s %s", instance_name, t.name)
                                            : arena_printf(m->names_arena, "%s %s (%s)", instance_name,
                                                           t.name, state_name((enum state)state));
                }
    }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed t = program_scalar(m->program, (enum scalar)i);
        *name_of(m, t.id) = t.name;
    }
    for (int i = 0; m->program->layout.pp > 1 && i < 2 * BUFFER_KINDS; i++) {
        struct placed t = program_buffer(m->program, (enum buffer)(i / 2), i % 2);
        *name_of(m, t.id) = t.name;
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
                *name_of(m, t.id) = arena_printf(m->names_arena, "%s %s", instance_name, t.name);
        }
    }
}

static struct memory_tag tag_of(const struct step_memory *m, const struct slot *slot)
{
    return (struct memory_tag){
        .tensor = slot->tensor.id, .role = slot->tensor.role, .name = *name_of(m, slot->tensor.id)};
}

int step_memory_take(struct step_memory *m, const struct placed *t, struct error *err)
{
    struct slot *slot = slot_of(m, t->id);
    assert(!slot->address);
    slot->tensor = *t;
    slot->address = m->arena
                        ? device_arena_place(m->device, m->arena, t->offset, t->bytes, tag_of(m, slot), err)
                        : device_alloc(m->device, t->bytes, tag_of(m, slot), err);
    return slot->address ? 0 : -1;
}

static void give_slot(struct step_memory *m, struct slot *slot)
{
    if (m->arena)
        device_arena_remove(m->device, m->arena, slot->address, slot->tensor.bytes, tag_of(m, slot));
    else
        device_free(m->device, slot->address);
    slot->address = NULL;
}

void step_memory_give(struct step_memory *m, const struct placed *t)
{
    struct slot *slot = slot_of(m, t->id);
    assert(slot->address && slot->tensor.id == t->id);
    give_slot(m, slot);
}

void *step_memory_at(const struct step_memory *m, int64_t id)
{
    const struct slot *slot = slot_of(m, id);
    assert(slot->address && slot->tensor.id == id);
    return slot->address;
}

/* What lives as long as the run. */
static int take_states(struct step_memory *m, struct error *err)
{
    const struct program *p = m->program;
    for (int state = 0; state < STATE_COUNT; state++)
        for (int64_t i = 0; program_has_state(p, (enum state)state) && i < p->instances; i++)
            for (int k = 0; k < program_block(p, i)->parameter_count; k++) {
                struct placed t = program_state(p, i, k, (enum state)state);
                if (step_memory_take(m, &t, err))
                    return -1;
            }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        struct placed t = program_scalar(p, (enum scalar)i);
        if (step_memory_take(m, &t, err))
            return -1;
    }
    for (int i = 0; p->layout.pp > 1 && i < 2 * BUFFER_KINDS; i++) {
        struct placed t = program_buffer(p, (enum buffer)(i / 2), i % 2);
        if (step_memory_take(m, &t, err))
            return -1;
    }
    return 0;
}

int step_memory_open(const struct program *program, struct device *device, enum memory_policy policy,
                     struct step_memory **out, struct error *err)
{
    struct step_memory *m = host_alloc(sizeof *m);
    m->program = program;
    m->device = device;
    int64_t repeated = program->tensors_per_micro_batch;
    m->lasting_count = program_tensor_count(program) - program->micro_batches * repeated;
    m->slot_count = m->lasting_count + program->slot_micro_batches * repeated;
    m->slots = host_alloc((size_t)m->slot_count * sizeof *m->slots);
    m->names = host_alloc((size_t)(m->lasting_count + repeated) * sizeof *m->names);
    m->names_arena = arena_create();
    name_states(m);
    name_tensors(m);
    if (policy == MEMORY_ARENA && device_arena_open(device, program->arena_bytes, &m->arena, err))
        goto fail;
    if (take_states(m, err))
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
    for (int64_t i = 0; i < m->slot_count; i++)
        if (m->slots[i].address)
            give_slot(m, &m->slots[i]);
    if (m->arena)
        device_arena_close(m->device, m->arena);
    arena_free(m->names_arena);
    free(m->names);
    free(m->slots);
    free(m);
}
