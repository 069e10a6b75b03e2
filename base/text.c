/* Growing strings, and whole files of text. What may be replaced is written as a draft (base/file.h); links, pipes
 * and standard output need ways of their own. */
#include "base/text.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_ROOM = 256, READ_BYTES = 64 * 1024 };

/* Room for `more` characters and the NUL behind them. */
static void text_reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (needed <= text->room)
        return;
    size_t room = text->room ? text->room : FIRST_ROOM;
    while (room < needed)
        room *= 2;
    text->data = host_resize(text->data, room);
    text->room = room;
}

void text_add(struct text *text, const char *piece)
{
    size_t length = strlen(piece);
    text_reserve(text, length);
    memcpy(text->data + text->length, piece, length + 1);
    text->length += length;
}

void text_printf(struct text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text_reserve(text, (size_t)length);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

void text_free(struct text *text)
{
    free(text->data);
    *text = (struct text){0};
}

static const char *way_out(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return "free some space";
    case EACCES:
    case EPERM:
    case EROFS:
        return "choose a place that you may write to";
    case EPIPE:
        return "its reader has gone";
    default:
        return "check the path";
    }
}

static int write_failed(const char *path, struct error *err)
{
    if (!*path)
        return error_set(err, "cannot write a file without a name; give its path");
    return error_set(err, "cannot write %s: %s; %s", path, strerror(errno), way_out(errno));
}

/* To a file that may be a pipe; -1 with errno. A reader that went away (`memplan ... | head -1`) sends
 * SIGPIPE, which would end the process before it could say so. The signal is held back for this thread,
 * and taken away if this write raised it, so that the caller's handling stays as it is. What `stdio` (or
 * NULL) still holds goes first, to keep the order; what it lost earlier counts too. */
static int write_to_reader(FILE *stdio, int file, const struct text *text)
{
    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    int failed = (stdio && fflush(stdio)) || file_write(file, text->data, text->length) ? errno : 0;
    if (!failed && stdio && ferror(stdio))
        failed = EIO;
    if (failed == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return failed ? -1 : 0;
}

/* Devices and pipes (/dev/null, /dev/stderr, a shell's >(...)) must be written to, never replaced. */
static int write_through(const struct text *text, const char *path, struct error *err)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return write_failed(path, err);
    int failed = write_to_reader(NULL, file, text) ? errno : 0;
    if (close(file) && !failed)
        failed = errno;
    errno = failed;
    return failed ? write_failed(path, err) : 0;
}

/* `old` is what stands at `target` now, or NULL: its permissions stay. -1 with errno. */
static int replace(const struct text *text, const char *target, const struct stat *old)
{
    struct file_draft draft;
    if (file_draft_open(&draft, target, NULL))
        return -1;
    if (file_write(draft.file, text->data, text->length) ||
        (old && fchmod(draft.file, old->st_mode & 07777))) {
        file_draft_abort(&draft);
        return -1;
    }
    return file_draft_commit(&draft);
}

/* What was recorded cannot be had again, and no text belongs in its place. */
static bool is_database(const char *path)
{
    static const char first[] = "SQLite format 3"; /* with the NUL: the first 16 bytes of its format */
    char found[sizeof first];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool is =
        file >= 0 && read(file, found, sizeof found) == sizeof found && !memcmp(found, first, sizeof found);
    if (file >= 0)
        close(file);
    return is;
}

bool text_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), size = strlen(end);
    return length >= size && !strcmp(text + length - size, end);
}

const char *text_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *text_name_apart(const char *const paths[2], int which)
{
    const char *name = text_base_name(paths[which]);
    return strcmp(name, text_base_name(paths[!which])) ? name : paths[which];
}

int text_write(const struct text *text, const char *path, struct error *err)
{
    if (!strcmp(path, "-"))
        return write_to_reader(stdout, STDOUT_FILENO, text) ? write_failed("standard output", err) : 0;
    struct stat old;
    if (stat(path, &old)) {
        if (errno != ENOENT || replace(text, path, NULL))
            return write_failed(path, err);
        return 0;
    }
    if (S_ISDIR(old.st_mode))
        return error_set(err, "cannot write %s: it is a folder; name a file in it", path);
    if (!S_ISREG(old.st_mode))
        return write_through(text, path, err);
    if (is_database(path))
        return error_set(
            err, "cannot write %s: a database stands there, with what was recorded; name another file", path);
    /* A symbolic link stays one: the file behind it is replaced. */
    char target[PATH_MAX];
    if (!realpath(path, target) || access(target, W_OK) || replace(text, target, &old))
        return write_failed(path, err);
    return 0;
}

static int read_failed(const char *path, struct error *err)
{
    if (!*path)
        return error_set(err, "cannot read a file without a name; give its path");
    return error_set(err, "cannot read %s: %s; check the path", path, strerror(errno));
}

/* Grows as it reads, because pipes have no size to ask for. */
int text_read_file(const char *path, size_t limit, char **data, size_t *length, struct error *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return read_failed(path, err);
    struct text text = {0};
    for (;;) {
        text_reserve(&text, READ_BYTES);
        ssize_t got = read(file, text.data + text.length, READ_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            read_failed(path, err);
            goto fail;
        }
        if (got == 0)
            break;
        text.length += (size_t)got;
        if (text.length > limit) {
            error_set(err, "cannot read %s: it is larger than %zu bytes; is it the right file?", path, limit);
            goto fail;
        }
    }
    close(file);
    text.data[text.length] = '\0';
    *data = text.data;
    *length = text.length;
    return 0;

fail:
    text_free(&text);
    close(file);
    return -1;
}
