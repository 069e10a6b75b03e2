/* The planner's clock of pipelines against that of the schedules themselves. */
#include "planner/timeline.h"
#include "tests/model/schedule_replay.h"
#include "tests/test.h"

#include <stdlib.h>

static double replayed(const struct schedule_shape *shape, const struct schedule_times *times)
{
    struct error err = {0};
    struct schedule *stages[8];
    double seconds;
    for (int64_t i = 0; i < shape->pp; i++)
        ASSERT_OK(schedule_create(shape, i, &stages[i], &err));
    ASSERT_OK(schedule_replay((const struct schedule *const *)stages, times, &seconds, NULL, &err));
    for (int64_t i = 0; i < shape->pp; i++)
        schedule_free(stages[i]);
    return seconds;
}

TEST(timeline_replays, "300 pipelines with random stages and messages end when the schedule's own clock says")
{
    static const struct schedule_shape shapes[] = {
        {SCHEDULE_1F1B, 4, 1, 6},  {SCHEDULE_GPIPE, 3, 1, 5},       {SCHEDULE_ZB_H1, 4, 1, 7},
        {SCHEDULE_ZB_H1, 8, 1, 3}, {SCHEDULE_INTERLEAVED, 4, 3, 8}, {SCHEDULE_INTERLEAVED, 2, 2, 2},
        {SCHEDULE_1F1B, 8, 1, 2},
    };
    srand(5);
    for (int try = 0; try < 300; try++) {
        struct schedule_shape shape = shapes[try % 7];
        struct error err = {0};
        struct timeline *timeline;
        double seconds[3][16], ends[8];
        for (int i = 0; i < 3 * 16; i++)
            seconds[i / 16][i % 16] = rand() % 1000 * 1e-4;
        struct schedule_times times = {seconds[0], seconds[1], seconds[2],
                                       rand() % 3 * (rand() % 1000) * 1e-4};
        ASSERT_OK(timeline_create(&shape, &timeline, &err));
        ASSERT(timeline_run(timeline, &times, ends) == replayed(&shape, &times));
        timeline_free(timeline);
    }
}
