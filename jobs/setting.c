#include "jobs/setting.h"

#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FACTS = 4000, MOST_NESTED = 32, MOST_RULES = 256, MOST_GUESSES = 40 };

/* ---- names ---- */

static bool same_character(char a, char b, bool any_dashes)
{
    return a == b || (any_dashes && (a == '-' || a == '_') && (b == '-' || b == '_'));
}

static bool same_name(const char *a, const char *b, bool any_dashes)
{
    while (*a && *b && same_character(*a, *b, any_dashes))
        a++, b++;
    return !*a && !*b;
}

static bool is_group(const struct setting_rule *rule)
{
    return rule->kind == SETTING_BEYOND && rule->name[strlen(rule->name) - 1] == '*';
}

static const struct setting_rule *find_rule(const struct setting_table *table, const char *name)
{
    for (const struct setting_rule *rule = table->rules; rule->name; rule++)
        if (same_name(rule->name, name, table->any_dashes) ||
            (is_group(rule) && !strncmp(rule->name, name, strlen(rule->name) - 1)))
            return rule;
    return NULL;
}

static bool is_irrelevant(const struct setting_table *table, const char *name)
{
    for (const char *other = table->irrelevant; *other; other += strspn(other, " ")) {
        const char *at = name, *end = other + strcspn(other, " ");
        while (other < end && *other != '*' && same_character(*at, *other, table->any_dashes))
            at++, other++;
        if (other == end ? !*at : *other == '*')
            return true;
        other = end;
    }
    return false;
}

/* ---- values ---- */

static void *field(struct training_job *job, const struct setting_rule *rule)
{
    return (char *)job + rule->offset;
}

static int refuse(const char *origin, const char *name, const char *value, const char *wanted,
                  struct error *err)
{
    return error_set(err, "%s: %.60s is \"%.60s\"; it must be %s", origin, name, value, wanted);
}

/* "8", "500_000_000", "5e8", "2.0". */
static bool parse_count(const char *text, int64_t *out)
{
    char digits[40];
    size_t length = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '_' && c > text)
            continue;
        if (length == sizeof digits - 1 || !strchr("+-.0123456789eE", *c))
            return false;
        digits[length++] = *c;
    }
    digits[length] = 0;
    char *end;
    errno = 0;
    long long whole = strtoll(digits, &end, 10);
    if (length && !*end && !errno) {
        *out = whole;
        return true;
    }
    double real = strtod(digits, &end);
    if (!length || *end || !(fabs(real) < 9e18) || real != floor(real))
        return false;
    *out = (int64_t)real;
    return true;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "1", "on", "y", "t"}, *const no[] = {"false", "no", "0",
                                                                                          "off",   "n",  "f"};
    for (int i = 0; i < 6; i++)
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return true;
        }
    return false;
}

static bool parse_choice(const char *text, const char *choices, int *out)
{
    int place = 0;
    size_t length = strlen(text);
    for (const char *at = choices; at; place++) {
        const char *bar = strchr(at, '|');
        size_t size = bar ? (size_t)(bar - at) : strlen(at);
        if (size == length && !strncasecmp(at, text, size)) {
            *out = place;
            return true;
        }
        at = bar ? bar + 1 : NULL;
    }
    return false;
}

/* "false", "none", "0", or the value that asks for nothing, if as another number of the same size. */
static bool says_no(const struct setting_rule *rule, const char *value)
{
    char *end, *fallback_end;
    bool yes = true;
    if ((parse_bool(value, &yes) && !yes) || !*value || !strcasecmp(value, "none"))
        return true;
    if (!rule->fallback)
        return false;
    double number = strtod(value, &end), fallback = strtod(rule->fallback, &fallback_end);
    bool numbers = !*end && !*fallback_end && *rule->fallback;
    return numbers ? !(number < fallback || number > fallback) : !strcasecmp(value, rule->fallback);
}

