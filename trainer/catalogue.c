#include "trainer/catalogue.h"

#include <assert.h>

struct catalogue catalogue_of(const struct model *model)
{
    struct catalogue c = {.layers = model->layers};
    for (int part = 0; part < CATALOGUE_PARTS; part++)
        c.counts[part] = parameters_of(model, (enum part)part, 1, c.parameters[part]);
    return c;
}

int64_t catalogue_count(const struct catalogue *c)
{
    return c->counts[PART_EMBED] + c->layers * c->counts[PART_LAYER] + c->counts[PART_HEAD];
}

/* The number of the first parameter of a part, or of a layer. */
static int64_t first_of(const struct catalogue *c, enum part part, int64_t layer)
{
    int64_t layers_before = part == PART_EMBED ? 0 : part == PART_LAYER ? layer : c->layers;
    return (part == PART_EMBED ? 0 : c->counts[PART_EMBED]) + layers_before * c->counts[PART_LAYER];
}

int64_t catalogue_number(const struct catalogue *c, struct parameter_name name)
{
    int index = 0;
    while (index < c->counts[name.part] && c->parameters[name.part][index].id != name.id)
        index++;
    assert(index < c->counts[name.part]);
    return first_of(c, name.part, name.layer) + index;
}

/* Which part, which layer of it (-1 outside layers), which of its parameters. */
struct place {
    enum part part;
    int64_t layer, index;
};

static struct place place_of(const struct catalogue *c, int64_t number)
{
    assert(number >= 0 && number < catalogue_count(c));
    int64_t head = first_of(c, PART_HEAD, -1), in_layers = number - c->counts[PART_EMBED];
    if (in_layers < 0)
        return (struct place){PART_EMBED, -1, number};
    if (number >= head)
        return (struct place){PART_HEAD, -1, number - head};
    return (struct place){PART_LAYER, in_layers / c->counts[PART_LAYER], in_layers % c->counts[PART_LAYER]};
}

struct parameter_name catalogue_name(const struct catalogue *c, int64_t number)
{
    struct place place = place_of(c, number);
    return (struct parameter_name){place.part, place.layer, c->parameters[place.part][place.index].id, false};
}

const struct parameter *catalogue_parameter(const struct catalogue *c, int64_t number)
{
    struct place place = place_of(c, number);
    return &c->parameters[place.part][place.index];
}
