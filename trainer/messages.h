/* Messages between pipeline stages: which item of the schedule is at work, what it receives and sends, and the two buffers
 * each for that. The receive of an item starts when the item before begins, so that it passes meanwhile; a send's buffer is
 * waited for when it is needed again. model/schedule.h shows that nobody waits for ever in this order. */
#ifndef MEMPLAN_TRAINER_MESSAGES_H
#define MEMPLAN_TRAINER_MESSAGES_H

#include "comm/comm.h"
#include "model/program.h"
#include "trainer/step_memory.h"

struct messages;

/* `pipeline`: the stages, by stage; NULL where there is one, and then nothing here does anything. All must outlive it. */
struct messages *messages_create(const struct program *program, struct device *device,
                                 const struct step_memory *memory, struct comm *pipeline);
void messages_free(struct messages *messages); /* NULL is fine */

/* A walk over the program begins (program_walk() or, `forward_only`, program_walk_forward()). */
void messages_begin_walk(struct messages *messages, bool forward_only);
/* The walk is at this item; to be called before its first operation, and harmless again. */
int messages_at_item(struct messages *messages, int64_t item, struct error *err);
/* Fills `to`, the size of a buffer, with what the item receives. */
int messages_receive(struct messages *messages, void *to, struct error *err);
/* What `from` holds leaves for where the item sends it; `from` may be changed when this returns. */
int messages_send(struct messages *messages, const void *from, struct error *err);
/* Waits until all that was sent has been received. */
int messages_end_walk(struct messages *messages, struct error *err);

#endif
