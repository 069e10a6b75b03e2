/* The arithmetic of reductions between vectors in this process's memory; knows nothing of threads or messages. */
#ifndef MEMPLAN_COMM_REDUCE_H
#define MEMPLAN_COMM_REDUCE_H

#include "comm/cursor.h"

/* The next `count` elements of all sources are combined, in the order of the sources, and written to every target, which
 * may be the place of a source. The cursors move past them. F32, F64 or BF16. */
void reduce_vectors(struct cursor *sources, int source_count, struct cursor *targets, int target_count, int64_t count,
                    enum dtype dtype, enum comm_reduction reduction);

#endif