/* Fills the field; the words say what it must be when it cannot. */
static const char *store(struct training_job *job, const struct setting_rule *rule, const char *value)
{
    void *to = field(job, rule);
    int64_t count;
    char *end;
    switch (rule->kind) {
    case SETTING_ON:
    case SETTING_OFF:
        *(bool *)to = rule->kind == SETTING_ON;
        return NULL;
    case SETTING_BOOL:
        return parse_bool(value, to) ? NULL : "true or false";
    case SETTING_COUNT:
        if (!parse_count(value, &count) || count < 0)
            return "a whole number, 0 or more";
        *(int64_t *)to = count;
        return NULL;
    case SETTING_REAL:
        *(double *)to = strtod(value, &end);
        return end != value && !*end && isfinite(*(double *)to) ? NULL : "a number";
    case SETTING_CHOICE:
        return parse_choice(value, rule->choices, to)
                   ? NULL
                   : arena_printf(job->facts.arena, "one of %s", rule->choices);
    case SETTING_BEYOND:
        if (!says_no(rule, value) && !*(const char **)to)
            *(const char **)to = arena_printf(job->facts.arena, "%s (%s)", rule->choices, rule->name);
        return NULL;
    default:
        *(const char **)to = arena_strdup(job->facts.arena, value);
        return NULL;
    }
}

/* ---- one option ---- */

/* Takes no value on a command line. */
static bool is_bare(const struct setting_rule *rule)
{
    return rule->kind == SETTING_ON || rule->kind == SETTING_OFF ||
           (rule->kind == SETTING_BEYOND && !rule->fallback);
}

static const char *how_to_give(struct training_job *job, const char *name, const struct word *value)
{
    struct arena *arena = job->facts.arena;
    if (value->name)
        return arena_printf(arena, "%s; give --set %s=VALUE", value->unknown, value->name);
    return arena_printf(arena, "%s; give --with='%s VALUE'", value->unknown, name);
}

static void note_unknown(const struct setting_table *table, struct training_job *job, const char *name,
                         const char *value, const char *origin)
{
    const char *names[MOST_RULES + 1];
    int count = 0;
    for (const struct setting_rule *rule = table->rules; rule->name && count < MOST_RULES; rule++)
        names[count++] = rule->name;
    names[count] = NULL;
    /* Guessing takes a while, which counts where somebody wrote thousands of them. */
    bool guesses = strlen(name) < 60 && job_count(job, FACT_UNKNOWN) < MOST_GUESSES;
    const char *near = guesses ? options_nearest(name, names) : NULL;
    if (near)
        origin = arena_printf(job->facts.arena, "%s; did you mean %s?", origin, near);
    job_note(job, FACT_UNKNOWN, name, value, origin);
}

static int too_many(const char *origin, struct error *err)
{
    return error_set(err, "%s: more than %d options; is it the right file?", origin, MOST_FACTS);
}

int setting_apply(const struct setting_table *table, struct training_job *job, const struct word *name,
                  const struct word *value, struct error *err)
{
    const struct setting_rule *rule = find_rule(table, name->text);
    const char *origin = job_origin(job, value ? value : name);
    const char *text = value ? value->text : "";
    if (job->facts.count > MOST_FACTS)
        return too_many(origin, err);
    if (!rule && is_irrelevant(table, name->text)) {
        job_note(job, FACT_IRRELEVANT, name->text, text, origin);
        return 0;
    }
    if (!rule) {
        note_unknown(table, job, name->text, text, origin);
        return 0;
    }
    if (value && value->unknown) {
        job_note(job, FACT_MISSING, rule->name, text, how_to_give(job, name->text, value));
        return 0;
    }
    bool bare = is_bare(rule);
    if (!bare && rule->kind != SETTING_BOOL && rule->kind != SETTING_BEYOND && !value)
        return error_set(err, "%s: %.60s has no value; give it one", origin, name->text);
    if (!value)
        text = bare ? "given" : "true";
    const char *wanted = store(job, rule, text);
    if (wanted)
        return refuse(origin, name->text, text, wanted, err);
    job_note(job, FACT_READ, rule->name, text, origin);
    return 0;
}

const char *setting_name(const struct setting_table *table, const struct training_job *job, size_t offset)
{
    const char *first = NULL;
    for (const struct setting_rule *rule = table->rules; rule->name; rule++) {
        if (rule->offset != offset)
            continue;
        if (job_was_given(job, rule->name))
            return rule->name;
        first = first ? first : rule->name;
    }
    return first;
}

