#include "bench/score/cases.h"

#include "base/checked.h"
#include "base/sort.h"
#include "bench/score/measured_cases.h"
#include "bench/score/odds.h"
#include "planner/frameworks/layer_rules.h"
#include "planner/frameworks/loss_rules.h"
#include "planner/frameworks/workload_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double gib = 1 << 30;

struct scored {
    const struct measured_case *c;
    struct workload_memory memory;
    bool has_memory;
    double predicted;   /* what is compared with the measured value; NAN: an outcome, or nothing */
    const char *reason; /* why nothing is predicted; NULL: something is */
    struct error err;
    double ms;
    int more, more_used; /* further figures of the row, and how many have a prediction */
};

/* --- What is predicted of a row --- */

static double loss_bytes(const struct workload *w, enum layer_element element)
{
    const struct loss_rule rule = {.element = element, .width = WIDTH_VOCAB};
    return loss_rule_bytes(w, &rule);
}

/* "linear + cross entropy, h 4096, V 128256, 4096 tokens": the weight, its gradient and the new one that is added to it; the
 * input and its gradient; and what the loss has at its peak. */
static double head_alone(const struct measured_case *c)
{
    const char *h = strstr(c->model, ", h "), *v = strstr(c->model, ", V "),
               *tokens = v ? strstr(v + 3, ", ") : NULL;
    struct workload w = c->workload;
    bool named = h && v && tokens && strstr(c->model, "cross entropy");
    w.model.hidden = named ? atoll(h + 4) : w.model.hidden;
    w.model.vocab = named ? atoll(v + 4) : w.model.vocab;
    w.micro_batch = named ? atoll(tokens + 2) : w.micro_batch;
    w.sequence = 1;
    if (!w.model.hidden || !w.model.vocab)
        return NAN;
    double e = w.compute_bytes, table = e * (double)(w.model.hidden * w.model.vocab);
    double ends = 2 * e * (double)w.model.hidden * layer_tokens(&w);
    double half = loss_bytes(&w, ELEMENT_COMPUTE), whole = loss_bytes(&w, ELEMENT_FP32);
    if (named)
        return 3 * table + ends + 3 * half;
    /* The loss layer alone: gradients of input and weight, or what the loss has at its peak. */
    if (w.loss == WORKLOAD_LOSS_LINEAR)
        return table + ends / 2;
    if (w.loss == WORKLOAD_LOSS_CHUNKED)
        return table + ends / 2 + whole + half / (double)w.loss_chunks;
    return w.compiled ? half + whole + half : 3 * whole + half;
}

/* The tensor that a message named, by the note of the row. */
static double tensor_alone(const struct measured_case *c)
{
    const struct workload *w = &c->workload;
    if (strstr(c->notes, "logits"))
        return loss_bytes(w, ELEMENT_FP32);
    if (strstr(c->notes, "decoder layer")) /* FSDP gathers it into one buffer; messages give the segment */
        return (double)round_up((int64_t)(w->compute_bytes * workload_layer_parameters(w, 0)), 2 << 20);
    if (strstr(c->notes, "no_sync") && w->model.parameters > 0)
        return w->gradient_bytes * w->model.parameters;
    return NAN;
}

/* Of layers; llm.c's log counts all that it takes at start but states. */
static double activations_alone(const struct workload *w)
{
    struct workload_memory memory;
    struct error err;
    double bytes = 0;
    if (w->library == WORKLOAD_LLMC)
        return workload_memory(w, &memory, &err) ? NAN : (double)memory.peak.by_role[ROLE_ACTIVATION];
    for (int64_t layer = 0; layer < w->model.layers; layer++)
        bytes += layer_kept_bytes(w, layer);
    return bytes;
}

static double of_memory(const char *what, const struct workload_memory *m)
{
    const struct {
        const char *what;
        int64_t bytes;
    } names[] = {{"peak_allocated", m->peak.bytes},
                 {"peak_reserved", m->reserved_bytes},
                 {"nvidia_smi", m->device_bytes},
                 {"allocated_static", m->states_bytes},
                 {"allocated after step (steady)", m->states_bytes},
                 {"allocated", m->states_bytes},
                 {"reserved", m->reserved_bytes},
                 {"peak_allocated iteration 1", m->first_allocated_bytes},
                 {"peak_reserved after step 1", m->first_reserved_bytes},
                 {"cuda context", m->context_bytes}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].what, what))
            return (double)names[i].bytes;
    return NAN;
}

static bool needs_replay(const struct measured_case *c)
{
    return !strncmp(c->scope, "full job", 8) ? strcmp(c->what, "activation_only") != 0
                                             : !strcmp(c->what, "allocated_static");
}

