/* What `memplan plan` was asked and has found, and how it says so: as text and as JSON. */
#ifndef MEMPLAN_CLI_PLAN_ANSWER_H
#define MEMPLAN_CLI_PLAN_ANSWER_H

#include "base/text.h"
#include "cli/speed.h"
#include "model/plan.h"
#include "planner/remarks.h"
#include "planner/search_for.h"

/* What the rules of the system that a plan is for say of it: where they say anything, it fits. */
struct plan_verdict {
    const char *system; /* "Megatron-LM"; NULL: the plan is for none */
    bool judged;
    int64_t needed_bytes, capacity_bytes; /* of what was judged; needed: with room for what no rule accounts for */
    struct error why;                     /* not judged: why they say nothing */
    double own_s;    /* a step of memplan's own plan, which has all schedules and recomputations; 0: it is no faster */
    struct text own; /* that plan, in words */
};

struct plan_answer {
    struct model model;
    struct cluster cluster;
    struct device_speed speed;
    struct search_request request;
    enum schedule_kind schedule; /* that was asked for */
    uint32_t *sets;              /* likewise, what layers may recompute; owned */
    struct search_for within;    /* what another system runs, where the plan is for one */
    struct cluster narrowed;     /* likewise: with as much memory as that leaves */
    struct plan_verdict verdict; /* likewise */
    bool crowded;                /* no plan leaves free what is not known of contexts and libraries */
    struct search_result result;
    struct plan plan;                   /* borrows its masks and layers from the result */
    struct pipeline *pipeline;          /* of the plan; NULL: nothing fits */
    const struct rank_device **devices; /* of each of its stages */
    double quarter_s; /* of a step, were the network a quarter as fast; 0: the plan needs none */
    struct text unlocks, refusal;
    struct remarks remarks;
};

/* Of an answer without a plan, why there is none. */
int plan_answer_print(const struct plan_answer *answer, struct error *err);
json_t *plan_answer_json(const struct plan_answer *answer);

#endif
