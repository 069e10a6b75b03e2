#include "cli/output.h"

#include "base/text.h"
#include "reports/ink_text.h"

#include <stdlib.h>
#include <unistd.h>

int output_json(json_t *document, struct error *err)
{
    int status = jsonfile_write(document, "-", err);
    json_decref(document);
    return status;
}

int output_report(const struct report *report, struct error *err)
{
    struct text out = {0};
    ink_text_report(report, isatty(STDOUT_FILENO) && !getenv("NO_COLOR") ? INK_BLOCKS : INK_ASCII, &out);
    int status = text_write(&out, "-", err);
    text_free(&out);
    return status;
}
