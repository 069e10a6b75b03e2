/* Tables, facts and remarks as text. Expected pages are written out. */
#include "reports/ink_text.h"
#include "reports/ranges.h"
#include "reports/role_table.h"
#include "reports/writers.h"
#include "tests/reports/fixture.h"

static const struct table_column columns[] = {
    {"name", TABLE_TEXT}, {"bytes", TABLE_BYTES}, {"share", TABLE_PERCENT}, {"", TABLE_BAR}};

static struct table *sample_table(struct arena *arena)
{
    struct table *table = table_create(arena, columns, 4);
    table_add(table, (struct table_cell[]){cell_text("weights"), cell_whole(3 << 20), cell_real(0.75),
                                           cell_real(1)});
    table_add(table,
              (struct table_cell[]){cell_text("rest"), cell_whole(512), cell_real(0.0001), cell_real(0.5)});
    table_add(table, (struct table_cell[]){cell_text("none"), cell_blank(), cell_real(NAN), cell_real(0)});
    return table;
}

TEST(ink_table_ascii, "numbers are aligned with their units apart; blanks stay blank; bars are of '#'")
{
    struct arena *arena = arena_create();
    struct text text = {0};
    ink_text_table(sample_table(arena), INK_ASCII, &text);
    ASSERT_STR(text.data, "  name        bytes  share\n"
                          "  weights  3.00 MiB  75.0%  ################################\n"
                          "  rest      512 B    <0.1%  ################\n"
                          "  none\n");
    text_free(&text);
    arena_free(arena);
}

/* 0.5 of 32 columns is 16; 1/512 of them is half of an eighth, which rounds to one. */
TEST(ink_table_blocks, "blocks are fine to an eighth of a column, and a share that is there shows")
{
    struct arena *arena = arena_create();
    struct text text = {0};
    struct table *table = table_create(arena, &columns[2], 2);
    table_add(table, (struct table_cell[]){cell_real(0.5), cell_real(1.5 / 32)});
    table_add(table, (struct table_cell[]){cell_real(0.5), cell_real(1e-9)});
    ink_text_table(table, INK_BLOCKS, &text);
    ASSERT_STR(text.data, "  share\n"
                          "  50.0%  █▌\n"
                          "  50.0%  ▏\n");
    text_free(&text);
    arena_free(arena);
}

/* 0.5 of 5 columns is 2 and a half: three of '#', which are whole, and in blocks two and a half. */
TEST(ink_bar,
     "a bar says how many columns it takes, is never longer than the whole, and in blocks never nothing")
{
    static const struct {
        double share;
        enum ink ink;
        int columns;
        const char *bar;
    } bars[] = {{0.5, INK_ASCII, 3, "###"},   {0.5, INK_BLOCKS, 3, "██▌"}, {7, INK_ASCII, 5, "#####"},
                {7, INK_COLOURS, 5, "█████"}, {1e-9, INK_ASCII, 0, ""},    {1e-9, INK_BLOCKS, 1, "▏"},
                {0, INK_BLOCKS, 0, ""},       {NAN, INK_ASCII, 0, ""},     {-1, INK_BLOCKS, 0, ""}};
    for (size_t i = 0; i < sizeof bars / sizeof *bars; i++) {
        struct text text = {0};
        text_add(&text, "");
        ASSERT_INT(ink_text_bar(&text, bars[i].share, 5, bars[i].ink), bars[i].columns);
        ASSERT_STR(text.data, bars[i].bar);
        text_free(&text);
    }
}

/* #2f4b9a, the colour of parameters, is 1, 1 and 3 of 5: 16 + 36 + 6 + 3. */
TEST(ink_colours,
     "bars of roles have their colour and headings are bold, and without both a page is as in blocks")
{
    struct arena *arena = arena_create();
    struct text coloured = {0}, plain = {0};
    struct report *report = report_create(arena, "A title");
    struct table *table = report_table(report, "A heading", columns, 4);
    table_add(table,
              (struct table_cell[]){cell_text("parameter"), cell_whole(3), cell_real(1), cell_real(0.1)});
    table_add(table, (struct table_cell[]){cell_text("total"), cell_whole(3), cell_real(1), cell_real(0.1)});
    ink_text_report(report, INK_COLOURS, &coloured);
    ink_text_report(report, INK_BLOCKS, &plain);
    ASSERT_STR(plain.data, "A title\n\nA heading\n"
                           "  name       bytes   share\n"
                           "  parameter    3 B  100.0%  ███▎\n"
                           "  total        3 B  100.0%  ███▎\n");
    ASSERT_STR(coloured.data, "\033[1mA title\n\033[0m\n\033[1mA heading\n\033[0m"
                              "  name       bytes   share\n"
                              "  parameter    3 B  100.0%  \033[38;5;61m███▎\033[0m\n"
                              "  total        3 B  100.0%  ███▎\n");
    text_free(&coloured);
    text_free(&plain);
    arena_free(arena);
}

