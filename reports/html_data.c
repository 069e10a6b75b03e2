#include "reports/html_data.h"

#include "reports/markup.h"

#include <stdlib.h>
#include <string.h>

/* Lives and stretches beyond so many are left out, the smallest first. */
enum { MOST_LIVES = 60000, MOST_STRETCHES = 60000 };

/* Ten times as fast as printf, for the million numbers of a page. */
static void add_integer(struct text *out, int64_t value)
{
    char digits[24], *at = digits + sizeof digits - 1;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    *at = '\0';
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *--at = '-';
    text_add(out, at);
}

/* A list that is being written. */
struct list {
    struct text *out;
    int64_t count, before;
};

static struct list begin_list(struct text *out, const char *key)
{
    text_printf(out, ",\n\"%s\":[", key);
    return (struct list){out, 0, 0};
}

static void add(struct list *list, int64_t value)
{
    if (list->count++)
        text_add(list->out, ",");
    add_integer(list->out, value);
}

static void add_difference(struct list *list, int64_t value)
{
    add(list, value - list->before);
    list->before = value;
}

static void end_list(struct list *list)
{
    text_add(list->out, "]");
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Of all operations, those of points, in order of their first point. */
struct used_operations {
    int64_t *numbers; /* by operation: its number + 1; 0: none */
    int64_t *operations, count;
};

static struct used_operations find_used(const struct series *s)
{
    struct used_operations used = {
        .numbers = host_alloc((size_t)(s->operation_count + 1) * sizeof *used.numbers),
        .operations = host_alloc((size_t)(s->operation_count + 1) * sizeof *used.operations),
    };
    for (int64_t i = 0; i < s->point_count; i++) {
        int64_t operation = s->points[i].operation;
        if (operation >= 0 && !used.numbers[operation]) {
            used.operations[used.count] = operation;
            used.numbers[operation] = ++used.count;
        }
    }
    return used;
}

/* kind, phase, part: words; micro-batch. */
static void add_operations(struct text *out, const struct series *s, struct markup_words *words)
{
    struct used_operations used = find_used(s);
    struct list list = begin_list(out, "operation");
    for (int64_t i = 0; i < s->point_count; i++)
        add_difference(&list, s->points[i].operation < 0 ? -1 : used.numbers[s->points[i].operation] - 1);
    end_list(&list);
    list = begin_list(out, "operations");
    for (int64_t i = 0; i < used.count; i++) {
        const struct series_operation *operation = &s->operations[used.operations[i]];
        add(&list, markup_word(words, operation->kind));
        add(&list, markup_word(words, operation->phase));
        add(&list, markup_word(words, operation->part));
        add(&list, operation->micro_batch);
    }
    end_list(&list);
    free(used.numbers);
    free(used.operations);
}

static void add_points(struct text *out, const struct series *s)
{
    struct list at = begin_list(out, "at");
    for (int64_t i = 0; i < s->point_count; i++)
        add_difference(&at, s->points[i].at);
    end_list(&at);
    struct list event = begin_list(out, "event");
    for (int64_t i = 0; i < s->point_count; i++)
        add_difference(&event, s->points[i].event);
    end_list(&event);
    text_add(out, ",\n\"roles\":{\"order\":[");
    for (int role = 0; role < ROLE_COUNT; role++)
        text_printf(out, "%s\"%s\"", role ? "," : "", role_name((enum role)role));
    text_add(out, "]");
    for (int role = 0; role < ROLE_COUNT; role++) {
        struct list list = begin_list(out, role_name((enum role)role));
        for (int64_t i = 0; i < s->point_count; i++)
            add_difference(&list, s->points[i].by_role[role]);
        end_list(&list);
    }
    text_add(out, "}");
}

/* step, from, to */
static void add_steps(struct text *out, const struct series *s)
{
    struct list list = begin_list(out, "steps");
    for (int64_t i = 0; i < s->step_count; i++) {
        add(&list, s->steps[i].step);
        add(&list, s->steps[i].first_at);
        add(&list, s->steps[i].last_at);
    }
    end_list(&list);
}

static int larger_first(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

/* The smallest size that still gets in; lives of this very size may be more than there is room for. */
static int64_t least_bytes(const struct series *s)
{
    if (s->life_count <= MOST_LIVES)
        return 0;
    int64_t *sizes = host_alloc((size_t)s->life_count * sizeof *sizes);
    for (int64_t i = 0; i < s->life_count; i++)
        sizes[i] = s->lives[i].bytes;
    qsort(sizes, (size_t)s->life_count, sizeof *sizes, larger_first);
    int64_t least = sizes[MOST_LIVES];
    free(sizes);
    return least + 1;
}

/* tensor, bytes, born (differences), died: how many events it lived, -1 to the end. Then the tensors of those lives: name (a
 * word), role, layer, micro-batch. */
static void add_lives(struct text *out, const struct series *s, struct markup_words *words)
{
    int64_t least = least_bytes(s), known = 0, born = 0;
    int64_t *numbers = host_alloc((size_t)(s->tensor_count + 1) * sizeof *numbers);
    int64_t *tensors = host_alloc((size_t)(s->tensor_count + 1) * sizeof *tensors);
    struct list list = begin_list(out, "lives");
    for (int64_t i = 0; i < s->life_count; i++) {
        const struct series_life *life = &s->lives[i];
        if (life->bytes < least)
            continue;
        if (!numbers[life->tensor]) {
            tensors[known] = life->tensor;
            numbers[life->tensor] = ++known;
        }
        add(&list, numbers[life->tensor] - 1);
        add(&list, life->bytes);
        add(&list, life->born - born);
        add(&list, life->died == INT64_MAX ? -1 : life->died - life->born);
        born = life->born;
    }
    end_list(&list);
    list = begin_list(out, "tensors");
    for (int64_t i = 0; i < known; i++) {
        const struct series_tensor *tensor = &s->tensors[tensors[i]];
        add(&list, markup_word(words, tensor->name));
        add(&list, tensor->role);
        add(&list, tensor->layer);
        add(&list, tensor->micro_batch);
    }
    end_list(&list);
    free(numbers);
    free(tensors);
}

static void add_memory(struct text *out, const struct series *s, struct markup_words *words)
{
    text_printf(
        out, ",\n\"memory\":{\"axis\":\"%s\",\"rank\":%lld,\"events\":%lld,\"peak\":%lld,\"peak_bytes\":%lld",
        s->axis == SERIES_NANOSECONDS ? "ns" : "operations", (long long)s->rank, (long long)s->events,
        (long long)s->peak, (long long)s->points[s->peak].live_bytes);
    add_points(out, s);
    add_steps(out, s);
    add_operations(out, s, words);
    add_lives(out, s, words);
    text_add(out, "}");
}

/* --------------------------------------------------------------------------------------------------------- timeline */

/* Stretches too short to be pointed at, where there are too many. */
static int64_t least_ns(const struct timeline *t)
{
    int64_t count = 0;
    for (int64_t i = 0; i < t->lane_count; i++)
        count += t->lanes[i].stretch_count;
    return count <= MOST_STRETCHES ? 0 : (t->end_ns - t->start_ns) * t->lane_count / MOST_STRETCHES;
}

static void add_lane(struct text *out, const struct timeline *t, const struct lane *lane, int64_t least)
{
    text_printf(out, "{\"rank\":%lld,\"ranks\":%lld,\"stage\":%lld", (long long)lane->rank,
                (long long)lane->ranks, (long long)lane->stage);
    /* start (differences), length, activity, micro-batch, operations (0: foretold, and not by operation) */
    struct list list = begin_list(out, "work");
    int64_t before = t->start_ns;
    for (int64_t i = 0; i < lane->stretch_count; i++) {
        const struct work_span *work = &lane->stretches[i];
        if (work->end_ns - work->start_ns < least)
            continue;
        add(&list, work->start_ns - before);
        add(&list, work->end_ns - work->start_ns);
        add(&list, work->activity);
        add(&list, work->micro_batch);
        add(&list, t->foretold ? 0 : work->operations);
        before = work->start_ns;
    }
    end_list(&list);
    text_add(out, "}");
}

static void add_timeline(struct text *out, const struct timeline *t)
{
    int64_t least = least_ns(t);
    text_printf(out, ",\n\"timeline\":{\"length\":%lld,\"activities\":[",
                (long long)(t->end_ns - t->start_ns));
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        text_printf(out, "%s\"%s\"", activity ? "," : "", activity_name((enum activity)activity));
    text_add(out, "],\"lanes\":[");
    for (int64_t i = 0; i < t->lane_count; i++) {
        text_add(out, i ? ",\n" : "\n");
        add_lane(out, t, &t->lanes[i], least);
    }
    text_add(out, "]}");
}

void html_data_add(struct text *out, const struct document *d)
{
    struct markup_words *words = markup_words_create();
    text_add(out, "{\"version\":1");
    if (d->memory_count)
        add_memory(out, d->memory[0], words);
    if (d->timeline)
        add_timeline(out, d->timeline);
    text_add(out, ",\n\"words\":");
    markup_words_add(words, out);
    text_add(out, "}");
    markup_words_free(words);
}
