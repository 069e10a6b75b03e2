/* Clusters and devices: every way to write one, and what is said of those that make no sense. */
#include "tests/test.h"

#include "planner/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct accepted {
    const char *spec;
    int64_t nodes, ranks_per_node;
    const char *device;
    int64_t capacity_bytes;
    double net_bytes_per_s;
};

TEST(cluster_forms, "a cluster is nodes x ranks of a device, with memory and network when they are said")
{
    static const struct accepted cases[] = {
        {"1x4:cpu(300MiB)", 1, 4, "cpu", 314572800, CLUSTER_NET_BYTES_PER_S},
        {"8:cpu(1GiB)", 1, 8, "cpu", 1LL << 30, CLUSTER_NET_BYTES_PER_S},
        {"4:CPU(1kB)", 1, 4, "cpu", 1000, CLUSTER_NET_BYTES_PER_S},
        /* 400 Gb/s is 50e9 bytes/s; 79.11 GiB is rounded down to 81,008 MiB */
        {"2x8:h100-80g,net=400Gb/s", 2, 8, "h100-80g", 81008LL << 20, 50e9},
        {"2X8:H100-80G(40GiB),net=50GB/s", 2, 8, "h100-80g", 40LL << 30, 50e9},
        {"1:l4(100)", 1, 1, "l4", 100, CLUSTER_NET_BYTES_PER_S},
        /* Nobody says: a DGX H100's eight ports of 400 Gb/s, and as much for each card on a node with half as many. */
        {"2x8:h100-80g(40GiB)", 2, 8, "h100-80g", 40LL << 30, 8 * 400e9 / 8},
        {"2x4:h100-80g(40GiB)", 2, 4, "h100-80g", 40LL << 30, 4 * 400e9 / 8},
        {"2x8:v100-32g(1GiB)", 2, 8, "v100-32g", 1LL << 30, 4 * 100e9 / 8},
        {"2x4:l40s(1GiB)", 2, 4, "l40s", 1LL << 30, CLUSTER_NET_BYTES_PER_S},
        {"DGX-H200", 1, 8, "h200", 139LL << 30, 400e9},
        {"3xdgx-h200", 3, 8, "h200", 139LL << 30, 400e9},
        {"16Xdgx-a100-40g", 16, 8, "a100-40g", 40550LL << 20, 200e9},
        {"2x8:h100,net=400Gb/s", 2, 8, "h100-80g", 81008LL << 20, 50e9},
        {"2x8:T4", 2, 8, "t4", 14909LL << 20, 12.5e9},
    };
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster;
        ASSERT_OK(cluster_read(cases[i].spec, &cluster, &err));
        ASSERT_INT(cluster.groups[0].nodes, cases[i].nodes);
        ASSERT_INT(cluster.groups[0].ranks_per_node, cases[i].ranks_per_node);
        ASSERT_INT(cluster_ranks(&cluster), cases[i].nodes * cases[i].ranks_per_node);
        ASSERT_STR(cluster.groups[0].device.name, cases[i].device);
        ASSERT_INT(cluster.groups[0].device.capacity_bytes, cases[i].capacity_bytes);
        ASSERT_NEAR(cluster.groups[0].net_bytes_per_s, cases[i].net_bytes_per_s, 1);
    }
}

