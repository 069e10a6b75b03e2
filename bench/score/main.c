/* How true are predicted times and memory of jobs that others measured?
 *
 *     build/bench/score/score [CASES [score.json]]
 *     build/bench/score/score --fit [CASES]         which constants suit the rows for fitting best
 *
 * Reads layout_sweep.csv, step_times_single_node.csv, step_times_multi_node.csv and cases.jsonl from the folder CASES, each where it is
 * there, and the published tables that lie beside this file; prints what predictions and measurements add up to, and writes
 * every row. The planner sees a row's job and never its outcome. Rows that constants were fitted to are counted apart; the others
 * were left out of the fit, but not out of sight (docs/time-model.md, section 10). */
#include "bench/score/cases.h"
#include "bench/score/fit.h"
#include "bench/score/odds.h"
#include "bench/score/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const published_path = "bench/score/published.csv";

struct report {
    struct arena *arena;
    const char *cases;
    struct text table;
    json_t *totals, *rows;
    struct step_errors steps;
};

typedef int reader(const char *path, struct arena *arena, struct verdicts *out, struct error *err);

static void fail(const struct error *err)
{
    fprintf(stderr, "score: %s\n", err->text);
    exit(2);
}

static void set(struct report *r, const char *name, const char *key, double value)
{
    json_t *totals = json_object_get(r->totals, name);
    if (!totals) {
        totals = json_object();
        json_object_set_new(r->totals, name, totals);
    }
    json_object_set_new(totals, key, json_real(value));
}

/* false where the file is not there. */
static bool predict(struct report *r, const char *path, const char *name, reader *read, struct verdicts *out)
{
    struct error err = {0};
    if (access(path, R_OK)) {
        text_printf(&r->table, "%-26s skipped: there is no %s\n", name, path);
        return false;
    }
    if (read(path, r->arena, out, &err) || verdicts_predict(out, &err))
        fail(&err);
    if (out->refused)
        text_printf(&r->table, "%-26s %d rows left out; the first: %s\n", name, out->refused,
                    out->reason.text);
    json_object_set_new(r->rows, name, verdicts_to_json(out));
    return true;
}

/* One line of a table: what, the aim, and what came out. */
static void say(struct report *r, const char *name, const char *what, double value, double aim)
{
    text_printf(&r->table, "%-26s %-42s %7.1f%%", name, what, 100 * value);
    if (aim > 0)
        text_printf(&r->table, "   aim %4.0f%%  %s", 100 * aim, value <= aim ? "met" : "MISSED");
    text_add(&r->table, "\n");
}

static void say_errors(struct report *r, const char *name, const char *what, struct errors errors, double aim)
{
    char text[96];
    if (!errors.count)
        return;
    snprintf(text, sizeof text, "mean error, %s (%d rows)", what, errors.count);
    say(r, name, text, errors.mean, aim);
    snprintf(text, sizeof text, "mean_error, %s", what);
    set(r, name, text, errors.mean);
    snprintf(text, sizeof text, "bias, %s", what);
    set(r, name, text, errors.bias);
    snprintf(text, sizeof text, "largest_error, %s", what);
    set(r, name, text, errors.most);
}

static void say_choices(struct report *r, const char *name, struct choices choices, double mean_aim,
                        double most_aim)
{
    char text[96];
    snprintf(text, sizeof text, "mean regret of %d picks, %d the fastest", choices.problems, choices.best);
    say(r, name, text, choices.mean_regret, mean_aim);
    say(r, name, "largest regret", choices.most_regret, most_aim);
    text_printf(&r->table, "%-26s picks that ran out of memory %21d\n", name, choices.out_of_memory);
    set(r, name, "problems", choices.problems);
    set(r, name, "mean_regret", choices.mean_regret);
    set(r, name, "largest_regret", choices.most_regret);
    set(r, name, "picks_out_of_memory", choices.out_of_memory);
    set(r, name, "picks_fastest", choices.best);
}

static void say_outcomes(struct report *r, const char *what, struct outcomes o, double aim)
{
    static const char *const name = "layout_sweep";
    char text[96];
    if (!o.count)
        return;
    snprintf(text, sizeof text, "%s (%d): %d missed, %d false alarms", what, o.count, o.missed,
             o.false_alarms);
    say(r, name, text, (double)(o.missed + o.false_alarms) / o.count, aim);
    snprintf(text, sizeof text, "wrong_outcomes, %s", what);
    set(r, name, text, (double)(o.missed + o.false_alarms) / o.count);
    snprintf(text, sizeof text, "missed, %s", what);
    set(r, name, text, o.missed);
    snprintf(text, sizeof text, "false_alarms, %s", what);
    set(r, name, text, o.false_alarms);
}

/* The same rows, as jobs of whose trainer nothing is known. */
static void say_rules_alone(struct report *r, const char *name, const struct verdicts *verdicts)
{
    struct error err = {0};
    struct odds odds = {.squares = 0};
    struct verdicts alone = *verdicts;
    alone.rows = arena_array(r->arena, (size_t)alone.count + 1, sizeof *alone.rows);
    memcpy(alone.rows, verdicts->rows, (size_t)alone.count * sizeof *alone.rows);
    if (verdicts_predict_memory(&alone, NULL, &err))
        fail(&err);
    say_outcomes(r, "all, by the rules alone", verdicts_outcomes(&alone, SHARE_ALL), 0);
    for (int i = 0; i < alone.count; i++)
        odds_add(&odds, &alone.rows[i].job, &alone.rows[i].memory, alone.rows[i].out_of_memory);
    odds_say(&odds, name, &r->table, r->totals);
}

