/* Where ranks stand on nodes that differ, and what that does to their pace and their room. */
#include "tests/planner/planner_sample.h"
#include "tests/test.h"

#include "planner/siting.h"

#include <string.h>

struct seen {
    int count;
    struct siting first, last;
};

static bool see(void *context, const struct siting *siting)
{
    struct seen *seen = context;
    if (!seen->count++)
        seen->first = *siting;
    seen->last = *siting;
    return true;
}

static struct seen list(const char *spec, struct layout layout, struct cluster *cluster)
{
    struct error err = {0};
    struct seen seen = {0};
    ASSERT_OK(cluster_read(spec, cluster, &err));
    siting_visit(cluster, &layout, see, &seen);
    return seen;
}

TEST(siting_whole_stages,
     "a stage's ranks are of one group where so many stages have room so, in every order")
{
    struct cluster cluster;
    /* Two stages on two nodes: either order. */
    ASSERT_INT(list("1x8:a100-80g+1x8:h100-80g", (struct layout){.dp = 4, .tp = 2, .pp = 2}, &cluster).count,
               2);
    /* Four ranks a stage: one, or both, or neither of two stages on the first. */
    ASSERT_INT(list("1x8:a100-80g+1x8:h100-80g", (struct layout){.dp = 4, .tp = 1, .pp = 2}, &cluster).count,
               4);
    /* Five stages of 3 ranks: 2 on 8 ranks, 3 on 9. */
    ASSERT_INT(list("1x8:a100-80g+1x9:h100-80g", (struct layout){.dp = 3, .tp = 1, .pp = 5}, &cluster).count,
               2);
    /* None where the cluster is too small. */
    ASSERT_INT(list("1x8:a100-80g+1x8:h100-80g", (struct layout){.dp = 8, .tp = 1, .pp = 3}, &cluster).count,
               0);
}

TEST(siting_spanning_stages,
     "where stages do not fit into groups one lies on two, and tensor-parallel ranks never")
{
    struct cluster cluster;
    struct site_run runs[SITE_RUNS];
    struct layout layout = {.dp = 12, .tp = 1, .pp = 1};
    struct seen seen = list("1x8:a100-80g+1x8:h100-80g", layout, &cluster);
    ASSERT_INT(seen.count, 2);
    ASSERT_INT(seen.first.parts[0].ranks, 8);
    ASSERT_INT(seen.first.parts[1].ranks, 4);
    ASSERT_INT(siting_runs(&cluster, &layout, &seen.first, runs), 1);
    ASSERT_INT(runs[0].site.groups, 3);

    /* Of three ranks each two stay together, and one is idle. */
    layout = (struct layout){.dp = 2, .tp = 2, .pp = 1};
    seen = list("1x3:a100-80g+1x3:h100-80g", layout, &cluster);
    ASSERT_INT(seen.count, 2);
    ASSERT_INT(seen.first.parts[0].ranks, 2);
    ASSERT_INT(list("1x3:a100-80g+1x3:h100-80g", (struct layout){.dp = 3, .tp = 2, .pp = 1}, &cluster).count,
               0);

    /* Three stages of 5: 8 = 5 + 3, and 2 + 5. */
    layout = (struct layout){.dp = 5, .tp = 1, .pp = 3};
    seen = list("1x8:a100-80g+1x7:h100-80g", layout, &cluster);
    ASSERT_INT(siting_runs(&cluster, &layout, &seen.first, runs), 3);
    ASSERT_INT(runs[0].site.groups, 1);
    ASSERT_INT(runs[1].site.groups, 3);
    ASSERT_INT(runs[2].site.groups, 2);
    ASSERT(!runs[1].site.together);
}

static bool is_even(const char *spec, int first_ranks, int second_ranks)
{
    struct error err = {0};
    struct cluster cluster;
    struct siting siting = {.count = second_ranks ? 2 : 1, .parts = {{0, first_ranks}, {1, second_ranks}}};
    ASSERT_OK(cluster_read(spec, &cluster, &err));
    return siting_is_even(&cluster, &siting);
}

TEST(siting_even_nodes, "nodes have equally many ranks where all are full, or there is one")
{
    ASSERT(is_even("2x8:a100-80g", 16, 0));
    ASSERT(is_even("2x8:a100-80g", 5, 0));
    ASSERT(!is_even("2x8:a100-80g", 9, 0));
    ASSERT(!is_even("3x8:a100-80g", 20, 0));
    ASSERT(is_even("2x8:a100-80g+1x8:h100-80g", 16, 8));
    ASSERT(is_even("2x8:a100-80g+1x8:h100-80g", 4, 4));
    ASSERT(!is_even("2x8:a100-80g+1x8:h100-80g", 16, 4));
    ASSERT(!is_even("2x8:a100-80g+1x8:h100-80g", 12, 8));
    ASSERT(is_even("1x4:a100-80g+1x8:h100-80g", 4, 4));
    ASSERT(!is_even("1x4:a100-80g+1x8:h100-80g", 4, 8));
}

