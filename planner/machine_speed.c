#include "planner/machine_speed.h"

#include "base/checked.h"
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const double speed_class_flops[SPEED_CLASSES] = {1e6, 1e8, 1e10, 1e12};

/* Shares of the nominal peak by class of product. Assumptions in round numbers, to be replaced by measurements: large
 * products reach about two thirds. */
static const double cpu_shares[SPEED_CLASSES] = {0.3, 0.6, 0.7, 0.7};

/* Likewise assumed: softmax and masks make attention slower than plain products of its size. */
static const double attention_share = 0.5;
/* Streams reach about this much of a data sheet's memory rate. */
static const double stream_share = 0.85;
/* Assumed: rings reach about this much of a link, and of a network's ports. */
static const double link_share = 0.78;
/* Assumed: steps of k that a tile costs beyond its own, to fill its pipeline and to write its result. */
static const double ramp_depth = 128;
/* Of matrix products that are not in bf16, whose shares nobody measured. Assumed. */
static const double plain_share = 0.8;
/* By what is known of a card. Nine of ten steps of other frameworks' jobs on A100s that `make score` reads are nearer than the last (on
 * one node nearer than 0.16, on 64 and 512 GPUs than 0.23). The others are guesses, wider the less was measured: the published steps of
 * H100s that there are come within theirs (docs/time-model.md, section 10). */
static const double card_doubts[] = {
    [CARD_SHEET] = 0.5, [CARD_PRODUCTS] = 0.4, [CARD_FEW_STEPS] = 0.3, [CARD_STEPS] = 0.2};
/* Of CPUs there is no such table: guesses, that measured rates lack only what lies between products and nominal rates everything. */
static const double measured_doubt = 0.3, nominal_doubt = 0.5;
/* A kernel launch; a parallel region with its function call. */
static const double card_overhead_s = 5e-6, cpu_overhead_s = 3e-6;
/* Per core, until measured: one core of a server cannot draw more, and a few fill the memory's channels. */
static const double cpu_core_bytes_per_s = 8e9, cpu_most_bytes_per_s = 100e9;

const char *speed_source_name(enum speed_source source)
{
    static const char *const names[] = {"measured", "calibration", "preset", "nominal", "given"};
    return names[source];
}

/* -------------------------------------------------------------------------------------------------------------- CPU */

/* The text behind "KEY  : " in the first line that starts with KEY, or NULL. */
static const char *cpuinfo_value(const char *cpuinfo, const char *key)
{
    const char *line = cpuinfo;
    size_t length = strlen(key);
    while (line && strncmp(line, key, length)) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    const char *colon = line ? strchr(line, ':') : NULL;
    return colon ? colon + 1 + strspn(colon + 1, " \t") : NULL;
}

static bool has_flag(const char *cpuinfo, const char *flag)
{
    const char *flags = cpuinfo_value(cpuinfo, "flags");
    if (!flags)
        return false;
    size_t length = strlen(flag);
    const char *end = flags + strcspn(flags, "\n");
    for (const char *word = flags; word < end; word += strcspn(word, " \n"), word += *word == ' ')
        if (!strncmp(word, flag, length) && !isalnum((unsigned char)word[length]) && word[length] != '_')
            return true;
    return false;
}

/* fp32 operations of one core in one cycle: two fused multiply-adds over the widest vectors. */
static double flops_per_cycle(const char *cpuinfo)
{
    if (has_flag(cpuinfo, "avx512f"))
        return 64;
    return has_flag(cpuinfo, "avx2") && has_flag(cpuinfo, "fma") ? 32 : 8;
}

static void set_cpu_rates(struct machine_speed *speed, const double matmul[SPEED_CLASSES], double memory,
                          enum speed_source source)
{
    memcpy(speed->matmul_flops_per_s, matmul, sizeof speed->matmul_flops_per_s);
    speed->matmul_source = source;
    speed->memory_bytes_per_s = (struct speed_value){memory, source};
    speed->attention_flops_per_s =
        (struct speed_value){attention_share * matmul[SPEED_CLASSES - 1], SPEED_NOMINAL};
    /* Ranks of one machine sum in each other's memory: what limits them is memory. */
    speed->comm_bytes_per_s = (struct speed_value){memory, source};
}

