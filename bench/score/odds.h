/* Whether the error model of planner/frameworks/workload_odds.h is today's: its table against the errors of this score, and
 * its probabilities against outcomes, which it was not made from. */
#ifndef MEMPLAN_BENCH_SCORE_ODDS_H
#define MEMPLAN_BENCH_SCORE_ODDS_H

#include "base/json.h"
#include "base/text.h"
#include "bench/score/score.h"
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

/* Measured / predicted of steps, for the line of them. `all`: those that were fitted to too. */
enum { STEP_ERRORS_MOST = 4096 };
struct step_errors {
    double ratios[STEP_ERRORS_MOST];
    int count;
};
void odds_add_steps(struct step_errors *errors, const struct verdicts *verdicts, bool all);
/* The tenths and the middle, and whether workload_odds.c has them. */
void odds_say_steps(struct step_errors *errors, struct text *table);

#endif
