/* The gradients of whole models against finite differences of their loss, everything in double. What the fast kernels
 * make of them in fp32 is compared with the double ones afterwards. */
#include "tests/test.h"
#include "tests/trainer/runs.h"
#include "tests/trainer/solo.h"
#include "trainer/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {
    "gpt2-tiny layers=2 hidden=16 heads=4 vocab=19",
    "llama-tiny layers=2 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=19",
    "block-tiny layers=2 hidden=16 heads=4 vocab=19",
    "qwen3-tiny layers=2 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=19",
    "olmo2-tiny layers=2 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=19",
    "gemma-tiny layers=2 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=19",
    "gemma3-tiny layers=2 hidden=16 heads=4 kv_heads=2 ffn=20 vocab=19",
};
enum { MODELS = sizeof models / sizeof models[0] };

/* Two micro-batches, so that gradients also accumulate. */
static struct solo open_solo(const char *model, const char *precision, const char *recompute,
                             const struct kernel_table *kernels)
{
    struct solo solo;
    char layout[64];
    snprintf(layout, sizeof layout, "micro=1 batch=2 seq=7 %s", precision);
    solo_open(&solo, runs_program(model, layout, recompute), kernels, "random");
    solo_stir(&solo, 0.2);
    return solo;
}

/* One parameter of a model whose loss is being differentiated. */
struct probe {
    struct solo *solo;
    int64_t instance, count;
    int index;
    double *weights, *moved, *direction; /* (count) each */
};

static double loss_at(const struct probe *p, double distance)
{
    for (int64_t i = 0; i < p->count; i++)
        p->moved[i] = p->weights[i] + distance * p->direction[i];
    solo_write(p->solo, p->instance, p->index, STATE_WEIGHT, p->moved);
    return solo_loss(p->solo);
}

/* Central differences of fourth order: with h = 1e-3 the error of the formula, h^4 / 30 of the fifth derivative, is
 * about that of rounding, 1e-16 / h; both are 1e-13. */
static double derivative(const struct probe *p)
{
    const double h = 1e-3;
    double near = loss_at(p, h) - loss_at(p, -h), far = loss_at(p, 2 * h) - loss_at(p, -2 * h);
    solo_write(p->solo, p->instance, p->index, STATE_WEIGHT, p->weights);
    return (8 * near - far) / (12 * h);
}

/* `norm` is that of the whole gradient: where the derivative itself is zero (a bias of keys moves no softmax) only
 * rounding is left of it. */
static void assert_derivative(const struct probe *p, const double *gradient, double norm, const char *what)
{
    double expected = derivative(p), got = 0;
    for (int64_t i = 0; i < p->count; i++)
        got += gradient[i] * p->direction[i];
    double apart = fabs(got - expected);
    ASSERT_MSG(apart <= 1e-7 * fabs(expected) || apart <= 1e-9 * norm,
               "%s, %s: derivative %.12g, by finite differences %.12g, of a gradient of norm %g",
               solo_name(p->solo, p->instance, p->index), what, got, expected, norm);
}

static void point_anywhere(struct probe *p, uint64_t number)
{
    struct random_stream stream =
        random_stream(number, (uint64_t)(p->instance * PART_PARAMETERS_MAX + p->index));
    double length = 0;
    for (int64_t i = 0; i < p->count; i++) {
        float component;
        random_fill_normal(stream, (uint64_t)i, 1, &component, 1);
        p->direction[i] = component;
        length += p->direction[i] * p->direction[i];
    }
    for (int64_t i = 0; i < p->count; i++)
        p->direction[i] /= sqrt(length);
}

static void point_along(struct probe *p, int64_t element)
{
    memset(p->direction, 0, (size_t)p->count * sizeof *p->direction);
    p->direction[element] = 1;
}

