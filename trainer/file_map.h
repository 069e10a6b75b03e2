/* A whole file as memory that is read only. */
#ifndef MEMPLAN_TRAINER_FILE_MAP_H
#define MEMPLAN_TRAINER_FILE_MAP_H

#include "base/error.h"

#include <stdint.h>

struct file_map {
    const unsigned char *bytes; /* NULL when the file is empty */
    int64_t count;
};

/* `wanted` ends the message when `path` is no file: "a .safetensors file". Ended by file_map_close(). */
int file_map_open(const char *path, const char *wanted, struct file_map *out, struct error *err);
void file_map_close(struct file_map *map); /* a zeroed one is fine */

#endif
