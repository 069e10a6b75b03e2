/* One document, every format: whatever is said twice is the same. And the rules of each format. */
#include "base/units.h"
#include "reports/markup.h"
#include "reports/role_table.h"
#include "reports/writers.h"
#include "tests/reports/fixture.h"

/* Of the fixture's run, or of a run or a plan elsewhere. */
struct sample {
    char folder[64];
    struct arena *arena;
    struct store *store;
    struct pipeline *pipeline;
    struct document document;
};

static const struct document_needs everything = {
    .pictures = true, .all_ranks = true, .all_steps = true, .points = 1000};

static struct sample open_run_sample(void)
{
    struct sample s = {.arena = arena_create()};
    char path[128];
    scratch_open(s.folder);
    run_write(scratch_path(s.folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &s.store, &err));
    ASSERT_OK(store_freeze(s.store, &err));
    ASSERT_OK(document_of_run(s.store, 1, -1, SPANS_LAST_STEP, &everything, s.arena, &s.document, &err));
    return s;
}

/* What `plan --json` says of a plan and three others. */
static const char candidates_text[] =
    "{\"candidates\": 40, \"alternatives\": ["
    "{\"dp\": 2, \"micro_batch\": 4, \"recompute\": \"none\", \"peak_bytes\": 3000000, \"step_seconds\": "
    "0.25},"
    "{\"dp\": 2, \"micro_batch\": 2, \"recompute\": \"full\", \"peak_bytes\": 2000000, \"step_seconds\": "
    "0.5}],"
    "\"rejected\": [{\"dp\": 1, \"micro_batch\": 8, \"recompute\": \"none\", \"peak_bytes\": 9000000,"
    "\"step_seconds\": 0.3, \"reason\": \"too large\"}]}";

/* Of its two stages: 3 s, of which the second waits for 1 s and the first for 0.5 s. */
static struct timeline *foretell(struct arena *arena)
{
    static struct work_span first[] = {
        {.end_ns = 1000000000, .activity = ACTIVITY_FORWARD},
        {.start_ns = 1500000000, .end_ns = 2500000000, .activity = ACTIVITY_BACKWARD},
        {.start_ns = 2500000000, .end_ns = 3000000000, .activity = ACTIVITY_WEIGHTS, .micro_batch = 1}};
    static struct work_span second[] = {
        {.start_ns = 1000000000, .end_ns = 3000000000, .activity = ACTIVITY_RECOMPUTE, .micro_batch = 1}};
    struct lane *lanes = arena_array(arena, 2, sizeof *lanes);
    lanes[0] = (struct lane){.ranks = 2, .stage = 0, .stretches = first, .stretch_count = 3};
    lanes[1] = (struct lane){.rank = 2, .ranks = 2, .stage = 1, .stretches = second, .stretch_count = 1};
    return spans_foretold(lanes, 2, 3000000000, "Foretold from made-up rates.", arena);
}

static struct sample open_plan_sample(void)
{
    struct sample s = {.arena = arena_create()};
    struct candidates *candidates;
    json_t *json = json_loads(candidates_text, 0, NULL);
    s.pipeline = fixture_pipeline("gpt2-tiny", "selective",
                                  (struct layout){.dp = 2, .pp = 2, .micro_batch = 2, .global_batch = 16});
    ASSERT_OK(candidates_from_json(json, "plan.json", 4000000, s.arena, &candidates, &err));
    struct document_plan plan = {s.pipeline, "cpu", {4000000, 0}, candidates, foretell(s.arena), NULL};
    document_of_plan(&plan, &everything, s.arena, &s.document);
    json_decref(json);
    return s;
}

static void close_sample(struct sample *s)
{
    store_close(s->store);
    pipeline_free(s->pipeline);
    arena_free(s->arena);
    if (*s->folder)
        scratch_close(s->folder);
}

static struct text write_as(const struct sample *s, const char *name)
{
    struct text text = {0};
    const struct writer *writer = writer_find(name, &err);
    ASSERT_MSG(writer, "%s", err.text);
    ASSERT_OK(writer->write(&s->document, INK_ASCII, &text, &err));
    return text;
}

