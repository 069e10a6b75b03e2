/* Layers and tensors of two peaks, joined by name: what is as large in both is dropped, the rest is sorted by how much it changed. */
#include "reports/compare_changes.h"

#include <stdlib.h>
#include <string.h>

/* By layer first, so that layers that changed alike are met as their numbers rise: "layer 10 qkv" is before "layer 2 qkv" by name. */
static int by_name(const void *left, const void *right)
{
    const struct compare_change *a = left, *b = right;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    int order = a->name && b->name ? strcmp(a->name, b->name) : 0;
    return order ? order : (int)a->role - (int)b->role;
}

static int most_changed_first(const void *left, const void *right)
{
    const struct compare_change *a = left, *b = right;
    int64_t first = llabs(a->after_bytes - a->before_bytes), second = llabs(b->after_bytes - b->before_bytes);
    return first != second ? (first < second ? 1 : -1) : by_name(left, right);
}

/* Joins changes of the same thing, drops those that are none, and sorts the rest. Returns how many are left. */
static int64_t settle(struct compare_change *changes, int64_t count)
{
    int64_t joined = 0, left = 0;
    qsort(changes, (size_t)count, sizeof *changes, by_name);
    for (int64_t i = 0; i < count; i++) {
        if (joined && by_name(&changes[joined - 1], &changes[i]) == 0) {
            changes[joined - 1].before_bytes += changes[i].before_bytes;
            changes[joined - 1].after_bytes += changes[i].after_bytes;
        } else {
            changes[joined++] = changes[i];
        }
    }
    for (int64_t i = 0; i < joined; i++)
        if (changes[i].before_bytes != changes[i].after_bytes)
            changes[left++] = changes[i];
    qsort(changes, (size_t)left, sizeof *changes, most_changed_first);
    return left;
}

static void add_layers(struct comparison *c, const struct breakdown *b, bool after)
{
    for (int64_t i = 0; i < b->layer_count; i++)
        for (int role = 0; role < ROLE_COUNT; role++) {
            int64_t bytes = b->layers[i].by_role[role];
            c->layers[c->layer_count++] = (struct compare_change){NULL, b->layers[i].layer, (enum role)role,
                                                                  after ? 0 : bytes, after ? bytes : 0};
        }
}

static void add_tensors(struct comparison *c, const struct breakdown *b, bool after)
{
    for (int64_t i = 0; i < b->tensor_count; i++) {
        const struct breakdown_tensor *tensor = &b->tensors[i];
        c->tensors[c->tensor_count++] = (struct compare_change){
            tensor->name, tensor->layer, tensor->role, after ? 0 : tensor->bytes, after ? tensor->bytes : 0};
    }
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Steps are alike, so which of them it was says nothing. */
static void locate_peaks(struct comparison *c, const struct breakdown_moment *first,
                         const struct breakdown_moment *second)
{
    c->located = true;
    c->first_moment = *first;
    c->second_moment = *second;
    c->moved = !same_text(first->phase, second->phase) || !same_text(first->part, second->part) ||
               !same_text(first->operation, second->operation) || first->micro_batch != second->micro_batch;
    for (int64_t i = 0; i < c->tensor_count; i++) {
        const struct compare_change *change = &c->tensors[i];
        if (change->before_bytes == 0) {
            c->arrived++;
            c->arrived_bytes += change->after_bytes;
        } else if (change->after_bytes == 0) {
            c->left++;
            c->left_bytes += change->before_bytes;
        }
    }
}

void compare_find_changes(struct comparison *c, const struct breakdown *before, const struct breakdown *after,
                          struct arena *arena)
{
    c->staged = after->stages > 1;
    if (!before->detailed || !after->detailed)
        return;
    size_t layers = (size_t)(before->layer_count + after->layer_count) * ROLE_COUNT;
    c->layers = arena_array(arena, layers, sizeof *c->layers);
    c->tensors = arena_array(arena, (size_t)(before->tensor_count + after->tensor_count), sizeof *c->tensors);
    add_layers(c, before, false);
    add_layers(c, after, true);
    add_tensors(c, before, false);
    add_tensors(c, after, true);
    c->layer_count = settle(c->layers, c->layer_count);
    c->tensor_count = settle(c->tensors, c->tensor_count);
    locate_peaks(c, &before->moment, &after->moment);
}
