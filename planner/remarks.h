/* What should make the reader of a plan wonder at the question: a batch that its ranks cannot share, a pipeline that mostly waits, a
 * precision that the card has no units for, a network that is hardly one of such nodes. In words, with what to ask instead. */
#ifndef MEMPLAN_PLANNER_REMARKS_H
#define MEMPLAN_PLANNER_REMARKS_H

#include "base/text.h"
#include "planner/search.h"

/* Each is empty where there is nothing to say. */
struct remarks {
    struct text batch, bubble, precision, network;
};

/* Of a result with a plan. Other batches are tried where they may matter. *out is the caller's: remarks_clear(). */
void remarks_find(const struct search_request *request, const struct search_result *result, struct remarks *out);
void remarks_clear(struct remarks *remarks);

#endif
