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

void test_register(const char *file, const TTest *test, const char *sentence, int loops);
void test_skip(const char *reason);

#define TEST_REGISTER(name, sentence, loops)                                                                   \
    static __attribute__((constructor)) void name##_register(void)                                             \
    {                                                                                                          \
        test_register(__FILE__, name, sentence, loops);                                                        \
    }

#define TEST(name, sentence)                                                                                   \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED);                                                         \
    static const TTest name##_ttest = {"" #name, name##_fn, __FILE__, __LINE__};                               \
    static const TTest *name = &name##_ttest;                                                                  \
    TEST_REGISTER(name, sentence, 1)                                                                           \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

/* Runs the body `loops` times, each in its own process, with `_i` from 0. */
#define TEST_LOOP(name, sentence, loops)                                                                       \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED);                                                         \
    static const TTest name##_ttest = {"" #name, name##_fn, __FILE__, __LINE__};                               \
    static const TTest *name = &name##_ttest;                                                                  \
    TEST_REGISTER(name, sentence, loops)                                                                       \
    static void name##_fn(int _i CK_ATTRIBUTE_UNUSED)

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
