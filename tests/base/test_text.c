/* Growing strings, and files that are written whole or not at all: on a full disk, through links, to pipes
 * and devices. */
#include "tests/test.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/memplan-text-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[PATH_MAX];
    if (strstr(folder, "XXXXXX"))
        ASSERT(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The next test makes a new one. */
static void remove_folder(void)
{
    rmdir(folder);
    memcpy(strrchr(folder, '-'), "-XXXXXX", sizeof "-XXXXXX");
}

/* How many files the folder holds: a left-over temporary shows here. Removes them all. */
static int empty_folder(void)
{
    DIR *files = opendir(folder);
    ASSERT(files != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(files));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            unlinkat(dirfd(files), entry->d_name, 0);
            count++;
        }
    closedir(files);
    remove_folder();
    return count;
}

static void assert_content(const char *path, const char *expected)
{
    struct error err = {0};
    char *data;
    size_t length;
    ASSERT_OK(text_read_file(path, 1 << 20, &data, &length, &err));
    ASSERT_STR(data, expected);
    ASSERT_INT(length, strlen(expected));
    free(data);
}

static void write_string(const char *path, const char *content)
{
    struct error err = {0};
    struct text text = {0};
    text_add(&text, content);
    ASSERT_OK(text_write(&text, path, &err));
    text_free(&text);
}

/* `bytes` letters, more than a full disk takes. */
static struct text long_text(size_t bytes)
{
    struct text text = {0};
    while (text.length < bytes)
        text_add(&text, "0123456789abcdef");
    return text;
}

TEST(text_grows, "pieces are joined, whatever their number and length")
{
    struct text text = {0};
    ASSERT(text.data == NULL);
    text_add(&text, "");
    ASSERT_STR(text.data, "");
    for (int i = 0; i < 5000; i++)
        text_printf(&text, "%d,", i);
    /* 10 one-digit, 90 two-digit, 900 three-digit and 4000 four-digit numbers, each with a comma */
    ASSERT_INT(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 4000 * 5);
    ASSERT_INT(strlen(text.data), text.length);
    ASSERT_STR(text.data + text.length - 10, "4998,4999,");
    text_free(&text);
    ASSERT(text.data == NULL && text.length == 0 && text.room == 0);
    text_printf(&text, "%s %d", "again", 1);
    ASSERT_STR(text.data, "again 1");
    text_free(&text);
}

TEST(text_write_then_read, "a file reads back as it was written, and no temporary stays behind")
{
    const char *path = in_folder("plan.json");
    write_string(path, "first");
    assert_content(path, "first");
    write_string(path, "second, longer than the first");
    assert_content(path, "second, longer than the first");
    write_string(path, "");
    assert_content(path, "");
    ASSERT_INT(empty_folder(), 1);
}

TEST(text_write_empty, "a text that nothing was added to makes an empty file")
{
    struct error err = {0};
    const char *path = in_folder("empty");
    ASSERT_OK(text_write(&(struct text){0}, path, &err));
    assert_content(path, "");
    ASSERT_INT(empty_folder(), 1);
}

TEST(text_write_here, "a name without a folder is written to the current one")
{
    in_folder("");
    char before[PATH_MAX];
    ASSERT(getcwd(before, sizeof before) != NULL);
    ASSERT(chdir(folder) == 0);
    write_string("bare", "here");
    assert_content("bare", "here");
    ASSERT(chdir(before) == 0);
    ASSERT_INT(empty_folder(), 1);
}

TEST(text_write_permissions, "new files follow the umask; replaced ones keep their permissions")
{
    const char *path = in_folder("mode");
    mode_t before = umask(027);
    write_string(path, "new");
    umask(before);
    struct stat status;
    ASSERT(stat(path, &status) == 0);
    ASSERT_INT(status.st_mode & 07777, 0640); /* 0666 & ~027 */
    ASSERT(chmod(path, 0604) == 0);
    write_string(path, "newer");
    ASSERT(stat(path, &status) == 0);
    ASSERT_INT(status.st_mode & 07777, 0604);
    empty_folder();
}

TEST(text_write_symlink, "a symbolic link stays a link and the file behind it changes")
{
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s", in_folder("file"));
    write_string(file, "old");
    const char *link_path = in_folder("link");
    ASSERT(symlink("file", link_path) == 0);
    write_string(link_path, "new");
    struct stat status;
    ASSERT(lstat(link_path, &status) == 0 && S_ISLNK(status.st_mode));
    assert_content(file, "new");
    ASSERT_INT(empty_folder(), 2);
}

