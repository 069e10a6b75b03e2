#include "cli/job_report.h"

#include "base/units.h"
#include "cli/job_words.h"
#include "jobs/frameworks.h"
#include "reports/role_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double gib = 1 << 30;

/* ---- the sentence ---- */

static const char *moment(const struct job_verdict *v)
{
    static const char *const moments[REPLAY_MOMENTS] = {
        [REPLAY_START] = "before the first step",
        [REPLAY_FIRST_FORWARD] = "in the first forward",
        [REPLAY_FIRST_BACKWARD] = "in the first backward",
        [REPLAY_FIRST_UPDATE] = "at the first optimizer step",
        [REPLAY_FORWARD] = "in forward from the second step on",
        [REPLAY_BACKWARD] = "in backward from the second step on",
        [REPLAY_UPDATE] = "at the second optimizer step",
    };
    return moments[v->memory.peak.moment];
}

static const char *place(const struct job_verdict *v, struct arena *arena)
{
    if (v->workload.pp == 1)
        return moment(v);
    return arena_printf(arena, "%s, on stage %lld", moment(v), (long long)v->memory.stage);
}

/* ", if ...": what the answer rests on besides. */
static const char *condition(const struct job_answer *answer, struct arena *arena)
{
    return answer->job->condition ? arena_printf(arena, ", if %s", answer->job->condition) : "";
}

const char *job_report_sentence(const struct job_answer *answer, struct arena *arena)
{
    const struct job_verdict *v = answer->verdict;
    if (!v)
        return arena_printf(arena, "no verdict on %s", answer->device ? answer->device->name : "any card");
    double needed = (double)v->needed_bytes / gib, has = (double)v->capacity_bytes / gib;
    if (v->fits)
        return arena_printf(arena, "fits: %.1f of %.1f GiB on %s, %s sure%s", needed, has,
                            answer->device->name, job_words_percent(v->probability, arena),
                            condition(answer, arena));
    return arena_printf(arena, "does not fit: needs %.1f of %.1f GiB on %s %s, %s sure%s", needed, has,
                        answer->device->name, place(v, arena), job_words_percent(1 - v->probability, arena),
                        condition(answer, arena));
}

/* ---- what was understood ---- */

static void add_understood(struct report *page, const struct job_answer *answer)
{
    const struct training_job *job = answer->job;
    const struct job_launch *l = &job->launch;
    char parameters[UNITS_TEXT];
    report_fact(page, "launch", "%s: %s, started by %s", job_framework_name(job->framework), l->program,
                l->launchers               ? l->launchers
                : job->framework->binaries ? "itself"
                                           : "python");
    if (l->taken_for)
        report_fact(page, "taken for", "%s, since the program is not known", l->taken_for);
    if (job->model_known)
        report_fact(page, "model", "%s, %s parameters", job->model.name,
                    units_format_count(job_model_parameters(&job->model), parameters));
    if (l->ranks && job->layout.dp) {
        report_fact(page, "ranks", "%s", job_words_ranks(job, page->arena));
        report_fact(page, "batch", "%lld sequences of %lld a step, in micro-batches of %lld",
                    (long long)job->batch.global, (long long)job->batch.sequence,
                    (long long)job->batch.micro);
    }
    if (!answer->verdict)
        return;
    const struct workload *w = &answer->verdict->workload;
    report_fact(page, "numbers", "%s", job_words_numbers(w, page->arena));
    report_fact(page, "states", "%s", job_words_sharding(w, page->arena));
    report_fact(page, "layers", "%s, %s", job_words_recomputation(w, page->arena), job_words_attention(w));
}

/* ---- the verdict ---- */

static const char *worst_ranks(const struct job_verdict *v, struct arena *arena)
{
    if (v->workload.pp == 1)
        return v->ranks == 1 ? "the only rank" : "all ranks alike";
    return v->ranks == 1 ? arena_printf(arena, "rank %lld", (long long)v->first_rank)
                         : arena_printf(arena, "ranks %lld to %lld", (long long)v->first_rank,
                                        (long long)(v->first_rank + v->ranks - 1));
}

