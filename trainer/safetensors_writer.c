/* The writing half of safetensors.h: the header first, then bytes at places, from one writer or several, all in a draft that
 * takes the file's place when it is complete. A draft that a crash left behind is as large as a checkpoint: its
 * name is fixed, so that the next one replaces it; and so that others find it. */
#include "trainer/safetensors.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, DATA_ALIGN = 64 };

static const char metadata_key[] = "__metadata__";

struct safetensors_writer {
    struct arena *arena;
    const char *path;
    struct file_draft draft;
    bool joined;          /* the draft is another writer's */
    char *header;         /* as it stands in the file; owned */
    int64_t header_bytes; /* the data begin there */
    int64_t total;        /* bytes of data */
    int entry_count;
    const char **names;
    int64_t *ends; /* where each entry's data end */
};

static int writer_plan(const char *path, const struct safetensors_entry *entries, int entry_count,
                       const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                       struct error *err);

static void writer_free(struct safetensors_writer *writer)
{
    free(writer->header);
    arena_free(writer->arena);
}

/* Says which draft could not be made, written or finished, and ends in errno's words. */
static int fail(const struct safetensors_writer *writer, const char *what, struct error *err)
{
    return error_set(err, "cannot write %s of %s: %s; free some space or choose another folder", what,
                     writer->draft.name, strerror(errno));
}

int safetensors_create(const char *path, const struct safetensors_entry *entries, int entry_count,
                       const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                       struct error *err)
{
    struct safetensors_writer *writer;
    if (writer_plan(path, entries, entry_count, notes, note_count, &writer, err))
        return -1;
    if (file_draft_open(&writer->draft, writer->path, ".partial")) {
        error_set(err, "cannot write %s: %s; choose a folder that exists and that you may write to",
                  writer->draft.name, strerror(errno));
        writer_free(writer);
        return -1;
    }
    if (file_write(writer->draft.file, writer->header, (size_t)writer->header_bytes)) {
        fail(writer, "the header", err);
        safetensors_abort(writer);
        return -1;
    }
    if (ftruncate(writer->draft.file, writer->header_bytes + writer->total)) {
        fail(writer, "the tensors", err);
        safetensors_abort(writer);
        return -1;
    }
    *out = writer;
    return 0;
}

/* Only ever opened for writing: a network file system then sends what was written and no more, so that writers on several
 * machines do not spoil each other's bytes of a page. For the same reason nothing is mapped. */
static int open_joined(struct safetensors_writer *writer, struct error *err)
{
    struct file_draft *draft = &writer->draft;
    struct stat info;
    snprintf(draft->name, sizeof draft->name, "%s.partial", writer->path);
    draft->file = open(draft->name, O_WRONLY | O_CLOEXEC);
    if (draft->file < 0)
        return error_set(err,
                         "cannot write %s, which another rank has made: %s; choose a folder that all ranks "
                         "share and may write to",
                         draft->name, strerror(errno));
    if (!fstat(draft->file, &info) && info.st_size == writer->header_bytes + writer->total)
        return 0;
    close(draft->file);
    return error_set(err,
                     "%s is not the file that another rank has made; choose a folder that all ranks share",
                     draft->name);
}

int safetensors_join(const char *path, const struct safetensors_entry *entries, int entry_count,
                     const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                     struct error *err)
{
    struct safetensors_writer *writer;
    if (writer_plan(path, entries, entry_count, notes, note_count, &writer, err))
        return -1;
    writer->joined = true;
    if (open_joined(writer, err)) {
        writer_free(writer);
        return -1;
    }
    *out = writer;
    return 0;
}

int safetensors_leave(struct safetensors_writer *writer, struct error *err)
{
    int status = fsync(writer->draft.file);
    if (status)
        fail(writer, "the tensors", err);
    if (close(writer->draft.file) && !status)
        status = fail(writer, "the tensors", err);
    writer_free(writer);
    return status;
}

/* pwrite() until all is written. */
static int write_at(int file, const char *bytes, int64_t count, int64_t place)
{
    for (int64_t done = 0; done < count;) {
        ssize_t wrote = pwrite(file, bytes + done, (size_t)(count - done), place + done);
        if (wrote >= 0)
            done += wrote;
        else if (errno != EINTR)
            return -1;
    }
    return 0;
}

int safetensors_write_at(struct safetensors_writer *writer, int entry, int64_t first, const void *bytes,
                         int64_t byte_count, struct error *err)
{
    int64_t begin = entry ? writer->ends[entry - 1] : 0;
    assert(entry >= 0 && entry < writer->entry_count && first >= 0);
    assert(byte_count <= writer->ends[entry] - begin - first);
    if (write_at(writer->draft.file, bytes, byte_count, writer->header_bytes + begin + first))
        return error_set(err, "cannot write tensor %s to %s: %s; free some space or choose another folder",
                         writer->names[entry], writer->draft.name, strerror(errno));
    return 0;
}

int safetensors_commit(struct safetensors_writer *writer, struct error *err)
{
    assert(!writer->joined);
    int result = file_draft_commit(&writer->draft);
    if (result)
        error_set(err, "cannot finish %s: %s; free some space or choose another folder", writer->path,
                  strerror(errno));
    writer_free(writer);
    return result;
}