/* --------------------------------------------------------------------------------------------------------- suffixes */

/* Every forecast must reach the page, its data and the picture: which stage, how long, and where it comes from. */
TEST(formats_foretold,
     "a plan's page, picture, tables and trace show what its stages will do: 1 of 3 s idle on the second")
{
    struct sample s = open_plan_sample();
    struct text page = write_as(&s, "x.html"), picture = write_as(&s, "x.svg"),
                tables = write_as(&s, "x.csv"), trace = write_as(&s, "x.trace.json");
    ASSERT_INT(s.document.timeline->lanes[0].idle_ns, 500000000);
    ASSERT_INT(s.document.timeline->lanes[1].idle_ns, 1000000000);
    ASSERT_INT(s.document.timeline->lanes[0].busy_ns[ACTIVITY_WEIGHTS], 500000000);
    ASSERT(strstr(page.data, "Foretold from made-up rates."));
    ASSERT(strstr(page.data, "\"timeline\":{\"length\":3000000000,"));
    ASSERT(
        strstr(page.data, "{\"rank\":2,\"ranks\":2,\"stage\":1,\n\"work\":[1000000000,2000000000,3,1,0]}"));
    ASSERT(strstr(picture.data, ">stage 1</text>") && strstr(picture.data, "url(#work-weights)"));
    ASSERT(strstr(tables.data, "0-1,0,1,1,0.5,,,,,0.5,0.833333333\r\n2-3,1,,,,2,,,,1,0.666666667\r\n"));
    ASSERT(strstr(trace.data, "stage 1, ranks 2-3") && strstr(trace.data, "recompute, micro-batch 1"));
    text_free(&page);
    text_free(&picture);
    text_free(&tables);
    text_free(&trace);
    close_sample(&s);
}

TEST(writers_suffix,
     "a file's suffix chooses the format, the longest that it has; another is refused with the list")
{
    ASSERT(writer_find("a.html", &err) == &writer_html);
    ASSERT(writer_find("x/a.b.trace.json", &err) == &writer_trace);
    ASSERT(writer_find("trace.json", &err) == &writer_json);
    ASSERT(writer_find("a.txt", &err) == &writer_text);
    ASSERT(writer_find("a.png", &err) == NULL);
    ASSERT_HAS(
        err.text,
        "-o a.png: its suffix names no format; choose one of .txt (text), .html (a page with pictures)");
    ASSERT(writer_find(".html", &err) == NULL);
}

/* ------------------------------------------------------------------------------------------------------ across formats */

/* The JSON of a page's <script id='data'>. */
static json_t *page_data(const char *html)
{
    static const char opening[] = "<script type='application/json' id='data'>";
    json_error_t error;
    const char *start = strstr(html, opening);
    ASSERT(start);
    start += strlen(opening);
    const char *end = strstr(start, "</script>");
    ASSERT(end);
    json_t *data = json_loadb(start, (size_t)(end - start), 0, &error);
    ASSERT_MSG(data, "line %d: %s", error.line, error.text);
    return data;
}

/* The figure behind `opening`, as in data-bytes='123'. */
static int64_t figure_behind(const char *text, const char *opening)
{
    const char *at = strstr(text, opening);
    ASSERT_MSG(at, "no %s", opening);
    return strtoll(at + strlen(opening), NULL, 10);
}

static int64_t sum_list(const json_t *list, size_t count)
{
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += json_integer_value(json_array_get(list, i));
    return sum;
}

/* Differences up to the peak's point, added up. */
static void check_page_data(const struct sample *s, const char *html)
{
    json_t *data = page_data(html), *memory = json_object_get(data, "memory");
    const json_t *roles = json_object_get(memory, "roles");
    size_t peak = (size_t)json_whole(memory, "peak");
    int64_t total = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        int64_t bytes = sum_list(json_object_get(roles, role_name((enum role)role)), peak + 1);
        ASSERT_INT(bytes, s->document.breakdown.by_role[role]);
        total += bytes;
    }
    ASSERT_INT(total, s->document.breakdown.peak_bytes);
    ASSERT_INT(json_whole(memory, "peak_bytes"), total);
    json_decref(data);
}