TEST(text_write_full, "a write cut short by a limit leaves the old file whole and no temporary")
{
    struct error err = {0};
    const char *path = in_folder("run.json");
    write_string(path, "the old content");
    struct text text = long_text(64 * 1024);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, before.rlim_max});
    int wrote = text_write(&text, path, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    text_free(&text);
    ASSERT_INT(wrote, -1);
    ASSERT_INT(err.kind, ERROR_INPUT);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, "free some space");
    assert_content(path, "the old content");
    ASSERT_INT(empty_folder(), 1);
}

/* Puts a file system of 32 KiB on the folder, in a mount name space of this process. */
static bool mount_small(void)
{
    return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("tmpfs", folder, "tmpfs", 0, "size=32k");
}

/* What the child found: 0 as it should be, 1 cannot run, more: what went wrong. */
static int write_to_full_disk(const char *path)
{
    if (!mount_small())
        return 1;
    struct error err = {0};
    struct text small = {0}, large = long_text(256 * 1024);
    text_add(&small, "the old content");
    if (text_write(&small, path, &err))
        return 2;
    if (text_write(&large, path, &err) != -1 || !strstr(err.text, "No space left on device; free some space"))
        return 3;
    char *data;
    size_t length;
    if (text_read_file(path, 1 << 20, &data, &length, &err) || strcmp(data, "the old content"))
        return 4;
    free(data);
    text_free(&small);
    text_free(&large);
    return empty_folder() == 1 ? 0 : 5;
}

TEST(text_write_full_disk, "a full disk leaves the old file whole and no temporary")
{
    const char *path = in_folder("run.json");
    pid_t child = fork();
    if (child == 0)
        _exit(write_to_full_disk(path));
    int status;
    ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    remove_folder();
    if (WEXITSTATUS(status) == 1)
        SKIP("may not mount a small file system here");
    ASSERT_INT(WEXITSTATUS(status), 0);
}

TEST(text_write_database, "a database is never replaced")
{
    struct error err = {0};
    struct text text = {0};
    char *kept;
    size_t length;
    FILE *file = fopen(in_folder("run.db"), "w");
    ASSERT(file && fwrite("SQLite format 3\0and pages", 1, 25, file) == 25 && !fclose(file));
    text_add(&text, "{}");
    ASSERT_INT(text_write(&text, in_folder("run.db"), &err), -1);
    ASSERT_HAS(err.text, "a database stands there, with what was recorded; name another file");
    ASSERT_OK(text_read_file(in_folder("run.db"), 100, &kept, &length, &err));
    ASSERT_INT(length, 25);
    free(kept);
    remove_folder();
    text_free(&text);
}

TEST(text_write_device, "a device is written to, not replaced, and a full one is an error")
{
    struct error err = {0};
    struct text text = {0};
    text_add(&text, "x");
    ASSERT_OK(text_write(&text, "/dev/null", &err));
    struct stat status;
    ASSERT(stat("/dev/null", &status) == 0 && S_ISCHR(status.st_mode));
    ASSERT_INT(text_write(&text, "/dev/full", &err), -1);
    ASSERT_STR(err.text, "cannot write /dev/full: No space left on device; free some space");
    text_free(&text);
}

TEST(text_write_nowhere,
     "a missing folder, a folder itself and a name too long are errors that name the path")
{
    struct error err = {0};
    struct text text = {0};
    text_add(&text, "x");
    ASSERT_INT(text_write(&text, "/no/such/folder/plan.json", &err), -1);
    ASSERT_STR(err.text, "cannot write /no/such/folder/plan.json: No such file or directory; check the path");
    ASSERT_INT(text_write(&text, "/tmp", &err), -1);
    ASSERT_STR(err.text, "cannot write /tmp: it is a folder; name a file in it");
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ASSERT_INT(text_write(&text, in_folder(name), &err), -1);
    ASSERT_HAS(err.text, "File name too long");
    ASSERT_INT(text_write(&text, "", &err), -1);
    ASSERT_INT(empty_folder(), 0);
    text_free(&text);
}

/* Writes "late" to a standard output that is `file`, after "early" went through stdio. */
static int write_to_stdout(int file, struct error *err)
{
    struct text text = {0};
    text_add(&text, "late");
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    if (file < 0)
        close(STDOUT_FILENO);
    else
        dup2(file, STDOUT_FILENO);
    fputs("early ", stdout);
    int wrote = text_write(&text, "-", err);
    dup2(before, STDOUT_FILENO);
    close(before);
    clearerr(stdout);
    text_free(&text);
    return wrote;
}

TEST(text_write_stdout, "standard output gets what stdio held back first, then the text")
{
    struct error err = {0};
    int ends[2];
    ASSERT(pipe(ends) == 0);
    ASSERT_OK(write_to_stdout(ends[1], &err));
    char got[64] = "";
    ASSERT_INT(read(ends[0], got, sizeof got - 1), 10);
    ASSERT_STR(got, "early late");
    close(ends[0]);
    close(ends[1]);
}

