#include "cli/speed.h"

#include "base/units.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "model/work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int fit_all(struct store *store, struct calibration *out, struct error *err)
{
    struct arena *arena = arena_create();
    struct store_run *runs;
    int64_t count;
    int status = store_read_runs(store, arena, &runs, &count, err);
    if (!status && !count)
        status = error_set(err, "there is no run in it; record one with `memplan profile`");
    for (int64_t i = 0; !status && i < count; i++)
        status = calibration_fit(store, runs[i].run_id, machine_speed_cores(), out, err);
    arena_free(arena);
    return status;
}

static int fit_one(struct store *store, int64_t run_id, struct calibration *out, struct error *err)
{
    if (!run_id && store_latest_run(store, &run_id, err))
        return -1;
    return calibration_fit(store, run_id, machine_speed_cores(), out, err);
}

int speed_fit(const char *path, int64_t run_id, const char *made_by, struct calibration *out,
              struct error *err)
{
    struct store *store;
    struct calibration calibration = {0};
    machine_speed_cpu_name(calibration.device);
    snprintf(calibration.memplan_version, sizeof calibration.memplan_version, "%s", MEMPLAN_VERSION);
    snprintf(calibration.made_by, sizeof calibration.made_by, "%s", made_by);
    if (store_open_read(path, &store, err))
        return -1;
    int status = run_id == SPEED_ALL_RUNS ? fit_all(store, &calibration, err)
                                          : fit_one(store, run_id, &calibration, err);
    store_close(store);
    if (!status)
        *out = calibration;
    return status;
}

/* Databases are recognised by SQLite's first bytes. */
static bool is_database(const char *path)
{
    char start[16] = "";
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(start, 1, sizeof start, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof start && !memcmp(start, "SQLite format 3", sizeof start);
}

/* Times in one precision say nothing of another. */
static int check_precision(const char *path, const struct calibration *calibration, enum precision precision,
                           struct error *err)
{
    enum precision measured = PRECISION_FP32;
    if (calibration_has(calibration, precision))
        return 0;
    while (!calibration_has(calibration, measured) && measured < PRECISION_FP64)
        measured++;
    return error_set(
        err,
        "--calibration %s was measured in %s, and this is %s; calibrate from a run of --precision %s "
        "too, or leave it out",
        path, precision_name(measured), precision_name(precision), precision_name(precision));
}

static int load(const char *path, enum precision precision, struct calibration *out, struct error *err)
{
    char machine[MACHINE_NAME];
    int status = is_database(path)
                     ? speed_fit(path, 0, path, out, err)
                     : calibration_read(path, machine_speed_cpu_name(machine), MEMPLAN_VERSION, out, err);
    if (status || !check_precision(path, out, precision, err))
        return status;
    calibration_clear(out);
    return -1;
}

/* Nodes with CPUs are like this one, but for how many ranks they have. */
static int measure_groups(const struct cluster *cluster, struct device_speed *out, struct error *err)
{
    if (measure_speed(&out->groups[0], err))
        return -1;
    for (int i = 1; i < cluster->group_count; i++) {
        struct machine_speed own = out->groups[i];
        out->groups[i] = out->groups[0];
        out->groups[i].ranks_per_node = own.ranks_per_node;
        out->groups[i].net_bytes_per_s = own.net_bytes_per_s;
    }
    return 0;
}

int speed_open(const struct cluster *cluster, enum precision precision, const char *calibration_path,
               bool measure, struct device_speed *out, struct error *err)
{
    const struct rank_device *device = &cluster->groups[0].device;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < cluster->group_count; i++)
        machine_speed_for_group(&cluster->groups[i], precision, machine_speed_cores(), &out->groups[i]);
    if (calibration_path) {
        if (device->card)
            return error_set(
                err,
                "--calibration %s was measured on this machine's CPU, but the plan is for %s; leave it out",
                calibration_path, device->name);
        if (load(calibration_path, precision, &out->calibration, err))
            return -1;
        for (int i = 0; i < cluster->group_count; i++)
            machine_speed_use(&out->groups[i], &out->calibration, precision);
    } else if (measure && !device->card) {
        return measure_groups(cluster, out, err);
    }
    return 0;
}

