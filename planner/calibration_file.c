/* calibration.json. */
#include "base/arena.h"
#include "base/json.h"
#include "planner/calibration_parts.h"

#include <stdio.h>
#include <string.h>

static json_t *point_to_json(const struct calibration_point *point)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "threads", point->threads, "m",
                     (json_int_t)point->m, "n", (json_int_t)point->n, "k", (json_int_t)point->k, "flops",
                     point->flops, "bytes", point->bytes, "seconds", point->seconds, "count",
                     (json_int_t)point->count);
}

static json_t *kind_to_json(enum precision precision, enum op_kind kind,
                            const struct calibration_kind *measured)
{
    json_t *points = json_array();
    for (int64_t i = 0; i < measured->count; i++)
        json_array_append_new(points, point_to_json(&measured->points[i]));
    return json_pack("{s:s, s:s, s:f, s:o}", "kind", op_kind_name(kind), "precision",
                     precision_name(precision), "spread", measured->spread, "points", points);
}

static json_t *kinds_to_json(const struct calibration *calibration)
{
    json_t *list = json_array();
    for (int precision = 0; precision < CALIBRATION_PRECISIONS; precision++)
        for (int kind = 0; kind < OP_KINDS; kind++) {
            const struct calibration_kind *measured = &calibration->kinds[precision][kind];
            if (measured->count)
                json_array_append_new(list,
                                      kind_to_json((enum precision)precision, (enum op_kind)kind, measured));
        }
    return list;
}

static const char *const group_names[CALIBRATION_GROUPS] = {"parts", "replicas", "stages"};

static json_t *links_to_json(const struct calibration *calibration)
{
    json_t *list = json_array();
    for (int group = 0; group < CALIBRATION_GROUPS; group++) {
        const struct calibration_link *link = &calibration->links[group];
        if (link->count)
            json_array_append_new(list,
                                  json_pack("{s:s, s:f, s:f, s:f, s:I}", "group", group_names[group],
                                            "latency_s", link->latency_s, "bytes_per_s", link->bytes_per_s,
                                            "spread", link->spread, "count", (json_int_t)link->count));
    }
    return list;
}

static json_t *runs_to_json(const struct calibration *calibration)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < calibration->run_count; i++) {
        const struct calibration_run *run = &calibration->runs[i];
        json_array_append_new(
            list, json_pack("{s:I, s:s, s:i, s:i, s:f, s:f}", "run", (json_int_t)run->run_id, "precision",
                            precision_name(run->precision), "ranks", run->ranks, "threads", run->threads,
                            "step_ratio", run->step_ratio, "step_spread", run->step_spread));
    }
    return list;
}

int calibration_write(const struct calibration *c, const char *path, struct error *err)
{
    json_t *object = json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o}", "memplan_calibration",
                               CALIBRATION_VERSION, "memplan_version", c->memplan_version, "device",
                               c->device, "made_by", jsonfile_string(c->made_by), "runs", runs_to_json(c),
                               "links", links_to_json(c), "operations", kinds_to_json(c));
    int status = jsonfile_write(object, path, err);
    json_decref(object);
    return status;
}

static int check_threads(int64_t threads, const char *where, struct error *err)
{
    if (threads >= 1 && threads <= 1 << 20)
        return 0;
    return error_set(err, "%s: %lld threads cannot be; calibrate again", where, (long long)threads);
}

static int read_point(const json_t *object, const char *where, struct calibration_kind *kind,
                      struct error *err)
{
    struct calibration_point point = {0};
    int64_t threads;
    if (jsonfile_int(object, "threads", where, &threads, err) || check_threads(threads, where, err) ||
        jsonfile_int_optional(object, "m", where, &point.m, err) ||
        jsonfile_int_optional(object, "n", where, &point.n, err) ||
        jsonfile_int_optional(object, "k", where, &point.k, err) ||
        jsonfile_real(object, "flops", where, &point.flops, err) ||
        jsonfile_real(object, "bytes", where, &point.bytes, err) ||
        jsonfile_real(object, "seconds", where, &point.seconds, err) ||
        jsonfile_int(object, "count", where, &point.count, err))
        return -1;
    if (!(point.seconds > 0) || !(calibration_amount(point.flops, point.bytes) > 0))
        return error_set(err, "%s: a point needs seconds above 0, and flops or bytes; calibrate again",
                         where);
    point.threads = (int)threads;
    calibration_add_point(kind, &point);
    return 0;
}

static int read_precision(const json_t *object, const char *where, enum precision *out, struct error *err)
{
    const char *name;
    if (jsonfile_text(object, "precision", where, &name, err))
        return -1;
    return precision_find(name, out, err) ? error_prefix(err, "%s", where) : 0;
}

static int read_kind(const json_t *object, const char *where, struct calibration *out, struct error *err)
{
    const char *name;
    json_t *points;
    enum precision precision;
    if (jsonfile_text(object, "kind", where, &name, err) || read_precision(object, where, &precision, err))
        return -1;
    int index = calibration_kind_find(name);
    if (index == OP_KINDS)
        return error_set(err, "%s: operation \"%s\" is unknown to this memplan; calibrate again", where,
                         name);
    struct calibration_kind *kind = &out->kinds[precision][index];
    if (jsonfile_real_optional(object, "spread", where, &kind->spread, err) ||
        jsonfile_array(object, "points", where, &points, err))
        return -1;
    for (size_t i = 0; i < json_array_size(points); i++) {
        char place[400];
        snprintf(place, sizeof place, "%s: %s point %zu", where, name, i);
        if (read_point(json_array_get(points, i), place, kind, err))
            return -1;
    }
    return 0;
}

