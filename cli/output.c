#include "cli/output.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int output_json(json_t *document, const char *path, struct error *err)
{
    progress_unwatch();
    int status = jsonfile_write(document, path, err);
    json_decref(document);
    return status;
}

int output_text(struct text *text, const char *path, struct error *err)
{
    progress_unwatch();
    int status = text_write(text, path, err);
    text_free(text);
    return status;
}

static enum ink choose_ink(const char *path)
{
    bool terminal = !strcmp(path, "-") && isatty(STDOUT_FILENO);
    return terminal && !getenv("NO_COLOR") ? INK_BLOCKS : INK_ASCII;
}

int output_report(const struct report *report, const char *path, struct error *err)
{
    struct text out = {0};
    ink_text_report(report, choose_ink(path), &out);
    return output_text(&out, path, err);
}

int output_choose(const char *path, bool json, struct output_choice *out, struct error *err)
{
    *out = (struct output_choice){json ? &writer_json : &writer_text, path ? path : "-"};
    if (strcmp(out->path, "-") != 0)
        out->writer = writer_find(path, err);
    return out->writer ? 0 : -1;
}

int output_document(const struct document *document, const struct output_choice *choice, struct error *err)
{
    struct text out = {0};
    if (choice->writer->write(document, choose_ink(choice->path), &out, err)) {
        text_free(&out);
        return -1;
    }
    return output_text(&out, choice->path, err);
}
