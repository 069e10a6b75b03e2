/* How fast a device is: the few numbers from which the time model makes seconds, each with where it came from. The best
 * source wins: a calibration (measured, operation by operation, in a training run) over rates measured now, over data
 * sheets, over a guess from the processor's description. */
#ifndef MEMPLAN_PLANNER_MACHINE_SPEED_H
#define MEMPLAN_PLANNER_MACHINE_SPEED_H

#include "base/text.h"
#include "model/layout.h"
#include "model/work.h"
#include "planner/calibration.h"
#include "planner/cluster.h"
#include "planner/roofline.h"

#include <stdbool.h>
#include <stdint.h>

enum speed_source {
    SPEED_MEASURED,    /* on this machine, just now */
    SPEED_CALIBRATION, /* in a recorded run */
    SPEED_PRESET,      /* a data sheet, times the share of it that programs reach */
    SPEED_NOMINAL,     /* cores x frequency x vector width, and other guesses */
    SPEED_GIVEN,       /* by whoever asks */
};

struct speed_value {
    double value;
    enum speed_source source;
};

/* Matrix products are slower when they are small. On a CPU class i holds for products of speed_class_flops[i]; between classes
 * the rate is interpolated over the logarithm of flops. */
enum { SPEED_CLASSES = 4 };
extern const double speed_class_flops[SPEED_CLASSES]; /* 1e6, 1e8, 1e10, 1e12 */

struct machine_speed {
    struct product_curve products;            /* of a card; a CPU has classes only */
    double matmul_flops_per_s[SPEED_CLASSES]; /* of a card: of square products of that size */
    enum speed_source matmul_source;
    enum card_evidence evidence; /* of SPEED_PRESET: what it rests on */
    struct speed_value attention_flops_per_s; /* inside the attention operations */
    struct speed_value memory_bytes_per_s;
    struct speed_value comm_bytes_per_s; /* sent by one rank to others of its node */
    struct speed_value net_bytes_per_s;  /* of a node to others, shared by its ranks that send at the same time */
    int64_t ranks_per_node;
    struct speed_value overhead_s; /* of every operation */
    double overlap; /* share of hidden communication that costs computation nothing: 1 on a card, 0 on shared cores */
    int cores;      /* CPU: the ranks of the machine share them; 0: every rank has a device of its own */
    int threads;    /* CPU: all rates above are those of so many threads together */
    const struct calibration *calibration; /* borrowed; NULL: none */
    enum precision calibrated;             /* of it, what was measured in that */
    /* Where ranks differ (siting.h). All borrowed. */
    bool together;                      /* all of the run's ranks on such devices are on one node */
    bool apart;                         /* no group of the run's ranks is on one node */
    const struct machine_speed *beside; /* others that take part: everything waits for the slowest; NULL: none do */
    const struct machine_speed *across; /* of what ranks of several stages do together; NULL: the same */
    const struct machine_speed *const *stages; /* of each stage of a pipeline; NULL: the same */
};

/* A CPU of `cores` cores as /proc/cpuinfo describes it. */
void machine_speed_nominal(int cores, struct machine_speed *out);
/* The same from a text of that form. */
void machine_speed_from_cpuinfo(const char *cpuinfo, int cores, struct machine_speed *out);
/* Replaces what was measured with all cores: matrix products by class and memory; what follows from them too. */
void machine_speed_set_measured(struct machine_speed *speed, const double matmul_flops_per_s[SPEED_CLASSES],
                                double memory_bytes_per_s);
/* Flops a second of matrix products, by the data sheet. */
double machine_speed_card_peak(const struct card *card, enum precision precision);
/* Of one node: nothing is said of a network. */
void machine_speed_from_card(const struct card *card, enum precision precision, struct machine_speed *out);
/* From now on, operations of the kinds that were calibrated in that precision take what they took there, and so does communication. */
void machine_speed_use(struct machine_speed *speed, const struct calibration *calibration, enum precision precision);
/* The ranks of a group of nodes, from presets or nominal values. `cores`: of this machine, for CPU ranks. */
void machine_speed_for_group(const struct node_group *group, enum precision precision, int cores,
                             struct machine_speed *out);
/* Of a cluster's first group, which is all of it where nodes are alike. */
void machine_speed_for_cluster(const struct cluster *cluster, enum precision precision, int cores,
                               struct machine_speed *out);
/* The speed of a stage of a pipeline. */
const struct machine_speed *machine_speed_of_stage(const struct machine_speed *speed, int64_t stage);

/* Seconds of one operation on one of `ranks` ranks that work at the same time, numbered node by node. Of a message to or from
 * another stage, this is what the rank itself does, the copy to or from its buffer. */
double machine_speed_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                             int64_t ranks);
/* The same of a layout's ranks. Where they share the cores of one machine, a stage of a pipeline is costed as if the others
 * stood still; how many stages can run at once like that is told below. */
double machine_speed_layout_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                                    const struct layout *layout);
/* How many stages have the cores for it at a time: 2 of 4 where single ranks share 2 cores. All of them, where every rank
 * has a device or cores of its own; at least 1. */
double machine_speed_stages_at_once(const struct machine_speed *speed, const struct layout *layout);
/* Seconds that the message itself is on its way: `work` is that of OP_SEND. */
double machine_speed_message_seconds(const struct machine_speed *speed, const struct work *work, int64_t ranks);

/* Give or take so much of a step predicted with these rates: 0.1 is 10%. From a calibration calibration_doubt(); else
 * from predictions that were held against measurements (docs/time-model.md, section 10). */
double machine_speed_doubt(const struct machine_speed *speed);

/* Cores this process may use. */
int machine_speed_cores(void);
/* "AMD EPYC, 2 cores": what a calibration of this machine is for. Written to out[MACHINE_NAME]. */
enum { MACHINE_NAME = 96 };
const char *machine_speed_cpu_name(char *out);

const char *speed_source_name(enum speed_source source); /* "measured", "calibration", "preset", "nominal", "given" */
/* One line: each rate with its source. Products have that of a step (product_rate.h), since it depends on their shapes. */
void machine_speed_describe(const struct machine_speed *speed, double products_per_s, struct text *out);
/* "400 GB/s a node, of which 78% count (preset: a DGX H100's; net= sets it)": what joins the group's nodes. `sets` is how one says
 * otherwise. */
void machine_speed_describe_net(const struct node_group *group, const char *sets, struct text *out);
enum speed_source machine_speed_net_source(const struct node_group *group);

#endif
