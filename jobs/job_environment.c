/* Variables of a job's environment: what the script leaves them at, what stands before the launch on its line, what srun exports. */
#include "jobs/job_files.h"

#include <string.h>

/* NAME=value, or --export=ALL,NAME=value of srun, where a comma ends the value. */
static bool sets(const struct word *word, const char *name, struct arena *arena, struct word *out)
{
    size_t length = strlen(name);
    bool exports = !strncmp(word->text, "--export=", 9);
    const char *at = word->text;
    if (exports)
        for (at = strstr(at, name); at && (at[length] != '=' || (at[-1] != ',' && at[-1] != '='));)
            at = strstr(at + 1, name);
    if (!at || strncmp(at, name, length) || at[length] != '=')
        return false;
    at += length + 1;
    *out = *word;
    out->text = arena_printf(arena, "%.*s", (int)(exports ? strcspn(at, ",") : strlen(at)), at);
    return true;
}

bool job_environment_find(struct training_job *job, const struct job_files *files, const char *name,
                          struct word *out)
{
    const struct shell_script *script = files->script;
    const struct words *command = files->command;
    const char *edited = job_edit_variable(&files->edits, name);
    *out = (struct word){0};
    for (int i = 0; script && i < script->setting_count; i++)
        if (!strcmp(script->settings[i].name, name))
            *out = script->settings[i].value;
    for (int i = 0; command && i < command->count; i++)
        sets(&command->list[i], name, job->facts.arena, out);
    if (edited)
        *out = (struct word){.text = edited};
    return out->text != NULL;
}

int64_t job_environment_devices(struct training_job *job, const struct job_files *files)
{
    struct word devices;
    int64_t count = 1;
    if (!job_environment_find(job, files, "CUDA_VISIBLE_DEVICES", &devices) || devices.unknown ||
        !*devices.text)
        return 0;
    for (const char *c = devices.text; *c; c++)
        count += *c == ',';
    return count;
}
