/* The safetensors format (github.com/huggingface/safetensors, "Format"): eight bytes of header length, a JSON header
 * that says each tensor's type, shape and place, then the numbers, one tensor right after the other. Checkpoints are
 * written in it, and the weights of public models are read from it. Little-endian machines only, as the format
 * itself. */
#ifndef MEMPLAN_TRAINER_SAFETENSORS_H
#define MEMPLAN_TRAINER_SAFETENSORS_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdint.h>

enum { SAFETENSORS_DIMS = 8 }; /* most dimensions of a tensor */

/* Writing: say everything first, then write the numbers at their places. */

struct safetensors_entry {
    const char *name;
    enum dtype dtype;
    int dim_count;
    int64_t dims[SAFETENSORS_DIMS]; /* each >= 0 */
};

struct safetensors_note { /* an entry of __metadata__ */
    const char *key, *value;
};

struct safetensors_writer;

/* Starts PATH.partial, writes the header and takes the file's full size; what is not written later is zero. The numbers start
 * on a multiple of 64 bytes. The lists are copied. *out is ended by safetensors_commit() or safetensors_abort(). */
int safetensors_create(const char *path, const struct safetensors_entry *entries, int entry_count,
                       const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                       struct error *err);
/* Bytes of entry `entry`, from its byte `first` on. */
int safetensors_write_at(struct safetensors_writer *writer, int entry, int64_t first, const void *bytes,
                         int64_t byte_count, struct error *err);
/* Makes the file appear under its name, whole and on the disk. Frees the writer in any case; on failure nothing half
 * made is left behind. */
int safetensors_commit(struct safetensors_writer *writer, struct error *err);
/* Gives up: removes PATH.partial, unless it is another's, and frees the writer. NULL is fine. */
void safetensors_abort(struct safetensors_writer *writer);

/* Several writers of one file, in processes of their own or not: one creates it, the others join, and everybody writes at
 * places; the others leave; the first commits. That all bytes were written is up to them. */

/* Opens the PATH.partial that another writer created, with the same lists. Ended by safetensors_leave() or
 * safetensors_abort(). */
int safetensors_join(const char *path, const struct safetensors_entry *entries, int entry_count,
                     const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                     struct error *err);
/* Brings to the disk what was written by this writer, which joined, and frees it in any case. */
int safetensors_leave(struct safetensors_writer *writer, struct error *err);

/* Reading: see the list, then read what is wanted. */

struct safetensors_tensor {
    const char *name;
    const char *dtype;     /* as the file spells it: "F32", "F16", ... */
    int64_t element_bytes; /* 0 when the dtype is one we have never heard of */
    int dim_count;
    int64_t dims[SAFETENSORS_DIMS];
    int64_t elements; /* the product of dims */
    int64_t bytes;
    const unsigned char *data; /* in the mapped file; may be misaligned for the dtype */
};

struct safetensors;

/* Maps the file and checks its whole header: after this, every tensor lies inside the file, on its own, with the
 * bytes that its shape needs. *out is owned by the caller: safetensors_close(). */
int safetensors_open(const char *path, struct safetensors **out, struct error *err);
void safetensors_close(struct safetensors *file); /* NULL is fine */

/* Tensors in the order of their data. They and their names live as long as the file is open. */
int64_t safetensors_count(const struct safetensors *file);
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int64_t index);
/* NULL when there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* Elements first .. first + count - 1 as floats, from F32, BF16, F16 or F64; any other dtype is an error. */
int safetensors_read_f32(const struct safetensors *file, const struct safetensors_tensor *tensor, int64_t first,
                         int64_t count, float *out, struct error *err);

#endif
