#include "reports/markup.h"

#include "base/arena.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

void markup_add_text(struct text *out, const char *text)
{
    json_t *valid = jsonfile_string(text ? text : "");
    for (const char *at = json_string_value(valid); *at; at++)
        switch (*at) {
        case '&':
            text_add(out, "&amp;");
            break;
        case '<':
            text_add(out, "&lt;");
            break;
        case '>':
            text_add(out, "&gt;");
            break;
        case '"':
            text_add(out, "&quot;");
            break;
        case '\'':
            text_add(out, "&#39;");
            break;
        default:
            text_add(out, (const char[]){(unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at, '\0'});
        }
    json_decref(valid);
}

void markup_add_json(struct text *out, const char *text)
{
    json_t *value = jsonfile_string(text);
    char *dumped = json_dumps(value, JSON_ENCODE_ANY);
    for (const char *at = dumped; at && *at; at++)
        text_add(out, *at == '<' ? "\\u003c" : (const char[]){*at, '\0'});
    free(dumped);
    json_decref(value);
}

/* ------------------------------------------------------------------------------------------------------------ words */

struct markup_words {
    const char **words;
    int64_t count, room;
    int64_t *slots; /* number + 1; 0: free. A power of two of them, at most half in use */
    int64_t slot_count;
};

struct markup_words *markup_words_create(void)
{
    struct markup_words *words = host_alloc(sizeof *words);
    words->slot_count = 256;
    words->slots = host_alloc((size_t)words->slot_count * sizeof *words->slots);
    return words;
}

void markup_words_free(struct markup_words *words)
{
    free(words->words);
    free(words->slots);
    free(words);
}

static int64_t *find(const struct markup_words *words, const char *word)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *at = word; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    int64_t at = (int64_t)(hash & (uint64_t)(words->slot_count - 1));
    while (words->slots[at] && strcmp(words->words[words->slots[at] - 1], word))
        at = (at + 1) & (words->slot_count - 1);
    return &words->slots[at];
}

static void grow(struct markup_words *words)
{
    free(words->slots);
    words->slot_count *= 2;
    words->slots = host_alloc((size_t)words->slot_count * sizeof *words->slots);
    for (int64_t i = 0; i < words->count; i++)
        *find(words, words->words[i]) = i + 1;
}

int64_t markup_word(struct markup_words *words, const char *word)
{
    word = word ? word : "";
    int64_t *slot = find(words, word);
    if (*slot)
        return *slot - 1;
    if (words->count == words->room)
        words->words =
            host_resize(words->words, (size_t)(words->room = 2 * words->room + 64) * sizeof *words->words);
    words->words[words->count++] = word;
    *slot = words->count;
    if (2 * words->count > words->slot_count)
        grow(words);
    return words->count - 1;
}

void markup_words_add(const struct markup_words *words, struct text *out)
{
    text_add(out, "[");
    for (int64_t i = 0; i < words->count; i++) {
        text_add(out, i ? "," : "");
        markup_add_json(out, words->words[i]);
    }
    text_add(out, "]");
}

void markup_add_element(struct text *out, const char *element, const char *class, const char *text)
{
    text_printf(out, "<%s", element);
    if (class)
        text_printf(out, " class='%s'", class);
    text_add(out, ">");
    markup_add_text(out, text);
    text_printf(out, "</%s>", element);
}
