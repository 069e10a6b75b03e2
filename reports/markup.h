/* Texts inside HTML, SVG and JSON. A recording may hold anything: what is no UTF-8 or would steer something becomes '?'. */
#ifndef MEMPLAN_REPORTS_MARKUP_H
#define MEMPLAN_REPORTS_MARKUP_H

#include "base/text.h"

#include <stdint.h>

/* As the content of an element, or of an attribute in either kind of quotes. NULL is "". */
void markup_add_text(struct text *out, const char *text);
/* <element class='class'>text</element>; class may be NULL. */
void markup_add_element(struct text *out, const char *element, const char *class, const char *text);
/* With quotes around it, safe inside <script>. NULL is null. */
void markup_add_json(struct text *out, const char *text);

/* Names that many rows share are written once: words are numbered in order of their first use. */
struct markup_words;
struct markup_words *markup_words_create(void);
void markup_words_free(struct markup_words *words);
/* The number of a word; NULL is the word "". Borrows it. */
int64_t markup_word(struct markup_words *words, const char *word);
/* ["qkv","forward",...] */
void markup_words_add(const struct markup_words *words, struct text *out);

#endif
