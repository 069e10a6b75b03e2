/* The models known by name. */
#ifndef MEMPLAN_MODEL_PRESETS_H
#define MEMPLAN_MODEL_PRESETS_H

#include "model/model.h"

/* NULL when no preset has that name. */
const struct model *presets_find(const char *name);
const char *const *presets_names(void);

/* What the preset is called on the Hugging Face hub, where there is such a model; NULL: nothing. */
const char *presets_hub_name(const char *name);
/* The preset that people also call so, in any case: "gpt2-xl", "gpt2-1.5b", "llama-2-7b"; NULL: none. */
const char *presets_known_as(const char *name);

#endif
