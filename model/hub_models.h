/* Models of the Hugging Face hub that are known by name, with the keys of their config.json that decide sizes. So a launch
 * that names one can be answered where nothing of it was downloaded. */
#ifndef MEMPLAN_MODEL_HUB_MODELS_H
#define MEMPLAN_MODEL_HUB_MODELS_H

#include "base/json.h"

/* What config.json of `name` ("org/model") says, as a new object: json_decref(); NULL when it is not known. A fine-tune is
 * known only by its own name. */
json_t *hub_models_config(const char *name);
/* NULL-terminated: those of one config.json stand side by side. */
const char *const *hub_models_names(void);
/* "org/model" without "org/". */
const char *hub_models_short_name(const char *name);

#endif
