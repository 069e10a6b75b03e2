#include "jobs/program_words.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

static bool is_word_of(const char *name, const char *word, size_t length)
{
    for (const char *at = name; *at; at++) {
        bool begins = at == name || !isalnum((unsigned char)at[-1]);
        if (begins && !strncasecmp(at, word, length) && !isalnum((unsigned char)at[length]))
            return true;
    }
    return false;
}

bool program_has_word(const char *program, const char *words)
{
    const char *name = text_base_name(program);
    for (const char *word = words; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        if (is_word_of(name, word, length))
            return true;
        word += length;
    }
    return false;
}

const char *program_words_find(const char *program, const struct program_words *list)
{
    for (; list->words; list++)
        if (program_has_word(program, list->words))
            return list->what;
    return NULL;
}