/* Every cell of bytes on the page, in order, is the exact figure of the table. */
static void check_page_tables(const struct sample *s, const char *html)
{
    char value[64];
    const char *at = html;
    for (const struct report_section *section = s->document.page->sections; section; section = section->next)
        for (const struct table_row *row = section->table ? section->table->rows : NULL; row; row = row->next)
            for (int i = 0; i < section->table->column_count; i++) {
                if (section->table->columns[i].kind != TABLE_BYTES || !row->cells[i].filled)
                    continue;
                snprintf(value, sizeof value, "data-value='%lld' title='%lld bytes'",
                         (long long)row->cells[i].whole, (long long)row->cells[i].whole);
                at = strstr(at, value);
                ASSERT_MSG(at, "%s: the page lacks %s", section->heading, value);
                at++;
            }
}

static void check_csv(const struct sample *s, const char *csv)
{
    char line[256];
    const struct breakdown *b = &s->document.breakdown;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!b->by_role[role])
            continue;
        snprintf(line, sizeof line, "\r\n%s,%lld,", role_name((enum role)role), (long long)b->by_role[role]);
        ASSERT_HAS(csv, line);
    }
    snprintf(line, sizeof line, "\r\ntotal,%lld,", (long long)b->peak_bytes);
    ASSERT_HAS(csv, line);
}

static void check_trace_peak(const struct sample *s, const char *trace)
{
    json_t *json = json_loads(trace, 0, NULL), *event, *value;
    size_t i;
    const char *key;
    const struct document *d = &s->document;
    /* Beside a forecast the memory has a process of its own, behind those of all ranks. */
    int64_t highest = 0, process = 1 + d->breakdown.rank;
    process += d->timeline && d->timeline->foretold ? d->breakdown.ranks : 0;
    json_array_foreach(json_object_get(json, "traceEvents"), i, event)
    {
        int64_t sum = 0;
        if (strcmp(json_string_value(json_object_get(event, "ph")), "C") ||
            json_whole(event, "pid") != process)
            continue;
        json_object_foreach(json_object_get(event, "args"), key, value) sum += json_integer_value(value);
        highest = sum > highest ? sum : highest;
    }
    ASSERT_INT(highest, s->document.breakdown.peak_bytes);
    json_decref(json);
}

static void check_formats(const struct sample *s)
{
    char peak[UNITS_TEXT], line[96];
    const struct breakdown *b = &s->document.breakdown;
    struct text text = write_as(s, "a.txt"), html = write_as(s, "a.html"), svg = write_as(s, "a.svg");
    struct text csv = write_as(s, "a.csv"), trace = write_as(s, "a.trace.json"), json = write_as(s, "a.json");
    json_t *object = json_loads(json.data, 0, NULL);
    ASSERT_INT(json_whole(object, "peak_bytes"), b->peak_bytes);
    snprintf(line, sizeof line, "%s at the peak", units_format_bytes(b->peak_bytes, peak));
    ASSERT_HAS(text.data, line);
    ASSERT_INT(figure_behind(html.data, "<div class='peak' data-bytes='"), b->peak_bytes);
    ASSERT_INT(figure_behind(html.data, "<g class='peak' data-bytes='"), b->peak_bytes);
    ASSERT_INT(figure_behind(svg.data, "<g class='peak' data-bytes='"), b->peak_bytes);
    check_page_data(s, html.data);
    check_page_tables(s, html.data);
    check_csv(s, csv.data);
    check_trace_peak(s, trace.data);
    json_decref(object);
    struct text *all[] = {&text, &html, &svg, &csv, &trace, &json};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        text_free(all[i]);
}

TEST(formats_run, "of a run, text, JSON, page, picture, tables and trace say the same to the byte")
{
    struct sample s = open_run_sample();
    ASSERT_INT(s.document.breakdown.peak_bytes, RUN_HELD + run_workspace(1));
    check_formats(&s);
    close_sample(&s);
}

