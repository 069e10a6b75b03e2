/* What blocks are built with: the tensors, operations and regions that all families have in common. */
#ifndef MEMPLAN_MODEL_BUILDER_H
#define MEMPLAN_MODEL_BUILDER_H

#include "model/block.h"

/* The letters of block.h, as far as this rank has them: its heads, its part of the feed-forward and the vocabulary; S is T,
 * or the rank's part of it between the tensor-parallel regions. With the two types in use. */
struct builder {
    struct block *block;
    const struct model *model;
    int64_t B, T, S, C, H, K, D, F, V, tp;
    bool sequence_parallel;
    enum dtype dtype, wide;
    enum part part;
};

/* Empties the block. */
struct builder builder_start(struct block *block, const struct model *model, struct block_shape shape, enum part part);
/* Once all of forward is there. */
void builder_end_forward(struct builder *b);
/* Once all is there: backward is whole, until block_split_backward(). */
void builder_end_block(struct builder *b);
/* What recomputation may drop: all that forward makes in a layer, except what is made together with its output (the
 * encoder's last norm statistics), since making that again would make the output again. Tensors of one operation share a
 * bit: making one of them again makes all. What collectives exchange is never kept, and has none. */
void builder_number_droppable(struct builder *b);

/* Tensors; each returns its index in the block. */

int builder_tensor(struct builder *b, const char *name, enum role role, enum span span, enum dtype dtype, int64_t d0,
                   int64_t d1, int64_t d2);
/* (B, T, columns), made in forward; recomputation may drop it. */
int builder_activation(struct builder *b, const char *name, int64_t columns);
/* (B, S, C), likewise. */
int builder_narrow(struct builder *b, const char *name);
/* (B, S) in the wide type: norm statistics. */
int builder_statistic(struct builder *b, const char *name);
/* d. `ends`: no block below needs the gradient of this one's input. */
int builder_stream(struct builder *b, bool ends);
/* x, and the x of the next block. */
int builder_input(struct builder *b, enum role role);
int builder_output(struct builder *b, enum role role);
/* A parameter or its gradient, which may be another part's; -1: this model has none of that name. */
int builder_parameter_tensor(struct builder *b, enum part owner, enum parameter_id id, bool gradient);
int builder_weight(struct builder *b, enum parameter_id id);
int builder_gradient(struct builder *b, enum parameter_id id);

/* Operations, in order. Of a tensor that is absent the index is -1. */

struct slots {
    int8_t at[OP_INPUTS];
};

#define IN(...)  ((struct slots){{__VA_ARGS__}})
#define OUT(...) ((struct slots){{__VA_ARGS__}})

/* What is not written in IN() or OUT() is zero, so the count says how many were meant. */
void builder_op(struct builder *b, enum op_kind kind, unsigned flags, int in_count, struct slots in, int out_count,
                struct slots out);
void builder_norm(struct builder *b, unsigned rms, int x, int w, int bias, int y, int mean, int rstd);
/* y = residual + RMSNorm of x */
void builder_norm_behind(struct builder *b, int x, int w, int residual, int y, int rstd);
void builder_norm_grad(struct builder *b, unsigned flags, int dy, int x, int w, int mean, int rstd, int d, int dw, int db);
void builder_matmul(struct builder *b, int x, int w, int bias, int residual, int y);
void builder_wgrad(struct builder *b, int dy, int x, int dw, int db);
/* dx = dy w, or dx += dy w. */
void builder_dgrad(struct builder *b, unsigned add, int dy, int w, int dx);

/* The regions. Entering one, a part of the sequence becomes all of it; leaving one, partial sums over the ranks' inputs
 * become the sum, of which each rank keeps its part. Without sequence parallelism only the sum is left; with one rank,
 * nothing. */

/* The whole of `part`. */
int builder_enter(struct builder *b, int part, const char *name);
/* Where a product that has to be summed over ranks may write, when the sum goes to `y`. */
int builder_partial_place(struct builder *b, int y, const char *name);
void builder_leave(struct builder *b, int partial, int y);
void builder_exchange(struct builder *b, enum op_kind kind, int from, int to);
/* y = residual + bias + x w^T, where each rank has some of the columns of x and w; without a residual there is no bias either. */
void builder_row_parallel(struct builder *b, int x, int w, int bias, int residual, int y);
/* dx = dy w, where each rank has some of the columns of dy and rows of w. */
void builder_column_parallel_dgrad(struct builder *b, int dy, int w, int dx);
/* The same, added to d. */
void builder_column_parallel_dgrad_to(struct builder *b, int dy, int w, int d, const char *name);

#endif
