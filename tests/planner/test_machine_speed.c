/* Speeds: what is read from a processor's description, how rates turn into seconds, and how ranks share a machine. */
#include "tests/test.h"

#include "planner/machine_speed.h"

#include <string.h>

static const char zen3[] = "processor\t: 0\nmodel name\t: AMD EPYC 7003\ncpu MHz\t\t: 2500.000\n"
                           "flags\t\t: fpu sse2 fma avx avx2\n\nprocessor\t: 1\ncpu MHz\t\t: 9.0\n";
static const char skylake[] = "cpu MHz\t\t: 2000.0\nflags\t\t: fma avx2 avx512f avx512dq\n";
static const char lookalike[] = "cpu MHz\t\t: 2000.0\nflags\t\t: fma avx512foo avx2_not\n";

TEST(speed_from_cpuinfo, "a CPU's nominal rate is cores x frequency x what its vectors do in a cycle")
{
    struct machine_speed speed;
    machine_speed_from_cpuinfo(zen3, 4, &speed);
    /* 4 cores x 2.5 GHz x 32 = 320 GFLOP/s, of which 0.7 */
    ASSERT_NEAR(speed.matmul_flops_per_s[SPEED_CLASSES - 1], 224e9, 1e6);
    ASSERT_NEAR(speed.memory_bytes_per_s.value, 32e9, 1e6);
    ASSERT_INT(speed.matmul_source, SPEED_NOMINAL);
    machine_speed_from_cpuinfo(skylake, 1, &speed);
    /* 2 GHz x 64 x 0.7 */
    ASSERT_NEAR(speed.matmul_flops_per_s[SPEED_CLASSES - 1], 89.6e9, 1e6);
    machine_speed_from_cpuinfo(lookalike, 1, &speed);
    ASSERT_NEAR(speed.matmul_flops_per_s[SPEED_CLASSES - 1], 2e9 * 8 * 0.7, 1e6);
    machine_speed_from_cpuinfo("", 1, &speed);
    ASSERT(speed.matmul_flops_per_s[0] > 0 && speed.memory_bytes_per_s.value > 0);
}

TEST(speed_interpolates, "between size classes the rate of products is interpolated, and never extrapolated")
{
    struct machine_speed speed;
    machine_speed_from_cpuinfo(zen3, 1, &speed);
    const double rates[SPEED_CLASSES] = {1e9, 3e9, 5e9, 5e9};
    machine_speed_set_measured(&speed, rates, 1e30);
    speed.overhead_s.value = 0;
    ASSERT_INT(speed.matmul_source, SPEED_MEASURED);
    /* 1e7 lies half way from 1e6 to 1e8 in the logarithm: 2e9 flops/s */
    static const double cases[][2] = {{1e3, 1e-6}, {1e6, 1e-3}, {1e7, 5e-3}, {1e8, 1e8 / 3e9}, {1e15, 2e5}};
    for (int i = 0; i < 5; i++) {
        struct work work = {.flops = cases[i][0]};
        ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &work, 1), cases[i][1], cases[i][1] * 1e-9);
    }
}

TEST(speed_slower_limit,
     "an operation takes as long as the slower of arithmetic and memory, plus its overhead")
{
    struct machine_speed speed;
    machine_speed_from_cpuinfo(zen3, 1, &speed);
    const double rates[SPEED_CLASSES] = {1e9, 1e9, 1e9, 1e9};
    machine_speed_set_measured(&speed, rates, 1e9);
    speed.overhead_s.value = 0.5;
    struct work bound_by_memory = {.flops = 1e9, .bytes_moved = 3e9};
    struct work bound_by_arithmetic = {.flops = 2e9, .bytes_moved = 1e9};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &bound_by_memory, 1), 3.5, 1e-9);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_MATMUL, &bound_by_arithmetic, 1), 2.5, 1e-9);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_GELU, &bound_by_memory, 1), 3.5, 1e-9);
}

