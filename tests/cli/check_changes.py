"""Whether the changes that `memplan check` prints do what it says: each is written into a copy of the example, as a user would
with an editor, and that copy is checked. Its peak must be the printed one, to the byte.

    check_changes.py MEMPLAN FOLDER_OF_EXAMPLES
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = r"(pretrain_\w+\.py|run_\w+\.py|sft\.py|-m torchtitan\.train)"


def check(memplan, script, memory):
    """The exit status and the JSON document."""
    command = [memplan, "check", "--json", "--quiet", "--device", "h100-80g", "--memory", str(memory), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{script}: {done.stderr}")
    return done.returncode, json.loads(done.stdout)


def spelling(name):
    """Dashes and underscores are the same."""
    return re.sub(r"\\?[-_]", "[-_]", re.escape(name).replace(r"\-", "-"))


def edit_option(text, name, value, words):
    given = re.compile(r"(?<![\w-])" + spelling(name) + r"(?![\w-])((=|[ \t]+)(\"[^\"]*\"|[^-\s\"\\][^\s\"]*)"
                       + (r"([ \t]+[^-\s\"\\][^\s\"]*)*" if words or name == "--recompute-modules" else "") + ")?")
    if value is None:
        return given.sub("", text)
    wanted = name if value == "" else f'{name} "{value}"' if " " in value and not words else f"{name} {value}"
    text, count = given.subn(lambda _: wanted, text)
    return text if count else re.sub(PROGRAMS, lambda found: f"{found[0]} {wanted}", text)


def edit_json(path, name, value):
    config = json.loads(path.read_text())
    *parts, last = name.split(".")
    inner = config
    for part in parts:
        inner = inner.setdefault(part, {})
    inner[last] = json.loads(value) if re.fullmatch(r"\d+|true|false", value) else value
    path.write_text(json.dumps(config))


def edit_yaml(path, name, value):
    """A key that is there, or a new one of the outermost level."""
    text, count = re.subn(rf"(?m)^(\s*{name}:).*$", rf"\1 {value}", path.read_text())
    assert count < 2, f"{path}: {name}"
    path.write_text(text if count else f"{text.rstrip()}\n{name}: {value}\n")


def edit_written(text, name, value):
    """A JSON file that the script writes itself."""
    group, *rest = name.split(".")
    quoted = value if re.fullmatch(r"\d+|true|false", value) else f'"{value}"'
    if not rest:
        return re.sub(rf'"{group}": *[^,\n]+', f'"{group}": {quoted}', text)
    if re.search(rf'"{rest[-1]}":', text):
        return re.sub(rf'"{rest[-1]}": *[^,\n]+', f'"{rest[-1]}": {quoted}', text)
    for key in reversed(rest):
        quoted = f'{{"{key}": {quoted}}}'
    return re.sub(rf'"{group}": *\{{', f'"{group}": {{ {quoted[1:-1]},', text)


def edit_variable(text, name, value):
    text, count = re.subn(rf'{name}="?[^\s"]*"?', f"{name}={value}", text)
    return text if count else re.sub(r"\A(#!.*\n)?", lambda found: f"{found[0]}export {name}={value}\n", text, count=1)


def apply(edits, script):
    text = script.read_text()
    for edit in edits:
        name, value = edit["name"], edit["value"]
        if edit["place"] == "environment":
            text = edit_variable(text, name, value)
        elif edit["place"] == "option":
            text = edit_option(text, name, value, edit["words"])
        else:
            path = script.parent / edit["file"]
            if not path.exists():
                text = edit_written(text, name, value)
            elif path.suffix == ".json":
                edit_json(path, name, value)
            else:
                edit_yaml(path, name, value)
    script.write_text(text)


def check_advice(memplan, examples, script, memory, advised):
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "launch"
        shutil.copytree(examples, copy)
        apply(advised["edits"], copy / script.name)
        status, after = check(memplan, copy / script.name, memory)
        what = f"{script.name} with {'; '.join(advised['changes'])}"
        for key in ("peak_bytes", "needed_bytes", "probability", "fits"):
            assert after[key] == advised[key], f"{what}: {key} is {after[key]}, promised {advised[key]}"
        assert status == (0 if advised["fits"] else 1), what


def main():
    memplan, examples = sys.argv[1], pathlib.Path(sys.argv[2])
    held, kinds = 0, set()
    for script in sorted(examples.glob("*.sh")):
        _, now = check(memplan, script, 80 << 30)
        for share in (80 << 30, 1.05 * now["needed_bytes"], 0.97 * now["needed_bytes"], 0.7 * now["needed_bytes"], 0.3 * now["needed_bytes"]):
            _, answer = check(memplan, script, int(share))
            for advised in answer["advice"]["list"]:
                check_advice(memplan, examples, script, int(share), advised)
                held += 1
                kinds.update(edit["place"] for edit in advised["edits"])
    print(f"{held} changes hold, of {len(kinds)} places: {', '.join(sorted(kinds))}")


main()