/* Two random directions, and the first, a middle and the last element. */
static void check_parameter(struct solo *solo, int64_t instance, int index)
{
    struct probe p = {.solo = solo, .instance = instance, .index = index};
    p.count = solo_count(solo, instance, index);
    p.weights = solo_read(solo, instance, index, STATE_WEIGHT);
    p.moved = solo_read(solo, instance, index, STATE_WEIGHT);
    p.direction = solo_read(solo, instance, index, STATE_WEIGHT);
    solo_loss(solo);
    double *gradient = solo_read(solo, instance, index, STATE_GRADIENT), square_sum = 0;
    for (int64_t i = 0; i < p.count; i++)
        square_sum += gradient[i] * gradient[i];
    for (uint64_t number = 0; number < 2; number++) {
        point_anywhere(&p, number);
        assert_derivative(&p, gradient, sqrt(square_sum), "along a random direction");
    }
    const int64_t elements[] = {0, p.count / 2 + 1, p.count - 1};
    for (int i = 0; i < 3; i++) {
        point_along(&p, elements[i]);
        assert_derivative(&p, gradient, sqrt(square_sum), "one element");
    }
    free(gradient);
    free(p.weights);
    free(p.moved);
    free(p.direction);
}

static void check_model(const char *model)
{
    struct solo solo = open_solo(model, "fp64", "none", &kernels_reference);
    for (int64_t instance = 0; instance < solo.program->instances; instance++)
        for (int k = 0; k < program_block(solo.program, instance)->parameter_count; k++)
            check_parameter(&solo, instance, k);
    solo_close(&solo);
}

TEST(gradients_gpt2, "every gradient of a GPT-2 is the derivative of its loss, within 1e-7")
{
    check_model(models[0]);
}

TEST(gradients_gpt2_untied, "so is every gradient of a GPT-2 whose head has weights of its own")
{
    check_model("gpt2-tiny layers=1 hidden=15 heads=3 vocab=19 untied");
}

TEST(gradients_llama, "so is every gradient of a Llama with grouped queries")
{
    check_model(models[1]);
}

TEST(gradients_qwen3,
     "so is every gradient of a Qwen3, whose queries and keys are normed, in heads wider than the model")
{
    check_model(models[3]);
}

TEST(gradients_olmo2, "so is every gradient of an OLMo 2, whose norms stand behind, and norm all queries of "
                      "a position together")
{
    check_model(models[4]);
}

TEST(gradients_gemma, "so is every gradient of a Gemma, whose embedding is scaled and gated by GELU")
{
    check_model(models[5]);
}

TEST(gradients_gemma3, "so is every gradient of a Gemma 3, with norms around, windows in every other layer "
                       "and two bases of RoPE")
{
    check_model(models[6]);
}

TEST(gradients_encoder, "so is every gradient of an encoder")
{
    check_model(models[2]);
}

TEST(gradients_recompute, "recomputation leaves the same gradients, bit for bit")
{
    for (int i = 0; i < MODELS; i++) {
        struct solo kept = open_solo(models[i], "fp64", "none", &kernels_reference);
        struct solo again = open_solo(models[i], "fp64", "full", &kernels_reference);
        ASSERT(solo_loss(&kept) == solo_loss(&again));
        solo_assert_gradients(&again, &kept, 0);
        solo_close(&kept);
        solo_close(&again);
    }
}

TEST(gradients_fast, "the fast kernels' gradients in fp32 are those in double, within 1e-4 of their norm")
{
    for (int i = 0; i < MODELS; i++) {
        struct solo exact = open_solo(models[i], "fp64", "none", &kernels_reference);
        struct solo fast = open_solo(models[i], "fp32", "none", &kernels_cpu);
        double loss = solo_loss(&exact);
        ASSERT_NEAR(solo_loss(&fast), loss, 1e-5 * loss);
        solo_assert_gradients(&fast, &exact, 1e-4);
        solo_close(&exact);
        solo_close(&fast);
    }
}

/* Weights must not move under the tests above. */
TEST(gradients_still, "a step with a learning rate of zero leaves every weight as it was")
{
    struct solo solo = open_solo(models[0], "fp64", "none", &kernels_reference);
    double *before = solo_read(&solo, 1, 2, STATE_WEIGHT), first = solo_loss(&solo);
    ASSERT(solo_loss(&solo) == first);
    double *after = solo_read(&solo, 1, 2, STATE_WEIGHT);
    ASSERT_INT(memcmp(before, after, (size_t)solo_count(&solo, 1, 2) * sizeof *before), 0);
    free(before);
    free(after);
    solo_close(&solo);
}
