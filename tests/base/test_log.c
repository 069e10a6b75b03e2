/* Notes, errors and the progress bar, read back from a terminal (a pseudo terminal) and from a pipe. */
#include "tests/test.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* Where stderr goes during a test. */
struct capture {
    int reader, writer, before;
    char text[8192];
};

static void capture_begin(struct capture *capture)
{
    fflush(stderr);
    capture->before = dup(STDERR_FILENO);
    dup2(capture->writer, STDERR_FILENO);
    fcntl(capture->reader, F_SETFL, O_NONBLOCK);
}

static bool capture_terminal(struct capture *capture, int columns)
{
    capture->reader = posix_openpt(O_RDWR | O_NOCTTY);
    if (capture->reader < 0 || grantpt(capture->reader) || unlockpt(capture->reader))
        return false;
    capture->writer = open(ptsname(capture->reader), O_RDWR | O_NOCTTY);
    if (capture->writer < 0)
        return false;
    ioctl(capture->writer, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = (unsigned short)columns});
    capture_begin(capture);
    return true;
}

static void capture_pipe(struct capture *capture)
{
    int ends[2];
    ASSERT(pipe(ends) == 0);
    capture->reader = ends[0];
    capture->writer = ends[1];
    capture_begin(capture);
}

/* What was printed since the beginning; gives stderr back. */
static const char *capture_end(struct capture *capture)
{
    fflush(stderr);
    dup2(capture->before, STDERR_FILENO);
    ssize_t got, used = 0;
    while ((got = read(capture->reader, capture->text + used, sizeof capture->text - 1 - (size_t)used)) > 0)
        used += got;
    capture->text[used] = '\0';
    close(capture->before);
    close(capture->reader);
    close(capture->writer);
    log_set_quiet(false);
    return capture->text;
}

static int count_of(const char *text, const char *piece)
{
    int count = 0;
    for (; (text = strstr(text, piece)); text += strlen(piece))
        count++;
    return count;
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

TEST(log_lines, "notes and errors are lines; errors carry the program's name")
{
    struct capture capture;
    capture_pipe(&capture);
    log_note("wrote %s", "plan.json");
    log_error("tp=%d does not divide 16 heads", 3);
    ASSERT_STR(capture_end(&capture), "wrote plan.json\nmemplan: tp=3 does not divide 16 heads\n");
}

TEST(log_quiet, "quiet hides notes, never errors")
{
    struct capture capture;
    capture_pipe(&capture);
    log_set_quiet(true);
    log_note("hidden");
    log_error("shown");
    ASSERT_STR(capture_end(&capture), "memplan: shown\n");
}

TEST(progress_pipe, "the bar is drawn on terminals only")
{
    struct capture capture;
    capture_pipe(&capture);
    progress_show("train", 1, 10, "");
    progress_end();
    ASSERT_STR(capture_end(&capture), "");
}

TEST(progress_quiet, "quiet hides the bar")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals here");
    log_set_quiet(true);
    progress_show("train", 1, 10, "");
    progress_end();
    ASSERT_STR(capture_end(&capture), "");
}

TEST(progress_bar, "the bar shows label, share and figures, and the end clears it")
{
    struct capture capture;
    if (!capture_terminal(&capture, 100))
        SKIP("no pseudo terminals here");
    progress_show("train", 250, 1000, "loss 3.21");
    progress_end();
    /* a quarter of 24 cells; no rate yet, because nothing was done since the first call */
    ASSERT_STR(capture_end(&capture),
               "\rtrain  [######..................]  250/1000  loss 3.21\033[K\r\033[K");
}

