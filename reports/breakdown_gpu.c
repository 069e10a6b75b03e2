/* What a GPU held besides the tensors of a run, by name, and what could not be recorded. */
#include "reports/breakdown.h"

static const struct table_column columns[] = {{"", TABLE_TEXT}, {"bytes", TABLE_BYTES}, {"", TABLE_TEXT}};

int breakdown_read_gpu(struct store *store, struct arena *arena, struct breakdown *b, struct error *err)
{
    return store_read_runtime(store, b->run_id, (int)b->rank, arena, &b->runtime, &b->runtime_count, err) ||
                   store_read_notes(store, b->run_id, (int)b->rank, arena, &b->notes, &b->note_count, err)
               ? -1
               : 0;
}

void breakdown_add_gpu(struct report *report, const struct breakdown *b)
{
    int64_t bytes = 0;
    if (b->runtime_count) {
        struct table *table = report_table(report, "What else the GPU holds", columns, 3);
        for (int64_t i = 0; i < b->runtime_count; i++) {
            const struct store_runtime *row = &b->runtime[i];
            bytes += row->bytes;
            table_add(table, (struct table_cell[]){cell_text(row->name), cell_whole(row->bytes),
                                                   cell_text(row->how)});
        }
        table_add(table, (struct table_cell[]){cell_text("in all"), cell_whole(bytes), cell_blank()});
    }
    for (int64_t i = 0; i < b->note_count; i++)
        report_remark(report, i ? NULL : "Notes on the recording", "%s", b->notes[i]);
}

void breakdown_add_gpu_keys(json_t *object, const struct breakdown *b)
{
    json_t *rows = json_array(), *notes = json_array();
    for (int64_t i = 0; i < b->runtime_count; i++)
        json_array_append_new(rows, json_pack("{s:o, s:I, s:o}", "name", jsonfile_string(b->runtime[i].name),
                                              "bytes", (json_int_t)b->runtime[i].bytes, "how",
                                              jsonfile_string(b->runtime[i].how)));
    for (int64_t i = 0; i < b->note_count; i++)
        json_array_append_new(notes, jsonfile_string(b->notes[i]));
    json_object_set_new(object, "runtime_memory", rows);
    json_object_set_new(object, "notes", notes);
}
