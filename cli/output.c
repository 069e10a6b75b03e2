#include "cli/output.h"

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

enum ink output_ink(void)
{
    return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") ? INK_BLOCKS : INK_ASCII;
}

int output_report(const struct report *report, const char *path, struct error *err)
{
    struct text out = {0};
    ink_text_report(report, strcmp(path, "-") ? INK_ASCII : output_ink(), &out);
    return output_text(&out, path, err);
}
