/* karpathy/llm.c as an entry of the table. */
#ifndef MEMPLAN_JOBS_LLMC_H
#define MEMPLAN_JOBS_LLMC_H

#include "jobs/frameworks.h"

extern const struct framework llmc_framework;

#endif