TEST(ink_narrow, "a text that does not fit the page is shortened, and numbers never are")
{
    struct arena *arena = arena_create();
    struct text text = {0};
    struct table *table = table_create(arena, columns, 4);
    char name[121] = "";
    for (int i = 0; i < 60; i++)
        strcat(name, "é");
    table_add(table,
              (struct table_cell[]){cell_text(name), cell_whole(INT64_MAX), cell_real(1), cell_real(1)});
    table_add(
        table,
        (struct table_cell[]){
            cell_text("a name of more than eighty columns, which no page of eighty columns can hold whole"),
            cell_whole(1), cell_real(1), cell_real(1)});
    ink_text_table(table, INK_BLOCKS, &text);
    check_page(text.data, INK_BLOCKS);
    ASSERT_HAS(text.data, "8.00 EiB");
    ASSERT_HAS(text.data, "...");
    text_free(&text);
    arena_free(arena);
}

/* Two headings of 60 and numbers of 8: 2 + 6 + 2 + w + 2 + w = 80 leaves 34 for each. */
TEST(ink_long_headings,
     "headings that are longer than the page has room are shortened, and their numbers are whole")
{
    static const char name[] = "a-plan-of-a-large-model-on-many-nodes-with-recomputation.json";
    const struct table_column wide[] = {{"", TABLE_TEXT}, {name, TABLE_BYTES}, {name, TABLE_BYTES}};
    struct arena *arena = arena_create();
    struct text text = {0};
    struct table *table = table_create(arena, wide, 3);
    table_add(table, (struct table_cell[]){cell_text("weight"), cell_whole(3 << 20), cell_whole(5 << 20)});
    ink_text_table(table, INK_ASCII, &text);
    check_page(text.data, INK_ASCII);
    ASSERT_HAS(text.data,
               "          a-plan-of-a-large-model-on-many...  a-plan-of-a-large-model-on-many...\n");
    ASSERT_HAS(text.data, "3.00 MiB");
    ASSERT_HAS(text.data, "5.00 MiB");
    text_free(&text);
    arena_free(arena);
}

TEST(ink_report, "a page: title, facts with a gauge, sections; long texts are wrapped under themselves")
{
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "tiny: %d tensors", 3);
    report_capacity(report, "peak", 3 << 20, 4 << 20);
    report_fact(report, "command", "%s",
                "memplan profile llama2-7b --layers 4 --hidden 512 --data corpus.txt -o run.db");
    report_remark(report, "Advice", "%s", "Do less.");
    struct text text = ink_checked(report, INK_ASCII);
    ASSERT_STR(text.data, "tiny: 3 tensors\n"
                          "\n"
                          "  peak     [###############.....]  3.00 MiB of 4.00 MiB, 75.0%\n"
                          "  command  memplan profile llama2-7b --layers 4 --hidden 512 --data corpus.txt\n"
                          "           -o run.db\n"
                          "\n"
                          "Advice\n"
                          "  Do less.\n");
    text_free(&text);
    arena_free(arena);
}

TEST(ink_long_words, "a word that no line holds is wrapped behind its commas and pluses; others are not")
{
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "tiny");
    report_fact(report, "recompute", "%s",
                "0-17=norm1+qkv+attention+mid+norm2+up+gelu,18-46=norm1+qkv+mid+norm2+up+gelu,47=full");
    report_fact(report, "short", "%s",
                "of the sets that there are, this one, 0-46=norm1+qkv+mid+norm2+up, is best");
    struct text text = ink_checked(report, INK_ASCII);
    ASSERT_HAS(text.data, "  recompute  0-17=norm1+qkv+attention+mid+norm2+up+gelu,18-46=norm1+qkv+mid+\n"
                          "             norm2+up+gelu,47=full\n"
                          "  short      of the sets that there are, this one, 0-46=norm1+qkv+mid+norm2+up,\n"
                          "             is best\n");
    text_free(&text);
    arena_free(arena);
}

TEST(ink_over_capacity,
     "a peak beyond the capacity fills the gauge and says by how much; without a limit there is none")
{
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "tiny");
    report_capacity(report, "too much", 3000, 2000);
    report_capacity(report, "nearly", 1999, 2000);
    report_capacity(report, "little", 1, 1 << 20);
    report_capacity(report, "free", 3000, INT64_MAX);
    struct text text = ink_checked(report, INK_BLOCKS);
    ASSERT_HAS(text.data, "  too much  ████████████████████  2.93 KiB of 1.95 KiB, 150.0%\n");
    ASSERT_HAS(text.data, "  nearly    ███████████████████░  1.95 KiB of 1.95 KiB, 100.0%\n");
    ASSERT_HAS(text.data, "  1 B of 1.00 MiB, <0.1%\n");
    ASSERT_HAS(text.data, "  free      2.93 KiB, without a limit\n");
    text_free(&text);
    arena_free(arena);
}

