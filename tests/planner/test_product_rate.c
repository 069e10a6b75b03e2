/* The rate of a step's matrix products. */
#include "tests/model/first_stage.h"
#include "tests/test.h"

#include "model/presets.h"
#include "planner/product_rate.h"

/* A step's own rate lies below that of its largest products, and is the total over the total. */
TEST(product_rate, "the rate of a step's products is theirs, in their shapes")
{
    struct program *program;
    struct product_work sum = {0}, twice = {0};
    struct machine_speed speed;
    struct error err;
    const struct model *model = presets_find("gpt2-124m");
    struct layout layout = {.micro_batch = 4, .precision = PRECISION_BF16};
    ASSERT_OK(layout_complete(&layout, model, &err));
    ASSERT_OK(program_create(model, &layout, NULL, &program, &err));
    machine_speed_from_card(cards_find("a100-40g"), PRECISION_BF16, &speed);
    product_rate_add(program, &speed, &sum);
    /* 6 flops a token for each weight of a matrix: 12 layers of 12 x 768^2, and the head. */
    ASSERT_NEAR(sum.flops, 6.0 * 4096 * (12.0 * 12 * 768 * 768 + 50257.0 * 768), 1);
    ASSERT(sum.flops / sum.seconds < speed.products.flops_per_s);
    ASSERT(sum.flops / sum.seconds > speed.products.flops_per_s / 3);
    speed.products.flops_per_s /= 2;
    product_rate_add(program, &speed, &twice);
    ASSERT(twice.seconds > 1.5 * sum.seconds);
    program_free(program);
}
