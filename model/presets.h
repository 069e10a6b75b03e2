/* The models known by name. */
#ifndef MEMPLAN_MODEL_PRESETS_H
#define MEMPLAN_MODEL_PRESETS_H

#include "model/model.h"

/* NULL when no preset has that name. */
const struct model *presets_find(const char *name);
const char *const *presets_names(void);

#endif
