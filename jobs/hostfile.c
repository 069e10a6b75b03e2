/* DeepSpeed's file of hosts: "worker-1 slots=8" a line (deepspeed/launcher/runner.py, fetch_hostfile()). */
#include "jobs/hostfile.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SLOTS = 1 << 16, MOST_HOSTS = 1 << 16 };

/* The slots of one line, 0: it has no host, -1: it is none of such a file. */
static int slots_of(const char *line)
{
    int slots = 0;
    line += strspn(line, " \t\r");
    if (!*line || *line == '#')
        return 0;
    return sscanf(line, "%*s slots=%9d", &slots) == 1 && slots > 0 && slots <= MOST_SLOTS ? slots : -1;
}

int hostfile_read(struct training_job *job, const struct launch *launch, const struct job_files *files,
                  struct error *err)
{
    struct job_launch *l = &job->launch;
    const char *path = launch->hosts.text, *text;
    struct arena *arena = job->facts.arena;
    int64_t nodes = 0, ranks = 0, most = l->nodes ? l->nodes : MOST_HOSTS;
    if (!path &&
        !l->processes_per_node) /* runner.py takes them where it is given neither hosts nor a number */
        l->processes_per_node = job_environment_devices(job, files);
    if (!path || launch->hosts.unknown || l->ranks)
        return 0;
    int status = job_file_text(job, files, path, &text, NULL, err);
    if (status)
        return status < 0 ? -1 : 0; /* without it, it is asked for */
    char *copy = arena_strdup(arena, text), *state = NULL;
    for (char *line = strtok_r(copy, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        int slots = slots_of(line);
        if (slots < 0)
            return error_set(err, "%s: \"%.60s\" is no host with its slots; write: worker-1 slots=8", path,
                             line);
        if (!slots || nodes == most)
            continue;
        nodes++;
        ranks += l->processes_per_node ? l->processes_per_node : slots;
    }
    if (!nodes)
        return error_set(err, "%s: no host is in it; write: worker-1 slots=8", path);
    l->nodes = nodes;
    l->ranks = ranks;
    job_note(job, FACT_READ, "hosts", arena_printf(arena, "%lld", (long long)nodes), path);
    return 0;
}
