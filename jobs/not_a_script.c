/* Kinds of files, one an entry: told by their first bytes, the end of their name, or a key of their JSON or YAML. Those that one
 * framework reads are in its own entry (frameworks.h). */
#include "jobs/not_a_script.h"

#include "base/json.h"
#include "base/text.h"
#include "jobs/frameworks.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_KEY = 60, LONGEST_WAY = 200 };

struct kind {
    const char *what;
    const char *way;  /* on; FILE stands for the file's name */
    const char *keys; /* blanks between; one of which it has. NULL: any file does */
};

static const struct kind objects[] = {
    {"a plan of memplan's",
     "memplan predict FILE --device D says whether it fits, and memplan train FILE runs it", "memplan_plan"},
    {"a calibration of memplan's", "memplan plan MODEL --cluster C --calibration FILE plans with it",
     "memplan_calibration"},
    {"the description of a model",
     "memplan predict FILE --device D says what memplan's own training of it needs; of another launch it is "
     "the model with memplan check --model FILE -- LAUNCH COMMAND",
     "model_type architectures num_hidden_layers family"},
    {"a configuration of DeepSpeed's",
     "give the launch that names it: memplan check -- deepspeed train.py --deepspeed FILE",
     "zero_optimization train_micro_batch_size_per_gpu train_batch_size gradient_clipping"},
    {"JSON", "give the launch that names it: memplan check -- LAUNCH COMMAND", NULL},
};

static const struct kind documents[] = {
    {"a configuration of accelerate's",
     "give the launch that names it: memplan check -- accelerate launch --config_file FILE train.py",
     "distributed_type num_processes mixed_precision"},
    {"YAML", "give the launch that names it: memplan check -- LAUNCH COMMAND", NULL},
};

static const struct kind recording = {
    "a recording of memplan's", "memplan report FILE shows it, and memplan compare holds it against a plan",
    NULL};

static const struct {
    const char *end;
    struct kind kind;
} names[] = {
    {".py",
     {"a Python program",
      "give its launch: memplan check -- torchrun --nproc-per-node 8 FILE and its options", NULL}},
    {".toml",
     {"a configuration",
      "give the launch that names it: memplan check -- torchrun --nproc-per-node 8 -m torchtitan.train "
      "--job.config_file FILE",
      NULL}},
    {".safetensors",
     {"weights", "name the folder that they lie in: memplan check --model FOLDER -- LAUNCH COMMAND", NULL}},
};

static int refuse(const char *file, const struct kind *kind, struct error *err)
{
    static const char place[] = "FILE";
    const char *at = kind->way, *next;
    error_set(err, "%.200s: this is %s, and no script; ", file, kind->what);
    for (; (next = strstr(at, place)); at = next + sizeof place - 1)
        error_append(err, "%.*s%.100s", (int)(next - at), at, file);
    error_append(err, "%s", at);
    return -1;
}

/* The next of the keys; false: there is none. */
static bool next_key(const char **keys, char key[LONGEST_KEY])
{
    size_t length = strcspn(*keys, " ");
    snprintf(key, LONGEST_KEY, "%.*s", (int)length, *keys);
    *keys += length;
    *keys += strspn(*keys, " ");
    return length > 0;
}

static bool has_key(const struct kind *kind, const json_t *object)
{
    char key[LONGEST_KEY];
    for (const char *keys = kind->keys; keys && next_key(&keys, key);)
        if (json_object_get(object, key))
            return true;
    return !kind->keys;
}

/* NULL: there is none behind it. */
static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : NULL;
}

/* Whether a line of YAML's outermost level begins with one of them. */
static bool has_line(const char *keys, const char *text)
{
    char key[LONGEST_KEY];
    while (next_key(&keys, key))
        for (const char *line = text; line; line = next_line(line))
            if (!strncmp(line, key, strlen(key)) && line[strlen(key)] == ':')
                return true;
    return false;
}

/* A group of commands in braces is no JSON. */
static int refuse_json(const char *file, const char *text, size_t length, struct error *err)
{
    json_t *value = text[strspn(text, " \t\r\n")] == '{' ? json_loadb(text, length, 0, NULL) : NULL;
    const struct kind *kind = objects;
    if (!value)
        return 0;
    while (!has_key(kind, value))
        kind++;
    json_decref(value);
    return refuse(file, kind, err);
}

static int refuse_yaml(const char *file, const char *text, struct error *err)
{
    const struct kind *kind = documents;
    char what[LONGEST_WAY], way[LONGEST_WAY];
    for (const struct framework *const *f = frameworks; *f; f++) {
        if (!(*f)->keys || !has_line((*f)->keys, text))
            continue;
        snprintf(what, sizeof what, "a configuration of %s's", (*f)->name);
        snprintf(way, sizeof way, "give its launch: memplan check -- %s", (*f)->launch);
        return refuse(file, &(struct kind){what, way, NULL}, err);
    }
    while (kind->keys && !has_line(kind->keys, text))
        kind++;
    return refuse(file, kind, err);
}

int not_a_script_refuse(const char *file, const char *text, size_t length, struct error *err)
{
    if (!strncmp(text, "SQLite format 3", 15))
        return refuse(file, &recording, err);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (text_ends_with(file, names[i].end))
            return refuse(file, &names[i].kind, err);
    if (memchr(text, 0, length))
        return error_set(
            err, "%.200s: this is no text, and so no script; name the script that launches the job", file);
    if (text_ends_with(file, ".yaml") || text_ends_with(file, ".yml"))
        return refuse_yaml(file, text, err);
    return refuse_json(file, text, length, err);
}
