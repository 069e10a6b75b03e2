/* The folder where Hugging Face's libraries keep what they downloaded from the hub, as huggingface_hub 0.34 lays it out:
 * models--ORG--NAME/refs/REVISION holds a commit, and snapshots/COMMIT/ its files. It is only read. */
#ifndef MEMPLAN_MODEL_HUB_CACHE_H
#define MEMPLAN_MODEL_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

enum { HUB_CACHE_PATH = 4096, HUB_CACHE_WHY = 160 };

/* Looks up a variable that says where the cache is; NULL: it is not set. */
struct hub_cache_variables {
    const char *(*value)(const void *context, const char *name);
    const void *context;
};

/* Those of this process. */
extern const struct hub_cache_variables hub_cache_environment;

struct hub_cache_snapshot {
    char folder[HUB_CACHE_PATH]; /* has a config.json */
    char why[HUB_CACHE_WHY];     /* of a model that is there and cannot be used: a phrase; "": there is nothing of it */
};

/* The names of those variables, NULL-terminated. */
const char *const *hub_cache_variable_names(void);
/* Writes the folder of the cache; "" when nothing says where it is. */
void hub_cache_folder(const struct hub_cache_variables *variables, char out[HUB_CACHE_PATH]);
/* Whether a text can be the name of a model on the hub: "gpt2", "org/model". */
bool hub_cache_is_name(const char *text);
/* The snapshot of `name` at `revision`, a branch, tag or commit; NULL: main. False: there is none with a config.json. */
bool hub_cache_find(const char *cache, const char *name, const char *revision, struct hub_cache_snapshot *out);

#endif