TEST(speed_shared_cores, "R ranks on a CPU have a share of 1/R each; cards share nothing")
{
    struct machine_speed cpu, card;
    machine_speed_from_cpuinfo(zen3, 4, &cpu);
    cpu.overhead_s.value = 0;
    struct work work = {.flops = 1e12, .bytes_moved = 1};
    double alone = machine_speed_seconds(&cpu, OP_MATMUL, &work, 1);
    ASSERT_NEAR(machine_speed_seconds(&cpu, OP_MATMUL, &work, 4), 4 * alone, alone * 1e-9);
    cpu.ranks_per_node = 2; /* of four ranks, two are on this machine */
    ASSERT_NEAR(machine_speed_seconds(&cpu, OP_MATMUL, &work, 4), 2 * alone, alone * 1e-9);
    machine_speed_from_card(cards_find("h100-80g"), PRECISION_BF16, &card);
    alone = machine_speed_seconds(&card, OP_MATMUL, &work, 1);
    ASSERT_NEAR(machine_speed_seconds(&card, OP_MATMUL, &work, 8), alone, alone * 1e-9);
    ASSERT_INT(card.matmul_source, SPEED_PRESET);
}

/* Two stages of 4 ranks, or four of 1, on 2 cores: a rank that others of its stage leave a core has it, and half of one where
 * they are 4. */
TEST(speed_stages_take_turns, "where ranks outnumber cores a stage is costed alone, and few can run at once")
{
    struct machine_speed cpu;
    machine_speed_from_cpuinfo(zen3, 2, &cpu);
    cpu.overhead_s.value = 0;
    const struct work work = {.flops = 1e12, .bytes_moved = 1};
    const struct layout wide = {.dp = 2, .tp = 2, .pp = 2}, deep = {.dp = 1, .tp = 1, .pp = 4},
                        roomy = {.dp = 1, .tp = 1, .pp = 2}, flat = {.dp = 4, .tp = 1, .pp = 1};
    double alone = machine_speed_seconds(&cpu, OP_MATMUL, &work, 1);
    ASSERT_NEAR(machine_speed_layout_seconds(&cpu, OP_MATMUL, &work, &wide), 4 * alone, alone * 1e-9);
    ASSERT_NEAR(machine_speed_layout_seconds(&cpu, OP_MATMUL, &work, &deep), 2 * alone, alone * 1e-9);
    ASSERT_NEAR(machine_speed_layout_seconds(&cpu, OP_MATMUL, &work, &roomy), 2 * alone, alone * 1e-9);
    ASSERT_NEAR(machine_speed_layout_seconds(&cpu, OP_MATMUL, &work, &flat), 4 * alone, alone * 1e-9);
    ASSERT(machine_speed_stages_at_once(&cpu, &wide) == 1);
    ASSERT(machine_speed_stages_at_once(&cpu, &deep) == 2);
    ASSERT(machine_speed_stages_at_once(&cpu, &roomy) == 2);
    ASSERT(machine_speed_stages_at_once(&cpu, &flat) == 1);
    cpu.ranks_per_node = 2; /* the machines of two stages: each stage has cores of its own */
    ASSERT(machine_speed_stages_at_once(&cpu, &deep) == 4);
    ASSERT_NEAR(machine_speed_layout_seconds(&cpu, OP_MATMUL, &work, &deep), 2 * alone, alone * 1e-9);
}

TEST(speed_network, "an all-reduce across nodes goes at the pace of the network")
{
    struct error err = {0};
    struct cluster cluster;
    struct machine_speed speed;
    ASSERT_OK(cluster_read("2x8:h100-80g,net=80Gb/s", &cluster, &err));
    machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    speed.overhead_s.value = 0;
    struct work work = {.bytes_sent = 10e9, .group = {8, 1, 8}};
    /* 10 GB over 0.78 of 450 GB/s within a node, of 10 GB/s between nodes. A ring of 8 takes 14 steps of 3.4 us; one of 16 on
     * two nodes 4 of 14 us and 26 of 3.4 us; a call 8.4 us. */
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_ALL_REDUCE, &work, 8), 10 / 351.0 + 56e-6, 1e-9);
    work.group = (struct work_group){16, 1, 16};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_ALL_REDUCE, &work, 16), 10 / 7.8 + 152.8e-6, 1e-9);
}

