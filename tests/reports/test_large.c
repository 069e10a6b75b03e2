/* Reports of a large recording: how long they take and how much memory, measured on the program itself. */
#include "tests/reports/large.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct cost {
    double seconds;   /* of the processor: other programs may keep it waiting */
    double megabytes; /* of memory */
    int64_t file_bytes;
};

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + 1e-6 * (double)time->tv_usec;
}

static struct cost run_report(const char *database, const char *out)
{
    struct cost cost = {0};
    struct rusage usage;
    struct stat file;
    int status;
    pid_t child = fork();
    ASSERT(child >= 0);
    if (child == 0) {
        execl(getenv("MEMPLAN"), "memplan", "report", database, "-q", "-o", out, (char *)NULL);
        _exit(127);
    }
    ASSERT(wait4(child, &status, 0, &usage) == child);
    ASSERT_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %d", out, status);
    cost.seconds = seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime);
    cost.megabytes = (double)usage.ru_maxrss / 1024;
    ASSERT_INT(stat(out, &file), 0);
    cost.file_bytes = file.st_size;
    return cost;
}

TEST_SLOW(
    report_large,
    "64 ranks, one of them with a million events, are text in under 1 s, a page in under 5 s and 10 MB, "
    "and never 500 MB of memory")
{
    static const struct {
        const char *name;
        double seconds;
        int64_t bytes;
    } limits[] = {{"out.txt", 1, 1 << 20},  {"out.json", 1, 1 << 20}, {"out.html", 5, 10000000},
                  {"out.svg", 10, 2 << 20}, {"out.csv", 10, 1 << 20}, {"out.trace.json", 10, 200 << 20}};
    char folder[64], database[128], out[128];
    if (!getenv("MEMPLAN"))
        SKIP("MEMPLAN names no program; make test sets it");
    scratch_open(folder);
    large_write(scratch_path(folder, "run.db", database));
    run_report(database, scratch_path(folder, "warm.txt", out));
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct cost cost = run_report(database, scratch_path(folder, limits[i].name, out));
        printf("      %-15s %.2f s, %.0f MiB, %.1f MB written\n", limits[i].name, cost.seconds,
               cost.megabytes, (double)cost.file_bytes / 1e6);
        ASSERT_MSG(cost.seconds < limits[i].seconds, "%s took %.2f s", limits[i].name, cost.seconds);
        ASSERT_MSG(cost.megabytes < 500, "%s took %.0f MiB", limits[i].name, cost.megabytes);
        ASSERT_MSG(cost.file_bytes < limits[i].bytes, "%s has %lld bytes", limits[i].name,
                   (long long)cost.file_bytes);
    }
    scratch_close(folder);
}