void safetensors_abort(struct safetensors_writer *writer)
{
    if (!writer)
        return;
    if (writer->joined)
        close(writer->draft.file);
    else
        file_draft_abort(&writer->draft);
    writer_free(writer);
}

static int entry_bytes(const char *path, const struct safetensors_entry *entry, int64_t *bytes,
                       struct error *err)
{
    assert(entry->dim_count >= 0 && entry->dim_count <= SAFETENSORS_DIMS);
    *bytes = dtype_bytes(entry->dtype);
    for (int i = 0; i < entry->dim_count; i++)
        if (entry->dims[i] < 0 || !checked_mul(*bytes, entry->dims[i], bytes))
            return error_set(err, "%s: dimension %d of tensor %s cannot be %" PRId64 "; use a smaller model",
                             path, i, entry->name, entry->dims[i]);
    return 0;
}

static json_t *entry_describe(const struct safetensors_entry *entry, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    for (int i = 0; i < entry->dim_count; i++)
        json_array_append_new(shape, json_integer(entry->dims[i]));
    json_t *offsets = json_array();
    json_array_append_new(offsets, json_integer(begin));
    json_array_append_new(offsets, json_integer(end));
    json_t *tensor = json_object();
    json_object_set_new(tensor, "dtype", json_string(dtype_name(entry->dtype)));
    json_object_set_new(tensor, "shape", shape);
    json_object_set_new(tensor, "data_offsets", offsets);
    return tensor;
}

/* New reference: the header without notes. Also lays out the data in `writer`. */
static json_t *header_describe(struct safetensors_writer *writer, const struct safetensors_entry *entries,
                               struct error *err)
{
    json_t *header = json_object();
    for (int i = 0; i < writer->entry_count; i++) {
        const struct safetensors_entry *entry = &entries[i];
        int64_t begin = writer->total, bytes;
        if (entry_bytes(writer->path, entry, &bytes, err))
            goto failed;
        if (!checked_add(begin, bytes, &writer->total)) {
            error_set(err, "%s: its tensors have more than 2^63 bytes; use a smaller model", writer->path);
            goto failed;
        }
        if (json_object_get(header, entry->name) || !strcmp(entry->name, metadata_key) ||
            json_object_set_new(header, entry->name, entry_describe(entry, begin, writer->total))) {
            error_set(err,
                      "%s: a tensor cannot be called \"%s\"; use a name in UTF-8 that no other tensor has",
                      writer->path, entry->name);
            goto failed;
        }
        writer->names[i] = arena_strdup(writer->arena, entry->name);
        writer->ends[i] = writer->total;
    }
    return header;

failed:
    json_decref(header);
    return NULL;
}

static int header_add_notes(json_t *header, const struct safetensors_note *notes, int note_count,
                            struct error *err)
{
    if (!note_count)
        return 0;
    json_t *metadata = json_object();
    json_object_set_new(header, metadata_key, metadata);
    for (int i = 0; i < note_count; i++)
        if (json_object_set_new(metadata, notes[i].key, json_string(notes[i].value)))
            return error_set(err, "the note \"%s\" of a safetensors file is not UTF-8; write it in UTF-8",
                             notes[i].key);
    return 0;
}

/* Spaces after the JSON are part of the header: they put the data on a multiple of DATA_ALIGN. */
static void header_format(struct safetensors_writer *writer, const json_t *header)
{
    char *json = json_dumps(header, JSON_COMPACT);
    int64_t json_bytes = (int64_t)strlen(json);
    writer->header_bytes = round_up(LENGTH_BYTES + json_bytes, DATA_ALIGN);
    writer->header = host_alloc((size_t)writer->header_bytes);
    uint64_t length = (uint64_t)(writer->header_bytes - LENGTH_BYTES);
    memcpy(writer->header, &length, LENGTH_BYTES);
    memset(writer->header + LENGTH_BYTES, ' ', length);
    memcpy(writer->header + LENGTH_BYTES, json, (size_t)json_bytes);
    free(json);
}

/* A writer that knows its header, where everything goes, and no file yet. */
static int writer_plan(const char *path, const struct safetensors_entry *entries, int entry_count,
                       const struct safetensors_note *notes, int note_count, struct safetensors_writer **out,
                       struct error *err)
{
    struct arena *arena = arena_create();
    struct safetensors_writer *writer = arena_alloc(arena, sizeof *writer);
    writer->arena = arena;
    writer->path = arena_strdup(arena, path);
    writer->entry_count = entry_count;
    writer->names = arena_array(arena, (size_t)entry_count, sizeof *writer->names);
    writer->ends = arena_array(arena, (size_t)entry_count, sizeof *writer->ends);
    json_t *header = header_describe(writer, entries, err);
    int status = header && !header_add_notes(header, notes, note_count, err) ? 0 : -1;
    if (status) {
        arena_free(arena);
    } else {
        header_format(writer, header);
        *out = writer;
    }
    json_decref(header);
    return status;
}