void machine_speed_from_cpuinfo(const char *cpuinfo, int cores, struct machine_speed *out)
{
    const char *mhz = cpuinfo_value(cpuinfo, "cpu MHz");
    double hertz = mhz && atof(mhz) > 0 ? atof(mhz) * 1e6 : 2e9;
    double peak = cores * hertz * flops_per_cycle(cpuinfo), matmul[SPEED_CLASSES];
    for (int i = 0; i < SPEED_CLASSES; i++)
        matmul[i] = peak * cpu_shares[i];
    double memory = fmin(cores * cpu_core_bytes_per_s, cpu_most_bytes_per_s);
    *out = (struct machine_speed){.cores = cores, .threads = cores, .ranks_per_node = INT64_MAX};
    out->overhead_s = (struct speed_value){cpu_overhead_s, SPEED_NOMINAL};
    out->net_bytes_per_s = (struct speed_value){CLUSTER_NET_BYTES_PER_S, SPEED_NOMINAL};
    set_cpu_rates(out, matmul, memory, SPEED_NOMINAL);
}

static char *read_cpuinfo(void)
{
    char *text;
    size_t length;
    return text_read_file("/proc/cpuinfo", 16 << 20, &text, &length, NULL) ? NULL : text;
}

void machine_speed_nominal(int cores, struct machine_speed *out)
{
    char *cpuinfo = read_cpuinfo();
    machine_speed_from_cpuinfo(cpuinfo ? cpuinfo : "", cores, out);
    free(cpuinfo);
}

void machine_speed_set_measured(struct machine_speed *speed, const double matmul_flops_per_s[SPEED_CLASSES],
                                double memory_bytes_per_s)
{
    set_cpu_rates(speed, matmul_flops_per_s, memory_bytes_per_s, SPEED_MEASURED);
}

int machine_speed_cores(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) ? 1 : CPU_COUNT(&allowed);
}

const char *machine_speed_cpu_name(char *out)
{
    char *cpuinfo = read_cpuinfo();
    const char *name = cpuinfo ? cpuinfo_value(cpuinfo, "model name") : NULL;
    int cores = machine_speed_cores();
    snprintf(out, MACHINE_NAME, "%.*s, %d core%s", name ? (int)strcspn(name, "\n") : 3, name ? name : "cpu",
             cores, cores == 1 ? "" : "s");
    free(cpuinfo);
    return out;
}

/* ------------------------------------------------------------------------------------------------------------ cards */

double machine_speed_card_peak(const struct card *card, enum precision precision)
{
    return precision == PRECISION_BF16   ? card->bf16_flops_per_s
           : precision == PRECISION_FP64 ? card->fp64_flops_per_s
                                         : card->fp32_flops_per_s;
}

void machine_speed_from_card(const struct card *card, enum precision precision, struct machine_speed *out)
{
    bool bf16 = precision == PRECISION_BF16;
    double best = machine_speed_card_peak(card, precision) * (bf16 ? card->product_share : plain_share);
    *out = (struct machine_speed){
        .products = {best, ramp_depth, card->multiprocessors},
        .matmul_source = SPEED_PRESET,
        .evidence = bf16 ? card->evidence : CARD_SHEET,
        .attention_flops_per_s = {best * attention_share, SPEED_PRESET},
        .memory_bytes_per_s = {card->memory_bytes_per_s * stream_share, SPEED_PRESET},
        .comm_bytes_per_s = {card->link_bytes_per_s * link_share, SPEED_PRESET},
        .ranks_per_node = INT64_MAX,
        .overhead_s = {card_overhead_s, SPEED_NOMINAL},
        .overlap = 1,
    };
    for (int i = 0; i < SPEED_CLASSES; i++) {
        int64_t side = (int64_t)cbrt(speed_class_flops[i] / 2);
        double flops = 2.0 * (double)side * (double)side * (double)side;
        out->matmul_flops_per_s[i] = flops / roofline_product_seconds(&out->products, side, side, side);
    }
}

/* Of a network's rate, what programs reach. */
static double net_share(const struct node_group *group)
{
    return group->device.card ? link_share : 1;
}

enum speed_source machine_speed_net_source(const struct node_group *group)
{
    if (!group->net_assumed)
        return SPEED_GIVEN;
    return group->device.card && group->device.card->node ? SPEED_PRESET : SPEED_NOMINAL;
}

