/* Tests with a sentence for a name, on the Check library: each runs in its own process, with a time limit.
 *
 *     TEST(units_parse_gib, "80GiB is 85,899,345,920 bytes")
 *     {
 *         ASSERT_INT(bytes, 80LL << 30);
 *     }
 *
 * Tests register themselves; the suite is the file. A test that cannot run here says why: SKIP("no PyTorch on this machine").
 * The runner (tests/main.c) prints a line per test and closes with "N passed, N failed, N skipped". */
#ifndef MEMPLAN_TESTS_TEST_H
#define MEMPLAN_TESTS_TEST_H

#include <check.h>
#include <stdbool.h>

void test_register(const char *file, const TTest *test, const char *sentence, int loops, bool slow);
void test_skip(const char *reason);

#define TEST_DEFINE(name, sentence, loops, slow)                                                               \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED);                                                         \
    static const TTest name##_ttest = {"" #name, name##_fn, __FILE__, __LINE__};                               \
    static const TTest *name = &name##_ttest;                                                                  \
    static __attribute__((constructor)) void name##_register(void)                                             \
    {                                                                                                          \
        test_register(__FILE__, name, sentence, loops, slow);                                                  \
    }                                                                                                          \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

#define TEST(name, sentence)             TEST_DEFINE(name, sentence, 1, false)
/* Takes more than a few seconds: `make test QUICK=1` and the sanitizer run of CI leave it out. */
#define TEST_SLOW(name, sentence)        TEST_DEFINE(name, sentence, 1, true)
/* Runs the body `loops` times, each in its own process, with `_i` from 0. */
#define TEST_LOOP(name, sentence, loops) TEST_DEFINE(name, sentence, loops, false)

#define SKIP(reason)                                                                                           \
    do {                                                                                                       \
        test_skip(reason);                                                                                     \
        return;                                                                                                \
    } while (0)

#define ASSERT(condition)           ck_assert(condition)
#define ASSERT_MSG(condition, ...)  ck_assert_msg(condition, __VA_ARGS__)
#define ASSERT_INT(got, expected)   ck_assert_int_eq(got, expected)
#define ASSERT_STR(got, expected)   ck_assert_str_eq(got, expected)
#define ASSERT_NEAR(got, expected, tolerance) ck_assert_double_eq_tol(got, expected, tolerance)
/* A call that must succeed, with an `err` in scope. */
#define ASSERT_OK(call)             ck_assert_msg((call) == 0, "%s: %s", #call, err.text)
/* The text must appear in a message. */
#define ASSERT_HAS(text, piece)     ck_assert_msg(strstr(text, piece) != NULL, "\"%s\" lacks \"%s\"", text, piece)

#endif
