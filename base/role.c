/* The names of the roles, in the order of their enum. */
#include "base/role.h"

#include <string.h>

static const char *const names[ROLE_COUNT] = {
    "parameter", "gradient", "optimizer", "activation", "workspace", "communication", "input", "runtime",
};

const char *role_name(enum role role)
{
    return names[role];
}

int role_find(const char *name)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        if (!strcmp(names[role], name))
            return role;
    return -1;
}
