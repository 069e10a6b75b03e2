#include "cli/tune_report.h"

#include "base/units.h"
#include "cli/job_json.h"
#include "cli/job_pace.h"
#include "cli/job_spent.h"
#include "cli/job_words.h"
#include "cli/speed.h"
#include "jobs/frameworks.h"

#include <math.h>
#include <string.h>

static const double gib = 1 << 30;
/* A part of the time that has so much of what is saved is said to be why. */
static const double telling = 0.1;

/* ---- one launch of the answer ---- */

static struct tuned as_it_stands(const struct tune_answer *answer)
{
    return (struct tuned){.job = *answer->request->job,
                          .verdict = *answer->request->verdict,
                          .sequence_s = answer->tuning->sequence_s};
}

static int64_t sequences(const struct tuned *t)
{
    const struct workload *w = &t->verdict.workload;
    return w->dp * w->micro_batch * w->micro_batches;
}

static double step_s(const struct tuned *t)
{
    return t->sequence_s * (double)sequences(t);
}

static struct job_pace pace_of(const struct tune_answer *answer, const struct tuned *t)
{
    return job_pace_of(&t->job, &t->verdict, answer->request->device, answer->request->speeds, step_s(t));
}

static bool spent_of(const struct tune_answer *answer, const struct tuned *t, struct job_spent *out)
{
    const struct workload *w = &t->verdict.workload;
    struct error unheard = {0};
    return !job_spent_of(w, &answer->request->speeds[w->compute_bytes < 4], out, &unheard);
}

static const char *differences(const struct tune_answer *answer, const struct tuned *t, struct arena *arena)
{
    return job_words_differences(
        &(struct job_words_launch){answer->request->job, &answer->request->verdict->workload},
        &(struct job_words_launch){&t->job, &t->verdict.workload}, &t->edits, arena);
}

bool tune_report_changes(const struct tune_answer *answer)
{
    return answer->tuning->count && answer->tuning->list[0].edits.count;
}

/* ---- the sentence ---- */

static const char *room(const struct tune_answer *answer, const struct tuned *t, struct arena *arena)
{
    return arena_printf(arena, "%.1f of %.1f GiB on %s", (double)t->verdict.needed_bytes / gib,
                        (double)t->verdict.capacity_bytes / gib, answer->request->device->name);
}

static const char *sure(const struct tuned *t, struct arena *arena)
{
    return arena_printf(arena, "%s sure", job_words_percent(t->verdict.probability, arena));
}

/* "21.2 s a step instead of 28.9 s"; of steps of another size, what goes through in a second. */
static const char *speed(const struct tune_answer *answer, const struct tuned *t, struct arena *arena)
{
    struct tuned now = as_it_stands(answer);
    char after[UNITS_TEXT], before[UNITS_TEXT];
    units_format_seconds(step_s(t), after);
    units_format_seconds(step_s(&now), before);
    if (sequences(t) == sequences(&now))
        return strcmp(after, before) ? arena_printf(arena, "%s a step instead of %s", after, before)
                                     : arena_printf(arena, "%s a step, as now", after);
    return arena_printf(arena, "%s tokens/s instead of %s",
                        units_format_count(llround(pace_of(answer, t).tokens_per_second), after),
                        units_format_count(llround(pace_of(answer, &now).tokens_per_second), before));
}

static const char *no_change(const struct tune_answer *answer, struct arena *arena)
{
    const struct tuning *tuning = answer->tuning;
    struct tuned now = as_it_stands(answer);
    const struct tuned *nearest = &tuning->nearest;
    char step[UNITS_TEXT];
    const char *found = tuning->complete ? "" : " found",
               *fits = tuning->complete ? "fits" : "was found that fits";
    int64_t short_bytes = nearest->verdict.needed_bytes - nearest->verdict.capacity_bytes;
    if (now.verdict.fits)
        return arena_printf(arena, "nothing %s%s: it takes %s a step as it stands, and fits: %s, %s",
                            now.verdict.probability >= job_trial_sure ? "faster" : "surer", found,
                            units_format_seconds(step_s(&now), step), room(answer, &now, arena),
                            sure(&now, arena));
    if (short_bytes <= 0)
        return arena_printf(arena, "nothing %s: the nearest needs %s, and fits with %s only", fits,
                            room(answer, nearest, arena),
                            job_words_percent(nearest->verdict.probability, arena));
    return arena_printf(arena, "nothing %s: the nearest needs %s, %.1f GiB short", fits,
                        room(answer, nearest, arena), (double)short_bytes / gib);
}

