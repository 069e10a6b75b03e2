/* Runs the registered tests, several at a time, and prints a line for each in a fixed order, then the count.
 *
 *     run-tests [--list] [--quick] [--jobs N] [FILTER...]     FILTER is a piece of a file's or a test's name
 *
 * Each test has a worker process that reports into a file of its own; below it, Check forks again for every run of the
 * body, so that a crash or an endless loop costs one test. TEST_NO_FORK=1 runs all in one process, for a debugger. */
#include "base/clock.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TESTS = 4096, MAX_AHEAD = 200, REASON_BYTES = 200, TIME_LIMIT_S = 300 };

struct entry {
    const char *file, *sentence;
    const TTest *test;
    int loops;
    bool slow;
};

/* In memory that worker and test processes share with this one. */
struct outcome {
    int passed, failed, skipped;
    char reason[REASON_BYTES]; /* of the last skip */
};

struct run {
    const struct entry *entry;
    struct outcome *outcome;
    FILE *report; /* what the worker prints, until it is this test's turn */
    pid_t worker;
    bool done;
};

struct choice {
    bool list, quick, fork;
    int jobs;
    char **filters; /* ends with NULL */
};

static struct entry entries[MAX_TESTS];
static int entry_count;
static struct run runs[MAX_TESTS];
static int run_count;
static struct outcome *current; /* of the test that this process works for */

void test_register(const char *file, const TTest *test, const char *sentence, int loops, bool slow)
{
    if (entry_count == MAX_TESTS) {
        fprintf(stderr, "tests: more than %d tests; raise MAX_TESTS\n", MAX_TESTS);
        abort();
    }
    entries[entry_count++] = (struct entry){file, sentence, test, loops, slow};
}

void test_skip(const char *reason)
{
    __atomic_add_fetch(&current->skipped, 1, __ATOMIC_SEQ_CST);
    snprintf(current->reason, sizeof current->reason, "%s", reason);
}

static void give_up(const char *what)
{
    perror(what);
    exit(2);
}

static void print_failures(SRunner *runner, int failed)
{
    TestResult **results = srunner_failures(runner);
    for (int i = 0; i < failed; i++)
        printf("      %s:%d: %s\n", tr_lfile(results[i]), tr_lno(results[i]), tr_msg(results[i]));
    free(results);
}

/* "ok    name: sentence (2.1 s)"; a quick test needs no time beside it. */
static void print_line(const struct run *run, int64_t elapsed_ns)
{
    const struct outcome *outcome = run->outcome;
    const char *verdict = outcome->failed ? "FAIL" : outcome->skipped ? "skip" : "ok  ";
    printf("%s  %s: %s", verdict, run->entry->test->name, run->entry->sentence);
    if (outcome->skipped)
        printf(" (%s)", outcome->reason);
    if (elapsed_ns >= 1000000000)
        printf(" (%.1f s)", (double)elapsed_ns / 1e9);
    printf("\n");
}

static void run_test(const struct run *run, bool forking)
{
    const struct entry *entry = run->entry;
    Suite *suite = suite_create(entry->file);
    TCase *tcase = tcase_create(entry->test->name);
    tcase_set_timeout(tcase, TIME_LIMIT_S);
    tcase_add_loop_test(tcase, entry->test, 0, entry->loops);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, forking ? CK_FORK : CK_NOFORK);
    current = run->outcome;
    int64_t start_ns = clock_ns();
    srunner_run_all(runner, CK_SILENT);
    current->failed = srunner_ntests_failed(runner);
    current->passed = srunner_ntests_run(runner) - current->failed - current->skipped;
    print_line(run, clock_ns() - start_ns);
    print_failures(runner, current->failed);
    fflush(stdout);
    srunner_free(runner);
}

/* What a test or a sanitizer prints belongs to its report too. */
static void start_worker(struct run *run)
{
    run->report = tmpfile();
    if (!run->report)
        give_up("tests: no temporary file");
    fflush(stdout);
    run->worker = fork();
    if (run->worker < 0)
        give_up("tests: fork");
    if (run->worker > 0)
        return;
    if (dup2(fileno(run->report), STDOUT_FILENO) < 0 || dup2(fileno(run->report), STDERR_FILENO) < 0)
        give_up("tests: dup2");
    run_test(run, true);
    _exit(0);
}

