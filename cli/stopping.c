/* A signal may arrive in the middle of anything, so all that is done here is to note that it came, and when. The trainer looks
 * when a step ends.
 *
 * `timeout` sends its signal to the process and then to the group, which is the same process again; mpirun and batch systems
 * send some in pairs as well. What follows at once is therefore no second request. */
#include "cli/stopping.h"

#include "base/clock.h"

#include <signal.h>
#include <stdint.h>

/* Faster than fingers, and slower than any sender of pairs. */
enum { SAME_REQUEST_NS = 100 * 1000 * 1000 };

static atomic_int asked_by;
static _Atomic int64_t asked_ns;

/* Returns when the first request came, 0: this is it. */
static int64_t ask(int number, int64_t now_ns)
{
    int64_t first_ns = 0;
    if (atomic_compare_exchange_strong(&asked_ns, &first_ns, now_ns))
        atomic_store(&asked_by, number);
    return first_ns;
}

static void on_signal(int number)
{
    int64_t now_ns = clock_ns(), first_ns = ask(number, now_ns);
    if (first_ns && now_ns - first_ns > SAME_REQUEST_NS) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void stopping_ask(int signal_number)
{
    ask(signal_number, clock_ns());
}

const atomic_int *stopping_watch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction before, after = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&after.sa_mask);
    for (int i = 0; i < 2; i++)
        if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &after, NULL);
    return &asked_by;
}

const char *stopping_name(int signal_number)
{
    return signal_number == SIGINT ? "SIGINT" : signal_number == SIGTERM ? "SIGTERM" : "a closed stdout";
}

int stopping_exit_status(int signal_number)
{
    return 128 + signal_number;
}