const char *tune_report_sentence(const struct tune_answer *answer, struct arena *arena)
{
    const struct tuned *best = &answer->tuning->list[0];
    if (!tune_report_changes(answer))
        return no_change(answer, arena);
    double gain = answer->tuning->sequence_s / best->sequence_s;
    const char *fits = arena_printf(arena, "fits: %s, %s", room(answer, best, arena), sure(best, arena));
    if (!answer->request->verdict->fits)
        return arena_printf(arena, "fits, which it does not now: %s, %s; it takes %s",
                            room(answer, best, arena), sure(best, arena), speed(answer, best, arena));
    if (gain > 1 + job_trial_gain)
        return arena_printf(arena, "%.2fx faster: %s, and %s", gain, speed(answer, best, arena), fits);
    return arena_printf(arena, "%s; it takes %s", fits, speed(answer, best, arena));
}

/* ---- the page ---- */

/* What is tuned, and how the ranks share it before and after. */
static void add_launch(struct report *page, const struct tune_answer *answer)
{
    const struct training_job *job = answer->request->job;
    const char *now = job_words_ranks(job, page->arena);
    report_fact(page, "launch", "%s: %s, %s", job_framework_name(job->framework), job->launch.program,
                job->model.name);
    report_fact(page, "ranks", "%s", now);
    if (!tune_report_changes(answer))
        return;
    const char *then = job_words_ranks(&answer->tuning->list[0].job, page->arena);
    if (strcmp(now, then))
        report_fact(page, "tuned", "%s", then);
    report_fact(page, "changes", "%s", differences(answer, &answer->tuning->list[0], page->arena));
}

static void add_line(struct table *table, const char *text)
{
    table_add(table, (struct table_cell[]){cell_text(text), cell_blank(), cell_blank(), cell_blank()});
}

static void add_edits(struct table *table, const struct tune_answer *answer, const struct tuned *t)
{
    for (int i = 0; i < t->edits.count; i++)
        add_line(table,
                 arena_printf(table->arena, "    %s",
                              job_words_change(answer->request->job, &t->edits.list[i], table->arena)));
}

static void add_changes(struct report *page, const struct tune_answer *answer, const struct tuned *t,
                        const char *heading)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"", TABLE_TEXT}, {"", TABLE_TEXT}, {"", TABLE_TEXT}};
    struct table *table = report_table(page, heading, columns, 4);
    add_edits(table, answer, t);
}

/* A figure of a launch as it stands, and as it would be. */
struct pair_row {
    const char *name, *before, *after;
};

static const char *amount(const char *text, struct arena *arena)
{
    return arena_strdup(arena, text);
}

static void add_pair(struct report *page, const struct tune_answer *answer, const struct tuned *t,
                     const char *after_heading)
{
    struct tuned now = as_it_stands(answer);
    const struct tuned *both[2] = {&now, t};
    struct arena *arena = page->arena;
    struct table_column *columns = arena_array(arena, 3, sizeof *columns);
    const char *text[5][2];
    for (int i = 0; i < 2; i++) {
        struct job_pace pace = pace_of(answer, both[i]);
        char out[UNITS_TEXT];
        text[0][i] = amount(units_format_seconds(step_s(both[i]), out), arena);
        text[1][i] = amount(units_format_count(llround(pace.tokens_per_second), out), arena);
        text[2][i] = isnan(pace.utilization) ? "?" : arena_printf(arena, "%.1f%%", 100 * pace.utilization);
        text[3][i] = amount(units_format_bytes(both[i]->verdict.needed_bytes, out), arena);
        text[4][i] = job_words_percent(both[i]->verdict.probability, arena);
    }
    columns[0] = (struct table_column){"", TABLE_TEXT};
    columns[1] = (struct table_column){"as it stands", TABLE_QUANTITY};
    columns[2] = (struct table_column){after_heading, TABLE_QUANTITY};
    struct table *table = report_table(page, "Before and after", columns, 3);
    static const char *const names[] = {"step", "tokens/s", "MFU", "needed", "sure to fit"};
    for (int i = 0; i < 5; i++)
        table_add(table,
                  (struct table_cell[]){cell_text(names[i]), cell_text(text[i][0]), cell_text(text[i][1])});
}