static void wait_for_a_worker(void)
{
    int status;
    pid_t worker = wait(&status);
    if (worker < 0)
        give_up("tests: wait");
    for (int i = 0; i < run_count; i++) {
        if (runs[i].worker != worker)
            continue;
        runs[i].done = true;
        if (status != 0) {
            runs[i].outcome->failed = 1;
            fprintf(runs[i].report, "FAIL  %s: its worker ended with status %#x\n", runs[i].entry->test->name,
                    status);
        }
    }
}

static void show_report(struct run *run)
{
    char piece[4096];
    size_t length;
    rewind(run->report);
    while ((length = fread(piece, 1, sizeof piece, run->report)) > 0)
        fwrite(piece, 1, length, stdout);
    fclose(run->report);
    fflush(stdout);
}

/* Starts tests in order and shows them in order; one that takes long holds back the lines of those behind it. */
static void run_in_workers(int jobs)
{
    int started = 0, shown = 0, running = 0;
    while (shown < run_count) {
        while (running < jobs && started < run_count && started - shown < MAX_AHEAD) {
            start_worker(&runs[started++]);
            running++;
        }
        wait_for_a_worker();
        running--;
        while (shown < started && runs[shown].done)
            show_report(&runs[shown++]);
    }
}

static void run_all(const struct choice *choice)
{
    size_t bytes = (size_t)(run_count ? run_count : 1) * sizeof(struct outcome);
    struct outcome *outcomes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        give_up("tests: mmap");
    for (int i = 0; i < run_count; i++)
        runs[i].outcome = &outcomes[i];
    if (choice->fork) {
        run_in_workers(choice->jobs);
    } else {
        for (int i = 0; i < run_count; i++)
            run_test(&runs[i], false);
    }
}

static bool is_chosen(const struct entry *entry, char **filters)
{
    for (char **filter = filters; *filter; filter++) {
        if (strstr(entry->file, *filter) || strstr(entry->test->name, *filter))
            return true;
    }
    return !filters[0];
}

/* Fills runs[]. Returns how many chosen tests --quick leaves out. */
static int choose(const struct choice *choice)
{
    int left_out = 0;
    for (int i = 0; i < entry_count; i++) {
        if (!is_chosen(&entries[i], choice->filters))
            continue;
        if (choice->quick && entries[i].slow)
            left_out++;
        else
            runs[run_count++] = (struct run){.entry = &entries[i]};
    }
    return left_out;
}

static void list(void)
{
    for (int i = 0; i < run_count; i++)
        printf("%s  %s: %s\n", runs[i].entry->file, runs[i].entry->test->name, runs[i].entry->sentence);
}

/* Repeats what a reader must not miss, then the line that scripts read. Returns the exit status. */
static int sum_up(int left_out)
{
    int passed = 0, failed = 0, skipped = left_out;
    for (int i = 0; i < run_count; i++) {
        const struct outcome *outcome = runs[i].outcome;
        passed += outcome->passed;
        failed += outcome->failed;
        skipped += outcome->skipped;
        if (outcome->failed)
            printf("failed: %s (%s)\n", runs[i].entry->test->name, runs[i].entry->file);
        else if (outcome->skipped)
            printf("skipped: %s: %s\n", runs[i].entry->test->name, outcome->reason);
    }
    if (left_out)
        printf("skipped: %d slow tests, left out by --quick\n", left_out);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed || passed + skipped == 0;
}

static struct choice parse(char **argv)
{
    struct choice choice = {.jobs = 1, .fork = !getenv("TEST_NO_FORK")};
    char **argument = argv + 1;
    for (; *argument && strncmp(*argument, "--", 2) == 0; argument++) {
        if (strcmp(*argument, "--list") == 0) {
            choice.list = true;
        } else if (strcmp(*argument, "--quick") == 0) {
            choice.quick = true;
        } else if (strcmp(*argument, "--jobs") == 0 && argument[1] && atoi(argument[1]) > 0) {
            choice.jobs = atoi(*++argument);
        } else {
            fprintf(stderr, "usage: %s [--list] [--quick] [--jobs N] [FILTER...]\n", argv[0]);
            exit(2);
        }
    }
    choice.filters = argument;
    return choice;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct choice choice = parse(argv);
    int left_out = choose(&choice);
    if (choice.list) {
        list();
        return 0;
    }
    run_all(&choice);
    return sum_up(left_out);
}
