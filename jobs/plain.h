/* Scripts of no framework, of which the user says what they train, as the last entry of the table. */
#ifndef MEMPLAN_JOBS_PLAIN_H
#define MEMPLAN_JOBS_PLAIN_H

#include "jobs/frameworks.h"

extern const struct framework plain_framework;

#endif
