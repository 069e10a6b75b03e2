/* The head of a page: what it is about, the figures that matter most, and who holds the peak, as one bar. */
#ifndef MEMPLAN_REPORTS_HTML_HEADER_H
#define MEMPLAN_REPORTS_HTML_HEADER_H

#include "base/text.h"
#include "reports/document.h"

void html_header_add(const struct document *document, struct text *out);

#endif
