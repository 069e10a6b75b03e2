/* Ctrl-C, and what a batch system sends before it kills: the first asks a training run to end after the step at work, and the
 * second ends the process at once. A reader that has gone asks likewise. */
#ifndef MEMPLAN_CLI_STOPPING_H
#define MEMPLAN_CLI_STOPPING_H

#include <stdatomic.h>

/* From here on SIGINT and SIGTERM ask; until the process ends. A signal that the parent has had ignored stays so. Returns what
 * to look at: 0, or the number of the signal that came first. */
const atomic_int *stopping_watch(void);

/* Asks as a signal does: SIGPIPE, by whoever finds that nobody reads what is printed. */
void stopping_ask(int signal_number);

/* "SIGINT", "SIGTERM" or, of SIGPIPE, "a closed stdout". */
const char *stopping_name(int signal_number);

/* What shells give for a process that the signal has killed: 130 or 143. */
int stopping_exit_status(int signal_number);

#endif