int setting_defaults(const struct setting_table *table, struct training_job *job, struct error *err)
{
    for (const struct setting_rule *rule = table->rules; rule->name; rule++) {
        bool given = false;
        if (!rule->fallback || rule->kind == SETTING_BEYOND)
            continue;
        /* Other spellings fill the same field. */
        for (const struct setting_rule *other = table->rules; other->name; other++)
            given = given || (other->offset == rule->offset && job_was_said(job, other->name));
        if (given)
            continue;
        if (rule->kind == SETTING_OFF)
            *(bool *)field(job, rule) = true;
        else if (store(job, rule, rule->fallback))
            return refuse(table->framework, rule->name, rule->fallback, "another", err);
        job_note(job, FACT_DEFAULT, rule->name, rule->fallback, table->framework);
    }
    return 0;
}

/* ---- command lines ---- */

/* Words up to the next option as one. */
static struct word joined(struct training_job *job, const struct words *words, int first, int end)
{
    struct word all = words->list[first];
    struct text text = {0};
    for (int i = first; i < end; i++) {
        text_printf(&text, i > first ? ",%s" : "%s", words->list[i].text);
        if (words->list[i].unknown && !all.unknown) {
            all.unknown = words->list[i].unknown;
            all.name = words->list[i].name;
        }
    }
    all.text = arena_strdup(job->facts.arena, text.data);
    text_free(&text);
    return all;
}

static void note_word(struct training_job *job, const struct word *word)
{
    struct arena *arena = job->facts.arena;
    const char *origin = job_origin(job, word);
    if (word->unknown && *word->text && !word->more && !job->condition)
        job->condition = arena_printf(arena, "%s (%s) holds no option that counts", word->text, origin);
    if (word->unknown && word->name)
        origin = arena_printf(arena, "%s; give --set %s=VALUE", word->unknown, word->name);
    if (*word->text)
        job_note(job, FACT_UNKNOWN, word->text, word->unknown ? "may hold options" : "", origin);
}

/* Whether a variable goes by a name that options go by: it may stand behind a switch, and be no value of it. */
static bool is_called_options(const struct word *word)
{
    static const char *const names[] = {"args", "opt", "extra", "flag"};
    for (int i = 0; word->name && i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcasestr(word->name, names[i]))
            return true;
    return false;
}

/* Of an option that is no business of ours all words up to the next one were taken; but a variable among them may hold others.
 * Lists of data files are mostly variables. */
static void note_swallowed(struct training_job *job, const struct words *words, int first, int end)
{
    const char *name = words->list[first - 1].text;
    if (strstr(name, "data") || strstr(name, "path"))
        return;
    for (int i = first; i < end; i++)
        if (words->list[i].unknown && (i > first || is_called_options(&words->list[i])))
            note_word(job, &words->list[i]);
}

/* The option at `at`, with its value; returns the place behind it, or -1. */
static int read_option(const struct setting_table *table, struct training_job *job, const struct words *words,
                       int at, struct error *err)
{
    struct word name = words->list[at], value;
    const char *equals = strchr(name.text, '=');
    int end = at + 1;
    if (equals) {
        value = name;
        value.text = equals + 1;
        name.text = arena_printf(job->facts.arena, "%.*s", (int)(equals - name.text), name.text);
        return setting_apply(table, job, &name, &value, err) ? -1 : end;
    }
    const struct setting_rule *rule = find_rule(table, name.text);
    if (rule && is_bare(rule))
        return setting_apply(table, job, &name, NULL, err) ? -1 : end;
    while (end < words->count && !word_is_option(words->list[end].text) && !words->list[end].added)
        end++;
    bool one = rule && rule->kind != SETTING_LIST;
    if (one && end > at + 2)
        end = at + 2;
    if (end == at + 1)
        return setting_apply(table, job, &name, NULL, err) ? -1 : end;
    if (!rule)
        note_swallowed(job, words, at + 1, end);
    value = joined(job, words, at + 1, end);
    return setting_apply(table, job, &name, &value, err) ? -1 : end;
}

