/* Frameworks whose launches are known to be theirs, and are not read: so that the answer names them. */
#ifndef MEMPLAN_JOBS_UNREAD_FRAMEWORKS_H
#define MEMPLAN_JOBS_UNREAD_FRAMEWORKS_H

#include "jobs/word.h"

/* Whose a command is; NULL: of none of them. */
const char *unread_frameworks_find(const struct words *command);

#endif
