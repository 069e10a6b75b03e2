/* Messages: set, added to, put behind a prefix, shortened to their room, and lost without harm. */
#include "tests/test.h"

#include "base/error.h"

#include <string.h>

TEST(error_sets, "a message has a kind and a text, and the call gives -1")
{
    struct error err = {0};
    ASSERT_INT(error_set(&err, "tp=%d does not divide %d heads", 3, 16), -1);
    ASSERT_INT(err.kind, ERROR_INPUT);
    ASSERT_STR(err.text, "tp=3 does not divide 16 heads");
    ASSERT_INT(error_set_kind(&err, ERROR_MEMORY, "needs %d bytes", 8), -1);
    ASSERT_INT(err.kind, ERROR_MEMORY);
    ASSERT_STR(err.text, "needs 8 bytes");
}

TEST(error_grows, "a sentence is added behind and a prefix before; the kind stays")
{
    struct error err = {0};
    error_set_kind(&err, ERROR_MEMORY, "does not fit");
    error_append(&err, "; try --micro-batch %d", 2);
    ASSERT_INT(error_prefix(&err, "rank %d", 1), -1);
    ASSERT_STR(err.text, "rank 1: does not fit; try --micro-batch 2");
    ASSERT_INT(err.kind, ERROR_MEMORY);
}

TEST(error_long, "a text longer than the room is shortened, not written beyond it")
{
    struct error err = {0};
    char word[2000];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    error_set(&err, "%s", word);
    ASSERT_INT(strlen(err.text), sizeof err.text - 1);
    error_append(&err, "%s", word);
    error_prefix(&err, "%s", word);
    ASSERT_INT(strlen(err.text), sizeof err.text - 1);
}

TEST(error_long_value, "a value too long for the room leaves the thing before it and the way out behind it")
{
    struct error err = {0};
    char word[100000];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    error_set(&err, "--layers: \"%s\" is no number; write digits", word);
    ASSERT_HAS(err.text, "--layers: \"xxx");
    ASSERT_HAS(err.text, "xxx ... xxx");
    ASSERT_HAS(err.text, "xxx\" is no number; write digits");
    error_prefix(&err, "rank %d", 3);
    error_append(&err, "; or leave it out");
    ASSERT_HAS(err.text, "rank 3: --layers: \"xxx");
    ASSERT_HAS(err.text, "is no number; write digits; or leave it out");
}

TEST(error_nobody, "without a struct the message is lost, the -1 is not")
{
    ASSERT_INT(error_set(NULL, "lost"), -1);
    ASSERT_INT(error_set_kind(NULL, ERROR_MEMORY, "lost"), -1);
    ASSERT_INT(error_prefix(NULL, "lost"), -1);
    error_append(NULL, "lost");
}