TEST(ink_roles,
     "roles that hold nothing are left out; the predicted figures stand beside when there are some")
{
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, "tiny");
    int64_t measured[ROLE_COUNT] = {[ROLE_PARAMETER] = 3072, [ROLE_ACTIVATION] = 1024};
    int64_t predicted[ROLE_COUNT] = {[ROLE_PARAMETER] = 3072, [ROLE_ACTIVATION] = 512, [ROLE_INPUT] = 64};
    role_table_add(report, "Alone", measured, NULL);
    role_table_add(report, "Beside", measured, predicted);
    struct text text = ink_checked(report, INK_ASCII);
    ASSERT_HAS(text.data, "Alone\n"
                          "  parameter   3.00 KiB   75.0%  ################################\n"
                          "  activation  1.00 KiB   25.0%  ###########\n"
                          "  total       4.00 KiB  100.0%\n");
    ASSERT_HAS(text.data, "Beside\n"
                          "              measured  predicted   error   share\n"
                          "  parameter   3.00 KiB   3.00 KiB     0 B   75.0%  #############################\n"
                          "  activation  1.00 KiB    512 B    -512 B   25.0%  ##########\n"
                          "  input          0 B       64 B     +64 B      0%\n"
                          "  total       4.00 KiB   3.56 KiB  -448 B  100.0%\n");
    text_free(&text);
    arena_free(arena);
}

TEST(ranges, "numbers in a row become a stretch; after three stretches the rest is counted")
{
    struct arena *arena = arena_create();
    ASSERT_STR(ranges_print(arena, (int64_t[]){4}, 1), "4");
    ASSERT_STR(ranges_print(arena, (int64_t[]){0, 1, 2, 3, 8, 10, 11}, 7), "0-3, 8, 10-11");
    ASSERT_STR(ranges_print(arena, (int64_t[]){0, 2, 4, 6, 8}, 5), "0, 2, 4 and 2 more");
    ASSERT_STR(ranges_name(arena, "layer", (int64_t[]){4}, 1), "layer 4");
    ASSERT_STR(ranges_name(arena, "rank", (int64_t[]){0, 1}, 2), "ranks 0-1");
    arena_free(arena);
}

TEST(ink_text_headings_wrap,
     "a heading inside a table that is longer than the page goes on in the next line, as indented")
{
    static const struct table_column wide[] = {{"", TABLE_TEXT}, {"", TABLE_COUNT}};
    struct arena *arena = arena_create();
    struct table *table = table_create(arena, wide, 2);
    struct text out = {0};
    table_add(table, (struct table_cell[]){cell_text("row"), cell_whole(7)});
    table_add(
        table,
        (struct table_cell[]){
            cell_text("    one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
                      "--last"),
            cell_blank()});
    ink_text_table(table, INK_ASCII, &out);
    ASSERT_STR(out.data, "  row  7\n"
                         "      one two three four five six seven eight nine ten eleven twelve thirteen\n"
                         "      fourteen --last\n");
    text_free(&out);
    arena_free(arena);
}

TEST(ink_answer, "an answer that others made is written by every format that has tables, and JSON is its own")
{
    static const struct table_column wide[] = {{"who", TABLE_TEXT}, {"what", TABLE_BYTES}};
    struct arena *arena = arena_create();
    struct report *page = report_create(arena, "fits: surely");
    struct document document;
    const struct breakdown breakdown = {.model = page->title,
                                        .advice = "none",
                                        .peak_bytes = 1024,
                                        .ranks = 1,
                                        .stages = 1,
                                        .capacity_bytes = 2048,
                                        .by_role = {[ROLE_PARAMETER] = 1024}};
    const struct writer *const writers[] = {&writer_text, &writer_csv, &writer_html};
    json_t *answer = json_pack("{s:s}", "own", "words");
    report_fact(page, "a fact", "of note");
    table_add(report_table(page, "A table", wide, 2),
              (struct table_cell[]){cell_text("somebody"), cell_whole(1024)});
    document_of_answer(page, answer, &breakdown, arena, &document);
    for (int i = 0; i < 3; i++) {
        struct text out = {0};
        ASSERT_OK(writers[i]->write(&document, INK_ASCII, &out, &err));
        ASSERT_HAS(out.data, "fits: surely");
        ASSERT_HAS(out.data, "of note");
        ASSERT_HAS(out.data, "somebody");
        text_free(&out);
    }
    struct text out = {0};
    ASSERT_OK(writer_json.write(&document, INK_ASCII, &out, &err));
    ASSERT_HAS(out.data, "\"own\": \"words\"");
    text_free(&out);
    json_decref(answer);
    arena_free(arena);
}
