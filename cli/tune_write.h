/* The launch that a search found, as files: the script with its edits in their places, and the configuration files that change,
 * under new names, beside it. What was written is read and judged again before anybody is told that it is there. */
#ifndef MEMPLAN_CLI_TUNE_WRITE_H
#define MEMPLAN_CLI_TUNE_WRITE_H

#include "cli/tune_search.h"

enum { TUNE_FILES_MOST = 8 };

struct tune_written {
    const char *files[TUNE_FILES_MOST + 1]; /* the script first; NULL ends them. They live as long as the job's arena */
};

/* Fails where an edit has no place, where a file of another's would be replaced, and where what was written does not give what
 * was found, to the byte; then everything is as it was before. */
int tune_write(const struct tune_request *request, const struct tuned *found, const char *path, struct tune_written *out,
               struct error *err);

#endif
