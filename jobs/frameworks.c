#include "jobs/frameworks.h"

#include "jobs/axolotl.h"
#include "jobs/deepspeed_chat.h"
#include "jobs/hf.h"
#include "jobs/llamafactory.h"
#include "jobs/llmc.h"
#include "jobs/megatron.h"
#include "jobs/plain.h"
#include "jobs/titan.h"

#include <string.h>

const struct framework *const frameworks[] = {&titan_framework,    &megatron_deepspeed_framework,
                                              &megatron_framework, &llamafactory_framework,
                                              &axolotl_framework,  &deepspeed_chat_framework,
                                              &hf_framework,       &llmc_framework,
                                              &plain_framework,    NULL};

const struct framework *frameworks_find(const struct launch *launch)
{
    for (const struct framework *const *f = frameworks; *f; f++)
        if ((*f)->is(launch))
            return *f;
    return NULL;
}

const char *job_framework_name(const struct framework *framework)
{
    return framework->name;
}

/* ---- programs ---- */

/* Of scripts that are someone's own. */
static const char own_programs[] = "train* finetune* *_train* run_* *pretrain*";

/* "run_*", "*pretrain*", "torchtitan.train" */
static bool matches(const char *name, const char *pattern, size_t length)
{
    bool anywhere = *pattern == '*', open = pattern[length - 1] == '*';
    const char *core = pattern + anywhere;
    size_t size = length - anywhere - open;
    for (const char *at = name; *at; at++) {
        if (!strncmp(at, core, size) && (open || !at[size]))
            return true;
        if (!anywhere)
            break;
    }
    return false;
}

static bool lists(const char *patterns, const char *name)
{
    for (const char *at = patterns; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (matches(name, at, length))
            return true;
        at += length;
    }
    return false;
}

bool frameworks_have_program(const char *name)
{
    for (const struct framework *const *f = frameworks; *f; f++)
        if ((*f)->programs && lists((*f)->programs, name))
            return true;
    return lists(own_programs, name);
}

bool frameworks_have_binary(const char *name)
{
    for (const struct framework *const *f = frameworks; *f; f++)
        if ((*f)->binaries && lists((*f)->binaries, name))
            return true;
    return false;
}

const char *frameworks_list(struct arena *arena)
{
    const char *list = "";
    for (const struct framework *const *f = frameworks; *f; f++)
        list = arena_printf(arena, "%s%s%s", list, *list ? ", " : "", (*f)->version);
    return list;
}
