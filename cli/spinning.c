/* GNU's OpenMP lets threads spin for milliseconds at a barrier, in the hope that the last one is about to arrive. On a machine
 * with something else to do the last one waits for a core meanwhile, on which another spins; an operation has a barrier, a
 * step hundreds of them, and takes up to 50 times as long (docs/commands/train.md has the figures). A thousand rounds are what
 * that library itself allows as soon as it knows of more threads than cores, and cost nothing where the cores are free.
 *
 * It reads its setting once, when it is loaded, which is before main(): hence the second start. */
#include "cli/spinning.h"

#include <stdlib.h>
#include <unistd.h>

void spinning_limit(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY") || setenv("GOMP_SPINCOUNT", "1000", 0))
        return;
    execv("/proc/self/exe", argv);
}
