#include "jobs/hf_keys.h"

#include <string.h>

static bool is_meant(const struct hf_key *key, const struct job_edit *edit, const char *name)
{
    bool any = !key->value || (edit->value && !strcasecmp(key->value, edit->value));
    return any && !strcmp(name, key->name + strspn(key->name, "-"));
}

/* Keys of FSDP's stand below fsdp_config, with "fsdp_" in front or without. */
static const char *fsdp_key(const struct training_job *job, const char *name)
{
    const char *prefix = job->shards.key_prefix;
    return prefix && !*prefix && !strncmp(name, "fsdp_", 5) ? name + 5 : name;
}

static void rename_edit(const struct training_job *job, struct job_edit *edit, const struct hf_key *keys,
                        const char *file)
{
    bool option = edit->place == JOB_EDIT_OPTION;
    if (!option && (!file || !edit->file || strcmp(edit->file, file) != 0))
        return;
    const char *name = edit->name + strspn(edit->name, "-");
    while (keys->name && !is_meant(keys, edit, name))
        keys++;
    edit->value = keys->name && keys->own_value ? keys->own_value : edit->value;
    name = keys->name ? keys->own_name : name;
    if (option && file) {
        edit->place = JOB_EDIT_FILE;
        edit->file = file;
    }
    edit->name = option && !file ? arena_printf(job->facts.arena, "--%s", name)
                 : option        ? name
                                 : fsdp_key(job, name);
}

void hf_keys_rename(struct proposals *p, int first, const struct hf_key *keys, const char *file)
{
    for (int i = first; i < p->out->count; i++)
        for (int k = 0; k < p->out->list[i].count; k++)
            rename_edit(p->job, &p->out->list[i].edits[k], keys, file);
}
