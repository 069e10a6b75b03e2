/* Whether the error model of planner/frameworks/workload_odds.h is today's: its table against the errors of this score, and
 * its probabilities against outcomes, which it was not made from. */
#ifndef MEMPLAN_BENCH_SCORE_ODDS_H
#define MEMPLAN_BENCH_SCORE_ODDS_H

#include "base/json.h"
#include "base/text.h"
#include "planner/frameworks/workload_odds.h"

enum { ODDS_BINS = 10 };

/* Outcomes by the probability that was given to "it fits". */
struct odds {
    struct {
        int count, fitted;
        double probability; /* their sum */
    } bins[ODDS_BINS];
    double squares; /* of probability minus outcome */
};
void odds_add(struct odds *odds, const struct workload *workload, const struct workload_memory *memory,
              bool out_of_memory);
void odds_say(const struct odds *odds, const char *what, struct text *table, json_t *totals);

/* Lines that begin with "errors": as workload_odds.c has them, of the rows that cases_score() made. */
void odds_say_errors(const json_t *rows, struct text *table);

#endif