void speed_close(struct device_speed *speed)
{
    calibration_clear(&speed->calibration);
}

const char *speed_rates_text(const struct device_speed *speed, const struct cluster *cluster)
{
    enum card_evidence best = CARD_SHEET;
    for (int g = 0; g < cluster->group_count; g++)
        if (speed->groups[g].evidence > best)
            best = speed->groups[g].evidence;
    return cards_rates_text(best, cluster->group_count > 1);
}

double speed_doubt(const struct device_speed *speed, const struct siting *siting)
{
    double most = 0;
    for (int i = 0; i < siting->count; i++)
        most = fmax(most, machine_speed_doubt(&speed->groups[siting->parts[i].group]));
    return most;
}

struct throughput speed_throughput(const struct cluster *cluster, const struct siting *siting,
                                   const struct pipeline *pipeline, double step_seconds)
{
    const struct layout *l = &pipeline->stages[0]->layout;
    struct throughput out = {.tokens_per_second = (double)l->global_batch * (double)l->seq_len / step_seconds,
                             .ranks = layout_ranks(l)};
    double flops = 0, most = 0;
    for (int i = 0; i < pipeline->count; i++)
        flops += (double)(l->dp * l->tp) * work_model_flops(pipeline->stages[i]);
    for (int i = 0; i < siting->count; i++) {
        const struct card *card = cluster->groups[siting->parts[i].group].device.card;
        if (!card)
            return out;
        most += siting->parts[i].ranks * machine_speed_card_peak(card, l->precision);
    }
    out.utilization = flops / step_seconds / most;
    return out;
}

void speed_add_throughput(struct report *report, const struct throughput *t)
{
    char all[UNITS_TEXT], each[UNITS_TEXT];
    units_format_count(llround(t->tokens_per_second), all);
    units_format_count(llround(t->tokens_per_second / (double)t->ranks), each);
    if (t->utilization > 0)
        report_fact(report, "throughput", "%s tokens/s, %s on each card, %.1f%% MFU", all, each,
                    100 * t->utilization);
    else
        report_fact(report, "throughput", "%s tokens/s", all);
}

void speed_throughput_to_json(const struct throughput *t, json_t *out)
{
    json_object_set_new(out, "tokens_per_second", json_real(t->tokens_per_second));
    json_object_set_new(out, "model_flops_utilization",
                        t->utilization > 0 ? json_real(t->utilization) : json_null());
}

bool speed_spans_nodes(const struct cluster *cluster, const struct siting *siting)
{
    return siting->count > 1 ||
           siting->parts[0].ranks > cluster->groups[siting->parts[0].group].ranks_per_node;
}

void speed_add_networks(struct report *report, const struct cluster *cluster, const char *sets)
{
    for (int g = 0; g < cluster->group_count; g++) {
        const struct node_group *group = &cluster->groups[g];
        struct text net = {0};
        machine_speed_describe_net(group, sets, &net);
        if (cluster->group_count > 1)
            report_fact(report, "network", "%s: %s", group->device.name, net.data);
        else
            report_fact(report, "network", "%s", net.data);
        text_free(&net);
    }
}

json_t *speed_networks_to_json(const struct cluster *cluster)
{
    json_t *out = json_array();
    for (int g = 0; g < cluster->group_count; g++) {
        const struct node_group *group = &cluster->groups[g];
        enum speed_source source = machine_speed_net_source(group);
        json_t *network = json_pack("{s:s, s:I, s:f, s:s}", "device", group->device.name, "ranks_per_node",
                                    (json_int_t)group->ranks_per_node, "bytes_per_second",
                                    group->net_bytes_per_s, "source", speed_source_name(source));
        if (source == SPEED_PRESET)
            json_object_set_new(network, "node", json_string(group->device.card->node));
        json_array_append_new(out, network);
    }
    return out;
}