/* An option of those that a condition may add: one with a value that nothing else gives is asked for. */
static void note_addition(const struct setting_table *table, struct training_job *job,
                          const struct word *word, const char *name)
{
    struct arena *arena = job->facts.arena;
    const struct setting_rule *rule = find_rule(table, name);
    if (!rule || is_group(rule) || job_was_given(job, rule->name))
        return;
    if (is_bare(rule) || rule->kind == SETTING_BOOL || rule->kind == SETTING_BEYOND)
        job->condition = job->condition
                             ? job->condition
                             : arena_printf(arena, "%s is not given (%s)", rule->name, word->unknown);
    else
        job_note(job, FACT_MISSING, rule->name, "?",
                 arena_printf(arena, "%s; give --with='%s VALUE'", word->unknown, name));
}

static void note_additions(const struct setting_table *table, struct training_job *job,
                           const struct words *words)
{
    enum { LONGEST = 60 };
    static const char ends[] = " \t\n\"'()=\\";
    for (int i = 0; i < words->count; i++)
        for (const char *at = words->list[i].more; at && *at;
             at += strcspn(at, ends), at += strspn(at, ends)) {
            char name[LONGEST];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ends), at);
            if (word_is_option(name))
                note_addition(table, job, &words->list[i], name);
        }
}

int setting_read_words(const struct setting_table *table, struct training_job *job, const struct words *words,
                       struct words *rest, struct error *err)
{
    for (int at = 0; at < words->count;) {
        const struct word *word = &words->list[at];
        if (job->facts.count > MOST_FACTS)
            return too_many(job_origin(job, word), err);
        if (!word_is_option(word->text)) {
            if (rest)
                rest->list[rest->count++] = *word;
            else
                note_word(job, word);
            at++;
            continue;
        }
        at = read_option(table, job, words, at, err);
        if (at < 0)
            return -1;
    }
    note_additions(table, job, words);
    return 0;
}

/* ---- files of settings ---- */

void pairs_add(struct pairs *pairs, struct arena *arena, const char *key, const char *value, int line)
{
    if (pairs->count == pairs->room) {
        pairs->room = pairs->room ? 2 * pairs->room : 64;
        struct pair *longer = arena_array(arena, (size_t)pairs->room, sizeof *longer);
        if (pairs->count)
            memcpy(longer, pairs->list, (size_t)pairs->count * sizeof *longer);
        pairs->list = longer;
    }
    pairs->list[pairs->count++] = (struct pair){arena_strdup(arena, key), arena_strdup(arena, value), line};
}

const struct pair *pairs_find(const struct pairs *pairs, const char *key)
{
    for (int i = pairs->count - 1; i >= 0; i--)
        if (!strcmp(pairs->list[i].key, key))
            return &pairs->list[i];
    return NULL;
}

int setting_read_pairs(const struct setting_table *table, struct training_job *job, const struct pairs *pairs,
                       struct error *err)
{
    for (int i = 0; i < pairs->count; i++) {
        const struct pair *p = &pairs->list[i];
        struct word name = {.text = p->key, .file = pairs->file, .line = p->line}, value = name;
        value.text = p->value;
        if (setting_apply(table, job, &name, &value, err))
            return -1;
    }
    return 0;
}

static const char *scalar(struct arena *arena, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return json_string_value(value);
    case JSON_INTEGER:
        return arena_printf(arena, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return arena_printf(arena, "%.17g", json_real_value(value));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    default:
        return "";
    }
}

static const char *list_of(struct arena *arena, const json_t *list)
{
    struct text text = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        text_printf(&text, i ? ",%s" : "%s", scalar(arena, json_array_get(list, i)));
    const char *kept = arena_strdup(arena, text.data ? text.data : "");
    text_free(&text);
    return kept;
}

static void add_json(struct pairs *pairs, struct arena *arena, const char *prefix, const json_t *object,
                     int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *name = *prefix ? arena_printf(arena, "%s.%s", prefix, key) : key;
        if (json_is_object(value) && depth < MOST_NESTED)
            add_json(pairs, arena, name, value, depth + 1);
        else if (json_is_array(value))
            pairs_add(pairs, arena, name, list_of(arena, value), 0);
        else if (!json_is_null(value))
            pairs_add(pairs, arena, name, scalar(arena, value), 0);
    }
}

void pairs_from_json(struct pairs *pairs, struct arena *arena, const json_t *object)
{
    add_json(pairs, arena, "", object, 0);
}
