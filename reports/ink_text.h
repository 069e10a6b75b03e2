/* Reports as plain text: 80 columns, two spaces of indent, no lines around anything. */
#ifndef MEMPLAN_REPORTS_INK_TEXT_H
#define MEMPLAN_REPORTS_INK_TEXT_H

#include "base/text.h"
#include "reports/report.h"

enum ink {
    INK_ASCII,  /* bars of '#': for files, pipes and NO_COLOR */
    INK_BLOCKS, /* bars of Unicode blocks, an eighth of a column fine: for terminals */
    INK_COLOURS, /* and headings in bold, bars of roles in their colours: for terminals that do more than write */
};

enum { INK_COLUMNS = 80 };

/* Appends. No line is longer than INK_COLUMNS (but for a single word that is) and none ends with a space. */
void ink_text_report(const struct report *report, enum ink ink, struct text *out);
/* A table alone, for what is no report. */
void ink_text_table(const struct table *table, enum ink ink, struct text *out);

/* Parts of such pages, for others that are text. */

/* Adds a bar for a share of 0 .. 1, of which the whole has so many columns; in blocks, one that is there shows. Returns the columns
 * that it takes. */
int ink_text_bar(struct text *out, double share, int columns, enum ink ink);
/* Adds the first `bytes` bytes of a text. A recording may hold anything: what could move a terminal's cursor is shown as '?'. */
void ink_text_foreign(struct text *out, const char *text, size_t bytes);

#endif
