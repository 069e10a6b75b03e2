/* The table of frameworks: that each entry is whole, and that pages name it. */
#include "base/text.h"
#include "jobs/frameworks.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

TEST(frameworks_whole,
     "every entry has what the shared code asks it for, and a command by which launchers find it")
{
    for (const struct framework *const *f = frameworks; *f; f++) {
        const struct launcher *launcher = (*f)->launcher;
        ASSERT((*f)->name && (*f)->version && (*f)->is && (*f)->read && (*f)->changes && (*f)->modules);
        ASSERT((*f)->modules->library && (*f)->modules->optimizer);
        ASSERT_MSG(!(*f)->keys || strstr((*f)->launch, "FILE"), "%s: no launch of its files", (*f)->name);
        if (!launcher)
            continue;
        ASSERT(launcher->name && launcher->words && launcher->commands && launcher->trains);
        ASSERT(launchers_find(launcher->name) == launcher);
    }
}

TEST(frameworks_documented,
     "every framework of the table is in the folder's README, and its command in check's page")
{
    char *readme, *page;
    size_t length;
    struct error err = {0};
    ASSERT_OK(text_read_file("jobs/README.md", 1 << 20, &readme, &length, &err));
    ASSERT_OK(text_read_file("docs/commands/check.md", 1 << 20, &page, &length, &err));
    for (const struct framework *const *f = frameworks; *f; f++) {
        ASSERT_HAS(readme, (*f)->name);
        if ((*f)->keys)
            ASSERT_HAS(page, (*f)->launcher->name);
    }
    free(readme);
    free(page);
}
