/* The answer of a command, in a file or on stdout ("-"). */
#ifndef MEMPLAN_CLI_OUTPUT_H
#define MEMPLAN_CLI_OUTPUT_H

#include "base/json.h"
#include "base/text.h"
#include "reports/ink_text.h"
#include "reports/report.h"

/* Takes the reference. */
int output_json(json_t *document, const char *path, struct error *err);
/* Frees the text. */
int output_text(struct text *text, const char *path, struct error *err);
/* For what goes to stdout. */
enum ink output_ink(void);
/* Blocks and bars fine on a terminal, ASCII elsewhere and where NO_COLOR is set. */
int output_report(const struct report *report, const char *path, struct error *err);

#endif
