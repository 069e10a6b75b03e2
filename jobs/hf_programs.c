#include "jobs/hf_programs.h"

#include "jobs/program_words.h"

#include <string.h>

/* Of transformers' examples and TRL's scripts, by words of their names. */
static const struct program_words others[] = {
    {"dpo grpo kto orpo cpo ppo rloo gkd nash bco prm xpo ipo simpo rlhf reward rm reinforce minillm distill "
     "distillation",
     "training that compares or rewards answers, or learns from another model"},
    {"vlm vision clip blip llava image images mae mim vit vqa segmentation detection multimodal",
     "training that sees images"},
    {"speech audio wav2vec2 whisper ctc", "training that hears"},
    {"summarization translation seq2seq t5 bart", "training of an encoder with a decoder"},
    {"plm qa squad ner swag token", "training of another head than a language model's"},
    {0},
};

static const char sequence_heads[] = "glue xnli classification";
static const char language[] = "clm mlm fim";
static const char supervised[] = "sft trl";

enum hf_program hf_program_kind(const char *program, const char **what)
{
    const char *other = program_words_find(program, others);
    if (what)
        *what = other;
    return other                                       ? HF_OTHER
           : program_has_word(program, supervised)     ? HF_TRL
           : program_has_word(program, language)       ? HF_LANGUAGE
           : program_has_word(program, sequence_heads) ? HF_CLASSIFIES
                                                       : HF_UNKNOWN;
}

bool hf_program_adapts(const char *program)
{
    return program_has_word(program, "lora qlora peft");
}
