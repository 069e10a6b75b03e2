/* Runs every registered test (or those whose file or name contains argv[1]) and prints one line each, then the count. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_TESTS = 2048, REASON_BYTES = 200, TIME_LIMIT_S = 300 };

struct entry {
    const char *file, *sentence;
    const TTest *test;
    int loops;
};

/* Shared with the test processes, so that a skip in a child reaches the count. */
struct shared {
    int skips;
    char reason[REASON_BYTES];
};

static struct entry entries[MAX_TESTS];
static int entry_count;
static struct shared *shared;

void test_register(const char *file, const TTest *test, const char *sentence, int loops)
{
    if (entry_count == MAX_TESTS) {
        fprintf(stderr, "tests: more than %d tests; raise MAX_TESTS\n", MAX_TESTS);
        abort();
    }
    entries[entry_count++] = (struct entry){file, sentence, test, loops};
}

void test_skip(const char *reason)
{
    __atomic_add_fetch(&shared->skips, 1, __ATOMIC_SEQ_CST);
    snprintf(shared->reason, sizeof shared->reason, "%s", reason);
}

/* Failures print the place and the message; loops print once. */
static void run_entry(const struct entry *entry, int totals[3])
{
    Suite *suite = suite_create(entry->file);
    TCase *tcase = tcase_create(entry->test->name);
    tcase_set_timeout(tcase, TIME_LIMIT_S);
    tcase_add_loop_test(tcase, entry->test, 0, entry->loops);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, getenv("TEST_NO_FORK") ? CK_NOFORK : CK_FORK);
    shared->skips = 0;
    srunner_run_all(runner, CK_SILENT);
    int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner), skipped = shared->skips;
    printf("%s  %s: %s", failed ? "FAIL" : skipped ? "skip" : "ok  ", entry->test->name, entry->sentence);
    if (skipped)
        printf(" (%s)", shared->reason);
    printf("\n");
    if (failed) {
        TestResult **results = srunner_failures(runner);
        for (int i = 0; i < failed; i++)
            printf("      %s:%d: %s\n", tr_lfile(results[i]), tr_lno(results[i]), tr_msg(results[i]));
        free(results);
    }
    fflush(stdout);
    totals[0] += run - failed - skipped;
    totals[1] += failed;
    totals[2] += skipped;
    srunner_free(runner);
}

int main(int argc, char **argv)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("tests: mmap");
        return 2;
    }
    int totals[3] = {0};
    for (int i = 0; i < entry_count; i++) {
        const struct entry *entry = &entries[i];
        if (argc < 2 || strstr(entry->file, argv[1]) || strstr(entry->test->name, argv[1]))
            run_entry(entry, totals);
    }
    printf("%d passed, %d failed, %d skipped\n", totals[0], totals[1], totals[2]);
    return totals[1] || totals[0] + totals[2] == 0;
}