TEST(text_write_stdout_full, "a full standard output is an error")
{
    struct error err = {0};
    int full = open("/dev/full", O_WRONLY);
    ASSERT(full >= 0);
    ASSERT_INT(write_to_stdout(full, &err), -1);
    ASSERT_STR(err.text, "cannot write standard output: No space left on device; free some space");
    close(full);
}

TEST(text_write_stdout_closed, "a closed standard output is an error")
{
    struct error err = {0};
    ASSERT_INT(write_to_stdout(-1, &err), -1);
    ASSERT_HAS(err.text, "cannot write standard output: Bad file descriptor");
}

TEST(text_write_stdout_pipe, "a reader that has gone is an error, not the end of the process")
{
    struct error err = {0};
    int ends[2];
    ASSERT(pipe(ends) == 0);
    close(ends[0]);
    void (*handler)(int) = signal(SIGPIPE, SIG_DFL);
    ASSERT_INT(write_to_stdout(ends[1], &err), -1);
    ASSERT_STR(err.text, "cannot write standard output: Broken pipe; its reader has gone");
    /* The signal was taken away and is not blocked: nothing is left for the caller. */
    sigset_t set;
    sigpending(&set);
    ASSERT(!sigismember(&set, SIGPIPE));
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ASSERT(!sigismember(&set, SIGPIPE));
    signal(SIGPIPE, handler);
    close(ends[1]);
}

TEST(text_write_fifo, "a named pipe is written to, and stays a pipe")
{
    struct error err = {0};
    struct text text = {0};
    text_add(&text, "through");
    const char *path = in_folder("fifo");
    ASSERT(mkfifo(path, 0600) == 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    ASSERT(reader >= 0);
    ASSERT_OK(text_write(&text, path, &err));
    char got[16] = "";
    ASSERT_INT(read(reader, got, sizeof got - 1), 7);
    ASSERT_STR(got, "through");
    struct stat status;
    ASSERT(stat(path, &status) == 0 && S_ISFIFO(status.st_mode));
    close(reader);
    text_free(&text);
    ASSERT_INT(empty_folder(), 1);
}

TEST(text_read_limit, "a file of exactly the limit is read, one byte more is refused")
{
    struct error err = {0};
    char *data;
    size_t length;
    const char *path = in_folder("ten");
    write_string(path, "0123456789");
    ASSERT_OK(text_read_file(path, 10, &data, &length, &err));
    ASSERT_INT(length, 10);
    free(data);
    data = NULL;
    ASSERT_INT(text_read_file(path, 9, &data, &length, &err), -1);
    ASSERT(data == NULL);
    ASSERT_HAS(err.text, path);
    ASSERT_HAS(err.text, "larger than 9 bytes");
    empty_folder();
}

TEST(text_read_large, "a file larger than one read comes back whole, NUL bytes included")
{
    struct error err = {0};
    struct text text = long_text(300000);
    text.data[1000] = '\0';
    const char *path = in_folder("large");
    ASSERT_OK(text_write(&text, path, &err));
    char *data;
    size_t length;
    ASSERT_OK(text_read_file(path, SIZE_MAX, &data, &length, &err));
    ASSERT_INT(length, text.length);
    ASSERT(memcmp(data, text.data, length + 1) == 0);
    free(data);
    text_free(&text);
    empty_folder();
}

TEST(text_read_missing, "a missing file and a folder are errors that name the path")
{
    struct error err = {0};
    char *data;
    size_t length;
    ASSERT_INT(text_read_file("/no/such/file", 10, &data, &length, &err), -1);
    ASSERT_STR(err.text, "cannot read /no/such/file: No such file or directory; check the path");
    ASSERT_INT(text_read_file("/tmp", 10, &data, &length, &err), -1);
    ASSERT_STR(err.text, "cannot read /tmp: Is a directory; check the path");
    ASSERT_INT(text_read_file("", 10, &data, &length, &err), -1);
    ASSERT_STR(err.text, "cannot read a file without a name; give its path");
    ASSERT_INT(text_write(&(struct text){0}, "", &err), -1);
    ASSERT_STR(err.text, "cannot write a file without a name; give its path");
}

TEST(text_names_apart,
     "two paths are told apart by their base names, or by all of them where those are the same")
{
    const char *const others[] = {"runs/a.db", "b.db"}, *const alike[] = {"old/a.db", "new/a.db"};
    ASSERT_STR(text_name_apart(others, 0), "a.db");
    ASSERT_STR(text_name_apart(others, 1), "b.db");
    ASSERT_STR(text_name_apart(alike, 0), "old/a.db");
    ASSERT_STR(text_name_apart(alike, 1), "new/a.db");
}
