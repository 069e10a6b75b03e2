/* Drafts of files: a target is never seen half written, and nothing is left beside it. */
#include "tests/test.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[40], target[64], partial[80];

static void folder_make(void)
{
    strcpy(folder, "/tmp/memplan-file-XXXXXX");
    ASSERT(mkdtemp(folder) != NULL);
    snprintf(target, sizeof target, "%s/plan", folder);
    snprintf(partial, sizeof partial, "%s.partial", target);
}

/* How many files there are, hidden ones included; removes them and the folder. */
static int folder_remove(void)
{
    char all[64];
    glob_t found;
    snprintf(all, sizeof all, "%s/{.[!.]*,*}", folder);
    int count = glob(all, GLOB_BRACE, NULL, &found) ? 0 : (int)found.gl_pathc;
    for (int i = 0; i < count; i++)
        unlink(found.gl_pathv[i]);
    globfree(&found);
    ASSERT_INT(rmdir(folder), 0);
    return count;
}

static void put(const char *path, const char *content)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ASSERT_INT(file_write(file, content, strlen(content)), 0);
    close(file);
}

static void assert_content(const char *path, const char *expected)
{
    char got[64] = "";
    int file = open(path, O_RDONLY);
    ASSERT(file >= 0 && read(file, got, sizeof got - 1) >= 0);
    close(file);
    ASSERT_STR(got, expected);
}

/* With a name of its own, and with a fixed one. */
static const char *const suffixes[] = {NULL, ".partial"};

TEST(file_commit, "a commit puts the new content in place of the old, which is whole until then")
{
    for (int i = 0; i < 2; i++) {
        struct file_draft draft;
        folder_make();
        put(target, "old");
        ASSERT_INT(file_draft_open(&draft, target, suffixes[i]), 0);
        ASSERT_INT(file_write(draft.file, "new ", 4), 0);
        assert_content(target, "old");
        ASSERT_INT(file_write(draft.file, "content", 7), 0);
        ASSERT_INT(file_draft_commit(&draft), 0);
        assert_content(target, "new content");
        ASSERT_INT(folder_remove(), 1);
    }
}

TEST(file_abort, "an abort leaves the old content, no draft, and the errno of what failed before")
{
    for (int i = 0; i < 2; i++) {
        struct file_draft draft;
        folder_make();
        put(target, "old");
        ASSERT_INT(file_draft_open(&draft, target, suffixes[i]), 0);
        ASSERT_INT(unlink(draft.name), 0); /* so that the abort's own unlink() fails */
        errno = ENOSPC;
        file_draft_abort(&draft);
        ASSERT_INT(errno, ENOSPC);
        assert_content(target, "old");
        ASSERT_INT(folder_remove(), 1);
    }
}

TEST(file_two_writers, "two drafts of one target do not meet, and the last commit stands")
{
    struct file_draft first, second;
    folder_make();
    ASSERT_INT(file_draft_open(&first, target, NULL), 0);
    ASSERT_INT(file_draft_open(&second, target, NULL), 0);
    ASSERT(strcmp(first.name, second.name) != 0);
    ASSERT_INT(file_write(second.file, "second", 6), 0);
    ASSERT_INT(file_write(first.file, "first", 5), 0);
    ASSERT_INT(file_draft_commit(&second), 0);
    ASSERT_INT(file_draft_commit(&first), 0);
    assert_content(target, "first");
    ASSERT_INT(folder_remove(), 1);
}

TEST(file_left_behind, "a draft with a fixed name replaces what a crash left under it")
{
    struct file_draft draft;
    folder_make();
    put(partial, "a long piece of something else");
    ASSERT_INT(file_draft_open(&draft, target, ".partial"), 0);
    ASSERT_STR(draft.name, partial);
    ASSERT_INT(file_write(draft.file, "new", 3), 0);
    ASSERT_INT(file_draft_commit(&draft), 0);
    assert_content(target, "new");
    ASSERT_INT(folder_remove(), 1);
}

TEST(file_cannot_commit, "where the target is a folder, the commit fails with a reason and leaves no draft")
{
    for (int i = 0; i < 2; i++) {
        struct file_draft draft;
        folder_make();
        ASSERT_INT(mkdir(target, 0777), 0);
        ASSERT_INT(file_draft_open(&draft, target, suffixes[i]), 0);
        ASSERT_INT(file_draft_commit(&draft), -1);
        ASSERT_INT(errno, EISDIR);
        ASSERT_INT(rmdir(target), 0);
        ASSERT_INT(folder_remove(), 0);
    }
}

TEST(file_nowhere, "a missing folder and a name too long are refused before anything is written")
{
    struct file_draft draft;
    char long_name[PATH_MAX + 10] = "/tmp/";
    memset(long_name + 5, 'n', PATH_MAX);
    for (int i = 0; i < 2; i++) {
        ASSERT_INT(file_draft_open(&draft, "/tmp/no-such-folder/plan", suffixes[i]), -1);
        ASSERT_INT(errno, ENOENT);
    }
    ASSERT_INT(file_draft_open(&draft, long_name, ".partial"), -1);
    ASSERT_INT(errno, ENAMETOOLONG);
    long_name[PATH_MAX] = '/';
    ASSERT_INT(file_draft_open(&draft, long_name, NULL), -1);
    ASSERT_INT(errno, ENAMETOOLONG);
}

TEST(file_write_limit, "a write that is cut short by a limit fails, and says why")
{
    struct rlimit before;
    struct file_draft draft;
    char bytes[100] = {0};
    folder_make();
    ASSERT_INT(file_draft_open(&draft, target, NULL), 0);
    getrlimit(RLIMIT_FSIZE, &before);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){60, before.rlim_max});
    int wrote = file_write(draft.file, bytes, sizeof bytes), reason = errno;
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    ASSERT_INT(wrote, -1);
    ASSERT_INT(reason, EFBIG);
    file_draft_abort(&draft);
    ASSERT_INT(folder_remove(), 0);
}

static void ignore(int number)
{
    (void)number;
}

/* Reads all that comes and exits with 0 when it was `expected` bytes counting 0, 1, ... 250, 0, ... */
static void read_slowly(int file, size_t expected)
{
    unsigned char piece[4096];
    size_t count = 0;
    for (ssize_t got; (got = read(file, piece, sizeof piece)) > 0;) {
        for (ssize_t i = 0; i < got; i++)
            if (piece[i] != (count + (size_t)i) % 251)
                _exit(1);
        count += (size_t)got;
        usleep(200);
    }
    _exit(count == expected ? 0 : 2);
}

/* A pipe takes 64 KiB; a reader that is slower than the writer, and a timer of which each tick ends a call, make short
 * writes and EINTR happen. */
TEST(file_write_interrupted, "every byte arrives once, whatever interrupts the calls")
{
    enum { BYTES = 1 << 20 };
    unsigned char *bytes = malloc(BYTES);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i % 251);
    int ends[2], status;
    ASSERT_INT(pipe(ends), 0);
    pid_t reader = fork();
    if (reader == 0) {
        close(ends[1]);
        read_slowly(ends[0], BYTES);
    }
    close(ends[0]);
    const struct sigaction action = {.sa_handler = ignore}; /* no SA_RESTART */
    struct sigaction before;
    ASSERT_INT(sigaction(SIGALRM, &action, &before), 0);
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    int wrote = file_write(ends[1], bytes, BYTES);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    close(ends[1]);
    ASSERT_INT(wrote, 0);
    ASSERT(waitpid(reader, &status, 0) == reader && WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
    free(bytes);
}
