"""Checks a JSON document against a list of its values, each written PATH:TYPE, PATH=VALUE or PATH{KEYS}.

    json_has.py [--lines] FILE ITEM...

A path is keys joined by dots; "key[]" is every entry of a list, of which there must be one at least. Types are int (bytes
are whole numbers), real, bool, text, list, object and null. KEYS, joined by commas, are all the keys that an object has.
With --lines the document is the list of the file's lines, each JSON, so that a path begins with [].
"""

import json
import re
import sys

TYPES = {
    "int": lambda value: type(value) is int,
    "real": lambda value: type(value) in (int, float),
    "bool": lambda value: type(value) is bool,
    "text": lambda value: type(value) is str,
    "list": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
    "null": lambda value: value is None,
}


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def read(path, by_lines):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if by_lines:
        return [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]
    return json.loads(text, parse_constant=no_constant)


def find(value, path):
    """The values at a path."""
    values = [value]
    for key, entries in re.findall(r"([^.\[\]]*)(\[-?\d*\])?(?:\.|$)", path):
        if key:
            values = [each[key] for each in values]
        if entries == "[]":
            values = [entry for each in values for entry in each]
        elif entries:
            values = [each[int(entries[1:-1])] for each in values]
    if not values:
        raise ValueError("nothing is there")
    return values


def check(document, item):
    path, mark, wanted = re.fullmatch(r"([^:={]*)([:={])(.*)", item).groups()
    for value in find(document, path):
        if mark == ":" and not TYPES[wanted](value):
            raise ValueError(f"{value!r} is no {wanted}")
        if mark == "=" and value != json.loads(wanted):
            raise ValueError(f"it is {value!r}")
        if mark == "{" and set(value) != set(wanted.rstrip("}").split(",")):
            raise ValueError(f"its keys are {','.join(value)}")


def main(arguments):
    by_lines = arguments[0] == "--lines"
    file, *items = arguments[by_lines:]
    document = read(file, by_lines)
    failures = 0
    for item in items:
        try:
            check(document, item)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            print(f"JSON: {item}: {type(error).__name__} {error}")
            failures += 1
    return failures > 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"JSON: {error}")
