/* Memory over time, against what the database and the program say. */
#include "reports/role_table.h"
#include "reports/series.h"
#include "tests/reports/fixture.h"

/* Bytes by role of the lives that are open after an event. */
static void sum_lives(const struct series *s, int64_t event, int64_t by_role[ROLE_COUNT])
{
    memset(by_role, 0, ROLE_COUNT * sizeof *by_role);
    for (int64_t i = 0; i < s->life_count; i++) {
        const struct series_life *life = &s->lives[i];
        ASSERT(life->tensor >= 0 && life->tensor < s->tensor_count);
        if (life->born <= event && life->died > event)
            by_role[s->tensors[life->tensor].role] += life->bytes;
    }
}

static void check_point(const struct series *s, const struct series_point *point)
{
    int64_t lives[ROLE_COUNT];
    ASSERT_INT(role_table_total(point->by_role), point->live_bytes);
    sum_lives(s, point->event, lives);
    for (int role = 0; role < ROLE_COUNT; role++)
        ASSERT_INT(lives[role], point->by_role[role]);
}

/* Eight events of rank 1: six tensors, then attention's 2048 bytes taken (the peak, 67,584) and given back. */
TEST(series_run, "every event is a point: the bytes by role, and the tensors alive make them up")
{
    char folder[64], path[128];
    struct store *store;
    struct series *s;
    struct store_point *points;
    struct arena *arena = arena_create();
    int64_t count;
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(series_of_run(store, 1, 1, NULL, SERIES_ALL, arena, &s, &err));
    ASSERT_OK(store_read_timeline(store, 1, 1, 0, arena, &points, &count, &err));
    ASSERT_INT(s->point_count, 8);
    ASSERT_INT(count, 8);
    for (int64_t i = 0; i < count; i++) {
        ASSERT_INT(s->points[i].event, i);
        ASSERT_INT(s->points[i].at, points[i].time_ns);
        ASSERT_INT(s->points[i].live_bytes, points[i].live_bytes);
        ASSERT(!memcmp(s->points[i].by_role, points[i].live, sizeof points[i].live));
        check_point(s, &s->points[i]);
    }
    ASSERT_INT(s->peak, 6);
    ASSERT_INT(s->points[6].live_bytes, RUN_HELD + run_workspace(1));
    ASSERT_STR(s->operations[s->points[6].operation].kind, "attention");
    ASSERT_STR(s->operations[s->points[6].operation].part, "layer 1");
    ASSERT_INT(s->step_count, 2);
    ASSERT_INT(s->steps[1].step, 1);
    ASSERT_INT(s->steps[1].first_at, 11000);
    ASSERT_INT(s->steps[1].last_at, 12000);
    ASSERT_STR(s->tensors[s->lives[4].tensor].name, "qkv");
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

/* 100,000 events that wander by a fixed rule, with one spike of one event: whatever the limit, it is a point. */
TEST(series_limit,
     "of many events the lowest and the highest of each bucket stay, with the first, the last and the peak")
{
    enum { EVENTS = 100000, SPIKE = 61234 };
    static int64_t live[EVENTS];
    static const int64_t limits[] = {10, 999, 4000, EVENTS - 1, EVENTS, SERIES_ALL};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        struct arena *arena = arena_create();
        struct series_builder *builder = series_begin(arena, EVENTS, limits[l]);
        int64_t now = 1000000;
        for (int64_t i = 0; i < EVENTS; i++) {
            int64_t wanted = i == SPIKE ? 9000000 : 1000000 + i * 7919 % 100003;
            int64_t bytes = i == 0 ? wanted : wanted - now;
            live[i] = now = wanted;
            series_add(builder, &(struct series_event){.at = i,
                                                       .operation = -1,
                                                       .tensor = 0,
                                                       .bytes = bytes,
                                                       .live_bytes = now,
                                                       .key = i,
                                                       .role = ROLE_ACTIVATION});
        }
        struct series *s = series_end(builder);
        ASSERT_INT(s->events, EVENTS);
        ASSERT_INT(s->points[0].event, 0);
        ASSERT_INT(s->points[s->point_count - 1].event, EVENTS - 1);
        ASSERT_INT(s->points[s->peak].event, SPIKE);
        ASSERT_MSG(limits[l] == SERIES_ALL || s->point_count <= limits[l] + 4, "%lld points of %lld",
                   (long long)s->point_count, (long long)limits[l]);
        for (int64_t i = 0; i < s->point_count; i++) {
            ASSERT_INT(s->points[i].live_bytes, live[s->points[i].event]);
            ASSERT(i == 0 || s->points[i].event > s->points[i - 1].event);
        }
        arena_free(arena);
    }
}

/* Rank 3 has recorded nothing in the fixture's run of two ranks. */
TEST(series_none, "a rank that recorded no memory has no series")
{
    char folder[64], path[128];
    struct store *store;
    struct series *s;
    struct arena *arena = arena_create();
    scratch_open(folder);
    run_write(scratch_path(folder, "run.db", path));
    ASSERT_OK(store_open_read(path, &store, &err));
    ASSERT_OK(series_of_run(store, 1, 3, NULL, SERIES_ALL, arena, &s, &err));
    ASSERT(s == NULL);
    store_close(store);
    arena_free(arena);
    scratch_close(folder);
}

static void check_program(const struct program *program)
{
    struct arena *arena = arena_create();
    struct series *s = series_of_program(program, 0, SERIES_ALL, arena);
    const struct series_point *peak = &s->points[s->peak];
    ASSERT_INT(peak->live_bytes, program->peak_bytes);
    ASSERT(!memcmp(peak->by_role, program->at_peak, sizeof peak->by_role));
    ASSERT_INT(s->steps[0].highest.live_bytes, program->persistent_bytes);
    ASSERT_INT(s->points[s->point_count - 1].live_bytes, program->persistent_bytes);
    for (int64_t i = 0; i < s->point_count; i += 1 + s->point_count / 50)
        check_point(s, &s->points[i]);
    check_point(s, peak);
    arena_free(arena);
}

TEST(series_program,
     "a walk over a program reaches its peak, role by role, and ends with what lives for the whole run")
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "block-tiny"};
    for (int p = 0; p < 3; p++) {
        struct pipeline *pipeline = fixture_make(
            (struct fixture){.preset = presets[p],
                             .recompute = "selective",
                             .layers = p < 2 ? 4 : 0,
                             .layout = {.dp = 2, .pp = p < 2 ? 2 : 1, .micro_batch = 2, .global_batch = 16}});
        for (int stage = 0; stage < pipeline->count; stage++)
            check_program(pipeline->stages[stage]);
        pipeline_free(pipeline);
    }
}
