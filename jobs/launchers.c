#include "jobs/launchers.h"

#include "base/text.h"
#include "jobs/accelerate_config.h"
#include "jobs/frameworks.h"
#include "jobs/hostfile.h"

#include <stdio.h>
#include <string.h>

static const struct launcher_option torchrun_options[] = {
    {"--nnodes", LAUNCHER_NODES},      {"--nproc-per-node", LAUNCHER_PER_NODE},
    {"--standalone", LAUNCHER_SWITCH}, {"--use-env", LAUNCHER_SWITCH},
    {"--no-python", LAUNCHER_SWITCH},  {"-m", LAUNCHER_SWITCH},
    {"--module", LAUNCHER_SWITCH},     {0},
};

static const struct launcher_option srun_options[] = {
    {"--nodes", LAUNCHER_NODES},
    {"-N", LAUNCHER_NODES},
    {"--ntasks", LAUNCHER_RANKS},
    {"-n", LAUNCHER_RANKS},
    {"--ntasks-per-node", LAUNCHER_PER_NODE},
    {"--gpus-per-node", LAUNCHER_VALUE},
    {"--gres", LAUNCHER_VALUE},
    {"--label", LAUNCHER_SWITCH},
    {"-l", LAUNCHER_SWITCH},
    {"--exclusive", LAUNCHER_SWITCH},
    {"--unbuffered", LAUNCHER_SWITCH},
    {"-u", LAUNCHER_SWITCH},
    {0},
};

static const struct launcher_option mpirun_options[] = {
    {"-np", LAUNCHER_RANKS},
    {"-n", LAUNCHER_RANKS},
    {"--np", LAUNCHER_RANKS},
    {"-N", LAUNCHER_PER_NODE},
    {"-npernode", LAUNCHER_PER_NODE},
    {"--npernode", LAUNCHER_PER_NODE},
    {"-ppn", LAUNCHER_PER_NODE},
    {"--map-by", LAUNCHER_PLACES},
    {"-map-by", LAUNCHER_PLACES},
    {"-mca", LAUNCHER_PAIR},
    {"--mca", LAUNCHER_PAIR},
    {"--allow-run-as-root", LAUNCHER_SWITCH},
    {"--oversubscribe", LAUNCHER_SWITCH},
    {"--tag-output", LAUNCHER_SWITCH},
    {0},
};

static const struct launcher_option deepspeed_options[] = {
    {"--num-nodes", LAUNCHER_NODES},
    {"--num-gpus", LAUNCHER_PER_NODE},
    {"--num-accelerators", LAUNCHER_PER_NODE},
    {"--hostfile", LAUNCHER_HOSTS},
    {"-H", LAUNCHER_HOSTS},
    {"--include", LAUNCHER_HOSTS},
    {"-i", LAUNCHER_HOSTS},
    {"--no-ssh", LAUNCHER_SWITCH},
    {"--no-python", LAUNCHER_SWITCH},
    {"--module", LAUNCHER_SWITCH},
    {"--enable-each-rank-log", LAUNCHER_VALUE},
    {0},
};

static const struct launcher_option accelerate_options[] = {
    {"--num-processes", LAUNCHER_RANKS},
    {"--num-machines", LAUNCHER_NODES},
    {"--multi-gpu", LAUNCHER_SWITCH},
    {"--use-deepspeed", LAUNCHER_SWITCH},
    {"--use-fsdp", LAUNCHER_SWITCH},
    {"--module", LAUNCHER_SWITCH},
    {"-m", LAUNCHER_SWITCH},
    {0},
};

static const struct launcher_option python_options[] = {
    {"-u", LAUNCHER_SWITCH},
    {"-m", LAUNCHER_SWITCH},
    {"-O", LAUNCHER_SWITCH},
    {0},
};

static const struct launcher launchers[] = {
    {.name = "torchrun",
     .words = "torchrun torch.distributed.run torch.distributed.launch",
     .trains = true,
     .counts = true,
     .sees = true,
     .nodes = 1,
     .per_node = 1,
     .options = torchrun_options},
    {.name = "srun", .words = "srun sbatch", .takes_batch = true, .options = srun_options},
    {.name = "mpirun", .words = "mpirun mpiexec orterun", .options = mpirun_options},
    {.name = "deepspeed",
     .words = "deepspeed ds",
     .trains = true,
     .counts = true,
     .nodes = 1,
     .options = deepspeed_options,
     .read = hostfile_read},
    {.name = "accelerate",
     .words = "accelerate",
     .commands = "launch",
     .trains = true,
     .keeps = true,
     .counts = true,
     .sees = true,
     .options = accelerate_options,
     .read = accelerate_read},
    {.name = "accelerate",
     .words = "accelerate-launch accelerate.commands.launch",
     .trains = true,
     .keeps = true,
     .counts = true,
     .sees = true,
     .options = accelerate_options,
     .read = accelerate_read},
    {.options = python_options},
};

enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

static bool lists(const char *words, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = words; length && (at = strstr(at, name)); at++)
        if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

/* "python3.11" */
static bool is_python(const char *name)
{
    return !strncmp(name, "python", 6) && strspn(name + 6, "0123456789.") == strlen(name + 6);
}

const struct launcher *launchers_find(const char *word)
{
    const char *name = text_base_name(word);
    for (int i = 0; i < LAUNCHERS; i++)
        if (launchers[i].words ? lists(launchers[i].words, name) : is_python(name))
            return &launchers[i];
    for (const struct framework *const *f = frameworks; *f; f++)
        if ((*f)->launcher && lists((*f)->launcher->words, name))
            return (*f)->launcher;
    return NULL;
}

bool launchers_has_command(const struct launcher *launcher, const char *word)
{
    return lists(launcher->commands, word);
}

static void add_name(const char *name, char out[LAUNCHERS_TEXT])
{
    size_t used = strlen(out);
    snprintf(out + used, LAUNCHERS_TEXT - used, used ? ", %s" : "%s", name);
}

const char *launchers_list(char out[LAUNCHERS_TEXT])
{
    out[0] = '\0';
    for (int i = 0; i < LAUNCHERS; i++)
        if (launchers[i].name && (!i || strcmp(launchers[i].name, launchers[i - 1].name)))
            add_name(launchers[i].name, out);
    for (const struct framework *const *f = frameworks; *f; f++)
        if ((*f)->launcher)
            add_name((*f)->launcher->name, out);
    return out;
}
