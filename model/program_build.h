/* What program_create_stage() is made of besides its own file. */
#ifndef MEMPLAN_MODEL_PROGRAM_BUILD_H
#define MEMPLAN_MODEL_PROGRAM_BUILD_H

#include "model/program.h"

/* Places states, buffers, frames and what lies above them, once the blocks are measured and the peak is known. */
void program_place(struct program *program);
/* Of a pipeline's stage: what passes with micro-batches, from `base` on. */
void pipeline_place(struct program *program, int64_t base);
/* The same in lanes; leaves what there is where that is not lower. */
void pipeline_lanes_place(struct program *program, int64_t base);
void program_free_lanes(struct program *program); /* it then has none */
/* Stacks the frames of a chunk's runs; slot_bytes: how tall they are. */
void program_stack_frames(struct program *program, const struct chunk *chunk, int64_t slot_bytes[FRAMES]);
/* Elements that lie in memory of one state of a parameter. */
int64_t program_state_elements(const struct program *program, const struct parameter *parameter,
                               enum state state);
enum dtype program_state_dtype(const struct program *program, enum state state);
/* Arena bytes of one instance's parameters in one state. */
int64_t program_group_bytes(const struct program *program, const struct block *block, enum state state);
/* Arena offset of a tensor that the instance itself owns. */
int64_t program_offset(const struct program *program, int64_t instance, int64_t micro_batch, int index);
/* Which of the passing tensors of a micro-batch it is: x and d are their makers'. */
int64_t program_passing_number(const struct program *program, int64_t instance, int index);
/* Fills p->buckets from the runs; none when dp is 1. The planner calls it for programs that it only sketches. */
void program_list_buckets(struct program *program);
/* Which chunk of the stage an instance is in. */
int program_chunk(const struct program *program, int64_t instance);

#endif