static void score_sweep(struct report *r)
{
    static const char *const name = "layout_sweep";
    struct verdicts v;
    if (!predict(r, arena_printf(r->arena, "%s/layout_sweep.csv", r->cases), name, rows_read_sweep, &v))
        return;
    say_outcomes(r, "all", verdicts_outcomes(&v, SHARE_ALL), 0.05);
    say_rules_alone(r, name, &v);
    say_outcomes(r, "fitted", verdicts_outcomes(&v, SHARE_FITTED), 0);
    say_outcomes(r, "not fitted", verdicts_outcomes(&v, SHARE_NOT_FITTED), 0);
    say_choices(r, name, verdicts_choices(&v), 0.02, 0.1);
    say_errors(r, name, "time", verdicts_errors(&v, NULL, SHARE_ALL), 0);
    odds_add_steps(&r->steps, &v, true); /* what was fitted to are outcomes */
}

static void score_steps(struct report *r, const char *name, double aim)
{
    struct verdicts v;
    if (!predict(r, arena_printf(r->arena, "%s/%s.csv", r->cases, name), name, rows_read_steps, &v))
        return;
    say_errors(r, name, "all", verdicts_errors(&v, NULL, SHARE_ALL), aim);
    say_errors(r, name, "not fitted", verdicts_errors(&v, NULL, SHARE_NOT_FITTED), aim);
    say_errors(r, name, "fitted", verdicts_errors(&v, NULL, SHARE_FITTED), 0);
    say_choices(r, name, verdicts_choices(&v), 0, 0);
    odds_add_steps(&r->steps, &v, false);
}

static void score_published(struct report *r)
{
    static const struct {
        const char *table;
        double aim;
    } aims[] = {{"SC21 table 1", 0.1},
                {"recomputation table 5", 0.08},
                {"zero-bubble table 4", 0.04},
                {"zero-bubble table 4 times", 0}};
    struct verdicts v;
    if (!predict(r, published_path, "published", rows_read_published, &v))
        return;
    for (size_t i = 0; i < sizeof aims / sizeof *aims; i++) {
        struct errors errors = verdicts_errors(&v, aims[i].table, SHARE_ALL);
        say_errors(r, aims[i].table, "all", errors, 0);
        say(r, aims[i].table, "largest error", errors.most, aims[i].aim);
    }
    odds_add_steps(&r->steps, &v, false);
    for (int i = 0; i < v.count; i++)
        text_printf(&r->table, "    %-22s %-6s %-9s %s %+6.1f%%\n", v.rows[i].problem, v.rows[i].model,
                    v.rows[i].job.recompute == WORKLOAD_FULL ? "full" : "",
                    v.rows[i].job.virtual_stages > 1 ? "interleaved" : schedule_name(v.rows[i].job.schedule),
                    100 * verdict_error(&v.rows[i]));
}

/* Jobs of any framework: allocated, reserved, outcomes. */
static void score_cases(struct report *r)
{
    struct error err = {0};
    json_t *rows, *totals;
    const char *path = arena_printf(r->arena, "%s/cases.jsonl", r->cases);
    if (access(path, R_OK)) {
        text_printf(&r->table, "%-26s skipped: there is no %s\n", "cases", path);
        return;
    }
    if (cases_score(path, r->arena, &r->table, &rows, &totals, &err))
        fail(&err);
    json_object_set_new(r->rows, "cases", rows);
    json_object_set_new(r->totals, "cases", totals);
}

static void fit(struct report *r)
{
    struct verdicts v;
    if (predict(r, arena_printf(r->arena, "%s/step_times_single_node.csv", r->cases), "steps",
                rows_read_steps, &v))
        fit_times(&v, &r->table);
    if (predict(r, arena_printf(r->arena, "%s/layout_sweep.csv", r->cases), "sweep", rows_read_sweep, &v))
        fit_memory(&v, &r->table);
}

static void score(struct report *r)
{
    score_sweep(r);
    score_steps(r, "step_times_single_node", 0.08);
    score_steps(r, "step_times_multi_node", 0.14);
    score_published(r);
    score_cases(r);
    odds_say_steps(&r->steps, &r->table);
}

int main(int argc, char **argv)
{
    struct error err = {0};
    bool fits = argc > 1 && !strcmp(argv[1], "--fit");
    argv += fits;
    argc -= fits;
    struct report r = {
        .arena = arena_create(),
        .cases = argc > 1 ? argv[1] : "../shared/cases",
        .totals = json_object(),
        .rows = json_object(),
    };
    if (fits)
        fit(&r);
    else
        score(&r);
    fputs(r.table.data, stdout);
    json_t *all = json_pack("{s:i, s:s, s:o, s:o}", "memplan_score", 1, "cases", r.cases, "totals", r.totals,
                            "rows", r.rows);
    if (argc > 2 && jsonfile_write(all, argv[2], &err))
        fail(&err);
    json_decref(all);
    text_free(&r.table);
    arena_free(r.arena);
    return 0;
}
