#include "reports/palette.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* What lies over the colour: strokes of white or black at low opacity, so that both remain one colour to the eye. */
struct paint {
    const char *colour;
    int size;          /* of the pattern's tile; 0: plain */
    const char *marks; /* SVG within the tile */
};

#define LIGHT "stroke='#fff' stroke-opacity='.38' fill='none' "
#define DARK  "stroke='#000' stroke-opacity='.26' fill='none' "

static const struct paint roles[ROLE_COUNT] = {
    [ROLE_PARAMETER] = {"#2f4b9a", 0, NULL},
    [ROLE_GRADIENT] = {"#9cc9ec", 8, "<path d='M-2 2 2-2M0 8 8 0M6 10 10 6' " DARK "/>"},
    [ROLE_OPTIMIZER] = {"#37a47e", 8, "<path d='M0 4H8' " LIGHT "/>"},
    [ROLE_ACTIVATION] = {"#e6a950", 0, NULL},
    [ROLE_WORKSPACE] = {"#892c3c", 8, "<path d='M-2 6 2 10M0 0 8 8M6-2 10 2' " LIGHT "/>"},
    [ROLE_COMMUNICATION] = {"#af84e1", 8, "<path d='M4 0V8' " DARK "/>"},
    [ROLE_INPUT] = {"#7a6a28", 6, "<path d='M3 2.5v1' " LIGHT "stroke-width='1.6'/>"},
    [ROLE_RUNTIME] = {"#7d848d", 8, "<path d='M0 0 8 8M8 0 0 8' " LIGHT "/>"},
};

static const struct paint activities[ACTIVITY_COUNT] = {
    [ACTIVITY_FORWARD] = {"#8fb0d3", 0, NULL},
    [ACTIVITY_BACKWARD] = {"#3f6291", 0, NULL},
    [ACTIVITY_WEIGHTS] =
        {"#3f6291", 6, "<path d='M0 3H6' stroke='#fff' stroke-opacity='.6' fill='none' stroke-width='1.6'/>"},
    [ACTIVITY_RECOMPUTE] = {"#8fb0d3", 6,
                            "<path d='M-2 2 2-2M0 6 6 0M4 8 8 4' stroke='#1f3557' stroke-opacity='.75' "
                            "fill='none' stroke-width='1.4'/>"},
    [ACTIVITY_OPTIMIZER] = {"#4d9177", 8, "<path d='M0 4H8' " LIGHT "/>"},
    [ACTIVITY_COMMUNICATION] = {"#d9822b", 0, NULL},
    [ACTIVITY_WAIT] = {"#b9bdc4", 0, NULL},
};

const char *palette_role(enum role role)
{
    return roles[role].colour;
}

int palette_terminal(const char *colour)
{
    long rgb = strtol(colour + 1, NULL, 16);
    int level[3];
    for (int i = 0; i < 3; i++)
        level[i] = (int)lround((double)(rgb >> (16 - 8 * i) & 0xff) / 255 * 5);
    return 16 + 36 * level[0] + 6 * level[1] + level[2];
}

static void add_pattern(struct text *out, const char *prefix, const char *scale, const char *name,
                        const struct paint *paint)
{
    int size = paint->size ? paint->size : 8;
    text_printf(out,
                "<pattern id='%s%s-%s' width='%d' height='%d' patternUnits='userSpaceOnUse'>"
                "<rect width='%d' height='%d' fill='%s'/>%s</pattern>",
                prefix, scale, name, size, size, size, size, paint->colour, paint->marks ? paint->marks : "");
}

void palette_add_patterns(struct text *out, const char *prefix)
{
    text_add(out, "<defs>");
    for (int role = 0; role < ROLE_COUNT; role++)
        add_pattern(out, prefix, "role", role_name((enum role)role), &roles[role]);
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        add_pattern(out, prefix, "work", activity_name((enum activity)activity), &activities[activity]);
    text_add(out, "</defs>\n");
}

void palette_add_swatch(struct text *out, const char *scale, const char *name)
{
    text_printf(
        out, "<svg class='swatch' aria-hidden='true'><rect width='14' height='14' fill='url(#%s-%s)'/></svg>",
        scale, name);
}
