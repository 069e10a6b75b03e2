/* Settings changed in the text of a JSON or YAML file, where they stand: everything else stays as it was written, byte for
 * byte. The text need not be sound: a script may write the file, with variables in it. */
#ifndef MEMPLAN_JOBS_CONFIG_TEXT_H
#define MEMPLAN_JOBS_CONFIG_TEXT_H

#include "base/arena.h"
#include "base/error.h"
#include "jobs/job_edit.h"

#include <stddef.h>

/* Places of a text that are written otherwise. They are those of the text as it was, whatever is spliced first. */
struct splice {
    size_t from, to;
    const char *with;
};
enum { SPLICES_MOST = 96 };
struct splices {
    struct splice list[SPLICES_MOST];
    int count;
};
/* What is spliced into one place stays in this order. Texts are borrowed. */
int splices_add(struct splices *splices, size_t from, size_t to, const char *with, struct error *err);
/* The text with all of them, from the arena. */
char *splices_apply(const struct splices *splices, const char *text, struct arena *arena);

/* An edit of JSON (dots between nested keys) or YAML (the last part), in text[from, to). Fails where the key has no place. */
int config_text_json(const char *text, size_t from, size_t to, const struct job_edit *edit, struct arena *arena,
                     struct splices *out, struct error *err);
int config_text_yaml(const char *text, size_t from, size_t to, const struct job_edit *edit, struct arena *arena,
                     struct splices *out, struct error *err);

#endif