TEST(siting_scarcest_decides, "of several groups the device with least room decides")
{
    struct cluster cluster;
    struct layout layout = {.dp = 12, .tp = 1, .pp = 1};
    struct seen seen = list("1x8:a100-40g+1x8:h100-80g", layout, &cluster);
    const struct rank_device *devices[1];
    siting_devices(&cluster, &layout, &seen.last, devices);
    ASSERT_STR(devices[0]->name, "a100-40g");
    ASSERT_INT(siting_scarcest(&cluster, 2, 12), 1);
    ASSERT(siting_room(&cluster, 3, 12) == siting_room(&cluster, 1, 12));
    ASSERT(siting_room(&cluster, 3, 12) < cluster.groups[0].device.capacity_bytes);
}

static double all_reduce_seconds(const struct machine_speed *speed, const struct layout *l)
{
    struct work work = {.bytes_moved = 2e9, .bytes_sent = 1e9, .group = {l->dp, l->tp, l->dp * l->tp}};
    return machine_speed_seconds(speed, OP_ALL_REDUCE, &work, layout_ranks(l));
}

static double product_seconds(const struct machine_speed *speed)
{
    struct work work = {.flops = 2e12, .m = 10000, .n = 10000, .k = 10000};
    return machine_speed_seconds(speed, OP_MATMUL, &work, 16);
}

TEST(siting_paces,
     "a stage of several groups has the slowest's pace, and what crosses groups takes the network")
{
    struct cluster cluster;
    struct machine_speed speeds[2];
    struct layout layout = {.dp = 8, .tp = 1, .pp = 2};
    struct seen seen = list("1x8:a100-80g+1x8:h100-80g,net=100Gb/s", layout, &cluster);
    for (int g = 0; g < 2; g++)
        machine_speed_for_group(&cluster.groups[g], PRECISION_BF16, 1, &speeds[g]);
    struct siting_speeds *s = siting_speeds_open(&cluster, speeds);
    const struct machine_speed *pace = siting_speeds_of_layout(s, &layout, &seen.first);
    const struct machine_speed *first = machine_speed_of_stage(pace, 0),
                               *second = machine_speed_of_stage(pace, 1);
    ASSERT(product_seconds(first) == product_seconds(&speeds[0]));
    ASSERT(product_seconds(second) == product_seconds(&speeds[1]));
    ASSERT(product_seconds(first) > 2 * product_seconds(second));

    /* Each stage's replicas are on a node of their own, and use its links. */
    ASSERT(all_reduce_seconds(first, &layout) < 0.01 && all_reduce_seconds(second, &layout) < 0.01);
    /* Messages go from node to node: 1 GB at 78% of 12.5 GB/s, which eight ranks share. */
    struct work message = {.bytes_sent = 1e9, .group = work_group_of(&layout, OP_SEND)};
    ASSERT_NEAR(machine_speed_message_seconds(pace, &message, 16), 8 * 1e9 / (0.78 * 12.5e9), 0.001);

    struct layout wide = {.dp = 16, .tp = 1, .pp = 1};
    struct site_run runs[SITE_RUNS];
    struct cluster same;
    seen = list("1x8:a100-80g+1x8:h100-80g,net=100Gb/s", wide, &same);
    ASSERT_INT(siting_runs(&cluster, &wide, &seen.first, runs), 1);
    const struct machine_speed *both = siting_speeds_find(s, &runs[0].site);
    ASSERT(product_seconds(both) == product_seconds(first));
    ASSERT(all_reduce_seconds(both, &wide) > 0.1);
    siting_speeds_close(s);
}

TEST(siting_in_plans, "a plan file tells the nodes of its ranks; a layout with other ranks is refused")
{
    struct cluster cluster, again;
    struct error err = {0};
    struct siting siting;
    struct plan plan = {.layout = {.dp = 4, .tp = 1, .pp = 4}};
    struct seen seen = list("1x8:a100-80g+1x8:h100-80g(70GiB),net=100Gb/s", plan.layout, &cluster);
    siting_to_plan(&cluster, &seen.last, &plan);
    ASSERT_STR(plan.device, "h100-80g+a100-80g");
    ASSERT_INT(plan.capacity_bytes, cluster.groups[0].device.capacity_bytes);
    ASSERT_INT(plan.group_count, 2);
    ASSERT_OK(siting_from_plan(&plan, &again, &siting, &err));
    ASSERT_STR(again.groups[0].device.name, "h100-80g");
    ASSERT_INT(again.groups[0].device.capacity_bytes, 70LL << 30);
    ASSERT_NEAR(again.groups[1].net_bytes_per_s, 12.5e9, 1);
    ASSERT_INT(siting.parts[0].ranks, 8);
    plan.layout.pp = 2;
    ASSERT_INT(siting_from_plan(&plan, &again, &siting, &err), -1);
    ASSERT_HAS(err.text, "places 16 ranks on h100-80g+a100-80g, and here are 8");
}
