/* How many parameters a safetensors file has, by its header alone: the weights are not read. */
#ifndef MEMPLAN_JOBS_WEIGHTS_HEADER_H
#define MEMPLAN_JOBS_WEIGHTS_HEADER_H

#include "base/error.h"

#include <stdint.h>

struct weights_count {
    int64_t parameters, bytes;
    int tensors;
    char dtype[8]; /* of most parameters */
};

/* `path`: a .safetensors file, model.safetensors.index.json, or a folder with either. Adds up all files of an index. */
int weights_header_count(const char *path, struct weights_count *out, struct error *err);
/* Of a header's text. `file_bytes`: what the file holds behind it; -1: not known. */
int weights_header_parse(const char *text, int64_t length, const char *where, int64_t file_bytes,
                         struct weights_count *out, struct error *err);

#endif