static int read_run(const json_t *object, const char *where, struct calibration *out, struct error *err)
{
    struct calibration_run run = {0};
    int64_t ranks, threads;
    if (jsonfile_int(object, "run", where, &run.run_id, err) ||
        read_precision(object, where, &run.precision, err) ||
        jsonfile_int(object, "ranks", where, &ranks, err) ||
        jsonfile_int(object, "threads", where, &threads, err) || check_threads(threads, where, err) ||
        jsonfile_real(object, "step_ratio", where, &run.step_ratio, err) ||
        jsonfile_real(object, "step_spread", where, &run.step_spread, err))
        return -1;
    if (ranks < 1 || ranks > 1 << 20)
        return error_set(err, "%s: %lld ranks cannot be; calibrate again", where, (long long)ranks);
    run.ranks = (int)ranks;
    run.threads = (int)threads;
    calibration_add_run(out, &run);
    return 0;
}

static int read_link(const json_t *object, const char *where, struct calibration *out, struct error *err)
{
    const char *name;
    struct calibration_link link = {0};
    int group = 0;
    if (jsonfile_text(object, "group", where, &name, err) ||
        jsonfile_real(object, "latency_s", where, &link.latency_s, err) ||
        jsonfile_real(object, "bytes_per_s", where, &link.bytes_per_s, err) ||
        jsonfile_real_optional(object, "spread", where, &link.spread, err) ||
        jsonfile_int(object, "count", where, &link.count, err))
        return -1;
    while (group < CALIBRATION_GROUPS && strcmp(group_names[group], name))
        group++;
    if (group == CALIBRATION_GROUPS)
        return error_set(err, "%s: group \"%s\" is unknown to this memplan; calibrate again", where, name);
    if (!(link.latency_s >= 0) || !(link.bytes_per_s >= 0) || link.count < 1)
        return error_set(err,
                         "%s: a link has no negative latency or rate, and a count of 1 or more; "
                         "calibrate again",
                         where);
    out->links[group] = link;
    return 0;
}

static int read_head(const json_t *object, const char *path, struct calibration *out, struct error *err)
{
    int64_t version;
    const char *device, *memplan_version, *made_by = "";
    if (!json_object_get(object, "memplan_calibration"))
        return error_set(err,
                         "%s: not a calibration: it has no \"memplan_calibration\"; `memplan calibrate "
                         "run.db -o %s` makes one",
                         path, path);
    if (jsonfile_int(object, "memplan_calibration", path, &version, err))
        return -1;
    if (version != CALIBRATION_VERSION)
        return error_set(err,
                         "%s: calibration version %lld; this memplan reads version %d, so calibrate again",
                         path, (long long)version, CALIBRATION_VERSION);
    if (jsonfile_text(object, "device", path, &device, err) ||
        jsonfile_text(object, "memplan_version", path, &memplan_version, err) ||
        jsonfile_text_optional(object, "made_by", path, &made_by, err))
        return -1;
    snprintf(out->device, sizeof out->device, "%s", device);
    snprintf(out->memplan_version, sizeof out->memplan_version, "%s", memplan_version);
    snprintf(out->made_by, sizeof out->made_by, "%s", made_by);
    return 0;
}

static int check_origin(const struct calibration *c, const char *path, const char *device,
                        const char *memplan_version, struct error *err)
{
    if (strcmp(c->device, device))
        return error_set(err, "%s was measured on %s, and this is %s; calibrate here, or leave it out", path,
                         c->device, device);
    if (strcmp(c->memplan_version, memplan_version))
        return error_set(err, "%s was measured with memplan %s, and this is %s; calibrate again", path,
                         c->memplan_version, memplan_version);
    return 0;
}

typedef int read_entry(const json_t *object, const char *where, struct calibration *out, struct error *err);

static int read_list(const json_t *object, const char *key, const char *path, read_entry *read,
                     struct calibration *out, struct error *err)
{
    json_t *list;
    if (jsonfile_array(object, key, path, &list, err))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[300];
        snprintf(place, sizeof place, "%s: %s[%zu]", path, key, i);
        if (read(json_array_get(list, i), place, out, err))
            return -1;
    }
    return 0;
}

static int from_json(const json_t *object, const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err)
{
    if (read_head(object, path, out, err) || check_origin(out, path, device, memplan_version, err))
        return -1;
    return read_list(object, "runs", path, read_run, out, err) ||
                   read_list(object, "links", path, read_link, out, err) ||
                   read_list(object, "operations", path, read_kind, out, err)
               ? -1
               : 0;
}

int calibration_read(const char *path, const char *device, const char *memplan_version,
                     struct calibration *out, struct error *err)
{
    json_t *object;
    struct calibration calibration = {0};
    if (jsonfile_read(path, &object, err))
        return -1;
    int status = from_json(object, path, device, memplan_version, &calibration, err);
    json_decref(object);
    if (status)
        calibration_clear(&calibration);
    else
        *out = calibration;
    return status;
}