/* The step with what eight of ten such predictions came to, and what that is in tokens and of the cards' rate. */
static void add_pace(struct report *page, const struct job_pace *pace, int64_t ranks)
{
    char step[UNITS_TEXT], low[UNITS_TEXT], high[UNITS_TEXT], all[UNITS_TEXT], each[UNITS_TEXT];
    double rate = pace->tokens_per_second;
    report_fact(page, "step", "%s; of ten jobs eight from %s to %s (%d steps)",
                units_format_seconds(pace->seconds, step), units_format_seconds(pace->range.low_s, low),
                units_format_seconds(pace->range.high_s, high), pace->range.steps);
    units_format_count(llround(rate), all);
    units_format_count(llround(rate / (double)(ranks > 0 ? ranks : 1)), each);
    if (isnan(pace->utilization))
        report_fact(page, "throughput", "%s tokens/s", all);
    else
        report_fact(page, "throughput", "%s tokens/s, %s on each card, %.1f%% MFU", all, each,
                    100 * pace->utilization);
}

static void add_verdict(struct report *page, const struct job_answer *answer)
{
    const struct job_verdict *v = answer->verdict;
    char margin[UNITS_TEXT];
    int64_t left = v->capacity_bytes - v->needed_bytes;
    report_capacity(page, "needed", v->needed_bytes, v->capacity_bytes);
    report_fact(page, "margin", "%s %s", units_format_bytes(left < 0 ? -left : left, margin),
                left < 0 ? "short" : "to spare");
    report_fact(page, "fits with", "%s, by the errors of %d measured jobs",
                job_words_percent(v->probability, page->arena), v->jobs);
    report_fact(page, "peak", "%s, %s", place(v, page->arena), worst_ranks(v, page->arena));
    if (v->fits && v->memory.retries)
        report_fact(page, "allocator", "gives cached memory back %lld %s to make room, which takes time",
                    (long long)v->memory.retries, units_plural(v->memory.retries, "time", "times"));
    if (isnan(answer->advice->seconds))
        report_fact(page, "step", "not predicted: %s", answer->advice->untimed);
    else
        add_pace(page, answer->pace, answer->job->launch.ranks);
}

static void add_figures(struct report *page, const struct job_verdict *v)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"predicted", TABLE_BYTES}, {"from", TABLE_BYTES}, {"to", TABLE_BYTES}};
    const char *heading =
        v->fits ? "What tools will show; of ten such jobs, eight from here to there"
                : "What tools would show, with room; of ten such jobs, eight from here to there";
    struct table *table = report_table(page, heading, columns, 4);
    bool torch = v->workload.library != WORKLOAD_LLMC; /* which counts nothing itself */
    for (int i = torch ? 0 : WORKLOAD_DEVICE; i < WORKLOAD_FIGURES; i++)
        table_add(table, (struct table_cell[]){
                             cell_text(workload_figure_name((enum workload_figure)i)),
                             cell_whole(workload_figure_bytes(&v->memory, (enum workload_figure)i)),
                             cell_whole(v->intervals[i].low_bytes), cell_whole(v->intervals[i].high_bytes)});
}

static void add_needed(struct report *page, const struct job_verdict *v)
{
    static const struct table_column columns[] = {{"", TABLE_TEXT}, {"", TABLE_BYTES}};
    const struct workload_memory *m = &v->memory;
    struct table *table = report_table(page, "What is needed", columns, 2);
    const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {{"tensors at the peak", m->peak.bytes},
                {"the allocator's free pieces, of which it makes no room", v->fragment_bytes},
                {"CUDA context with its kernels", m->context_bytes},
                {"NCCL's buffers", m->nccl_bytes},
                {"kept free for what no rule accounts for", m->doubt_bytes},
                {"total", v->needed_bytes}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].bytes)
            table_add(table, (struct table_cell[]){cell_text(rows[i].name), cell_whole(rows[i].bytes)});
}

/* ---- changes ---- */

static void add_line(struct table *table, const char *text)
{
    table_add(table, (struct table_cell[]){cell_text(text), cell_blank(), cell_blank(), cell_blank()});
}

/* All of a change on lines of its own, so that it can be pasted. */
static void add_edits(struct table *table, const struct training_job *job, const struct job_edits *edits,
                      struct arena *arena)
{
    for (int i = 0; i < edits->count; i++)
        add_line(table, arena_printf(arena, "    %s", job_words_change(job, &edits->list[i], arena)));
}

static const char *advised_name(const struct job_advised *advised, struct arena *arena)
{
    const char *text = advised->parts[0]->name;
    for (int i = 1; i < advised->part_count; i++)
        text = arena_printf(arena, "%s; %s", text, advised->parts[i]->name);
    return text;
}

static const char *times(double ratio, struct arena *arena)
{
    return isnan(ratio) ? "?" : arena_printf(arena, "x %.2f", ratio);
}