void machine_speed_for_group(const struct node_group *group, enum precision precision, int cores,
                             struct machine_speed *out)
{
    if (group->device.card)
        machine_speed_from_card(group->device.card, precision, out);
    else
        machine_speed_nominal(cores, out);
    out->ranks_per_node = group->ranks_per_node;
    out->net_bytes_per_s =
        (struct speed_value){group->net_bytes_per_s * net_share(group), machine_speed_net_source(group)};
}

void machine_speed_for_cluster(const struct cluster *cluster, enum precision precision, int cores,
                               struct machine_speed *out)
{
    machine_speed_for_group(&cluster->groups[0], precision, cores, out);
}

const struct machine_speed *machine_speed_of_stage(const struct machine_speed *speed, int64_t stage)
{
    return speed->stages ? speed->stages[stage] : speed;
}

/* ---------------------------------------------------------------------------------------------------------- seconds */

static bool is_card(const struct machine_speed *speed)
{
    return speed->products.flops_per_s > 0;
}

/* Ranks among which one is costed: all, those on its node, and of these those that compute at the same time. */
struct crowd {
    int64_t ranks, here, busy;
};

static struct crowd crowd_of(const struct machine_speed *speed, int64_t ranks)
{
    int64_t here = min_i64(ranks, speed->ranks_per_node);
    return (struct crowd){ranks, here, here};
}

/* Of a pipeline that takes turns on the cores of one machine, a stage: what others take from it is the schedule's. */
static struct crowd crowd_of_layout(const struct machine_speed *speed, const struct layout *layout)
{
    struct crowd crowd = crowd_of(speed, layout_ranks(layout));
    if (speed->cores && crowd.here > speed->cores && crowd.here == crowd.ranks && !speed->apart)
        crowd.busy = crowd.ranks / layout->pp;
    return crowd;
}

/* How many ranks take turns on a core. */
static double turns(const struct machine_speed *speed, const struct crowd *crowd)
{
    return speed->cores ? fmax((double)crowd->busy / speed->cores, 1) : 1;
}

/* What one rank has of rates that hold for all threads. */
static double rank_share(const struct machine_speed *speed, const struct crowd *crowd)
{
    if (!speed->cores)
        return 1;
    double cores = (double)speed->cores / (double)min_i64(crowd->here, speed->cores);
    return cores / turns(speed, crowd) / speed->threads;
}

double machine_speed_stages_at_once(const struct machine_speed *speed, const struct layout *layout)
{
    if (!speed->cores)
        return (double)layout->pp;
    struct crowd crowd = crowd_of_layout(speed, layout);
    return crowd.busy < crowd.here ? fmax((double)speed->cores / (double)crowd.busy, 1) : (double)layout->pp;
}

static double matmul_rate(const struct machine_speed *speed, double flops)
{
    const double *rates = speed->matmul_flops_per_s;
    if (flops <= speed_class_flops[0])
        return rates[0];
    for (int i = 1; i < SPEED_CLASSES; i++)
        if (flops <= speed_class_flops[i]) {
            double low = log(speed_class_flops[i - 1]), high = log(speed_class_flops[i]);
            double place = (log(flops) - low) / (high - low);
            return rates[i - 1] + place * (rates[i] - rates[i - 1]);
        }
    return rates[SPEED_CLASSES - 1];
}

void machine_speed_use(struct machine_speed *speed, const struct calibration *calibration,
                       enum precision precision)
{
    speed->calibration = calibration;
    speed->calibrated = precision;
    const struct calibration_link *link = calibration_link(calibration, CALIBRATION_REPLICAS);
    if (link && link->bytes_per_s > 0)
        speed->comm_bytes_per_s = (struct speed_value){link->bytes_per_s, SPEED_CALIBRATION};
}

/* Threads of each rank, as `train` gives them. */
static int rank_threads(const struct machine_speed *speed, const struct crowd *crowd)
{
    return (int)max_i64(speed->cores / crowd->here, 1);
}

double machine_speed_doubt(const struct machine_speed *speed)
{
    speed = machine_speed_of_stage(speed, 0);
    if (speed->calibration)
        return calibration_doubt(speed->calibration, speed->calibrated);
    switch (speed->matmul_source) {
    case SPEED_PRESET:
        return card_doubts[speed->evidence];
    case SPEED_MEASURED:
        return measured_doubt;
    default:
        return nominal_doubt;
    }
}

