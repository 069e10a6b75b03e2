/* Finds out whether mpirun or srun started this process as one of several, and if so loads the MPI transport, which is a
 * library of its own: only a run over MPI needs MPI. */
#include "comm/comm.h"

#include "base/library.h"
#include "comm/comm_mpi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Variables that a launcher gives to every process of a run, and only to those. */
static const struct launcher {
    const char *variable, *name;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "mpirun"},
    {"PMIX_RANK", "a PMIx launcher (srun --mpi=pmix, prterun)"},
    {"PMI_SIZE", "a PMI launcher (srun --mpi=pmi2, mpiexec)"},
};

static const char *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].variable))
            return launchers[i].name;
    return NULL;
}

/* Under plain srun every task would take itself for the whole run. */
static int check_srun(struct error *err)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (!tasks || atoi(tasks) <= 1)
        return 0;
    return error_set(err, "srun started %s tasks but does not connect them; start with srun --mpi=pmix",
                     tasks);
}

enum comm_launch comm_open_launched(struct comm **out, struct error *err)
{
    *out = NULL;
    const char *launcher = find_launcher();
    if (!launcher)
        return check_srun(err) ? COMM_LAUNCH_FAILED : COMM_LAUNCH_NONE;
    /* MPI loads parts of itself that look for its symbols among the global ones. */
    void *library = library_open(COMM_MPI_LIBRARY, "MEMPLAN_MPI_LIBRARY", RTLD_NOW | RTLD_GLOBAL);
    void *symbol = library ? dlsym(library, COMM_MPI_SYMBOL) : NULL;
    if (!symbol) {
        error_set(
            err,
            "started by %s, but the MPI transport cannot be loaded (%s); install libopenmpi-dev and build "
            "again, or start without it",
            launcher, dlerror());
        return COMM_LAUNCH_FAILED;
    }
    comm_mpi_open_function *open;
    memcpy(&open, &symbol, sizeof open);
    return open(out, err) ? COMM_LAUNCH_FAILED : COMM_LAUNCH_OPENED;
}
