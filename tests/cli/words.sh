# shellcheck shell=bash disable=SC2154
# The words that the cases use in their lines of shell.

memplan() { "$MEMPLAN" "$@"; }

# field KEY FILE: the value of a key at the top of a JSON document.
field() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"
}

# edit FILE FROM TO: a copy of a file with one text replaced, to stdout; the text must be there.
edit() {
    grep -qF -e "$2" "$1" && sed "s|$2|$3|" "$1"
}

# staged STAGES: plan.json with these two pipeline stages, to stdout.
staged() {
    python3 -c 'import json, sys
plan = json.load(open("plan.json"))
plan["layout"]["pp"] = 2
plan["stages"] = json.loads(sys.argv[1])
print(json.dumps(plan))' "$1"
}

# losses FILE: what `train --json` says of its steps that does not depend on the clock.
losses() { sed -n 's/"step_seconds".*//p' "$1"; }

# rounded_losses FILE: the losses alone, to five decimals: layouts may add up gradients in another order.
rounded_losses() { sed -En 's/.*("loss":[0-9]+\.[0-9]{5}).*/\1/p' "$1"; }

same() { cmp "$1" "$2"; }

# same_prediction FILE FILE: answers of predict, but for the step that a plan file says it was made with.
same_prediction() {
    python3 -c 'import json, sys; a, b = ({**json.load(open(f)), "planned_step_seconds": 0} for f in sys.argv[1:]); sys.exit(a != b)' "$@"
}

# The arena that `predict` states for a configuration.
arena_bytes() {
    memplan predict "$@" --json >arena.json && field arena_bytes arena.json && rm arena.json
}

can_mount() {
    mkdir -p "$scratch/probe" && mount -t tmpfs -o size=64k none "$scratch/probe" 2>/dev/null && umount "$scratch/probe"
}

# full_disk COMMAND: runs it with a full file system on ./small. Files that stay there are listed in ./left.
full_disk() {
    mkdir small && mount -t tmpfs -o size=64k none small || return
    head -c 100000 /dev/zero >small/full 2>/dev/null
    "$@"
    local status=$?
    find small -type f ! -name full >left
    [ -s left ] || rm left
    umount small && rmdir small
    return $status
}

# read_only COMMAND: runs it with a folder ./small that may not be written; root is stopped only by a file system.
read_only() {
    mkdir small && if [ "$(id -u)" -eq 0 ]; then mount -t tmpfs -o ro none small; else chmod 555 small; fi || return
    "$@"
    local status=$?
    umount small 2>/dev/null
    rmdir small
    return $status
}

# locked FILE COMMAND: runs it while another process has the database to itself.
locked() {
    python3 -c 'import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
open("held", "w").close()
time.sleep(60)' "$1" &
    local holder=$! status
    until [ -e held ]; do sleep 0.02; done
    rm held
    "${@:2}"
    status=$?
    kill "$holder"
    wait "$holder" 2>/dev/null
    return $status
}

# damaged FILE: the database with every third page from the third on overwritten, to stdout.
damaged() {
    python3 -c 'import sys
pages = bytearray(open(sys.argv[1], "rb").read())
for at in range(8192, len(pages), 3 * 4096):
    pages[at:at + 200] = b"\xff" * 200
sys.stdout.buffer.write(pages)' "$1"
}

# small_files KIB COMMAND: runs it with a limit on the size of files.
small_files() { ulimit -f "$1" && "${@:2}"; }

# examples PAGE: a page of help ends with two commands to paste, each going on in deeper lines.
examples() { [ "$(sed '1,/^examples$/d' "$1" | grep -c '^  memplan ')" -eq 2 ] && tail -n 1 "$1" | grep -q '^  '; }

# advice FILE: the options that the first advice of `predict` tells to try.
advice() { tr '\n' ' ' <"$1" | sed -n 's/.* try \(--[^(]*\) (needs.*/\1/p' | sed 's/ or .*//; s/  */ /g'; }

# shellcheck disable=SC2034 # for the cases
tiny_config='{"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 64}'


# completes SCRIPT LINE WORDS: what bash offers at the end of a line, with that script; words split as bash does.
completes() {
    local offers
    offers=$(PATH=$(dirname "$MEMPLAN"):$PATH bash -c 'source "./$1"
        read -r -a COMP_WORDS <<<"${2//=/ = }"
        [[ $2 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _memplan
        echo "${COMPREPLY[*]}"' - "$1" "$2")
    [ "$offers" = "$3" ] || ! echo "$2: $offers" >&2
}