static void predict_alone(struct scored *s)
{
    const struct measured_case *c = s->c;
    if (!strcmp(c->scope, "kernel"))
        s->predicted = head_alone(c);
    else if (!strcmp(c->scope, "tensor"))
        s->predicted = tensor_alone(c);
    else if (!strcmp(c->scope, "layer"))
        s->predicted = layer_kept_bytes(&c->workload, 0) / (double)c->workload.micro_batch;
    else
        s->predicted = activations_alone(&c->workload);
    if (isnan(s->predicted))
        s->reason = !strcmp(c->scope, "kernel") ? "one kernel by itself, which no rule is about"
                                                : "no rule is about it";
}

/* Whether a length that was assumed decides: with twice of it the figure is more than a tenth larger. */
static bool is_decided_by_length(const struct measured_case *c, double predicted)
{
    struct workload twice = c->workload;
    struct workload_memory memory;
    struct error err;
    if (c->sequence_given || isnan(predicted))
        return false;
    twice.sequence *= 2;
    return workload_memory(&twice, &memory, &err) || of_memory(c->what, &memory) > 1.1 * predicted;
}

static void predict(const struct measured_case *c, struct scored *s)
{
    struct timespec from, to;
    *s = (struct scored){.c = c, .predicted = NAN, .reason = c->refused};
    if (s->reason)
        return;
    if (!needs_replay(c)) {
        predict_alone(s);
        return;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    int failed = c->last_stage ? workload_stage_memory(&c->workload, c->workload.pp - 1, &s->memory, &s->err)
                               : workload_memory(&c->workload, &s->memory, &s->err);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    s->ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    if (failed) {
        s->reason = s->err.text;
        return;
    }
    s->has_memory = true;
    s->predicted = isnan(c->value) ? NAN : of_memory(c->what, &s->memory);
    if (is_decided_by_length(c, s->predicted)) {
        s->predicted = NAN;
        s->has_memory = false;
        s->reason = "the sequence length is not said, and it decides";
    }
}

/* --- What rows add up to --- */

static double error_of(const struct scored *s)
{
    return s->predicted / s->c->value - 1;
}

static bool is_outcome(const struct scored *s)
{
    return isnan(s->c->value);
}

enum half { ALL, MADE_ON, HELD_OUT };
static const char *const half_names[] = {"all", "made on", "held out"};

/* NULL: any. */
struct choice {
    const char *what, *framework, *quality;
    bool exact; /* single tensors, layers, states; or full jobs */
    enum half half;
};

static bool chosen(const struct scored *s, const struct choice *choice)
{
    const struct measured_case *c = s->c;
    bool job = !strcmp(c->scope, "full job");
    return (!choice->what || !strcmp(c->what, choice->what)) &&
           (!choice->framework || !strcmp(c->framework, choice->framework)) &&
           (!choice->quality || !strcmp(c->quality, choice->quality)) && job != choice->exact &&
           (choice->half == ALL || c->held_out == (choice->half == HELD_OUT));
}

/* The median of errors without their signs; *count of how many. */
static double median(const struct scored *rows, int count, const struct choice *choice, int *used)
{
    double *errors = host_alloc((size_t)(count + 1) * sizeof *errors);
    int n = 0;
    for (int i = 0; i < count; i++)
        if (chosen(&rows[i], choice) && !isnan(rows[i].predicted) && !isnan(rows[i].c->value))
            errors[n++] = fabs(error_of(&rows[i]));
    sort_reals(errors, (size_t)n);
    double middle = !n ? NAN : n % 2 ? errors[n / 2] : (errors[n / 2 - 1] + errors[n / 2]) / 2;
    free(errors);
    *used = n;
    return middle;
}

static void say_median(struct text *table, json_t *totals, const struct scored *rows, int count,
                       struct choice choice, const char *name, double aim)
{
    for (int half = ALL; half <= HELD_OUT; half++) {
        char what[96];
        int used;
        choice.half = (enum half)half;
        double value = median(rows, count, &choice, &used);
        if (!used)
            continue;
        snprintf(what, sizeof what, "median error, %s, %s (%d rows)", name, half_names[half], used);
        text_printf(table, "%-26s %-58s %6.1f%%", "cases", what, 100 * value);
        if (aim > 0)
            text_printf(table, "   aim %3.0f%%  %s", 100 * aim, value <= aim ? "met" : "MISSED");
        text_add(table, "\n");
        json_object_set_new(totals, what, json_real(value));
    }
}

static void say_outcomes(struct text *table, json_t *totals, const struct scored *rows, int count,
                         enum half half)
{
    int used = 0, missed = 0, clearly = 0, alarms = 0;
    for (int i = 0; i < count; i++) {
        const struct scored *s = &rows[i];
        if (!is_outcome(s) || !s->has_memory || (half && s->c->held_out != (half == HELD_OUT)))
            continue;
        bool oom = s->c->out_of_memory, said = s->memory.out_of_memory;
        used++;
        missed += oom && !said;
        alarms += !oom && said;
        clearly +=
            oom && !said && (double)s->memory.device_bytes < 0.95 * (double)s->c->workload.capacity_bytes;
    }
    text_printf(table,
                "%-26s outcomes, %s (%d): %d right, %d missed (%d of them with over 5%% of room predicted), "
                "%d false alarms\n",
                "cases", half_names[half], used, used - missed - alarms, missed, clearly, alarms);
    json_object_set_new(totals, half_names[half],
                        json_pack("{s:i, s:i, s:i, s:i}", "outcomes", used, "missed", missed,
                                  "clearly_missed", clearly, "false_alarms", alarms));
}

/* Probabilities against the same outcomes. */
static void say_odds(struct text *table, json_t *totals, const struct scored *rows, int count)
{
    struct odds odds = {.squares = 0};
    for (int i = 0; i < count; i++)
        if (is_outcome(&rows[i]) && rows[i].has_memory)
            odds_add(&odds, &rows[i].c->workload, &rows[i].memory, rows[i].c->out_of_memory);
    odds_say(&odds, "cases", table, totals);
}

static void say_frameworks(struct text *table, const struct scored *rows, int count)
{
    for (int i = 0; i < count; i++) {
        bool first = true;
        int used;
        for (int j = 0; j < i && first; j++)
            first = strcmp(rows[i].c->framework, rows[j].c->framework) != 0;
        struct choice choice = {.framework = rows[i].c->framework};
        double value = median(rows, count, &choice, &used);
        if (first && used)
            text_printf(table, "%-26s     %-44.44s %2d jobs, median %5.1f%%\n", "cases", rows[i].c->framework,
                        used, 100 * value);
    }
}

/* --- Rows --- */

/* What is likeliest behind an error: the first that holds. */
static const char *reason_of(const struct scored *s)
{
    const struct measured_case *c = s->c;
    const struct workload *w = &c->workload;
    if (c->unread.length)
        return c->unread.data;
    if (c->assumed.length)
        return c->assumed.data;
    if (w->compiled)
        return "compiled: which tensors a compiler keeps is not modelled";
    if (w->library == WORKLOAD_LLMC)
        return "llm.c's own list of tensors, which changes with its versions";
    if (w->model.experts)
        return "experts: tokens are taken to be sent evenly, and dispatchers have buffers of their own";
    if (!strcmp(c->what, "peak_reserved") || !strcmp(c->what, "nvidia_smi"))
        return "fragments: depend on the order of small temporaries, which differs by version";
    return "no rule is known to be wrong";
}

static void say_row(struct text *table, const struct scored *s)
{
    const struct measured_case *c = s->c;
    text_printf(table, "    %-6s %-12.12s %s %-8s %-16s", c->id, c->framework, c->quality,
                c->held_out ? "held out" : "", c->what);
    if (s->reason)
        text_printf(table, " not modelled: %s", s->reason);
    else if (is_outcome(s))
        text_printf(table, " %-4s  predicted %-4s (%.1f of %.1f GiB, %s)%s",
                    c->out_of_memory ? "oom" : "fits", s->memory.out_of_memory ? "oom" : "fits",
                    (double)s->memory.device_bytes / gib, (double)c->workload.capacity_bytes / gib,
                    replay_moment_name(s->memory.peak.moment),
                    s->memory.out_of_memory != c->out_of_memory ? "   WRONG" : "");
    else
        text_printf(table, " %10.3f GiB, predicted %10.3f  %+6.1f%%", c->value / gib, s->predicted / gib,
                    100 * error_of(s));
    if (c->assumed.length)
        text_printf(table, "  assumed: %s", c->assumed.data);
    if (c->unread.length)
        text_printf(table, "  not read: %s", c->unread.data);
    text_add(table, "\n");
}

/* Further figures of a row: those that a prediction has too. */
static void say_more(struct text *table, struct scored *s)
{
    const json_t *list = json_object_get(s->c->record, "measured_more"), *item;
    size_t i;
    json_array_foreach(list, i, item)
    {
        const char *what = json_string_value(json_object_get(item, "what"));
        const char *unit = json_string_value(json_object_get(item, "unit"));
        double value = measured_bytes(json_number_value(json_object_get(item, "value")), unit ? unit : "");
        double predicted = what && s->has_memory ? of_memory(what, &s->memory) : NAN;
        s->more++;
        if (isnan(predicted) || isnan(value) || value <= 0)
            continue;
        s->more_used++;
        text_printf(table, "           %-44s %10.3f GiB, predicted %10.3f  %+6.1f%%\n", what, value / gib,
                    predicted / gib, 100 * (predicted / value - 1));
    }
}

static int by_error(const void *a, const void *b)
{
    const struct scored *x = *(const struct scored *const *)a, *y = *(const struct scored *const *)b;
    double u = fabs(error_of(x)), v = fabs(error_of(y));
    return (u < v) - (u > v);
}

static void say_worst(struct text *table, const struct scored *rows, int count)
{
    const struct scored **order = host_alloc((size_t)(count + 1) * sizeof *order);
    int n = 0;
    for (int i = 0; i < count; i++)
        if (!isnan(rows[i].predicted) && !isnan(rows[i].c->value))
            order[n++] = &rows[i];
    qsort(order, (size_t)n, sizeof *order, by_error);
    text_add(table, "  the worst ten:\n");
    for (int i = 0; i < n && i < 10; i++)
        text_printf(table, "    %-6s %+6.1f%%  %s\n", order[i]->c->id, 100 * error_of(order[i]),
                    reason_of(order[i]));
    free(order);
}

static json_t *row_to_json(const struct scored *s)
{
    const struct measured_case *c = s->c;
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:b, s:s}", "id", c->id, "framework", c->framework, "quality",
                  c->quality, "what", c->what, "held_out", c->held_out, "scope", c->scope);
    json_object_set_new(row, "measured_bytes", is_outcome(s) ? json_null() : json_real(c->value));
    json_object_set_new(row, "predicted_bytes", isnan(s->predicted) ? json_null() : json_real(s->predicted));
    json_object_set_new(row, "not_modelled", jsonfile_string(s->reason));
    if (is_outcome(s) && s->has_memory) {
        json_object_set_new(row, "out_of_memory", json_boolean(c->out_of_memory));
        json_object_set_new(row, "predicted_out_of_memory", json_boolean(s->memory.out_of_memory));
    }
    if (s->has_memory) {
        json_object_set_new(row, "allocated_bytes", json_integer(s->memory.peak.bytes));
        json_object_set_new(row, "reserved_bytes", json_integer(s->memory.reserved_bytes));
        json_object_set_new(row, "device_bytes", json_integer(s->memory.device_bytes));
        json_object_set_new(row, "moment", json_string(replay_moment_name(s->memory.peak.moment)));
    }
    return row;
}