TEST(formats_plan, "so they do of a plan")
{
    struct sample s = open_plan_sample();
    ASSERT_INT(s.document.breakdown.peak_bytes, s.pipeline->stages[pipeline_worst(s.pipeline)]->peak_bytes);
    check_formats(&s);
    close_sample(&s);
}

TEST(formats_candidates,
     "candidates are drawn and listed: the first that fits is the chosen one, crosses do not fit")
{
    struct sample s = open_plan_sample();
    struct text html = write_as(&s, "a.html"), csv = write_as(&s, "a.csv");
    ASSERT_HAS(csv.data, "chosen,2,1,1,4,none,3000000,,0.25,,\r\nfits,2,1,1,2,full,2000000,,0.5,,\r\n"
                         "too large,1,1,1,8,none,9000000,,0.3,,\r\n");
    ASSERT_HAS(html.data, "chosen: dp 2, micro-batch 4");
    ASSERT_HAS(html.data, "class='cross'");
    text_free(&html);
    text_free(&csv);
    close_sample(&s);
}

/* The fixture's run, and one in which rank 0 takes 1024 bytes of workspace more, as rank 1 does in both. */
TEST(formats_comparison,
     "a comparison is a page, a picture, tables, text and JSON with the same figures, and no trace")
{
    static const char *const names[] = {"a.html", "a.svg", "a.csv", "a.txt", "a.json"};
    static const char *const pieces[] = {"data-value='1024' title='1024 bytes'", "+1.00 KiB",
                                         "workspace,1024,2048,1024,", "+1.00 KiB",
                                         "\"max_error_bytes\": 1024"};
    char folder[64], first[128], second[128];
    struct sample s = {.arena = arena_create()};
    struct store *before, *after;
    struct comparison comparison;
    struct text text = {0};
    scratch_open(folder);
    run_write(scratch_path(folder, "first.db", first));
    ASSERT_OK(store_open_read(first, &before, &err));
    struct store *store = run_open(scratch_path(folder, "second.db", second));
    struct store_run run = run_header(RUN_RANKS);
    struct store_rank rank = {.measured = true, .peak_bytes = RUN_HELD + run_workspace(1)};
    run_by_role(1, rank.at_peak);
    ASSERT_OK(store_run_add(store, &run, &err));
    for (rank.rank = 0; rank.rank < RUN_RANKS; rank.rank++)
        ASSERT_OK(store_rank_add(store, run.run_id, &rank, &err));
    run_close(store);
    ASSERT_OK(store_open_read(second, &after, &err));
    const struct compare_run runs[2] = {{before, 1, "first.db"}, {after, 1, "second.db"}};
    ASSERT_OK(compare_runs(runs, s.arena, &comparison, &err));
    document_of_comparison(&comparison, s.arena, &s.document);
    for (int i = 0; i < 5; i++) {
        struct text written = write_as(&s, names[i]);
        ASSERT_MSG(strstr(written.data, pieces[i]), "%s lacks %s", names[i], pieces[i]);
        text_free(&written);
    }
    ASSERT(writer_trace.write(&s.document, INK_ASCII, &text, &err) == -1);
    ASSERT_HAS(err.text, "a comparison has no trace; write it as .html");
    store_close(before);
    store_close(after);
    arena_free(s.arena);
    scratch_close(folder);
}

/* ------------------------------------------------------------------------------------------------------------- pages */

TEST(page_alone,
     "a page and a picture ask for nothing from anywhere, and show no text of a recording as markup")
{
    static const char *const names[] = {"a.html", "a.svg"};
    struct sample s = open_run_sample();
    s.document.breakdown.model = "<script>alert(1)</script>";
    for (int i = 0; i < 2; i++) {
        struct text text = write_as(&s, names[i]);
        for (const char *at = text.data; (at = strstr(at, "http")); at++)
            ASSERT_MSG(!strncmp(at, "http://www.w3.org/2000/svg", 26), "%s mentions %.40s", names[i], at);
        ASSERT(!strstr(text.data, "@import") && !strstr(text.data, "src="));
        ASSERT(!strstr(text.data, "<script>alert"));
        text_free(&text);
    }
    close_sample(&s);
}