/* 4 nodes of 8 ranks. tp = 4: parts are neighbours and never leave their node. dp = 4 beside them: a group has two ranks on
 * a node, and the four groups of 16 ranks share its network. */
TEST(speed_groups, "a group within a node uses its links; groups across nodes share the network of each")
{
    struct error err = {0};
    struct cluster cluster;
    struct machine_speed speed;
    ASSERT_OK(cluster_read("4x8:h100-80g,net=80Gb/s", &cluster, &err));
    machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
    speed.overhead_s.value = 0;
    const struct layout layout = {.dp = 4, .tp = 4, .pp = 2};
    struct work parts = {.bytes_sent = 10e9, .group = work_group_of(&layout, OP_SUM_PARTIAL)};
    struct work replicas = {.bytes_sent = 10e9, .group = work_group_of(&layout, OP_ALL_REDUCE)};
    struct work message = {.bytes_sent = 10e9, .bytes_moved = 20e9, .group = work_group_of(&layout, OP_SEND)};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_SUM_PARTIAL, &parts, 32), 10 / 351.0, 1e-4);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_ALL_REDUCE, &replicas, 32), 4 / 0.78, 1e-3);
    /* All 8 ranks of a node send to the next stage at once. What the rank itself does is a copy. */
    ASSERT_NEAR(machine_speed_message_seconds(&speed, &message, 32), 8 / 0.78 + 14e-6, 1e-9);
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_SEND, &message, 32), 20e9 / speed.memory_bytes_per_s.value,
                1e-6);
    /* A group of 6 does not divide a node of 8: the second one has ranks on two. */
    parts.group = (struct work_group){6, 1, 6};
    ASSERT_NEAR(machine_speed_seconds(&speed, OP_SUM_PARTIAL, &parts, 12), 1 / 0.78, 1e-3);
}

TEST(speed_doubt, "what rates rest on says how far to trust a step: steps of recordings, presets, guesses")
{
    struct machine_speed nominal, measured, card;
    machine_speed_from_cpuinfo(zen3, 4, &nominal);
    measured = nominal;
    const double rates[SPEED_CLASSES] = {1e9, 1e9, 1e9, 1e9};
    machine_speed_set_measured(&measured, rates, 1e9);
    machine_speed_from_card(cards_find("a100-80g"), PRECISION_BF16, &card);
    ASSERT(machine_speed_doubt(&card) < machine_speed_doubt(&measured));
    ASSERT(machine_speed_doubt(&measured) < machine_speed_doubt(&nominal));
    /* Two runs in fp32, of whose steps eight in ten are within 20 and 30%, and a quiet one in bf16. */
    struct calibration_run runs[] = {{.precision = PRECISION_FP32, .step_spread = 0.2},
                                     {.precision = PRECISION_BF16, .step_spread = 0.01},
                                     {.precision = PRECISION_FP32, .step_spread = 0.3}};
    struct calibration calibration = {.runs = runs, .run_count = 3};
    machine_speed_use(&nominal, &calibration, PRECISION_FP32);
    ASSERT_NEAR(machine_speed_doubt(&nominal), 0.25, 1e-12);
    machine_speed_use(&nominal, &calibration, PRECISION_BF16);
    ASSERT_NEAR(machine_speed_doubt(&nominal), 0.15, 1e-12);
}

/* So far as the least has been measured; and of no card what it does in fp32. */
TEST(speed_doubt_of_cards, "the less was measured of a card, the wider is the doubt")
{
    static const char *const names[] = {"a100-80g", "h100-80g", "b200", "v100-32g"};
    double last = 0;
    for (int i = 0; i < 4; i++) {
        struct machine_speed speed, plain;
        machine_speed_from_card(cards_find(names[i]), PRECISION_BF16, &speed);
        machine_speed_from_card(cards_find(names[i]), PRECISION_FP32, &plain);
        ASSERT(machine_speed_doubt(&speed) > last);
        ASSERT(machine_speed_doubt(&plain) >= machine_speed_doubt(&speed));
        last = machine_speed_doubt(&speed);
    }
    ASSERT_STR(cards_evidence_text(cards_find("v100-32g")->evidence),
               "by its data sheet alone: no step of training, nor a product, was held against it");
}

