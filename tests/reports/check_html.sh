#!/bin/bash
# Opens report pages in a headless Chromium: what they say, what they do when pointed at, and how they look at 1280 and 390
# pixels and in print. The pictures are left in BUILD/pages/, to be looked at.
#
#     BUILD=build MEMPLAN=build/memplan tests/reports/check_html.sh
set -eu

here=$(cd "$(dirname "$0")" && pwd)
memplan=$(realpath "${MEMPLAN:-build/memplan}")
pages=${BUILD:-build}/pages

if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    echo "skip  check-html: there is no Chromium (make deps-html, some 400 MB)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
mkdir -p "$pages"
pages=$(realpath "$pages")
cd "$pages"
rm -f -- *.db *.json *.html *.svg *.png *.pdf
export OMP_WAIT_POLICY=passive LC_ALL=C

for ((i = 0; i < 2000; i++)); do
    echo "line $i of the corpus: the quick brown fox jumps over the lazy dog."
done >corpus.txt
profile() {
    "$memplan" profile gpt2-tiny --data corpus.txt -q -o "$@" >/dev/null
}
profile one.db --steps 3 --memory 3MiB
profile pipeline.db --layers 6 --dp 2 --pp 2 --micro-batch 2 --global-batch 16 --recompute selective --steps 3
"$memplan" plan gpt2-124m --cluster 1x8:a100-40g --global-batch 64 --precision bf16 --json -q >plan.json
"$memplan" plan gpt2-tiny --layers 4 --cluster '1x4:cpu(4MiB)' --global-batch 16 --micro-batch 2 --pp 4 --pipeline-schedule zb-h1 -q -o stages.json >/dev/null
profile ranks.db --layers 16 --dp 2 --tp 2 --pp 16 --pipeline-schedule zb-h1 --micro-batch 1 --global-batch 32 --steps 2
python3 "$here/many_events.py" one.db many.db 100000
for page in one.db pipeline.db ranks.db many.db plan.json stages.json; do
    "$memplan" report "$page" -q -o "${page%.*}.html"
    "$memplan" report "$page" -q -o "${page%.*}.svg"
done
"$memplan" compare one.db pipeline.db -q -o compare.html
"$memplan" compare one.db pipeline.db -q -o compare.svg
python3 "$here/check_pages.py" "$pages"
