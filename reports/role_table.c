#include "reports/role_table.h"

static const struct table_column plain_columns[] = {
    {"", TABLE_TEXT}, {"", TABLE_BYTES}, {"", TABLE_PERCENT}, {"", TABLE_BAR}};
static const struct table_column beside_columns[] = {{"", TABLE_TEXT},           {"measured", TABLE_BYTES},
                                                     {"predicted", TABLE_BYTES}, {"error", TABLE_CHANGE},
                                                     {"share", TABLE_PERCENT},   {"", TABLE_BAR}};

int64_t role_table_total(const int64_t by_role[ROLE_COUNT])
{
    int64_t total = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        total += by_role[role];
    return total;
}

/* `predicted` is NULL, or points to one figure. */
static void add_row(struct table *table, const char *name, int64_t bytes, const int64_t *predicted,
                    double share, struct table_cell bar)
{
    if (predicted)
        table_add(table, (struct table_cell[]){cell_text(name), cell_whole(bytes), cell_whole(*predicted),
                                               cell_whole(*predicted - bytes), cell_real(share), bar});
    else
        table_add(table, (struct table_cell[]){cell_text(name), cell_whole(bytes), cell_real(share), bar});
}

void role_table_add(struct report *report, const char *heading, const int64_t by_role[ROLE_COUNT],
                    const int64_t predicted[ROLE_COUNT])
{
    struct table *table = predicted ? report_table(report, heading, beside_columns, 6)
                                    : report_table(report, heading, plain_columns, 4);
    int64_t total = role_table_total(by_role), most = 1;
    for (int role = 0; role < ROLE_COUNT; role++)
        most = by_role[role] > most ? by_role[role] : most;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (by_role[role] || (predicted && predicted[role]))
            add_row(table, role_name((enum role)role), by_role[role], predicted ? &predicted[role] : NULL,
                    total ? (double)by_role[role] / (double)total : 0,
                    cell_real((double)by_role[role] / (double)most));
    int64_t predicted_total = predicted ? role_table_total(predicted) : 0;
    add_row(table, "total", total, predicted ? &predicted_total : NULL, total ? 1 : 0, cell_blank());
}
