/* What more memory, more nodes or fewer wishes would do, where there is a plan and where there is none. In words. */
#ifndef MEMPLAN_PLANNER_WAYS_OUT_H
#define MEMPLAN_PLANNER_WAYS_OUT_H

#include "base/text.h"
#include "planner/search.h"

/* "with 4.00 GiB more per rank 3.1% faster: ...". Nothing where nothing would be. */
int ways_out_faster(const struct search_request *request, const struct search_result *result, struct text *out,
                    struct error *err);

/* When there is no plan: fills result->rejected with the configuration that comes nearest, and short_bytes, enough_bytes and
 * enough_nodes; *out says it in words. */
int ways_out_refusal(const struct search_request *request, struct search_result *result, struct text *out,
                     struct error *err);

#endif
