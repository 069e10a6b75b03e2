/* How long OpenMP's threads spin at a barrier before they sleep. */
#ifndef MEMPLAN_CLI_SPINNING_H
#define MEMPLAN_CLI_SPINNING_H

/* Starts the program again with a short spin, unless the user has chosen one, or this is that second start. Call it before
 * anything else is done; argv is main's. Where it cannot, it returns, and runs are only slower on a busy machine. */
void spinning_limit(char **argv);

#endif