static const char *advice_heading(const struct job_advice *advice)
{
    static const char *const headings[] = {[JOB_ADVICE_TO_FIT] = "What would make it fit, cheapest first",
                                           [JOB_ADVICE_TO_BE_SURE] =
                                               "What would make it sure to fit, cheapest first",
                                           [JOB_ADVICE_TO_BUY] = "What the room would buy"};
    if (!advice->falls_short)
        return headings[advice->aim];
    return advice->aim == JOB_ADVICE_TO_FIT ? "What comes nearest to fitting"
                                            : "What comes nearest to being sure to fit";
}

const char *job_report_advice(const struct job_answer *answer, struct arena *arena)
{
    const struct job_advice *advice = answer->advice;
    if (!advice || !advice->count)
        return arena_printf(arena, "%s: %s", job_framework_name(answer->job->framework),
                            answer->job->launch.program);
    return arena_printf(arena, "%s: %s", advice_heading(advice), advised_name(&advice->list[0], arena));
}

static void add_notes(struct report *page, const struct job_advice *advice)
{
    const char *untimed = NULL;
    bool alters = false;
    for (int i = 0; i < advice->count; i++) {
        untimed = advice->list[i].untimed ? advice->list[i].untimed : untimed;
        alters |= advice->list[i].alters;
    }
    report_remark(page, NULL, "time: of a sequence, against what it takes now.");
    if (untimed)
        report_remark(page, NULL, "?: no time is predicted for these: %s.", untimed);
    if (alters)
        report_remark(page, NULL, "*: what is learned may differ, by precision or by the size of a batch.");
}

static void add_no_advice(struct report *page, const struct job_advice *advice)
{
    const char *heading = advice_heading(advice);
    if (!advice->tried)
        report_remark(page, heading, "No change is known that could be tried.");
    else if (advice->tried == 1)
        report_remark(page, heading, "One change was tried, and it %s.",
                      advice->aim == JOB_ADVICE_TO_BUY ? "is not both faster and sure to fit"
                                                       : "needs no less");
    else
        report_remark(page, heading,
                      advice->aim == JOB_ADVICE_TO_BUY
                          ? "Of %d changes that were tried, none is faster and sure to fit."
                          : "Of %d changes that were tried, none needs less.",
                      advice->tried);
}

static void add_advice(struct report *page, const struct job_answer *answer)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"needs", TABLE_BYTES}, {"fits with", TABLE_QUANTITY}, {"time", TABLE_QUANTITY}};
    const struct job_advice *advice = answer->advice;
    struct arena *arena = page->arena;
    if (!advice->count) {
        add_no_advice(page, advice);
        return;
    }
    struct table *table = report_table(page, advice_heading(advice), columns, 4);
    for (int i = 0; i < advice->count; i++) {
        const struct job_advised *a = &advice->list[i];
        const char *name = a->parts[0]->name;
        table_add(table,
                  (struct table_cell[]){cell_text(a->alters ? arena_printf(arena, "%s *", name) : name),
                                        cell_whole(a->after.needed_bytes),
                                        cell_text(job_words_percent(a->after.probability, arena)),
                                        cell_text(times(a->time_ratio, arena))});
        for (int k = 1; k < a->part_count; k++)
            add_line(table, arena_printf(arena, "and %s", a->parts[k]->name));
        add_edits(table, answer->job, &a->edits, arena);
    }
    add_notes(page, advice);
}

/* ---- where it comes from ---- */

static void add_terms(struct report *page, const struct workload_terms *terms)
{
    static const struct table_column columns[] = {
        {"", TABLE_TEXT}, {"role", TABLE_TEXT}, {"count", TABLE_COUNT}, {"", TABLE_BYTES}};
    struct table *table = report_table(page, "Every term of the peak, with its rule", columns, 4);
    for (int i = 0; i < terms->count; i++) {
        const struct workload_term *t = &terms->list[i];
        table_add(table, (struct table_cell[]){cell_text(t->name), cell_text(role_name(t->role)),
                                               cell_whole(t->count), cell_whole(t->bytes)});
        add_line(table, arena_printf(page->arena, "    %s; %s", t->formula, t->source));
    }
    table_add(table, (struct table_cell[]){cell_text("total"), cell_blank(), cell_blank(),
                                           cell_whole(terms->bytes)});
}

