/* Options of a framework as a table: how each is spelled, which field of a training job it fills, and what the framework
 * takes when it is absent. Command lines, TOML, JSON and YAML all end here. */
#ifndef MEMPLAN_JOBS_SETTING_H
#define MEMPLAN_JOBS_SETTING_H

#include "jobs/training_job.h"

#include <stddef.h>

enum setting_kind {
    SETTING_ON,     /* given: true; takes no value */
    SETTING_OFF,    /* given: false */
    SETTING_BOOL,   /* true, false, yes, no, 1, 0; without a value true */
    SETTING_COUNT,  /* int64_t */
    SETTING_REAL,   /* double */
    SETTING_TEXT,   /* const char * */
    SETTING_CHOICE, /* int: the place among `choices`, "none|selective|full" */
    SETTING_LIST,   /* const char *: all words up to the next option, joined by commas */
    SETTING_BEYOND, /* const char *: changes memory in a way that no rule is about; the first of them fills the field with
                     * `choices`, a feature by name, unless its value is the fallback or says no. "qat.*": all keys below */
};

struct setting_rule {
    const char *name; /* "--hidden-size", "zero_optimization.stage" */
    enum setting_kind kind;
    size_t offset; /* in struct training_job */
    const char *choices;
    const char *fallback; /* the framework's default as it would be written; NULL: none, the field stays 0. Of SETTING_BEYOND:
                           * the value that asks for nothing; NULL: it takes no value */
};

struct setting_table {
    const struct setting_rule *rules; /* ends with one without a name */
    const char *irrelevant; /* names that are no business of memory, blanks between them; "--wandb-*" is a prefix */
    const char *framework;  /* whose defaults these are, by version */
    bool any_dashes;        /* --a-b and --a_b are the same */
};

#define SETTING(name, kind, field, choices, fallback) {name, kind, offsetof(struct training_job, field), choices, fallback}
/* Rules of a table, by kind. */
#define ON(name, field)                     SETTING(name, SETTING_ON, field, NULL, NULL)
#define OFF(name, field)                    SETTING(name, SETTING_OFF, field, NULL, "not given")
#define BOOL(name, field, fallback)         SETTING(name, SETTING_BOOL, field, NULL, fallback)
#define COUNT(name, field, fallback)        SETTING(name, SETTING_COUNT, field, NULL, fallback)
#define REAL(name, field, fallback)         SETTING(name, SETTING_REAL, field, NULL, fallback)
#define TEXT(name, field, fallback)         SETTING(name, SETTING_TEXT, field, NULL, fallback)
#define LIST(name, field)                   SETTING(name, SETTING_LIST, field, NULL, NULL)
#define CHOICE(name, field, list, fallback) SETTING(name, SETTING_CHOICE, field, list, fallback)
/* Of which no rule of memory is: an option without a value, and one with a value (`harmless`: it asks for nothing). */
#define FLAG(name, feature)                 SETTING(name, SETTING_BEYOND, beyond, feature, NULL)
#define BEYOND(name, feature, harmless)     SETTING(name, SETTING_BEYOND, beyond, feature, harmless)

/* One option with its value (NULL: none was given). A value that the field cannot hold is an error. */
int setting_apply(const struct setting_table *table, struct training_job *job, const struct word *name,
                  const struct word *value, struct error *err);
/* All of a command line: --name value, --name=value. Words that are no options go to `rest` (room for all; NULL: they are
 * noted as unknown). */
int setting_read_words(const struct setting_table *table, struct training_job *job, const struct words *words,
                       struct words *rest, struct error *err);
/* By which name the option that fills a field of the job (its offset) was given; if none was, the first of its names. */
const char *setting_name(const struct setting_table *table, const struct training_job *job, size_t offset);
/* Fills every field that has a default and that nothing filled. */
int setting_defaults(const struct setting_table *table, struct training_job *job, struct error *err);

/* "key = value" with the line, in files of settings. Nested tables are joined by dots. Values of lists are joined by
 * commas, and lists in a list by semicolons. */
struct pair {
    const char *key, *value;
    int line;
};
struct pairs {
    const char *file;
    struct pair *list;
    int count, room;
};
void pairs_add(struct pairs *pairs, struct arena *arena, const char *key, const char *value, int line);
const struct pair *pairs_find(const struct pairs *pairs, const char *key);
int setting_read_pairs(const struct setting_table *table, struct training_job *job, const struct pairs *pairs,
                       struct error *err);
/* An object's fields, nested ones as "a.b"; where JSON came from has no lines. */
void pairs_from_json(struct pairs *pairs, struct arena *arena, const json_t *object);

#endif
