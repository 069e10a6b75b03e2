/* memplan env: what this build and this machine can do. */
#include "base/library.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "comm/comm_mpi.h"
#include "device/cuda_library.h"
#include "planner/cards.h"
#include "planner/cluster.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct env_options {
    bool json, speed, quiet;
};

static const struct option_spec options[] = {
    {"speed", 0, OPTION_FLAG, NULL, NULL, "measure matrix products and memory too (half a second)",
     offsetof(struct env_options, speed)},
    {"json", 0, OPTION_FLAG, NULL, NULL, "one JSON document on stdout", offsetof(struct env_options, json)},
    {"quiet", 'q', OPTION_FLAG, NULL, NULL, "no notes on stderr", offsetof(struct env_options, quiet)},
    {0},
};

static const struct command_spec spec = {
    .name = "env",
    .summary = "what this build and this machine can do",
    .usage = "env [options]",
    .about = "Names the machine, its memory, and the back ends of this build.",
    .examples = {"memplan env", "memplan env --speed --json"},
    .options = options,
};

/* The GPUs of this machine: their count and the first. Fails where CUDA or a GPU is missing. */
static int find_gpus(int *count, struct cuda_description *first, struct error *err)
{
    const struct cuda_library *library;
    if (cuda_library_open(&library, err) || library->count(count, err) || library->describe(0, first, err))
        return -1;
    return 0;
}

/* What is claimed of the CUDA back end, and the GPUs, or what is missing to use them: that is no failure here. */
static json_t *describe_cuda(json_t **gpu)
{
    struct cuda_description first;
    struct error missing = {0};
    int count;
    char memory[UNITS_TEXT];
    const char *proof =
        "never yet run on a GPU by its authors; proved by emulation and interpreted PTX (docs/gpus.md)";
    *gpu = NULL;
    if (find_gpus(&count, &first, &missing))
        return json_sprintf("%s; %s", proof, missing.text);
    const struct card *card = cards_match(first.name, first.total_bytes);
    *gpu = json_pack("{s:s, s:i, s:I, s:I, s:i, s:i, s:i}", "name", first.name, "count", count, "total_bytes",
                     (json_int_t)first.total_bytes, "free_bytes", (json_int_t)first.free_bytes, "capability",
                     first.capability, "driver_cuda", first.driver, "runtime_cuda", first.runtime);
    if (card)
        json_object_set_new(*gpu, "bf16_flops_per_second", json_real(card->bf16_flops_per_s));
    return json_sprintf("%s; %d GPU%s, the first %s (%s, compute capability %d.%d), driver for CUDA %d.%d",
                        proof, count, count > 1 ? "s" : "", first.name,
                        units_format_bytes(first.total_bytes, memory), first.capability / 10,
                        first.capability % 10, first.driver / 1000, first.driver % 1000 / 10);
}

/* Whether it could be opened, as a run under mpirun would; without MPI's own start. */
static json_t *describe_mpi(void)
{
    void *library = library_open(COMM_MPI_LIBRARY, "MEMPLAN_MPI_LIBRARY", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return json_sprintf("no: the transport cannot be loaded (%s); ranks are threads of one process",
                            dlerror());
    dlclose(library);
    return json_string("yes: under mpirun or srun, ranks are processes");
}

static json_t *describe(const struct env_options *o, struct error *err)
{
    char name[MACHINE_NAME];
    struct rank_device cpu;
    json_t *gpu;
    if (cluster_read_device("cpu", 1, &cpu, err))
        return NULL;
    json_t *out = json_pack("{s:s, s:s, s:s, s:i, s:I, s:s, s:o, s:o}", "memplan", MEMPLAN_VERSION,
                            "compiler", "gcc " __VERSION__, "machine", machine_speed_cpu_name(name), "cores",
                            machine_speed_cores(), "memory_bytes", (json_int_t)cpu.capacity_bytes,
                            "cpu_back_end", "yes: fp32 and bf16, oneDNN matrix products", "cuda_back_end",
                            describe_cuda(&gpu), "mpi", describe_mpi());
    if (gpu)
        json_object_set_new(out, "gpu", gpu);
    if (!o->speed)
        return out;
    struct machine_speed speed;
    machine_speed_nominal(machine_speed_cores(), &speed);
    if (measure_speed(&speed, err)) {
        json_decref(out);
        return NULL;
    }
    json_object_set_new(out, "matmul_flops_per_second",
                        json_real(speed.matmul_flops_per_s[SPEED_CLASSES - 1]));
    json_object_set_new(out, "memory_bytes_per_second", json_real(speed.memory_bytes_per_s.value));
    return out;
}

/* "memory_bytes_per_second" becomes "memory per second": the value has its unit with it. */
static void make_label(const char *key, char label[64])
{
    size_t used = 0;
    for (const char *c = key; *c && used < 63;) {
        if (!strncmp(c, "_bytes", 6) || !strncmp(c, "_flops", 6))
            c += 6;
        else
            label[used++] = *c++ == '_' ? ' ' : c[-1];
    }
    label[used] = '\0';
}

static const char *print_value(const char *key, const json_t *value, char units[UNITS_TEXT])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_real(value))
        return units_format_rate(json_real_value(value), strstr(key, "flops") ? "FLOP/s" : "B/s", units);
    if (strstr(key, "bytes"))
        return units_format_bytes(json_integer_value(value), units);
    return units_format_count(json_integer_value(value), units);
}

/* A fact a field, in the order of the document; `gpu` has its words in the line of its back end. */
static struct report *report_of(const json_t *document, struct arena *arena)
{
    struct report *report = report_create(arena, "memplan %s", MEMPLAN_VERSION);
    const char *key;
    const json_t *value;
    char units[UNITS_TEXT], label[64];
    json_object_foreach((json_t *)document, key, value)
    {
        make_label(key, label);
        if (!json_is_object(value) && strcmp(key, "memplan") != 0)
            report_fact(report, label, "%s", print_value(key, value, units));
    }
    return report;
}

static int run(int argc, char **argv, struct error *err)
{
    struct env_options o = {0};
    const char *operands[COMMAND_OPERANDS];
    int go_on = command_parse(&spec, argc, argv, &o, operands, err);
    if (go_on <= 0)
        return go_on;
    log_set_quiet(o.quiet);
    json_t *document = describe(&o, err);
    if (!document)
        return -1;
    if (o.json)
        return output_json(document, "-", err);
    struct arena *arena = arena_create();
    int status = output_report(report_of(document, arena), "-", err);
    arena_free(arena);
    json_decref(document);
    return status;
}

const struct command command_env = {&spec, run};