/* Settings that have no room beside their source stand above it. */
static void add_facts(struct report *page, const struct training_job *job, enum fact_kind kind,
                      const char *heading)
{
    static const struct table_column columns[] = {{"", TABLE_TEXT}, {"", TABLE_TEXT}};
    enum { SETTING = 42, SOURCE = 34 };
    struct table *table = NULL;
    for (int i = 0; i < job->facts.count; i++) {
        const struct fact *f = &job->facts.list[i];
        if (f->kind != kind)
            continue;
        if (!table)
            table = report_table(page, heading, columns, 2);
        const char *setting = arena_printf(page->arena, "%s = %s", f->name, f->value),
                   *from = job_words_origin(f->origin);
        if (strlen(setting) <= SETTING && strlen(from) <= SOURCE)
            table_add(table, (struct table_cell[]){cell_text(setting), cell_text(from)});
        else
            table_add(table,
                      (struct table_cell[]){cell_text(arena_printf(page->arena, "%s   (%s)", setting, from)),
                                            cell_blank()});
    }
}

static void add_irrelevant(struct report *page, const struct training_job *job)
{
    const char *names = NULL;
    for (int i = 0; i < job->facts.count; i++)
        if (job->facts.list[i].kind == FACT_IRRELEVANT)
            names = arena_printf(page->arena, "%s%s%s", names ? names : "", names ? " " : "",
                                 job->facts.list[i].name);
    if (names)
        report_remark(page, "Known, and no business of memory", "%s", names);
}

static void add_explanation(struct report *page, const struct job_answer *answer)
{
    if (answer->terms)
        add_terms(page, answer->terms);
    if (answer->verdict)
        add_needed(page, answer->verdict);
    add_facts(page, answer->job, FACT_READ, "Read");
    add_facts(page, answer->job, FACT_DERIVED, "Follows from that");
    add_facts(page, answer->job, FACT_DEFAULT, "Not given, so the default of");
    add_irrelevant(page, answer->job);
}

/* "Times are from data sheets, ..."; nothing where there are none. */
static const char *time_assumption(const struct job_answer *answer, struct arena *arena)
{
    const struct node_group *n = answer->nodes;
    const char *rates = cards_rates_text(answer->pace->evidence, false);
    const char *out = arena_printf(arena, " Times are from %s.", rates);
    struct text net = {0};
    if (isnan(answer->advice->seconds))
        return "";
    if (n->nodes > 1) {
        machine_speed_describe_net(n, "--net", &net);
        out = arena_printf(arena, " Times are from %s, for %lld nodes of %lld, whose network is %s.", rates,
                           (long long)n->nodes, (long long)n->ranks_per_node, net.data);
        text_free(&net);
    }
    return answer->pace->range.own
               ? out
               : arena_printf(arena,
                              "%s Their errors are those of Megatron-LM's steps, and of the few of "
                              "other frameworks, which took longer.",
                              out);
}

/* What is taken to be so and no launch says. */
static void add_assumptions(struct report *page, const struct job_answer *answer)
{
    const struct workload *w = &answer->verdict->workload;
    char context[UNITS_TEXT], doubt[UNITS_TEXT];
    report_remark(
        page, "What is assumed",
        "Every sequence is as long as it may be%s. A CUDA context takes %s; %s stay free for what no rule "
        "accounts for.%s%s%s",
        w->model.experts ? ", and tokens spread evenly over experts" : "",
        units_format_bytes(answer->verdict->memory.context_bytes, context),
        units_format_bytes(answer->verdict->memory.doubt_bytes, doubt),
        workload_odds_unexplained(w)
            ? " Quantized weights that are split over ranks take 1.2 to 1.8 times what these "
              "rules say, by PEFT's documentation; why is not known."
            : "",
        time_assumption(answer, page->arena),
        job_count(answer->job, FACT_DEFAULT) ? " What the launch does not say has its framework's default: "
                                               "--explain lists them."
                                             : "");
}

struct report *job_report_page(const struct job_answer *answer, struct arena *arena)
{
    struct report *page = report_create(arena, "%s", job_report_sentence(answer, arena));
    const struct job_verdict *v = answer->verdict;
    add_understood(page, answer);
    if (v) {
        add_verdict(page, answer);
        add_figures(page, v);
        role_table_add(page, "Who holds the tensors at the peak", v->memory.peak.by_role, NULL);
        report_set_topic(page, TOPIC_ROLES);
        add_advice(page, answer);
    }
    add_facts(page, answer->job, FACT_UNKNOWN, "Not understood, and not counted");
    add_facts(page, answer->job, FACT_MISSING, "Missing");
    if (answer->explain)
        add_explanation(page, answer);
    if (v)
        add_assumptions(page, answer);
    return page;
}
