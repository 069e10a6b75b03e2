/* Finds a model in the hub's cache: the variables that say where it is, names, references, snapshots. */
#include "model/hub_cache.h"

#include "base/error.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_NAME = 96, LONGEST_REVISION = 255 };

/* ---- where it is ---- */

/* Each replaces those below it, with what stands behind its value: transformers/utils/hub.py of 4.57 (the first),
 * huggingface_hub/constants.py. */
static const char *const variables[] = {
    "TRANSFORMERS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", NULL};
static const char *const below[] = {"", "", "", "/hub", "/huggingface/hub", "/.cache/huggingface/hub"};

static const char *from_environment(const void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

const struct hub_cache_variables hub_cache_environment = {from_environment, NULL};

const char *const *hub_cache_variable_names(void)
{
    return variables;
}

void hub_cache_folder(const struct hub_cache_variables *v, char out[HUB_CACHE_PATH])
{
    const char *home = v->value(v->context, "HOME");
    out[0] = 0;
    for (int i = 0; variables[i] && !out[0]; i++) {
        const char *value = v->value(v->context, variables[i]);
        bool in_home = value && value[0] == '~' && (value[1] == '/' || !value[1]) && home;
        if (value && *value)
            snprintf(out, HUB_CACHE_PATH, "%s%s%s", in_home ? home : "", value + in_home, below[i]);
    }
}

/* ---- names ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_part(const char *from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!is_word(from[i]) && from[i] != '-' && from[i] != '.')
            return false;
    return length && is_word(from[0]) && is_word(from[length - 1]);
}

/* huggingface_hub/utils/_validators.py */
bool hub_cache_is_name(const char *text)
{
    size_t first = strcspn(text, "/"), length = strlen(text);
    if (length > LONGEST_NAME || strstr(text, "--") || strstr(text, "..") || !is_part(text, first))
        return false;
    return !text[first] || is_part(text + first + 1, length - first - 1);
}

/* "main", "v1.0", "refs/pr/3", a commit: what cannot lead out of the folder. */
static bool is_revision(const char *text)
{
    size_t length = strlen(text);
    return length && length <= LONGEST_REVISION && text[0] != '/' && !strstr(text, "..") &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+") == length;
}

/* ---- a snapshot ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* The commit that refs/REVISION holds. A revision without such a file may be a commit itself. */
static void read_ref(const char *model, const char *revision, char commit[LONGEST_REVISION + 1])
{
    char path[HUB_CACHE_PATH], *text;
    size_t length;
    struct error unheard = {0};
    struct stat info;
    snprintf(commit, LONGEST_REVISION + 1, "%s", revision);
    if (snprintf(path, sizeof path, "%s/refs/%s", model, revision) >= (int)sizeof path)
        return;
    if (stat(path, &info) || !S_ISREG(info.st_mode) ||
        text_read_file(path, LONGEST_REVISION, &text, &length, &unheard))
        return;
    snprintf(commit, LONGEST_REVISION + 1, "%.*s", (int)strcspn(text, " \t\r\n"), text);
    free(text);
}

static bool find_config(const char *commit, struct hub_cache_snapshot *out)
{
    char path[HUB_CACHE_PATH + 16];
    struct stat info;
    snprintf(path, sizeof path, "%s/config.json", out->folder);
    if (!stat(path, &info))
        return true;
    snprintf(out->why, sizeof out->why,
             lstat(path, &info) ? "its snapshot %.40s has no config.json"
                                : "the config.json of its snapshot %.40s is a link to nothing",
             commit);
    return false;
}

bool hub_cache_find(const char *cache, const char *name, const char *revision, struct hub_cache_snapshot *out)
{
    char model[HUB_CACHE_PATH], commit[LONGEST_REVISION + 1];
    const char *slash = strchr(name, '/');
    int first = slash ? (int)(slash - name) : 0;
    revision = revision ? revision : "main";
    *out = (struct hub_cache_snapshot){0};
    if (!*cache || !hub_cache_is_name(name) || !is_revision(revision) ||
        snprintf(model, sizeof model, "%s/models--%.*s%s%s", cache, first, name, slash ? "--" : "",
                 slash ? slash + 1 : name) >= (int)sizeof model ||
        !is_folder(model))
        return false;
    read_ref(model, revision, commit);
    if (!is_revision(commit) || strchr(commit, '/') ||
        snprintf(out->folder, sizeof out->folder, "%s/snapshots/%s", model, commit) >=
            (int)sizeof out->folder ||
        !is_folder(out->folder)) {
        snprintf(out->why, sizeof out->why, "no snapshot of its revision %.40s", revision);
        return false;
    }
    return find_config(commit, out);
}
