/* The answer of a command, in a file or on stdout ("-"). With it the work ends that a progress line watched: both may be on one
 * terminal. */
#ifndef MEMPLAN_CLI_OUTPUT_H
#define MEMPLAN_CLI_OUTPUT_H

#include "base/json.h"
#include "base/text.h"
#include "reports/ink_text.h"
#include "reports/report.h"
#include "reports/writers.h"

/* What a file descriptor may be written with: ASCII where it is no terminal, where NO_COLOR is set, and where the locale names
 * other characters than those of UTF-8; else blocks, and colours unless TERM says that there are none. */
enum ink output_ink(int file);
/* Takes the reference. */
int output_json(json_t *document, const char *path, struct error *err);
/* Frees the text. */
int output_text(struct text *text, const char *path, struct error *err);
int output_report(const struct report *report, const char *path, struct error *err);

/* What an answer is written as, and where: -o's suffix, --json, or text. */
struct output_choice {
    const struct writer *writer;
    const char *path;
};

/* `path` is that of -o, or NULL. */
int output_choose(const char *path, bool json, struct output_choice *out, struct error *err);
int output_document(const struct document *document, const struct output_choice *choice, struct error *err);

#endif
