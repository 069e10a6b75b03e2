#include "jobs/job_edit.h"

#include <stdio.h>
#include <string.h>

enum { KEY_MOST = 128 };

/* ---- options ---- */

/* "--a-b", "--a_b" and "--a-b=1" are one option. */
static bool names(const char *word, const char *option)
{
    for (; *word && *option; word++, option++)
        if (*word != *option && !(strchr("-_", *word) && strchr("-_", *option)))
            return false;
    return !*option && (!*word || *word == '=');
}

static bool is_edited(const struct job_edits *edits, const char *word)
{
    for (int i = 0; i < edits->count; i++)
        if (edits->list[i].place == JOB_EDIT_OPTION && names(word, edits->list[i].name))
            return true;
    return false;
}

static int count_words(const struct job_edits *edits)
{
    int count = 0;
    for (int i = 0; i < edits->count; i++) {
        count += 2;
        for (const char *c = edits->list[i].words ? edits->list[i].value : ""; *c; c++)
            count += *c == ' ';
    }
    return count;
}

static void add_value(const struct job_edit *edit, struct words *out, struct arena *arena)
{
    const char *at = edit->value;
    for (int length; edit->words && (length = (int)strcspn(at, " ")) < (int)strlen(at); at += length + 1)
        out->list[out->count++] = (struct word){.text = arena_printf(arena, "%.*s", length, at)};
    if (*at)
        out->list[out->count++] = (struct word){.text = at};
}

void job_edit_words(const struct job_edits *edits, struct words *arguments, struct arena *arena)
{
    struct words kept = {0};
    if (!edits->count)
        return;
    kept.list = arena_array(arena, (size_t)(arguments->count + count_words(edits)), sizeof *kept.list);
    for (int i = 0; i < arguments->count; i++) {
        const struct word *word = &arguments->list[i];
        if (!is_edited(edits, word->text)) {
            kept.list[kept.count++] = *word;
            continue;
        }
        while (i + 1 < arguments->count && !word_is_option(arguments->list[i + 1].text))
            i++;
    }
    for (int i = 0; i < edits->count; i++) {
        const struct job_edit *edit = &edits->list[i];
        if (edit->place != JOB_EDIT_OPTION || !edit->value)
            continue;
        kept.list[kept.count++] = (struct word){.text = edit->name};
        add_value(edit, &kept, arena);
    }
    *arguments = kept;
}

/* ---- files ---- */

static json_t *value_of(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

/* Takes the first part off a dotted key. */
static const char *take_part(const char *name, char part[KEY_MOST])
{
    size_t length = strcspn(name, ".");
    snprintf(part, KEY_MOST, "%.*s", (int)length, name);
    return name[length] ? name + length + 1 : NULL;
}

static void set_key(json_t *object, const char *name, const char *value)
{
    char part[KEY_MOST];
    while ((name = take_part(name, part))) {
        if (!json_is_object(json_object_get(object, part)))
            json_object_set_new(object, part, json_object());
        object = json_object_get(object, part);
    }
    if (value)
        json_object_set_new(object, part, value_of(value));
    else
        json_object_del(object, part);
}

void job_edit_json(const struct job_edits *edits, const char *file, json_t *object)
{
    for (int i = 0; i < edits->count; i++) {
        const struct job_edit *edit = &edits->list[i];
        if (edit->place == JOB_EDIT_FILE && !strcmp(edit->file, file))
            set_key(object, edit->name, edit->value);
    }
}

static bool is_key(const char *key, const char *name)
{
    const char *dot = strrchr(key, '.');
    return !strcmp(key, name) || (dot && !strcmp(dot + 1, name));
}

static void drop_key(struct pairs *pairs, const char *name)
{
    int kept = 0;
    for (int i = 0; i < pairs->count; i++)
        if (!is_key(pairs->list[i].key, name))
            pairs->list[kept++] = pairs->list[i];
    pairs->count = kept;
}

void job_edit_pairs(const struct job_edits *edits, struct pairs *pairs, struct arena *arena)
{
    for (int i = 0; i < edits->count; i++) {
        const struct job_edit *edit = &edits->list[i];
        if (edit->place != JOB_EDIT_FILE || strcmp(edit->file, pairs->file) != 0)
            continue;
        if (edit->value)
            pairs_add(pairs, arena, edit->name, edit->value, 0);
        else
            drop_key(pairs, edit->name);
    }
}

/* ---- the environment ---- */

const char *job_edit_variable(const struct job_edits *edits, const char *name)
{
    for (int i = edits->count - 1; i >= 0; i--)
        if (edits->list[i].place == JOB_EDIT_ENVIRONMENT && !strcmp(edits->list[i].name, name))
            return edits->list[i].value;
    return NULL;
}
