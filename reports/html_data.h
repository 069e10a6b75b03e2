/* What the script of a page works with, as JSON in the page: memory over time with the tensors' lives, and what ranks did.
 * Numbers that follow each other are written as differences, which are short. reports/html/page.js reads it. */
#ifndef MEMPLAN_REPORTS_HTML_DATA_H
#define MEMPLAN_REPORTS_HTML_DATA_H

#include "base/text.h"
#include "reports/document.h"

/* An object with `words`, the names that all numbers in it refer to, and `memory` and `timeline`, each null where there is
 * none. */
void html_data_add(struct text *out, const struct document *document);

#endif
