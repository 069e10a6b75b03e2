#include "reports/stage_table.h"

#include "base/checked.h"
#include "base/text.h"
#include "reports/ranges.h"

#include <string.h>

int64_t stage_table_list_layers(const struct program *program, struct arena *arena, int64_t **layers)
{
    int64_t count = 0;
    *layers = arena_array(arena, (size_t)program->instances, sizeof **layers);
    for (int64_t instance = 0; instance < program->instances; instance++) {
        int64_t layer = program_layer(program, instance);
        if (layer >= 0)
            (*layers)[count++] = layer;
    }
    return count;
}

const int64_t *stage_table_chunk_layers(const struct pipeline *pipeline, struct arena *arena)
{
    const struct program *first = pipeline->stages[0];
    int64_t *layers = arena_array(arena, (size_t)layout_chunks(&first->layout), sizeof *layers);
    if (pipeline->count == 1)
        layers[0] = first->model.layers;
    for (int i = 0; i < pipeline->count && pipeline->count > 1; i++) {
        const struct program *stage = pipeline->stages[i];
        for (int c = 0; c < stage->chunk_count; c++)
            layers[stage->chunks[c].global] = stage->chunks[c].layers;
    }
    return layers;
}

const char *stage_table_place(const struct layout *layout, int64_t rank, struct arena *arena)
{
    if (layout->tp == 1 && layout->pp == 1)
        return NULL;
    struct layout_place place = layout_place_of(layout, rank);
    return arena_printf(arena, "stage %lld, replica %lld, part %lld", (long long)place.stage,
                        (long long)place.replica, (long long)place.part);
}

struct rank_row *stage_table_rows(const struct pipeline *pipeline, struct arena *arena)
{
    struct rank_row *rows = arena_array(arena, (size_t)pipeline->count, sizeof *rows);
    for (int i = 0; i < pipeline->count; i++) {
        const struct program *stage = pipeline->stages[i];
        int64_t *layers, layer_count = stage_table_list_layers(stage, arena, &layers);
        int64_t ranks = layout_ranks(&stage->layout) / pipeline->count;
        rows[i] = (struct rank_row){
            .stage = i,
            .first = i * ranks,
            .count = ranks,
            .layers = layers,
            .layer_count = layer_count,
            .peak_bytes = stage->peak_bytes,
            .arena_bytes = stage->arena_bytes,
            .predicted_bytes = -1,
        };
        memcpy(rows[i].by_role, stage->at_peak, sizeof rows[i].by_role);
    }
    return rows;
}

void stage_table_add_pair(struct report *report, const char *heading, const struct stage_bytes sides[2])
{
    int64_t most = max_i64(sides[0].count, sides[1].count);
    if (most < 2)
        return;
    struct table_column *columns = arena_array(report->arena, 4, sizeof *columns);
    columns[0] = (struct table_column){"", TABLE_TEXT};
    columns[1] = (struct table_column){sides[0].name, TABLE_BYTES};
    columns[2] = (struct table_column){sides[1].name, TABLE_BYTES};
    columns[3] = (struct table_column){"change", TABLE_CHANGE};
    struct table *table = report_table(report, heading, columns, 4);
    for (int64_t i = 0; i < most; i++) {
        struct table_cell cells[4] = {cell_text(arena_printf(report->arena, "stage %lld", (long long)i))};
        for (int side = 0; side < 2; side++)
            cells[1 + side] = i < sides[side].count ? cell_whole(sides[side].bytes[i]) : cell_blank();
        if (i < sides[0].count && i < sides[1].count)
            cells[3] = cell_whole(sides[1].bytes[i] - sides[0].bytes[i]);
        table_add(table, cells);
    }
}
