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

#endif
