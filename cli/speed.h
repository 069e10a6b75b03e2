/* How fast the device is that a prediction or a plan is for, from the best source at hand. */
#ifndef MEMPLAN_CLI_SPEED_H
#define MEMPLAN_CLI_SPEED_H

#include "base/json.h"
#include "model/pipeline.h"
#include "planner/calibration.h"
#include "planner/machine_speed.h"
#include "planner/siting.h"
#include "reports/report.h"

#include <stdbool.h>

struct device_speed {
    struct machine_speed groups[CLUSTER_GROUPS]; /* of the cluster; point to `calibration` when there is one */
    struct calibration calibration;
};

/* `calibration_path`: calibration.json or a run.db, or NULL. `measure`: without a calibration, measure a CPU's rates now
 * (half a second) instead of guessing them. *out must not move; speed_close() releases it. */
int speed_open(const struct cluster *cluster, enum precision precision, const char *calibration_path,
               bool measure, struct device_speed *out, struct error *err);
void speed_close(struct device_speed *speed);

/* Where the rates of a cluster of cards are from, without a calibration: cards_rates_text(), measured where any card's are. */
const char *speed_rates_text(const struct device_speed *speed, const struct cluster *cluster);

/* Give or take so much of a step, as a share: of several kinds of ranks that have a part in it, the worst. */
double speed_doubt(const struct device_speed *speed, const struct siting *siting);

/* How fast a step of so many seconds is. */
struct throughput {
    double tokens_per_second;
    double utilization; /* of model flops: what the model is said to compute (docs/time-model.md, section 1), of what the ranks'
                           cards could by their data sheets; 0: a rank has no data sheet */
    int64_t ranks;
};
struct throughput speed_throughput(const struct cluster *cluster, const struct siting *siting,
                                   const struct pipeline *pipeline, double step_seconds);
void speed_add_throughput(struct report *report, const struct throughput *throughput);
/* Adds "tokens_per_second" and "model_flops_utilization". */
void speed_throughput_to_json(const struct throughput *throughput, json_t *out);

/* Have ranks of a plan to go from node to node? */
bool speed_spans_nodes(const struct cluster *cluster, const struct siting *siting);
/* What joins the nodes, a line for each group; `sets` is how one says otherwise. */
void speed_add_networks(struct report *report, const struct cluster *cluster, const char *sets);
/* "networks": [{device, ranks_per_node, bytes_per_second, source, node}]. */
json_t *speed_networks_to_json(const struct cluster *cluster);

enum { SPEED_ALL_RUNS = -1 };
/* Fits a recorded run (0: the latest), or all of a database, of this machine. The caller owns *out's contents: calibration_clear(). */
int speed_fit(const char *path, int64_t run_id, const char *made_by, struct calibration *out,
              struct error *err);

#endif
