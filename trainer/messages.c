#include "trainer/messages.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

/* A message on its way from or to a buffer. */
struct pending {
    bool started;
    int64_t ticket;
};

struct messages {
    const struct program *program;
    struct device *device;
    const struct step_memory *memory;
    struct comm *pipeline;
    struct schedule_shape shape;
    bool forward_only;
    int64_t item;                  /* -1 before the first */
    struct schedule_cursor cursor; /* stands behind `next` */
    struct schedule_item current, next;
    bool has_next;
    struct pending receives[2], sends[2]; /* by buffer */
};

struct messages *messages_create(const struct program *program, struct device *device,
                                 const struct step_memory *memory, struct comm *pipeline)
{
    struct messages *m = host_alloc(sizeof *m);
    *m = (struct messages){.program = program,
                           .device = device,
                           .memory = memory,
                           .pipeline = pipeline,
                           .shape = layout_schedule(&program->layout)};
    return m;
}

void messages_free(struct messages *m)
{
    free(m);
}

static void find_next(struct messages *m)
{
    if (!m->forward_only) {
        m->has_next = schedule_next(&m->cursor, &m->next);
        return;
    }
    m->next = (struct schedule_item){.work = SCHEDULE_FORWARD, .chunk = (int)m->item + 1};
    m->has_next = m->next.chunk < m->program->chunk_count;
}

void messages_begin_walk(struct messages *m, bool forward_only)
{
    m->forward_only = forward_only;
    m->item = -1;
    m->cursor = schedule_walk(&m->shape, m->program->stage);
    find_next(m);
}

static void *buffer_at(const struct messages *m, enum buffer buffer, int turn, int64_t *elements)
{
    struct placed t = program_buffer(m->program, buffer, turn);
    *elements = t.bytes / dtype_bytes(t.dtype);
    return step_memory_at(m->memory, t.id);
}

static enum dtype message_dtype(const struct messages *m)
{
    return precision_dtype(m->program->layout.precision);
}

/* Between two stages messages of one direction keep their order, so the direction tells them apart. */
static int start_receive(struct messages *m, const struct schedule_item *item, int turn, struct error *err)
{
    struct schedule_message message = schedule_messages(&m->shape, m->program->stage, item).receive;
    struct comm_span span;
    if (message.peer < 0)
        return 0;
    assert(!m->receives[turn].started);
    span.data = buffer_at(m, BUFFER_RECEIVE, turn, &span.count);
    m->receives[turn].started = true;
    return comm_start_receive(m->pipeline, &span, message_dtype(m), message.peer, message.direction,
                              &m->receives[turn].ticket, err);
}

int messages_at_item(struct messages *m, int64_t item, struct error *err)
{
    if (!m->pipeline || item == m->item)
        return 0;
    if (m->item < 0 && start_receive(m, &m->next, 0, err))
        return -1;
    /* Weight halves of chunks without layers have no operation that would tell of them. */
    while (m->item < item) {
        m->current = m->next;
        m->item++;
        find_next(m);
        if (m->has_next && start_receive(m, &m->next, (int)((m->item + 1) % 2), err))
            return -1;
    }
    return 0;
}

static int finish(struct messages *m, struct pending *pending, struct error *err)
{
    if (!pending->started)
        return 0;
    pending->started = false;
    return comm_wait_for(m->pipeline, pending->ticket, err);
}

int messages_receive(struct messages *m, void *to, struct error *err)
{
    int turn = (int)(m->item % 2);
    assert(m->receives[turn].started);
    if (finish(m, &m->receives[turn], err))
        return -1;
    struct placed t = program_buffer(m->program, BUFFER_RECEIVE, turn);
    device_copy(m->device, to, step_memory_at(m->memory, t.id), t.bytes);
    return 0;
}

int messages_send(struct messages *m, const void *from, struct error *err)
{
    int turn = (int)(m->item % 2);
    struct schedule_message message = schedule_messages(&m->shape, m->program->stage, &m->current).send;
    struct comm_span span;
    if (finish(m, &m->sends[turn], err))
        return -1;
    span.data = buffer_at(m, BUFFER_SEND, turn, &span.count);
    device_copy(m->device, span.data, from, span.count * dtype_bytes(message_dtype(m)));
    m->sends[turn].started = true;
    return comm_start_send(m->pipeline, &span, message_dtype(m), message.peer, message.direction,
                           &m->sends[turn].ticket, err);
}

int messages_end_walk(struct messages *m, struct error *err)
{
    return finish(m, &m->sends[0], err) || finish(m, &m->sends[1], err) ? -1 : 0;
}
