/* Options of other training programs, for whoever types one at memplan: what memplan calls it, or that memplan has no such thing. */
#ifndef MEMPLAN_BASE_FOREIGN_WORDS_H
#define MEMPLAN_BASE_FOREIGN_WORDS_H

struct foreign_word {
    const char *word; /* without dashes: "tensor-model-parallel-size"; '_' counts as '-', and case does not */
    const char *ours; /* the option, with its value where the word says it: "tp", "precision bf16"; NULL: there is none */
    const char *said; /* of one without: what memplan does and does not; a whole clause */
};

/* NULL when the word is none of them. */
const struct foreign_word *foreign_words_find(const char *word);
/* What is said of a value that an option has not, such as 3 of --zero; NULL: nothing. */
const char *foreign_words_value(const char *option, const char *value);

#endif
