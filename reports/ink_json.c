/* A report as one JSON document: the breakdown, the comparison, or another answer, exact to the byte. */
#include "reports/writers.h"

static int write_json(const struct document *document, enum ink ink, struct text *out, struct error *err)
{
    (void)ink, (void)err;
    json_t *object = document->answer       ? json_deep_copy(document->answer)
                     : document->comparison ? compare_to_json(document->comparison)
                                            : breakdown_to_json(&document->breakdown);
    jsonfile_print(object, out);
    json_decref(object);
    return 0;
}

const struct writer writer_json = {".json", "JSON", {.pictures = false}, write_json};