TEST(cluster_refusals, "what is wrong in a cluster is named, with what would be right")
{
    static const char *const cases[][2] = {
        {"2x8:a100", "did you mean a100-40g or a100-80g?"},
        {"2x8:H100_80G", "did you mean h100-80g?"},
        {"1x4:cpus", "did you mean cpu?"},
        {"1x4:abacus", "use cpu or one of v100-32g, a100-40g"},
        {"1x4:", "device \"\" is unknown"},
        {"x4:cpu", "\"x4\" is no number of ranks"},
        {"2x:cpu", "\"2x\" is no number of ranks"},
        {"2x8x2:cpu", "\"2x8x2\" is no number of ranks"},
        {"0x4:cpu", "0 nodes"},
        {"1x0:cpu", "0 ranks per node"},
        {"99999999x8:h200", "99999999 nodes"},
        {"1x4:cpu(lots)", "device memory: \"lots\" is not a size"},
        {"1x4:cpu(0)", "must be above 0"},
        {"1x4:cpu(300MiB", "no closing parenthesis"},
        {"1x4:cpu(300MiB),speed=3", "\"speed=3\" is unknown here; only net=RATE"},
        {"2x8:h200,net=fast", "net: \"fast\""},
        {"dgx-h10", "did you mean dgx-h100?"},
        {"4xdgx-h10", "did you mean 4xdgx-h100?"},
        {"foo", "presets of a node, of which 2xdgx-h100 are two, are dgx-a100-40g, dgx-a100, dgx-h100"},
        {"0xdgx-h100", "0 nodes"},
        {"1x8:a100-80g+", "\"\" is no group of nodes"},
        {"1x8:a100-80g+8xh100", "\"8xh100\" is no group of nodes"},
        {"1x8:a100-80g+1x8:h10", "did you mean h100-80g?"},
        {"1x8:a100-80g+1x8:cpu", "ranks on a CPU and on cards are no ranks of one run"},
        {"1x8:h100-80g+1x8:mi300x", "do not reach the other's cards"},
        {"1x1:l4+1x1:l40s+1x1:h200+1x1:b200+1x2:l4", "more than 4 groups of nodes that differ"},
        {"nonsense", "is no file, no preset and not of the form"},
        {"missing.json", "missing.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct cluster cluster;
        ASSERT_MSG(cluster_read(cases[i][0], &cluster, &err) == -1, "\"%s\" was accepted", cases[i][0]);
        ASSERT_HAS(err.text, cases[i][1]);
    }
}

TEST(cluster_groups,
     "groups of nodes are joined by +; like ones are one, and the last one's network is the others'")
{
    struct error err = {0};
    struct cluster c;
    ASSERT_OK(cluster_read("4x8:a100-80g+2x4:h100-80g,net=400Gb/s+1x8:A100-80G", &c, &err));
    ASSERT_INT(c.group_count, 2);
    ASSERT_INT(cluster_ranks(&c), 48);
    ASSERT_INT(cluster_nodes(&c), 7);
    ASSERT_INT(cluster_ranks_per_node(&c), 8);
    ASSERT_INT(c.groups[0].nodes, 5);
    ASSERT(c.groups[0].net_assumed && !c.groups[1].net_assumed);
    ASSERT_NEAR(c.groups[0].net_bytes_per_s, 200e9, 1);
    ASSERT_NEAR(c.groups[1].net_bytes_per_s, 50e9, 1);

    ASSERT_OK(cluster_read("dgx-a100+4x8:h100-80g+1x2:l40s,net=80Gb/s", &c, &err));
    ASSERT_INT(c.group_count, 3);
    ASSERT_NEAR(c.groups[0].net_bytes_per_s, 200e9, 1);
    ASSERT_NEAR(c.groups[1].net_bytes_per_s, 10e9, 1);

    struct cluster more = cluster_with_memory(&c, 1000);
    for (int g = 0; g < 3; g++)
        ASSERT_INT(more.groups[g].device.capacity_bytes, c.groups[g].device.capacity_bytes + 1000);
}

TEST(cluster_cpu_share, "CPU ranks without a memory of their own share the machine's equally")
{
    struct error err = {0};
    struct cluster one, four;
    ASSERT_OK(cluster_read("1:cpu", &one, &err));
    ASSERT_OK(cluster_read("4:cpu", &four, &err));
    int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
    ASSERT_INT(one.groups[0].device.capacity_bytes, machine);
    ASSERT_INT(four.groups[0].device.capacity_bytes, machine / 4);
}

TEST(cluster_net_assumed,
     "an unsaid network is marked as an assumption, and is each card's own in a mixed cluster")
{
    struct error err = {0};
    struct cluster cluster;
    ASSERT_OK(cluster_read("2x8:h200", &cluster, &err));
    ASSERT(cluster.groups[0].net_assumed);
    ASSERT_OK(cluster_read("dgx-h200", &cluster, &err));
    ASSERT(!cluster.groups[0].net_assumed);
    ASSERT_OK(cluster_read("1x8:a100-80g+1x8:h100-80g+1x4:rtx4090", &cluster, &err));
    ASSERT_NEAR(cluster.groups[0].net_bytes_per_s, 200e9, 1);
    ASSERT_NEAR(cluster.groups[1].net_bytes_per_s, 400e9, 1);
    ASSERT_NEAR(cluster.groups[2].net_bytes_per_s, 12.5e9, 1);
    for (int g = 0; g < 3; g++)
        ASSERT(cluster.groups[g].net_assumed);
    ASSERT_OK(cluster_read("2x8:h200,net=400Gb/s", &cluster, &err));
    ASSERT(!cluster.groups[0].net_assumed);
}

/* Writes `text` to a temporary file whose name goes to `path`. */
static void write_temporary(const char *text, char path[64])
{
    snprintf(path, 64, "/tmp/memplan-cluster-XXXXXX.json");
    int file = mkstemps(path, 5);
    ASSERT(file >= 0);
    ASSERT_INT(write(file, text, strlen(text)), (long long)strlen(text));
    close(file);
}

TEST(cluster_json, "a cluster file says the same as a line; mistakes name file and key")
{
    struct error err = {0};
    struct cluster cluster;
    char path[64];
    write_temporary("{\"memplan_cluster\": 1, \"nodes\": 2, \"ranks_per_node\": 8, \"device\": \"a100-80g\","
                    " \"memory\": \"70GiB\", \"net\": \"200Gb/s\"}",
                    path);
    ASSERT_OK(cluster_read(path, &cluster, &err));
    ASSERT_INT(cluster_ranks(&cluster), 16);
    ASSERT_STR(cluster.groups[0].device.name, "a100-80g");
    ASSERT_INT(cluster.groups[0].device.capacity_bytes, 70LL << 30);
    ASSERT_NEAR(cluster.groups[0].net_bytes_per_s, 25e9, 1);
    unlink(path);

    write_temporary("{\"memplan_cluster\": 1, \"groups\": [{\"nodes\": 2, \"ranks_per_node\": 8, \"device\": "
                    "\"a100-80g\"}, {\"ranks_per_node\": 4, \"device\": \"l4\", \"net\": \"80Gb/s\"}]}",
                    path);
    ASSERT_OK(cluster_read(path, &cluster, &err));
    ASSERT_INT(cluster.group_count, 2);
    ASSERT_INT(cluster_ranks(&cluster), 20);
    ASSERT_NEAR(cluster.groups[0].net_bytes_per_s, 10e9, 1);
    unlink(path);

    static const char *const wrong[][2] = {
        {"{\"memplan_cluster\": 1, \"groups\": []}", "\"groups\" is empty"},
        {"{\"memplan_cluster\": 1, \"groups\": [{\"device\": \"cpu\"}]}", "groups[0]"},
        {"{\"memplan_cluster\": 1, \"device\": \"cpu\"}", "ranks_per_node"},
        {"{\"memplan_cluster\": 9, \"ranks_per_node\": 1, \"device\": \"cpu\"}", "cluster version 9"},
        {"{\"memplan_cluster\": 1, \"ranks_per_node\": 1, \"device\": \"h10\"}", "did you mean h100-80g?"},
        {"{\"ranks_per_node\": 1, \"device\": \"cpu\"}", "memplan_cluster"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_temporary(wrong[i][0], path);
        ASSERT_INT(cluster_read(path, &cluster, &err), -1);
        ASSERT_HAS(err.text, path);
        ASSERT_HAS(err.text, wrong[i][1]);
        unlink(path);
    }
}

TEST(cluster_device_alone, "a device can be named alone, in any case, with a memory of its own")
{
    struct error err = {0};
    struct rank_device device;
    ASSERT_OK(cluster_read_device("H100-80g", 1, &device, &err));
    ASSERT(device.card && device.card->cuda);
    ASSERT_NEAR(device.card->bf16_flops_per_s, 989e12, 1e12);
    ASSERT_OK(cluster_read_device("cpu(2GiB)", 1, &device, &err));
    ASSERT(!device.card);
    ASSERT_INT(device.capacity_bytes, 2LL << 30);
    ASSERT_INT(cluster_read_device("rtx409", 1, &device, &err), -1);
    ASSERT_HAS(err.text, "did you mean rtx4090?");
}

TEST(cluster_cards_by_driver,
     "a card is known by what the driver calls it, and by its memory where there are several sizes")
{
    static const struct {
        const char *driver, *name;
        double gib;
    } drivers[] = {
        {"Tesla T4", "t4", 15},
        {"NVIDIA A10", "a10", 22},
        {"NVIDIA A10G", "a10g", 22},
        {"NVIDIA A100-SXM4-40GB", "a100-40g", 40},
        {"Tesla V100-SXM2-16GB", "v100-16g", 16},
        {"Tesla V100-SXM2-32GB", "v100-32g", 32},
        {"NVIDIA RTX A6000", "a6000", 48},
        {"NVIDIA RTX 6000 Ada Generation", "rtx6000ada", 48},
        {"NVIDIA GeForce RTX 3090", "rtx3090", 24},
        {"NVIDIA GeForce RTX 4090 Laptop GPU", "rtx4090", 16},
        {"NVIDIA GeForce RTX 5090", "rtx5090", 32},
        {"NVIDIA H20", "h20", 96},
        {"NVIDIA H200", "h200", 140},
        {"NVIDIA H800", "h800", 80},
        {"NVIDIA A800-SXM4-80GB", "a800-80g", 80},
        {"NVIDIA GB200", "gb200", 185},
        {"NVIDIA B200", "b200", 180},
        {"NVIDIA L40S", "l40s", 45},
    };
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        const struct card *card = cards_match(drivers[i].driver, (int64_t)(drivers[i].gib * (1 << 30)));
        ASSERT_STR(card ? card->name : "none", drivers[i].name);
    }
    ASSERT(!cards_match("NVIDIA GeForce GTX 1080", 8LL << 30));
}

TEST(cluster_cards_are_whole, "every card has all its figures, and less memory than its data sheet")
{
    static const struct {
        const char *name;
        double nominal_bytes;
    } sheets[] = {
        {"v100-32g", 32.0 * (1 << 30)},   {"a100-40g", 40.0 * (1 << 30)}, {"a100-80g", 80.0 * (1 << 30)},
        {"h100-80g", 80.0 * (1 << 30)},   {"h200", 141.0 * (1 << 30)},    {"b200", 180e9},
        {"l4", 24.0 * (1 << 30)},         {"l40s", 48.0 * (1 << 30)},     {"rtx4090", 24.0 * (1 << 30)},
        {"mi300x", 192.0 * (1 << 30)},    {"v100-16g", 16.0 * (1 << 30)}, {"t4", 16.0 * (1 << 30)},
        {"a10", 24.0 * (1 << 30)},        {"a10g", 24.0 * (1 << 30)},     {"a6000", 48.0 * (1 << 30)},
        {"rtx6000ada", 48.0 * (1 << 30)}, {"rtx3090", 24.0 * (1 << 30)},  {"rtx5090", 32.0 * (1 << 30)},
        {"a800-80g", 80.0 * (1 << 30)},   {"h800", 80.0 * (1 << 30)},     {"h20", 96.0 * (1 << 30)},
        {"gb200", 192.0 * (1 << 30)},
    };
    int count = 0;
    while (cards_names()[count])
        count++;
    ASSERT_INT(count, (int)(sizeof sheets / sizeof *sheets));
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++) {
        const struct card *card = cards_find(sheets[i].name);
        ASSERT(card);
        ASSERT((double)card->usable_bytes < sheets[i].nominal_bytes);
        ASSERT((double)card->usable_bytes > 0.9 * sheets[i].nominal_bytes);
        ASSERT(card->fp32_flops_per_s > 0 && card->bf16_flops_per_s >= card->fp32_flops_per_s);
        ASSERT(card->memory_bytes_per_s > card->link_bytes_per_s && card->link_bytes_per_s > 0);
    }
}
