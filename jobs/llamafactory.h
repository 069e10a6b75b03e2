/* LLaMA-Factory: YAML around Hugging Face's Trainer. */
#ifndef MEMPLAN_JOBS_LLAMAFACTORY_H
#define MEMPLAN_JOBS_LLAMAFACTORY_H

#include "jobs/frameworks.h"

extern const struct framework llamafactory_framework;

#endif