/* "Of 5.3 s that a step is shorter, recomputation has 3.1 s, communication 2.0 s." */
static void add_why(struct report *page, const struct job_spent *before, const struct job_spent *after)
{
    char text[UNITS_TEXT];
    double saved = 0;
    const char *list = NULL;
    for (int i = 0; i < JOB_SPENT_PARTS; i++)
        saved += before->seconds[i] - after->seconds[i];
    for (int i = 0; i < JOB_SPENT_PARTS && saved > 0; i++) {
        double part = before->seconds[i] - after->seconds[i];
        if (part > telling * saved)
            list = arena_printf(page->arena, "%s%s%s %s", list ? list : "", list ? ", " : "",
                                job_spent_names[i], units_format_seconds(part, text));
    }
    if (list)
        report_remark(page, NULL, "Of the %s that a step is shorter: %s.", units_format_seconds(saved, text),
                      list);
}

static void add_spent(struct report *page, const struct tune_answer *answer, const struct tuned *t)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"as it stands", TABLE_SECONDS}, {"tuned", TABLE_SECONDS}};
    struct tuned now = as_it_stands(answer);
    struct job_spent before, after;
    if (sequences(t) != sequences(&now) || !spent_of(answer, &now, &before) || !spent_of(answer, t, &after))
        return;
    struct table *table = report_table(page, "Where a step's time goes", columns, 3);
    for (int i = 0; i < JOB_SPENT_PARTS; i++)
        if (before.seconds[i] > 0 || after.seconds[i] > 0)
            table_add(table,
                      (struct table_cell[]){cell_text(job_spent_names[i]), cell_real(before.seconds[i]),
                                            cell_real(after.seconds[i])});
    add_why(page, &before, &after);
}

/* A launch in its own words, one to a line, and its figures beside the first. */
static void add_other(struct table *table, const struct tune_answer *answer, const struct tuned *t)
{
    struct arena *arena = table->arena;
    const char *text = differences(answer, t, arena);
    size_t length = strcspn(text, ";");
    table_add(table,
              (struct table_cell[]){
                  cell_text(arena_printf(arena, "%.*s", (int)length, text)),
                  cell_whole(t->verdict.needed_bytes),
                  cell_text(job_words_percent(t->verdict.probability, arena)),
                  cell_text(arena_printf(arena, "x %.2f", t->sequence_s / answer->tuning->sequence_s))});
    while (text[length]) {
        text += length + 2;
        length = strcspn(text, ";");
        add_line(table, arena_printf(arena, "and %.*s", (int)length, text));
    }
    add_edits(table, answer, t);
}

static void add_others(struct report *page, const struct tune_answer *answer)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"needs", TABLE_BYTES}, {"fits with", TABLE_QUANTITY}, {"time", TABLE_QUANTITY}};
    const struct tuning *tuning = answer->tuning;
    if (tuning->count < 2)
        return;
    struct table *table = report_table(page, "The next best, each of another kind", columns, 4);
    for (int i = 1; i < tuning->count; i++)
        add_other(table, answer, &tuning->list[i]);
    report_remark(page, NULL, "time: of a sequence, against what it takes now.");
}

