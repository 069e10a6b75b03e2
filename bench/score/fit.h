/* Which constants of a framework suit the rows for fitting best. Nothing is changed by it: it says what it found. */
#ifndef MEMPLAN_BENCH_SCORE_FIT_H
#define MEMPLAN_BENCH_SCORE_FIT_H

#include "base/text.h"
#include "bench/score/score.h"

void fit_times(struct verdicts *steps, struct text *out);
void fit_memory(struct verdicts *sweep, struct text *out);

#endif
