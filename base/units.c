/* Reading and printing of quantities. Numbers are read as long double, whose 64-bit mantissa holds every int64_t
 * exactly; the plain decimal form is checked first, so that "inf", "0x10" and " 5" stay errors. */
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct prefix {
    const char *name;
    long double factor;
};

/* Longer names first: "Ki" before "k". */
static const struct prefix prefixes[] = {
    {"Ki", 1024.0L}, {"Mi", 1048576.0L}, {"Gi", 1073741824.0L}, {"Ti", 1099511627776.0L},
    {"k", 1e3L},     {"M", 1e6L},        {"G", 1e9L},           {"T", 1e12L},
    {"", 1.0L},
};

/* Reads the number at the start of `text`; *rest is then the unit, past optional spaces. */
static bool number_read(const char *text, long double *number, const char **rest)
{
    bool decimal = isdigit((unsigned char)text[0]) || (text[0] == '.' && isdigit((unsigned char)text[1]));
    if (!decimal || (text[0] == '0' && tolower((unsigned char)text[1]) == 'x'))
        return false;
    char *end;
    *number = strtold(text, &end);
    *rest = end + strspn(end, " ");
    return true;
}

/* The factor of the prefix that stands before one of the letters in `last`; *unit moves to that letter. */
static bool prefix_read(const char **unit, const char *last, long double *factor)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t length = strlen(prefixes[i].name);
        if (strncasecmp(*unit, prefixes[i].name, length) || !(*unit)[length] ||
            !strchr(last, (*unit)[length]))
            continue;
        *unit += length;
        *factor = prefixes[i].factor;
        return true;
    }
    return false;
}

int units_parse_bytes(const char *text, const char *what, int64_t *bytes, struct error *err)
{
    long double number, factor = 1;
    const char *unit;
    if (!number_read(text, &number, &unit))
        return error_set(
            err, "%s: \"%s\" is not a size; write a number of bytes or add a unit, like 80GiB or 300MB", what,
            text);
    if (*unit && !unit[1] && strchr("kKmMgGtT", *unit)) {
        const char letter = (char)(*unit == 'k' || *unit == 'K' ? 'k' : toupper((unsigned char)*unit));
        int digits = (int)(unit - text);
        return error_set(err, "%s: \"%s\" has half a unit; did you mean %.*s%cB, or %.*s%ciB?", what, text,
                         digits, text, letter, digits, text, toupper((unsigned char)letter));
    }
    if (*unit && (!prefix_read(&unit, "bB", &factor) || unit[1]))
        return error_set(err, "%s: \"%s\" has an unknown unit; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB",
                         what, text);
    /* A fraction of a byte is a slip; one of a GiB is rounded, because 0.1GB has no exact binary form. */
    if (factor == 1 && number != floorl(number))
        return error_set(err, "%s: \"%s\" is not a whole number of bytes; add a unit, like 1.5GiB", what,
                         text);
    long double size = roundl(number * factor);
    if (size >= 0x1p63L)
        return error_set(err, "%s: \"%s\" is more than this program can count; stay below 8388608TiB", what,
                         text);
    *bytes = (int64_t)size;
    return 0;
}

int units_parse_rate(const char *text, const char *what, double *bytes_per_s, struct error *err)
{
    long double number, factor;
    const char *unit;
    if (!number_read(text, &number, &unit))
        return error_set(err, "%s: \"%s\" is not a rate; write a number with a unit, like 400Gb/s or 50GB/s",
                         what, text);
    if (!prefix_read(&unit, "bB", &factor) || strcmp(unit + 1, "/s"))
        return error_set(err, "%s: \"%s\" has no known unit of rate; use Gb/s for bits or GB/s for bytes",
                         what, text);
    long double rate = number * factor / (*unit == 'b' ? 8 : 1);
    if (!(rate > 0) || rate > 1e30L)
        return error_set(err,
                         "%s: \"%s\" is not a rate that a link can have; write one above zero, like 50GB/s",
                         what, text);
    *bytes_per_s = (double)rate;
    return 0;
}

/* Three digits, as much as a reader compares at a glance: 3.21, 18.4, 212. */
static int decimals(double magnitude)
{
    return magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
}

static const char *const binary_names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

const char *units_format_bytes(int64_t bytes, char *out)
{
    const char *const *names = binary_names + 1;
    if (bytes > -1024 && bytes < 1024) {
        snprintf(out, UNITS_TEXT, "%d B", (int)bytes);
        return out;
    }
    double value = (double)bytes / 1024;
    int i = 0;
    /* What would print as 1024.00 moves up to the next unit. */
    for (; fabs(value) >= 1023.995 && i < 5; i++)
        value /= 1024;
    snprintf(out, UNITS_TEXT, "%.2f %s", value, names[i]);
    return out;
}

void units_format_bytes_pair(int64_t part, int64_t whole, char *part_out, char *whole_out)
{
    double unit = 1;
    int i = 0;
    for (; (double)whole >= 999.5 * unit && i < 6; i++)
        unit *= 1024;
    double p = (double)part / unit, w = (double)whole / unit;
    snprintf(part_out, UNITS_TEXT, "%.*f", i ? decimals(p) : 0, p);
    snprintf(whole_out, UNITS_TEXT, "%.*f %s", i ? decimals(w) : 0, w, binary_names[i]);
}

/* Minutes and more, in the two largest units. */
static void format_long(double seconds, const char *sign, char *out)
{
    long long total = llround(seconds), minutes = llround(seconds / 60), hours = llround(seconds / 3600);
    if (total < 3600)
        snprintf(out, UNITS_TEXT, "%s%lld min %02lld s", sign, total / 60, total % 60);
    else if (minutes < 24 * 60)
        snprintf(out, UNITS_TEXT, "%s%lld h %02lld min", sign, minutes / 60, minutes % 60);
    else
        snprintf(out, UNITS_TEXT, "%s%lld d %02lld h", sign, hours / 24, hours % 24);
}

const char *units_format_seconds(double seconds, char *out)
{
    static const char *const names[] = {"s", "ms", "us", "ns"};
    const char *sign = seconds < 0 ? "-" : "";
    double value = fabs(seconds);
    if (value == 0 || !(value < 1e15)) {
        snprintf(out, UNITS_TEXT, "%s", value == 0 ? "0 s" : isnan(value) ? "unknown" : "forever");
        return out;
    }
    if (value >= 59.95) {
        format_long(value, sign, out);
        return out;
    }
    int i = 0;
    for (; value < 0.9995 && i < 3; i++)
        value *= 1000;
    snprintf(out, UNITS_TEXT, "%s%.*f %s", sign, decimals(value), value, names[i]);
    return out;
}

const char *units_plural(int64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

const char *units_format_count(int64_t count, char *out)
{
    char digits[UNITS_TEXT];
    uint64_t magnitude = count < 0 ? -(uint64_t)count : (uint64_t)count;
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *to = out;
    if (count < 0)
        *to++ = '-';
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *units_format_rate(double per_second, const char *unit, char *out)
{
    static const char *const names[] = {"", "k", "M", "G", "T", "P", "E"};
    if (!isfinite(per_second)) {
        snprintf(out, UNITS_TEXT, "unknown");
        return out;
    }
    double value = per_second;
    int i = 0;
    for (; fabs(value) >= 999.5 && i < 6; i++)
        value /= 1000;
    snprintf(out, UNITS_TEXT, "%.*f %s%s", decimals(fabs(value)), value, names[i], unit);
    return out;
}