TEST(progress_rate, "rate and time left count from the first call, not from zero")
{
    struct capture capture;
    if (!capture_terminal(&capture, 100))
        SKIP("no pseudo terminals here");
    int64_t start_ns = clock_ns();
    progress_show("train", 500, 1000, "");
    wait_ms(150);
    progress_show("train", 501, 1000, "");
    double most_s = (double)(clock_ns() - start_ns) / 1e9;
    progress_end();
    const char *rate = strstr(capture_end(&capture), "  501/1000  ");
    ASSERT_MSG(rate != NULL, "%s", capture.text);
    /* One step in 0.15 s or a little more. From zero it would be 501 steps in that time. */
    double per_s = atof(rate + strlen("  501/1000  "));
    ASSERT(per_s > 0.99 / most_s && per_s < 1.01 / 0.15);
    ASSERT_HAS(rate, "/s  ");
    ASSERT_HAS(rate, " s left\033[K");
}

TEST(progress_limit, "many calls make few redraws, and a note does not stand behind a bar")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals here");
    int64_t start_ns = clock_ns();
    for (int i = 0; i < 2000; i++)
        progress_show("plan", i, 2000, "");
    int64_t most = 1 + (clock_ns() - start_ns) / 100000000;
    log_note("a note");
    progress_show("plan", 2000, 2000, "");
    progress_end();
    const char *text = capture_end(&capture);
    ASSERT(count_of(text, "\rplan") <= most + 1); /* and the one after the note */
    ASSERT_HAS(text, "\033[K\r\033[Ka note\r\n\rplan  [########################]  2000/2000");
}

TEST(progress_narrow, "a line is cut to the terminal, so that it never wraps")
{
    struct capture capture;
    if (!capture_terminal(&capture, 20))
        SKIP("no pseudo terminals here");
    progress_show("train", 12, 24, "loss 3.21");
    progress_end();
    ASSERT_STR(capture_end(&capture), "\rtrain  [###########\033[K\r\033[K"); /* 19 columns */
}

TEST(progress_unknown, "without a total there is a count and no bar; a total passed by is a full one")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals here");
    progress_show("import", 5, 0, "");
    progress_show("export", 30, 24, "");
    progress_end();
    ASSERT_STR(capture_end(&capture),
               "\rimport  5\033[K\rexport  [########################]  30/24\033[K\r\033[K");
}

TEST(progress_watched,
     "after a second watched work has a line with the time it has taken, which its end takes away")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals");
    progress_watch("plan");
    wait_ms(950);
    progress_unwatch();
    progress_watch("plan");
    for (int i = 0; i < 5; i++)
        wait_ms(300);
    progress_unwatch();
    const char *text = capture_end(&capture);
    ASSERT(!strncmp(text, "\rplan  1.0", 10));
    ASSERT(count_of(text, "\rplan  ") > 2 && count_of(text, "\rplan  ") < 8);
    ASSERT_STR(text + strlen(text) - 4, "\r\033[K");
}

TEST(progress_watched_count, "watched work that says how far it is has a bar with rate and time left")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals");
    progress_watch("report");
    for (int i = 1; i <= 16; i++) {
        wait_ms(100);
        progress_count(i, 64);
    }
    progress_unwatch();
    const char *text = capture_end(&capture);
    ASSERT_HAS(text, "\rreport  [###");
    ASSERT_HAS(text, "/64  ");
    ASSERT_HAS(text, " s left");
}

TEST(progress_watched_quiet, "nothing is watched when quiet, into a pipe, or while there is another bar")
{
    struct capture capture;
    if (!capture_terminal(&capture, 80))
        SKIP("no pseudo terminals");
    progress_watch("plan");
    progress_show("measuring", 1, 2, "");
    for (int i = 0; i < 4; i++)
        wait_ms(300);
    log_set_quiet(true);
    progress_end();
    wait_ms(300);
    progress_unwatch();
    const char *text = capture_end(&capture);
    ASSERT(count_of(text, "plan") == 0 && count_of(text, "measuring") == 1);
    capture_pipe(&capture);
    progress_watch("plan");
    wait_ms(990);
    wait_ms(200);
    progress_unwatch();
    ASSERT_STR(capture_end(&capture), "");
}
