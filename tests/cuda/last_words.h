/* What a piece of a test prints to stderr before the process ends of it: it runs in a child. */
#ifndef MEMPLAN_TESTS_CUDA_LAST_WORDS_H
#define MEMPLAN_TESTS_CUDA_LAST_WORDS_H

extern "C" {
#include "tests/test.h"
}

#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

inline std::string last_words(const std::function<void()> &body)
{
    int ends[2];
    ASSERT_INT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    std::string words;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        words.append(buffer, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_MSG(!WIFEXITED(status) || WEXITSTATUS(status) != 0, "the kernel ended well");
    return words;
}

#endif
