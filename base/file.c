/* Drafts of files. The order is what makes them safe: the bytes are on the disk before rename() shows them, and the
 * folder is on the disk before anybody is told. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_TRIES = 100 };

static int length_of_folder(const char *path);
static int open_unused(struct file_draft *draft);
static int folder_sync(const char *path);

int file_draft_open(struct file_draft *draft, const char *target, const char *suffix)
{
    draft->target = target;
    if (!suffix)
        return open_unused(draft);
    if (snprintf(draft->name, sizeof draft->name, "%s%s", target, suffix) >= (int)sizeof draft->name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    draft->file = open(draft->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return draft->file < 0 ? -1 : 0;
}

int file_draft_commit(struct file_draft *draft)
{
    int failed = fsync(draft->file) ? errno : 0;
    /* A network file system may report a full disk only now. */
    if (close(draft->file) && !failed)
        failed = errno;
    if (!failed && rename(draft->name, draft->target))
        failed = errno;
    if (failed) {
        unlink(draft->name);
        errno = failed;
        return -1;
    }
    return folder_sync(draft->target);
}

void file_draft_abort(struct file_draft *draft)
{
    int reason = errno;
    close(draft->file);
    unlink(draft->name);
    errno = reason;
}

int file_write(int file, const void *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t wrote = write(file, (const char *)bytes + done, count - done);
        if (wrote >= 0)
            done += (size_t)wrote;
        else if (errno != EINTR)
            return -1;
    }
    return 0;
}

/* With the slash that ends it; 0 for a bare name. */
static int length_of_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash + 1 - path) : 0;
}

/* Names carry the process and a counter, so that ranks and threads do not meet; one left by a crash is
 * stepped over. */
static int open_unused(struct file_draft *draft)
{
    static atomic_uint counter;
    for (int i = 0; i < NAME_TRIES; i++) {
        int length = snprintf(draft->name, sizeof draft->name, "%.*s.memplan-%ld-%u.tmp",
                              length_of_folder(draft->target), draft->target, (long)getpid(),
                              atomic_fetch_add(&counter, 1));
        if (length >= (int)sizeof draft->name) {
            errno = ENAMETOOLONG;
            return -1;
        }
        draft->file = open(draft->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (draft->file >= 0)
            return 0;
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

bool file_is_same(const char *one, const char *other)
{
    struct stat a, b;
    return !stat(one, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Makes a rename in the folder of `path` survive a power cut. Some network file systems cannot sync a folder:
 * EINVAL. */
static int folder_sync(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s.", length_of_folder(path), path);
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return -1;
    int failed = fsync(file) && errno != EINVAL ? errno : 0;
    close(file);
    errno = failed;
    return failed ? -1 : 0;
}
