/* Are the colours told apart by everybody? Sight with two kinds of cones is simulated with the matrices of Machado, Oliveira and
 * Fernandes (A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009, severity 1.0); differences are
 * CIEDE2000, where 1 is just visible side by side and 10 is seen at a glance. */
#include "reports/palette.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sight {
    const char *name;
    double matrix[3][3];
    double least; /* difference of any two roles */
};

static const struct sight sights[] = {
    {"normal", {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, 12},
    {"deuteranopia",
     {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}},
     12},
    {"protanopia",
     {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}},
     12},
    {"tritanopia",
     {{1.255528, -.076749, -.178779}, {-.078411, .930809, .147602}, {.004733, .691367, .303900}},
     10},
};
enum { SIGHTS = sizeof sights / sizeof *sights };

struct lab {
    double l, a, b;
};

static void multiply(const double matrix[3][3], const double in[3], double out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = matrix[i][0] * in[0] + matrix[i][1] * in[1] + matrix[i][2] * in[2];
}

static void read_colour(const char *colour, double linear[3])
{
    unsigned long rgb = strtoul(colour + 1, NULL, 16);
    ASSERT_INT(strlen(colour), 7);
    for (int i = 0; i < 3; i++) {
        double c = (double)(rgb >> (16 - 8 * i) & 255) / 255;
        linear[i] = c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
    }
}

static double lab_curve(double t)
{
    return t > 216.0 / 24389 ? cbrt(t) : (24389.0 / 27 * t + 16) / 116;
}

