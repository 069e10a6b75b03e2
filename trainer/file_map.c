/* Files are mapped, not read, because data sets are larger than memory and a checkpoint is used once. */
#include "trainer/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int file_map_open(const char *path, const char *wanted, struct file_map *out, struct error *err)
{
    int result = -1;
    struct stat status;
    void *map = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return error_set(err, "cannot read %s: %s; give %s", path, strerror(errno), wanted);
    if (fstat(file, &status) || !S_ISREG(status.st_mode)) {
        error_set(err, "%s is not a regular file; give %s", path, wanted);
        goto close_file;
    }
    if (status.st_size)
        map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        error_set(err, "cannot map %s: %s; copy it to a local disk", path, strerror(errno));
        goto close_file;
    }
    *out = (struct file_map){map, status.st_size};
    result = 0;
close_file:
    close(file);
    return result;
}

void file_map_close(struct file_map *map)
{
    if (map->bytes)
        munmap((void *)map->bytes, (size_t)map->count);
    *map = (struct file_map){0};
}