/* What others measured large products to sustain, in bf16 (docs/time-model.md, section 3): no card is taken to be faster. */
TEST(speed_shares_of_cards, "no card's products are faster than they were measured")
{
    static const struct {
        const char *name;
        double measured;
    } cards[] = {{"a100-80g", 271e12}, {"h100-80g", 755e12}, {"h200", 755e12},    {"b200", 1439e12},
                 {"l4", 91e12},        {"l40s", 252e12},     {"rtx4090", 179e12}, {"mi300x", 659e12}};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        struct machine_speed speed;
        machine_speed_from_card(cards_find(cards[i].name), PRECISION_BF16, &speed);
        double share = speed.products.flops_per_s / cards[i].measured;
        ASSERT(share < 0.93);
        ASSERT(share > (strcmp(cards[i].name, "l4") ? 0.91 : 0.6));
    }
}

TEST(speed_describes_itself, "each rate is printed with where it came from")
{
    struct machine_speed speed;
    struct text text = {0};
    machine_speed_from_cpuinfo(zen3, 4, &speed);
    machine_speed_describe(&speed, 123e9, &text);
    ASSERT_HAS(text.data, "matrix products of this plan 123 GFLOP/s (nominal)");
    ASSERT_HAS(text.data, "memory 32.0 GB/s (nominal)");
    text_free(&text);
    struct calibration_point product = {.threads = 4, .flops = 1, .seconds = 1};
    struct calibration calibration = {.device = "abacus, 4 cores"};
    calibration.kinds[PRECISION_BF16][OP_MATMUL] = (struct calibration_kind){&product, 1, 0};
    machine_speed_use(&speed, &calibration, PRECISION_BF16);
    machine_speed_describe(&speed, 123e9, &text);
    ASSERT_HAS(text.data,
               "operations calibrated in bf16 on abacus, 4 cores: matrix products of this plan 123 GFLOP/s "
               "(calibration), of what was not calibrated memory 32.0 GB/s (nominal)");
    text_free(&text);
}

TEST(speed_describes_networks, "a network is told with where its rate is from, and how to set it")
{
    static const char *const cases[][2] = {
        {"2x8:h100-80g", "400 GB/s a node, of which 78% count (preset: a DGX H100's; net= sets it)"},
        {"2x4:a100-80g",
         "100 GB/s a node, of which 78% count (preset: for each card as much as a DGX A100 has; "
         "net= sets it)"},
        {"2x8:l4", "12.5 GB/s a node, of which 78% count (assumed: a plain server's 100 Gb/s; net= sets it)"},
        {"2x8:h100-80g,net=400Gb/s", "50.0 GB/s a node, of which 78% count (given)"},
        {"2x2:cpu(1GiB)", "12.5 GB/s a node (assumed: a plain server's 100 Gb/s; net= sets it)"},
    };
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster cluster;
        struct machine_speed speed;
        struct text text = {0};
        ASSERT_OK(cluster_read(cases[i][0], &cluster, &err));
        machine_speed_describe_net(&cluster.groups[0], "net=", &text);
        ASSERT_STR(text.data, cases[i][1]);
        text_free(&text);
        /* What is told is what is counted. */
        machine_speed_for_cluster(&cluster, PRECISION_BF16, 1, &speed);
        double share = cluster.groups[0].device.card ? 0.78 : 1;
        ASSERT_NEAR(speed.net_bytes_per_s.value, share * cluster.groups[0].net_bytes_per_s, 1);
        ASSERT_INT(speed.net_bytes_per_s.source, machine_speed_net_source(&cluster.groups[0]));
    }
}