/* Does every group of this kind have its ranks on one node? They are numbered node by node. */
static bool within_node(const struct machine_speed *speed, const struct work_group *group, int64_t ranks)
{
    if (speed->apart)
        return false;
    return speed->together || ranks <= speed->ranks_per_node ||
           (group->extent > 0 && speed->ranks_per_node % group->extent == 0);
}

/* What one rank of the group can send. Between nodes, as many groups as have ranks on a node share its network. */
static double link_rate(const struct machine_speed *speed, const struct work_group *group,
                        const struct crowd *crowd)
{
    double link = speed->comm_bytes_per_s.value * rank_share(speed, crowd);
    if (within_node(speed, group, crowd->ranks))
        return link;
    int64_t sharing = min_i64(max_i64(group->stride, 1), speed->ranks_per_node);
    return fmin(link, speed->net_bytes_per_s.value / (double)sharing);
}

/* As it was measured, within a node. Ranks that take turns on a core do so here too, but while some wait to be woken, others
 * have it. */
static bool link_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                         const struct crowd *crowd, double *seconds)
{
    const struct calibration_link *link =
        speed->calibration ? calibration_link(speed->calibration, calibration_group_of(kind)) : NULL;
    if (!link || !within_node(speed, &work->group, crowd->ranks))
        return false;
    double rate = link->bytes_per_s > 0 ? link->bytes_per_s : speed->comm_bytes_per_s.value;
    *seconds = link->latency_s + turns(speed, crowd) * work->bytes_sent / rate;
    return true;
}

static double message_seconds(const struct machine_speed *speed, const struct work *work,
                              const struct crowd *crowd)
{
    double measured_s;
    if (link_seconds(speed, OP_SEND, work, crowd, &measured_s))
        return measured_s;
    double latency_s =
        is_card(speed) ? roofline_message_latency(!within_node(speed, &work->group, crowd->ranks)) : 0;
    return work->bytes_sent / link_rate(speed, &work->group, crowd) + latency_s + speed->overhead_s.value;
}

double machine_speed_message_seconds(const struct machine_speed *speed, const struct work *work,
                                     int64_t ranks)
{
    double slowest_s = 0;
    for (const struct machine_speed *s = speed->across ? speed->across : speed; s; s = s->beside) {
        struct crowd crowd = crowd_of(s, ranks);
        slowest_s = fmax(slowest_s, message_seconds(s, work, &crowd));
    }
    return slowest_s;
}

/* On how many nodes a group has ranks. */
static int64_t group_nodes(const struct machine_speed *speed, const struct work_group *group, int64_t ranks)
{
    if (within_node(speed, group, ranks))
        return 1;
    int64_t together = max_i64(speed->ranks_per_node / max_i64(group->stride, 1), 1);
    return (group->ranks + together - 1) / together;
}

static double sent_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                           const struct crowd *crowd)
{
    double link = link_rate(speed, &work->group, crowd);
    if (!is_card(speed) || work->group.ranks < 2)
        return work->bytes_sent / link;
    struct collective collective = {
        .ranks = work->group.ranks,
        .nodes = group_nodes(speed, &work->group, crowd->ranks),
        .all_reduce = !work_is_half(kind),
        .bytes_sent = work->bytes_sent,
        .link_bytes_per_s = link,
    };
    return roofline_collective_seconds(&collective);
}

/* Links carry what is sent, and memory what is read and written; a measured link has both limits in it. */
static double collective_seconds(const struct machine_speed *speed, enum op_kind kind,
                                 const struct work *work, const struct crowd *crowd)
{
    double measured_s;
    if (work->group.ranks > 1 && link_seconds(speed, kind, work, crowd, &measured_s))
        return measured_s;
    double share = rank_share(speed, crowd);
    double sent_s = sent_seconds(speed, kind, work, crowd);
    double moved_s = work->bytes_moved / (speed->memory_bytes_per_s.value * share);
    return fmax(sent_s, moved_s) + speed->overhead_s.value;
}

static double compute_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                              const struct crowd *crowd)
{
    if (!(work->flops > 0))
        return 0;
    double share = rank_share(speed, crowd);
    if (kind == OP_ATTENTION || kind == OP_ATTENTION_GRAD)
        return work->flops / (speed->attention_flops_per_s.value * share);
    if (is_card(speed) && work->m > 0 && work->n > 0 && work->k > 0)
        return roofline_product_seconds(&speed->products, work->m, work->n, work->k);
    return work->flops / (matmul_rate(speed, work->flops) * share);
}

