#include "cli/job_options.h"

#include "base/units.h"
#include "cli/capacity.h"
#include "jobs/job_workload.h"

#include <string.h>

enum { MOST_SET = 64, NAMED_MISSING = 3 };

bool job_options_is_command(int argc, char **argv, const char *first)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--"))
            return argv[i + 1] == first;
    return false;
}

/* "A=1,B=2": cut in place. */
static int split_set(char *text, struct shell_variable *out, int *count, struct error *err)
{
    char *state = NULL;
    *count = 0;
    for (char *item = strtok_r(text, ",", &state); item; item = strtok_r(NULL, ",", &state)) {
        char *equals = strchr(item, '=');
        if (!equals || equals == item || *count == MOST_SET)
            return error_set(err, "--set %s: not a NAME=VALUE; write --set NODES=4,GPUS=8", item);
        *equals = 0;
        out[(*count)++] = (struct shell_variable){item, equals + 1};
    }
    return 0;
}

int job_options_request(const struct job_options *o, bool is_command, const char *const *operands, int count,
                        struct arena *arena, struct jobs_request *out, struct error *err)
{
    struct shell_variable *set = arena_array(arena, MOST_SET, sizeof *set);
    *out = (struct jobs_request){
        .script = is_command ? NULL : operands[0],
        .command = operands + !is_command,
        .command_count = count - !is_command,
        .set = set,
        .with = o->with,
        .model = o->model,
        .ranks = o->ranks,
        .line = o->line,
    };
    return o->set ? split_set(arena_strdup(arena, o->set), set, &out->set_count, err) : 0;
}

int job_options_card(const struct job_options *o, const struct training_job *job, struct rank_device *device,
                     struct node_group *nodes, struct error *err)
{
    const struct job_launch *launch = &job->launch;
    if (capacity_read_device(o->device, launch->ranks, device, err))
        return -1;
    if (!strncmp(device->name, "cpu", 3))
        return error_set(err, "--device %s: these frameworks train on GPUs; give a card such as h100-80g",
                         o->device);
    if (o->memory)
        device->capacity_bytes = o->memory;
    *nodes = capacity_assume_nodes(device, launch->ranks, launch->processes_per_node);
    nodes->net_assumed = !o->net;
    return o->net ? units_parse_rate(o->net, "--net", &nodes->net_bytes_per_s, err) : 0;
}

int job_options_refuse_missing(const struct training_job *job, const char *lists, struct error *err)
{
    int count = job_count(job, FACT_MISSING), named = 0;
    if (job->beyond) /* whatever is missing would not help */
        return job_workload_refuse(job->beyond, err);
    error_set(err, "%d thing%s that matter%s missing:", count, count == 1 ? "" : "s",
              count == 1 ? "s is" : " are");
    for (int i = 0; i < job->facts.count && named < NAMED_MISSING; i++) {
        const struct fact *f = &job->facts.list[i];
        if (f->kind == FACT_MISSING)
            error_append(err, "%s %s (%s)", named++ ? "," : "", f->name, f->origin);
    }
    if (count > named)
        error_append(err, ", and %d more: %s lists them", count - named, lists);
    return -1;
}
