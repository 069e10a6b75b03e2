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

/* ---- options ---- */

static bool says_no(const char *value)
{
    static const char *const no[] = {"false", "no", "none", "0", "off", "null"};
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        if (!strcasecmp(value, no[i]))
            return true;
    return false;
}

static const char *unknown_part(const struct training_job *job)
{
    static const char words[] =
        "lora qlora peft dora adapter adapters bits quant quantize quantization quantized vision "
        "image video audio speech mm multimodal projector reward ref reference teacher student "
        "critic draft distill distillation freeze frozen unfreeze tune galore "
        "experts";
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *fact = &job->facts.list[i];
        if (fact->kind == FACT_UNKNOWN && !strncmp(fact->name, "--", 2) &&
            program_has_word(fact->name, words) && !says_no(fact->value))
            return fact->name;
    }
    return NULL;
}

void program_refuse_unknown(struct training_job *job)
{
    const char *part = unknown_part(job);
    if (part && !job->beyond)
        job->beyond = arena_printf(job->facts.arena, "what %.60s asks for", part);
}