static double op_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                         const struct crowd *crowd)
{
    double seconds;
    struct calibration_rank rank = {speed->calibrated, rank_threads(speed, crowd)};
    if (speed->calibration && calibration_seconds(speed->calibration, kind, work, &rank, &seconds))
        return seconds * turns(speed, crowd);
    if (work_communicates(kind) && kind != OP_SEND && kind != OP_RECEIVE)
        return collective_seconds(speed, kind, work, crowd);
    double moved_s = work->bytes_moved / (speed->memory_bytes_per_s.value * rank_share(speed, crowd));
    return fmax(compute_seconds(speed, kind, work, crowd), moved_s) + speed->overhead_s.value;
}

/* Do ranks of several stages do it together? */
static bool crosses_stages(enum op_kind kind)
{
    return kind == OP_REDUCE_LOSS || kind == OP_REDUCE_SQUARES || kind == OP_REDUCE_TIED;
}

static const struct machine_speed *speed_of_kind(const struct machine_speed *speed, enum op_kind kind)
{
    return speed->across && crosses_stages(kind) ? speed->across : speed;
}

double machine_speed_seconds(const struct machine_speed *speed, enum op_kind kind, const struct work *work,
                             int64_t ranks)
{
    double slowest_s = 0;
    for (const struct machine_speed *s = speed_of_kind(speed, kind); s; s = s->beside) {
        struct crowd crowd = crowd_of(s, ranks);
        slowest_s = fmax(slowest_s, op_seconds(s, kind, work, &crowd));
    }
    return slowest_s;
}

double machine_speed_layout_seconds(const struct machine_speed *speed, enum op_kind kind,
                                    const struct work *work, const struct layout *layout)
{
    double slowest_s = 0;
    for (const struct machine_speed *s = speed_of_kind(speed, kind); s; s = s->beside) {
        struct crowd crowd = crowd_of_layout(s, layout);
        slowest_s = fmax(slowest_s, op_seconds(s, kind, work, &crowd));
    }
    return slowest_s;
}

/* Products are operations too. */
static enum speed_source products_source(const struct machine_speed *speed)
{
    bool calibrated = speed->calibration && speed->calibration->kinds[speed->calibrated][OP_MATMUL].count;
    return calibrated ? SPEED_CALIBRATION : speed->matmul_source;
}

void machine_speed_describe(const struct machine_speed *speed, double products_per_s, struct text *out)
{
    char matmul[UNITS_TEXT], memory[UNITS_TEXT], comm[UNITS_TEXT];
    if (speed->calibration)
        text_printf(out, "operations calibrated in %s on %s: ", precision_name(speed->calibrated),
                    speed->calibration->device);
    text_printf(out, "matrix products of this plan %s (%s), %smemory %s (%s), communication %s (%s)",
                units_format_rate(products_per_s, "FLOP/s", matmul),
                speed_source_name(products_source(speed)),
                speed->calibration ? "of what was not calibrated " : "",
                units_format_rate(speed->memory_bytes_per_s.value, "B/s", memory),
                speed_source_name(speed->memory_bytes_per_s.source),
                units_format_rate(speed->comm_bytes_per_s.value, "B/s", comm),
                speed_source_name(speed->comm_bytes_per_s.source));
}

/* Where the number is from. */
static void describe_net_source(const struct node_group *group, const char *sets, struct text *out)
{
    const struct card *card = group->device.card;
    switch (machine_speed_net_source(group)) {
    case SPEED_GIVEN:
        text_add(out, "given");
        return;
    case SPEED_PRESET:
        if (group->ranks_per_node == card->node_cards)
            text_printf(out, "preset: a %s's", card->node);
        else
            text_printf(out, "preset: for each card as much as a %s has", card->node);
        break;
    default:
        text_add(out, "assumed: a plain server's 100 Gb/s");
    }
    text_printf(out, "; %s sets it", sets);
}

void machine_speed_describe_net(const struct node_group *group, const char *sets, struct text *out)
{
    char rate[UNITS_TEXT];
    text_printf(out, "%s a node", units_format_rate(group->net_bytes_per_s, "B/s", rate));
    if (net_share(group) < 1)
        text_printf(out, ", of which %.0f%% count", 100 * net_share(group));
    text_add(out, " (");
    describe_net_source(group, sets, out);
    text_add(out, ")");
}