static struct lab see(const char *colour, const struct sight *sight)
{
    static const double to_xyz[3][3] = {
        {.4124564, .3575761, .1804375}, {.2126729, .7151522, .0721750}, {.0193339, .1191920, .9503041}};
    double linear[3], seen[3], xyz[3];
    read_colour(colour, linear);
    multiply(sight->matrix, linear, seen);
    for (int i = 0; i < 3; i++)
        seen[i] = seen[i] < 0 ? 0 : seen[i] > 1 ? 1 : seen[i];
    multiply(to_xyz, seen, xyz);
    double x = lab_curve(xyz[0] / 0.95047), y = lab_curve(xyz[1]), z = lab_curve(xyz[2] / 1.08883);
    return (struct lab){116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

static double degrees(double b, double a)
{
    double angle = atan2(b, a) * 180 / M_PI;
    return angle < 0 ? angle + 360 : angle;
}

static double cosine(double angle)
{
    return cos(angle * M_PI / 180);
}

/* Sharma, Wu and Dalal, The CIEDE2000 Color-Difference Formula, 2005. */
static double difference(struct lab p, struct lab q)
{
    double mean = (hypot(p.a, p.b) + hypot(q.a, q.b)) / 2;
    double g = 0.5 * (1 - sqrt(pow(mean, 7) / (pow(mean, 7) + pow(25, 7))));
    double c1 = hypot((1 + g) * p.a, p.b), c2 = hypot((1 + g) * q.a, q.b);
    double h1 = degrees(p.b, (1 + g) * p.a), h2 = degrees(q.b, (1 + g) * q.a);
    double turn = h2 - h1 > 180 ? h2 - h1 - 360 : h2 - h1 < -180 ? h2 - h1 + 360 : h2 - h1;
    double dh = 2 * sqrt(c1 * c2) * sin(turn / 2 * M_PI / 180);
    double h = fabs(h1 - h2) <= 180 ? (h1 + h2) / 2
               : h1 + h2 < 360      ? (h1 + h2 + 360) / 2
                                    : (h1 + h2 - 360) / 2;
    double l = (p.l + q.l) / 2, c = (c1 + c2) / 2;
    double t = 1 - 0.17 * cosine(h - 30) + 0.24 * cosine(2 * h) + 0.32 * cosine(3 * h + 6) -
               0.2 * cosine(4 * h - 63);
    double sl = 1 + 0.015 * (l - 50) * (l - 50) / sqrt(20 + (l - 50) * (l - 50));
    double sc = 1 + 0.045 * c, sh = 1 + 0.015 * c * t;
    double rotation =
        -2 * sqrt(pow(c, 7) / (pow(c, 7) + pow(25, 7))) * sin(60 * exp(-pow((h - 275) / 25, 2)) * M_PI / 180);
    double dl = (q.l - p.l) / sl, dc = (c2 - c1) / sc;
    return sqrt(dl * dl + dc * dc + dh / sh * (dh / sh) + rotation * dc * dh / sh);
}

/* Pairs 1, 7 and 17 of the paper's test data: blues that differ in chroma alone, greys on either side of neutral, and colours far
 * apart. */
TEST(palette_difference, "the colour difference is that of the published test data")
{
    ASSERT_NEAR(difference((struct lab){50, 2.6772, -79.7751}, (struct lab){50, 0, -82.7485}), 2.0425,
                0.0001);
    ASSERT_NEAR(difference((struct lab){50, 0, 0}, (struct lab){50, -1, 2}), 2.3669, 0.0001);
    ASSERT_NEAR(difference((struct lab){50, 2.5, 0}, (struct lab){73, 25, -18}), 27.1492, 0.0001);
}

TEST(palette_roles, "any two roles differ for people who see three, or only two, kinds of colour")
{
    for (int s = 0; s < SIGHTS; s++)
        for (int a = 0; a < ROLE_COUNT; a++)
            for (int b = 0; b < a; b++) {
                double d = difference(see(palette_role((enum role)a), &sights[s]),
                                      see(palette_role((enum role)b), &sights[s]));
                ASSERT_MSG(d >= sights[s].least, "%s and %s differ by %.1f in %s", role_name((enum role)a),
                           role_name((enum role)b), d, sights[s].name);
            }
}

/* The first fill of the pattern that pictures of such work are painted with. */
static struct lab see_activity(const char *patterns, enum activity activity, const struct sight *sight)
{
    char id[64], colour[8] = "";
    snprintf(id, sizeof id, "'work-%s' ", activity_name(activity));
    const char *pattern = strstr(patterns, id);
    ASSERT(pattern && sscanf(strstr(pattern, "fill='"), "fill='%7s", colour) == 1);
    return see(colour, sight);
}

/* Recomputation is forward work and has its colour, as gradients of weights have that of backward; stripes tell them apart. */
TEST(palette_activities, "so do any two kinds of work that share no pattern")
{
    struct text patterns = {0};
    palette_add_patterns(&patterns, "");
    for (int s = 0; s < SIGHTS; s++)
        for (int a = 0; a < ACTIVITY_COUNT; a++)
            for (int b = 0; b < a; b++) {
                double d = difference(see_activity(patterns.data, (enum activity)a, &sights[s]),
                                      see_activity(patterns.data, (enum activity)b, &sights[s]));
                bool striped = (a == ACTIVITY_RECOMPUTE && b == ACTIVITY_FORWARD) ||
                               (a == ACTIVITY_WEIGHTS && b == ACTIVITY_BACKWARD);
                ASSERT_MSG(striped || d >= 10, "%s and %s differ by %.1f in %s",
                           activity_name((enum activity)a), activity_name((enum activity)b), d,
                           sights[s].name);
            }
    text_free(&patterns);
}

static double luminance(const char *colour)
{
    double linear[3];
    read_colour(colour, linear);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

/* (l1 + 0.05) / (l2 + 0.05), as the Web Content Accessibility Guidelines count it; 1 is invisible. Areas have edges besides. */
TEST(palette_paper, "every role stands out from white and from dark paper")
{
    double white = 1, dark = luminance("#16181d");
    for (int role = 0; role < ROLE_COUNT; role++) {
        double l = luminance(palette_role((enum role)role));
        ASSERT_MSG((white + 0.05) / (l + 0.05) > 1.6, "%s on white", role_name((enum role)role));
        ASSERT_MSG((l + 0.05) / (dark + 0.05) > 1.9, "%s on dark", role_name((enum role)role));
    }
}