static const char *held(const struct tune_answer *answer, struct arena *arena)
{
    const struct tune_request *r = answer->request;
    struct tuned now = as_it_stands(answer);
    return arena_printf(arena, "%s%lld %s of %lld tokens on %lld %s%s",
                        r->allow_batch ? "Any number of sequences a step (now " : "All have ",
                        (long long)sequences(&now), units_plural(sequences(&now), "sequence", "sequences"),
                        (long long)now.verdict.workload.sequence, (long long)now.job.launch.ranks,
                        units_plural(now.job.launch.ranks, "rank", "ranks"),
                        r->allow_batch ? ")" : " a step");
}

/* "25 are faster than the first above, and do not surely fit." */
static const char *faster(const struct tune_answer *answer, struct arena *arena)
{
    const struct tuning *t = answer->tuning;
    const char *than = tune_report_changes(answer) ? "the first above" : "it is now";
    if (!t->faster)
        return arena_printf(arena, "None that is faster than %s was found too large.", than);
    return arena_printf(arena, "%d %s faster than %s, and %s not %sfit.", t->faster,
                        units_plural(t->faster, "is", "are"), than, units_plural(t->faster, "does", "do"),
                        t->count && !t->sure ? "" : "surely ");
}

static const char *rest(const struct tuning *t, struct arena *arena)
{
    if (t->complete)
        return "There are no others.";
    if (!t->unjudged)
        return "There was not work enough to read all: of the others one may be faster, which --exhaustive "
               "looks "
               "for.";
    return arena_printf(arena,
                        "There was not work enough for all: %d as fast %s not judged, of which one may fit; "
                        "--exhaustive looks at them.",
                        t->unjudged, units_plural(t->unjudged, "was", "were"));
}

static void add_searched(struct report *page, const struct tune_answer *answer)
{
    const struct tuning *t = answer->tuning;
    char launches[UNITS_TEXT];
    units_format_count(t->launches, launches);
    report_remark(
        page, "What was searched",
        "%s %s that its framework's options lead to from here, one change after the other: each was "
        "read and timed, and the fastest judged by memory, with %d %s. %s %s %s, and %s.",
        launches, units_plural(t->launches, "launch", "launches"), t->judged,
        units_plural(t->judged, "verdict", "verdicts"), faster(answer, page->arena), rest(t, page->arena),
        held(answer, page->arena),
        answer->request->allow_precision ? "precision may differ" : "compute in the same precision");
}

static const char *assumption(const struct tune_answer *answer, struct arena *arena)
{
    const struct node_group *n = answer->nodes;
    struct text net = {0};
    const char *rates = cards_rates_text(pace_of(answer, &answer->tuning->nearest).evidence, false);
    if (n->nodes < 2)
        return arena_printf(arena, "Times are from %s", rates);
    machine_speed_describe_net(n, "--net", &net);
    const char *out = arena_printf(arena, "Times are from %s, for %lld nodes of %lld, whose network is %s",
                                   rates, (long long)n->nodes, (long long)n->ranks_per_node, net.data);
    text_free(&net);
    return out;
}

struct report *tune_report_page(const struct tune_answer *answer, struct arena *arena)
{
    struct report *page = report_create(arena, "%s", tune_report_sentence(answer, arena));
    const struct tuning *tuning = answer->tuning;
    bool changes = tune_report_changes(answer), fits = answer->request->verdict->fits;
    add_launch(page, answer);
    if (changes) {
        add_changes(page, answer, &tuning->list[0], "What to change");
        add_pair(page, answer, &tuning->list[0], "tuned");
        add_spent(page, answer, &tuning->list[0]);
        add_others(page, answer);
    } else if (!fits && tuning->nearest.edits.count) {
        add_changes(page, answer, &tuning->nearest, "What comes nearest to fitting");
        add_pair(page, answer, &tuning->nearest, "nearest");
    }
    add_searched(page, answer);
    report_remark(page, "What is assumed",
                  "%s. A prediction may be off; `memplan check` says how far, of each launch.",
                  assumption(answer, arena));
    return page;
}

/* ---- JSON ---- */

