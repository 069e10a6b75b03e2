#include "planner/product_rate.h"

#include "model/work.h"

static bool is_product(enum op_kind kind)
{
    return kind == OP_MATMUL || kind == OP_MATMUL_DGRAD || kind == OP_MATMUL_WGRAD;
}

void product_rate_add(const struct program *program, const struct machine_speed *speed,
                      struct product_work *sum)
{
    for (int r = 0; r < program->run_count; r++) {
        const struct run *run = &program->runs[r];
        const struct block *block = &program->blocks[run->block];
        for (int i = 0; i < block->op_count; i++) {
            struct step_op op = {
                .kind = block->ops[i].kind, .block = block, .op = &block->ops[i], .bucket = -1};
            if (!is_product(op.kind))
                continue;
            struct work work = work_of(program, &op);
            sum->flops += (double)run->count * work.flops;
            sum->seconds +=
                (double)run->count * machine_speed_layout_seconds(speed, op.kind, &work, &program->layout);
        }
    }
}
