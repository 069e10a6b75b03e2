/* Hugging Face's config.json as a description: which of its types are models of our families, and what those others have that
 * ours have not. */
#ifndef MEMPLAN_MODEL_HUB_CONFIG_H
#define MEMPLAN_MODEL_HUB_CONFIG_H

#include "base/error.h"

#include "base/json.h"
#include "model/model.h"

/* Fills in what a config.json of this "model_type" says; a head_size of 0 stands for hidden / heads. `where` is for messages. */
int hub_config_read(const json_t *config, const char *where, const char *type, struct model *out, struct error *err);

/* The type of the models whose names on the hub begin as this one does, where it is one that is refused; NULL: none is known. */
const char *hub_config_refused(const char *name);
/* Sets the error that says why this type is refused; -1. */
int hub_config_refuse(const char *where, const char *type, struct error *err);

/* NULL-terminated: the refused types that `memplan check` has rules for. */
const char *const *hub_config_checked_types(void);

#endif