static void say_all(struct text *table, json_t *totals, const struct scored *rows, int count)
{
    struct choice jobs = {.quality = "A", .what = "peak_allocated"};
    say_median(table, totals, rows, count, jobs, "allocated, quality A jobs", 0.03);
    jobs.quality = NULL;
    say_median(table, totals, rows, count, jobs, "allocated, all jobs", 0);
    jobs.what = "peak_reserved";
    say_median(table, totals, rows, count, jobs, "reserved, all jobs", 0.06);
    jobs.what = "nvidia_smi";
    say_median(table, totals, rows, count, jobs, "nvidia-smi, all jobs", 0);
    struct choice parts = {.exact = true};
    say_median(table, totals, rows, count, parts, "tensors, layers, kernels, states", 0);
    for (int half = ALL; half <= HELD_OUT; half++)
        say_outcomes(table, totals, rows, count, (enum half)half);
    say_odds(table, totals, rows, count);
    say_frameworks(table, rows, count);
}

int cases_score(const char *path, struct arena *arena, struct text *table, json_t **rows_out, json_t **totals,
                struct error *err)
{
    struct measured_cases cases;
    int refused = 0, more = 0, more_used = 0;
    double slowest_ms = 0;
    if (measured_cases_open(path, arena, &cases, err))
        return -1;
    struct scored *rows = arena_array(arena, (size_t)cases.count + 1, sizeof *rows);
    *rows_out = json_array();
    *totals = json_object();
    for (int i = 0; i < cases.count; i++) {
        predict(&cases.list[i], &rows[i]);
        say_row(table, &rows[i]);
        say_more(table, &rows[i]);
        refused += rows[i].reason != NULL;
        more += rows[i].more;
        more_used += rows[i].more_used;
        slowest_ms = fmax(slowest_ms, rows[i].ms);
        json_array_append_new(*rows_out, row_to_json(&rows[i]));
    }
    say_worst(table, rows, cases.count);
    say_all(table, *totals, rows, cases.count);
    odds_say_errors(*rows_out, table);
    text_printf(
        table,
        "%-26s %d rows, %d of them not modelled; %d of %d further figures compared; slowest answer %.0f ms\n",
        "cases", cases.count, refused, more_used, more, slowest_ms);
    measured_cases_close(&cases);
    return 0;
}
