/* The alternate screen, so that what was there before comes back; keys without echo; and signals as events of one poll(),
 * so that none can come between two halves of a change. */
#include "base/terminal.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

enum { USUAL_COLUMNS = 80, USUAL_ROWS = 24 };

/* Alternate screen on, cursor off; and back. */
static const char enter_screen[] = "\033[?1049h\033[?25l", leave_screen[] = "\033[?25h\033[?1049l";

static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

enum { TOLD = sizeof told / sizeof told[0], FATAL = sizeof fatal / sizeof fatal[0] };

static struct {
    volatile sig_atomic_t entered; /* the screen and the keys are ours */
    bool open, has_keys, registered;
    int signals; /* a file that tells them */
    sigset_t mask_before;
    struct termios modes_before;
} view;

static sigset_t set_of(const int *signals, int count)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < count; i++)
        sigaddset(&set, signals[i]);
    return set;
}

void terminal_size(int *columns, int *rows)
{
    struct winsize size;
    bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col && size.ws_row;
    *columns = known ? size.ws_col : USUAL_COLUMNS;
    *rows = known ? size.ws_row : USUAL_ROWS;
}

static void enter(void)
{
    struct termios modes = view.modes_before;
    modes.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    modes.c_cc[VMIN] = 1;
    modes.c_cc[VTIME] = 0;
    view.entered = 1;
    tcsetattr(STDOUT_FILENO, TCSADRAIN, &modes);
    file_write(STDOUT_FILENO, enter_screen, sizeof enter_screen - 1);
}

/* Also called in the middle of a crash: write() and tcsetattr() only. */
static void leave(void)
{
    if (!view.entered)
        return;
    view.entered = 0;
    int errno_before = errno;
    file_write(STDOUT_FILENO, leave_screen, sizeof leave_screen - 1);
    tcsetattr(STDOUT_FILENO, TCSADRAIN, &view.modes_before);
    errno = errno_before;
}

static void crash(int signal)
{
    leave();
    raise(signal); /* its own handling is back (SA_RESETHAND), and it comes when this returns */
}

int terminal_open(struct error *err)
{
    sigset_t set = set_of(told, TOLD);
    if (tcgetattr(STDOUT_FILENO, &view.modes_before))
        return error_set(err,
                         "stdout is not a terminal (%s); leave it to a pipe or a file to get plain lines",
                         strerror(errno));
    sigprocmask(SIG_BLOCK, &set, &view.mask_before);
    view.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (view.signals < 0) {
        sigprocmask(SIG_SETMASK, &view.mask_before, NULL);
        return error_set(err, "cannot wait for signals: %s; close other programs", strerror(errno));
    }
    for (int i = 0; i < FATAL; i++)
        sigaction(fatal[i], &(struct sigaction){.sa_handler = crash, .sa_flags = SA_RESETHAND}, NULL);
    if (!view.registered)
        atexit(terminal_close);
    view.registered = view.open = true;
    view.has_keys = isatty(STDIN_FILENO);
    enter();
    return 0;
}

void terminal_close(void)
{
    if (!view.open)
        return;
    leave();
    for (int i = 0; i < FATAL; i++)
        signal(fatal[i], SIG_DFL);
    close(view.signals);
    sigprocmask(SIG_SETMASK, &view.mask_before, NULL);
    view.open = false;
}

/* What the signal does to a process that does not care. */
static void suffer(int number)
{
    sigset_t set = set_of(&number, 1), before;
    struct sigaction handling;
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, &handling);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, &before);
    /* A process that was stopped continues here. */
    sigprocmask(SIG_SETMASK, &before, NULL);
    sigaction(number, &handling, NULL);
}

static enum terminal_event take_signal(void)
{
    struct signalfd_siginfo info;
    if (read(view.signals, &info, sizeof info) != sizeof info)
        return TERMINAL_TIME;
    switch (info.ssi_signo) {
    case SIGINT:
        return TERMINAL_LEAVE;
    case SIGTSTP:
        leave();
        suffer(SIGTSTP);
        enter();
        return TERMINAL_DRAW;
    case SIGCONT: /* after a SIGSTOP, which nobody is told of, the shell has changed the modes */
        enter();
        return TERMINAL_DRAW;
    case SIGWINCH:
        return TERMINAL_DRAW;
    default:
        leave();
        suffer((int)info.ssi_signo);
        return TERMINAL_LEAVE;
    }
}

enum terminal_event terminal_wait(int64_t ms, char *key)
{
    struct pollfd files[] = {{.fd = view.signals, .events = POLLIN},
                             {.fd = view.has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    if (poll(files, 2, (int)ms) <= 0)
        return TERMINAL_TIME;
    if (files[0].revents)
        return take_signal();
    return read(STDIN_FILENO, key, 1) == 1 ? TERMINAL_KEY : TERMINAL_LEAVE;
}

/* Each line is cleared behind its end rather than the screen before its beginning: nothing flickers. */
int terminal_draw(const char *frame, struct error *err)
{
    struct text out = {0};
    int columns, rows;
    terminal_size(&columns, &rows);
    text_add(&out, "\033[H");
    for (int row = 0; row < rows && *frame; row++) {
        size_t length = strcspn(frame, "\n");
        text_printf(&out, "%s%.*s\033[K", row ? "\r\n" : "", (int)length, frame);
        frame += length + (frame[length] == '\n');
    }
    text_add(&out, "\033[J");
    int status = file_write(STDOUT_FILENO, out.data, out.length);
    if (status)
        error_set(err, "the terminal takes no more: %s; start again with --once", strerror(errno));
    text_free(&out);
    return status;
}
