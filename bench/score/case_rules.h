/* What the free text of measured cases decides, by stated rules: a table of pieces of text. */
#ifndef MEMPLAN_BENCH_SCORE_CASE_RULES_H
#define MEMPLAN_BENCH_SCORE_CASE_RULES_H

#include "bench/score/measured_cases.h"

/* First: the rest are changes to their defaults. */
enum workload_library case_rules_library(const struct measured_case *c);
enum workload_sharding case_rules_sharding(const struct measured_case *c, enum workload_library library);
/* All other rules, on c->workload. What no rule reads goes to c->unread. */
void case_rules_apply(struct measured_case *c);

/* A field of the record, or of its "model." part; NULL: it is no text. */
const char *case_rules_text(const json_t *record, const char *field);

#endif
