"""Runs the PyTorch listing of docs/guide.md, and compares what it prints with what the page shows; twice, since the page
says that every run prints the same.

What is kept for backward differs between versions of PyTorch, so another one than the page names is skipped."""
import contextlib
import io
import pathlib
import re
import sys

import torch

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guide.md"
LISTING = re.compile(r"^```python\n(.*?)^```$.*?PyTorch (\d+\.\d+).*?^```text\n(.*?)^```$", re.M | re.S)
LOSS = re.compile(r"loss (\d+\.\d+)")


def printed(listing):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(listing, str(PAGE), "exec"), {})
    return out.getvalue()


def without_losses(text):
    return LOSS.sub("loss", text)


def close(shown, got):
    """Other processors add up in another order."""
    return all(abs(float(a) - float(b)) < 0.01 for a, b in zip(LOSS.findall(shown), LOSS.findall(got)))


def main():
    listing, version, shown = LISTING.search(PAGE.read_text(encoding="utf-8")).groups()
    if not torch.__version__.startswith(version + ".") or torch.cuda.is_available():
        print(f"skip  the listing of docs/guide.md: made with PyTorch {version} on a CPU, and here is {torch.__version__}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    torch.set_num_threads(1)
    first, second = printed(listing), printed(listing)
    verdicts = {
        "the listing of docs/guide.md prints what the page shows":
            without_losses(first) == without_losses(shown) and close(shown, first),
        "and the same again": first == second,
    }
    for sentence, holds in verdicts.items():
        print(f"{'ok' if holds else 'FAIL':5} {sentence}")
    if not all(verdicts.values()):
        print(first + second)
    failed = list(verdicts.values()).count(False)
    print(f"{len(verdicts) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
