#include "reports/writers.h"

#include <string.h>

static const struct writer *const writers[] = {
    &writer_text, &writer_html, &writer_svg, &writer_csv, &writer_trace, &writer_json,
};
enum { WRITERS = sizeof writers / sizeof *writers };

const struct writer *writer_find(const char *path, struct error *err)
{
    const struct writer *found = NULL;
    for (int i = 0; i < WRITERS; i++) {
        size_t suffix = strlen(writers[i]->suffix);
        if (text_ends_with(path, writers[i]->suffix) && strlen(path) > suffix &&
            (!found || suffix > strlen(found->suffix)))
            found = writers[i];
    }
    if (found)
        return found;
    struct text names = {0};
    for (int i = 0; i < WRITERS; i++)
        text_printf(&names, "%s%s (%s)", i ? ", " : "", writers[i]->suffix, writers[i]->what);
    error_set(err, "-o %s: its suffix names no format; choose one of %s", path, names.data);
    text_free(&names);
    return NULL;
}

static int write_text(const struct document *document, enum ink ink, struct text *out, struct error *err)
{
    (void)err;
    ink_text_report(document->summary, ink, out);
    return 0;
}

const struct writer writer_text = {".txt", "text", {.pictures = false}, write_text};
