/* Files that appear whole or not at all: a draft is written under another name beside its target, and takes the target's
 * place when the last byte is on the disk. What fails returns -1 with errno; the words are the caller's, who knows what
 * the file is for. */
#ifndef MEMPLAN_BASE_FILE_H
#define MEMPLAN_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct file_draft {
    int file;
    const char *target; /* borrowed until the end */
    char name[PATH_MAX];
};

/* Starts a draft of `target`, with nothing in it. Named TARGET + `suffix`, it replaces what a crash left behind under
 * that name; with NULL its name is its own, so that writers of one target do not meet. Ended by file_draft_commit() or
 * file_draft_abort(). */
int file_draft_open(struct file_draft *draft, const char *target, const char *suffix);
/* On failure the draft is gone and the target as it was; except that a disk which cannot promise to remember the new
 * name is a failure too, with the target replaced. */
int file_draft_commit(struct file_draft *draft);
/* Keeps errno, so that it can follow the call that failed. */
void file_draft_abort(struct file_draft *draft);

/* All of the bytes, however many calls that takes. */
int file_write(int file, const void *bytes, size_t count);

/* Do both names lead to one file, or folder, that is there? */
bool file_is_same(const char *one, const char *other);

#endif
