/* The formats. Each is one file, ink_NAME.c, that turns a document into text and defines a struct writer; the list in
 * writers.c has a line for each. A file's suffix chooses. */
#ifndef MEMPLAN_REPORTS_WRITERS_H
#define MEMPLAN_REPORTS_WRITERS_H

#include "base/text.h"
#include "reports/document.h"
#include "reports/ink_text.h"

struct writer {
    const char *suffix; /* ".html" */
    const char *what;   /* for help: "a page with pictures" */
    struct document_needs needs;
    /* Appends. Fails when the document has nothing that this format could show. `ink` is for those that are read in a
     * terminal. */
    int (*write)(const struct document *document, enum ink ink, struct text *out, struct error *err);
};

extern const struct writer writer_text, writer_json, writer_html, writer_svg, writer_csv, writer_trace;

/* By the suffix of a file's name, the longest that it has; NULL: no format has it, and *err names those there are. */
const struct writer *writer_find(const char *path, struct error *err);

#endif
