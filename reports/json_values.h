/* Small values that several reports' JSON shares. Each returns a new reference. */
#ifndef MEMPLAN_REPORTS_JSON_VALUES_H
#define MEMPLAN_REPORTS_JSON_VALUES_H

#include "base/json.h"
#include "base/role.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

/* JSON has no NAN: an unknown is null. */
static inline json_t *json_values_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* -1, none, is null. */
static inline json_t *json_values_id(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

/* Adds a key for every role. */
static inline void json_values_add_roles(json_t *object, const int64_t by_role[ROLE_COUNT])
{
    for (int role = 0; role < ROLE_COUNT; role++)
        json_object_set_new(object, role_name((enum role)role), json_integer(by_role[role]));
}

/* "2x64x768" is [2, 64, 768]; NULL is []. */
static inline json_t *json_values_dims(const char *dims)
{
    json_t *list = json_array();
    while (dims && *dims) {
        char *end;
        json_array_append_new(list, json_integer(strtoll(dims, &end, 10)));
        dims = *end == 'x' ? end + 1 : "";
    }
    return list;
}

#endif
