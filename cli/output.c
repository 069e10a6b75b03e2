#include "cli/output.h"

#include "reports/ink_text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int output_json(json_t *document, const char *path, struct error *err)
{
    int status = jsonfile_write(document, path, err);
    json_decref(document);
    return status;
}

int output_text(struct text *text, const char *path, struct error *err)
{
    int status = text_write(text, path, err);
    text_free(text);
    return status;
}

int output_report(const struct report *report, const char *path, struct error *err)
{
    struct text out = {0};
    bool terminal = !strcmp(path, "-") && isatty(STDOUT_FILENO);
    ink_text_report(report, terminal && !getenv("NO_COLOR") ? INK_BLOCKS : INK_ASCII, &out);
    return output_text(&out, path, err);
}