static json_t *spent_to_json(const struct tune_answer *answer, const struct tuned *t)
{
    static const char *const keys[JOB_SPENT_PARTS] = {[JOB_SPENT_COMPUTATION] = "computation",
                                                      [JOB_SPENT_RECOMPUTATION] = "recomputation",
                                                      [JOB_SPENT_COMMUNICATION] = "communication",
                                                      [JOB_SPENT_TRANSFERS] = "host_transfers",
                                                      [JOB_SPENT_BUBBLE] = "bubble",
                                                      [JOB_SPENT_OPTIMIZER] = "optimizer"};
    struct job_spent spent;
    if (!spent_of(answer, t, &spent))
        return json_null();
    json_t *out = json_object();
    for (int i = 0; i < JOB_SPENT_PARTS; i++)
        json_object_set_new(out, keys[i], json_real(spent.seconds[i]));
    return out;
}

static json_t *tuned_to_json(const struct tune_answer *answer, const struct tuned *t, struct arena *arena)
{
    struct job_pace pace = pace_of(answer, t);
    const struct job_layout *l = &t->job.layout;
    json_t *out = json_pack(
        "{s:o, s:f, s:f, s:o, s:o, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "edits",
        job_json_edits(answer->request->job, &t->edits), "step_seconds", step_s(t), "time_ratio",
        t->sequence_s / answer->tuning->sequence_s, "tokens_per_second",
        job_json_real(pace.tokens_per_second), "model_flops_utilization", job_json_real(pace.utilization),
        "fits", t->verdict.fits, "probability", t->verdict.probability, "needed_bytes",
        (json_int_t)t->verdict.needed_bytes, "peak_bytes", (json_int_t)t->verdict.memory.peak.bytes, "dp",
        (json_int_t)l->dp, "tp", (json_int_t)l->tp, "pp", (json_int_t)l->pp, "cp", (json_int_t)l->cp,
        "micro_batch", (json_int_t)t->verdict.workload.micro_batch, "global_batch", (json_int_t)sequences(t));
    const char *words = t->edits.count ? differences(answer, t, arena) : NULL;
    json_object_set_new(out, "differences", jsonfile_string(words));
    json_object_set_new(out, "spent_seconds", spent_to_json(answer, t));
    return out;
}

static json_t *written_to_json(const struct tune_answer *answer)
{
    json_t *out = json_array();
    for (const char *const *file = answer->written; file && *file; file++)
        json_array_append_new(out, jsonfile_string(*file));
    return out;
}

json_t *tune_report_json(const struct tune_answer *answer, struct arena *arena)
{
    const struct tune_request *r = answer->request;
    const struct tuning *t = answer->tuning;
    struct tuned now = as_it_stands(answer);
    bool changes = tune_report_changes(answer);
    json_t *alternatives = json_array();
    for (int i = 1; i < t->count; i++)
        json_array_append_new(alternatives, tuned_to_json(answer, &t->list[i], arena));
    json_t *out =
        json_pack("{s:s, s:s, s:o, s:s, s:I, s:b, s:b, s:o}", "sentence", tune_report_sentence(answer, arena),
                  "framework", job_framework_name(r->job->framework), "program",
                  jsonfile_string(r->job->launch.program), "device", r->device->name, "capacity_bytes",
                  (json_int_t)r->verdict->capacity_bytes, "fits", changes || r->verdict->fits, "changes",
                  changes, "before", tuned_to_json(answer, &now, arena));
    json_object_set_new(out, "after", changes ? tuned_to_json(answer, &t->list[0], arena) : json_null());
    json_object_set_new(out, "nearest",
                        changes || r->verdict->fits ? json_null()
                                                    : tuned_to_json(answer, &t->nearest, arena));
    json_object_set_new(out, "alternatives", alternatives);
    json_object_set_new(out, "searched",
                        json_pack("{s:i, s:i, s:i, s:i, s:b}", "launches", t->launches, "judged", t->judged,
                                  "faster_and_too_large", t->faster, "faster_and_unjudged", t->unjudged,
                                  "complete", t->complete));
    json_object_set_new(out, "written", written_to_json(answer));
    if (answer->nodes->nodes > 1) {
        struct cluster cluster = cluster_of_group(answer->nodes);
        json_object_set_new(out, "networks", speed_networks_to_json(&cluster));
    }
    return out;
}