TEST(page_markup, "what is no UTF-8, ends a script or steers a terminal is harmless in markup and in JSON")
{
    struct text text = {0};
    markup_add_text(&text, "a<b> & \"c\" 'd' \x1b[2J caf\xe9");
    ASSERT_STR(text.data, "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39; ?[2J caf?");
    text_free(&text);
    markup_add_json(&text, "</script>\xff\n");
    ASSERT_STR(text.data, "\"\\u003c/script>?\\n\"");
    text_free(&text);
    markup_add_json(&text, NULL);
    ASSERT_STR(text.data, "null");
    text_free(&text);
}

TEST(page_words, "a word has one number, however many there are")
{
    struct markup_words *words = markup_words_create();
    static char names[1000][8];
    for (int i = 0; i < 1000; i++) {
        snprintf(names[i], sizeof names[i], "w%d", i);
        ASSERT_INT(markup_word(words, names[i]), i);
    }
    for (int i = 0; i < 1000; i++)
        ASSERT_INT(markup_word(words, (char[]){names[i][0], names[i][1], names[i][2], names[i][3], '\0'}), i);
    markup_words_free(words);
}

TEST(golden_csv, "the tables of a run")
{
    struct sample s = open_run_sample();
    struct text csv = write_as(&s, "a.csv");
    check_golden_text(&csv, "report.csv");
    text_free(&csv);
    close_sample(&s);
}

TEST(golden_trace, "the trace of a run")
{
    struct sample s = open_run_sample();
    struct text trace = write_as(&s, "a.trace.json");
    check_golden_text(&trace, "report.trace.json");
    text_free(&trace);
    close_sample(&s);
}

/* Without its style sheet, which is a file of its own. */
TEST(golden_svg, "the picture of a run")
{
    struct sample s = open_run_sample();
    struct text svg = write_as(&s, "a.svg"), drawn = {0};
    const char *style_end = strstr(svg.data, "</style>");
    ASSERT(style_end);
    text_add(&drawn, style_end);
    check_golden_text(&drawn, "report.svg");
    text_free(&drawn);
    text_free(&svg);
    close_sample(&s);
}

TEST(csv_long_headings, "a heading of CSV is whole and has its unit, however long the name of a file is")
{
    static const char name[] = "a-plan-of-a-large-model-on-many-nodes-with-much-recomputation.json";
    struct sample s = open_run_sample();
    const struct table_column columns[] = {{"", TABLE_TEXT}, {name, TABLE_BYTES}};
    struct report *page = report_create(s.arena, "t");
    struct table *table = report_table(page, "T", columns, 2);
    table_add(table, (struct table_cell[]){cell_text("peak"), cell_whole(1)});
    s.document.page = page;
    struct text csv = write_as(&s, "a.csv");
    ASSERT_HAS(csv.data, arena_printf(s.arena, ",%s bytes\r\n", name));
    text_free(&csv);
    close_sample(&s);
}

/* RFC 4180: quotes around what has commas, quotes or line ends; quotes doubled. */
TEST(csv_quotes, "a cell of CSV may hold anything")
{
    struct sample s = open_run_sample();
    static const struct table_column columns[] = {{"a", TABLE_TEXT}, {"b, c", TABLE_BYTES}};
    struct report *page = report_create(s.arena, "t");
    struct table *table = report_table(page, "T", columns, 2);
    table_add(table, (struct table_cell[]){cell_text("x,\"y\"\nz"), cell_whole(-1)});
    s.document.page = page;
    struct text csv = write_as(&s, "a.csv");
    ASSERT_STR(csv.data, "t\r\n\r\nT\r\na,\"b, c bytes\"\r\n\"x,\"\"y\"\"\nz\",-1\r\n");
    text_free(&csv);
    close_sample(&s);
}
