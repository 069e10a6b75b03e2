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

/* The first that is set counts. Where none is, as in many containers, the terminal itself will know UTF-8. */
static bool locale_has_blocks(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *locale = getenv(names[i]);
        if (locale && *locale)
            return strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
    }
    return true;
}

enum ink output_ink(int file)
{
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");
    if (!isatty(file) || (plain && *plain) || !locale_has_blocks())
        return INK_ASCII;
    return terminal && *terminal && strcmp(terminal, "dumb") ? INK_COLOURS : INK_BLOCKS;
}

static enum ink choose_ink(const char *path)
{
    return strcmp(path, "-") ? INK_ASCII : output_ink(STDOUT_FILENO);
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
