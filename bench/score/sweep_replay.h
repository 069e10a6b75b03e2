/* The sweep's layouts by the rules for any framework: would each fit? */
#ifndef MEMPLAN_BENCH_SCORE_SWEEP_REPLAY_H
#define MEMPLAN_BENCH_SCORE_SWEEP_REPLAY_H

#include "bench/score/odds.h"
#include "bench/score/score.h"

int sweep_replay(const struct verdicts *verdicts, struct outcomes *out, struct odds *odds, struct error *err);

#endif
