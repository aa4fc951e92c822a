#!/usr/bin/env bash
# Runs the outside suites against a built mizan, and fails unless each gives full marks: no FAIL, no "soft".
#
#   suites/run.sh [--short] [SUITE...]      SUITE: smuggle, abuse, faults, drain, grpc, slow, vtc; all by default
#
#   MIZAN        the binary (target/release/mizan)
#   SUITES_DIR   the suites' folder (../shared/suites beside the project)
#   SUITES_WORK  a scratch folder; a new one by default
#   SUITES_VENV  the virtual environment for what needs Python packages; below the target folder by default
#
# The suites judge a proxy from outside and do not belong to this repository: here are only the configurations that
# they start mizan with (templates/). `vtc` needs varnishtest and is skipped where there is none. --short leaves out
# what takes longest and is what `make test` runs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

short=0
wanted=()
for word in "$@"; do
    case $word in
    --short) short=1 ;;
    smuggle | abuse | faults | drain | grpc | slow | vtc) wanted+=("$word") ;;
    *)
        echo "usage: suites/run.sh [--short] [smuggle|abuse|faults|drain|grpc|slow|vtc]..." >&2
        exit 2
        ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=(smuggle abuse faults drain grpc slow vtc)

folder=${SUITES_DIR:-$root/../shared/suites}
if [ ! -d "$folder" ]; then
    echo "suites: folder not here: skipped ($folder; name another with SUITES_DIR)"
    # Whoever asked for the suites by name wants to hear that they did not run.
    if [ -z "${SUITES_DIR:-}" ] && { [ "$short" = 1 ] || [ "${CI:-}" = true ]; }; then exit 0; fi
    exit 1
fi
folder=$(cd "$folder" && pwd)

mizan=${MIZAN:-$root/target/release/mizan}
if [ ! -x "$mizan" ]; then
    echo "suites: no binary at $mizan: run \`make release\`, or set MIZAN" >&2
    exit 1
fi
mizan=$(cd "$(dirname "$mizan")" && pwd)/$(basename "$mizan")

if [ -z "${SUITES_WORK:-}" ]; then
    SUITES_WORK=$(mktemp -d)
    trap 'rm -rf "$SUITES_WORK"' EXIT
fi
mkdir -p "$SUITES_WORK"
export SUITES_WORK
export PRODUCT_CMD="'$mizan' serve --config \"\$CFG\""
export PRODUCT_TMPL_DIR="$here/templates"
export PYTHONDONTWRITEBYTECODE=1

venv=${SUITES_VENV:-$root/target/suites-venv}
python=python3
passed=0
failed=0

# What the last line of a suite must look like, and how many cases it counts: numbers are compared, not just words,
# so a suite that ran nothing has not passed.
count() { # name, output
    case $1 in
    smuggle)
        # product: 126 pass, 0 soft, 0 FAIL of 126; …
        if [[ $(grep -E '^product: ' <<<"$2") =~ ([0-9]+)\ pass,\ ([0-9]+)\ soft,\ ([0-9]+)\ FAIL\ of\ ([0-9]+) ]]; then
            good=${BASH_REMATCH[1]}
            bad=$((BASH_REMATCH[2] + BASH_REMATCH[3]))
        fi
        ;;
    drain)
        # product   steady        pass requests …: one line a scenario
        good=$(grep -cE '^product +[a-z-]+ +pass ' <<<"$2" || true)
        bad=$(grep -cE '^product +[a-z-]+ +(FAIL|n/a) ' <<<"$2" || true)
        ;;
    grpc)
        # product h2c: 18 passed, 0 failed  7s: one line a transport; then what a call saw while its backend was down
        good=0 bad=0
        while read -r line; do
            [[ $line =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]] || continue
            good=$((good + BASH_REMATCH[1]))
            bad=$((bad + BASH_REMATCH[2]))
        done <<<"$2"
        if grep -qE '^product backend-down: UNAVAILABLE .* recovered [0-9]' <<<"$2"; then
            good=$((good + 1))
        else
            bad=$((bad + 1))
        fi
        ;;
    *)
        # product: 39 passed, 0 failed …
        if [[ $(grep -E '^product: ' <<<"$2") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
            good=${BASH_REMATCH[1]}
            bad=${BASH_REMATCH[2]}
        fi
        ;;
    esac
}

run() { # name, least number of cases, program, arguments…
    local name=$1 least=$2 started=$SECONDS output status=0
    shift 2
    printf '== %s: %s\n' "$name" "$*"
    output=$(cd "$folder" && "$python" "$@" 2>&1) || status=$?
    printf '%s\n' "$output"
    good=0 bad=0
    count "$name" "$output"
    local ran=$((good + bad))
    if [ "$ran" -lt "$least" ]; then
        echo "suites: $name ran $ran cases, not $least" >&2
        bad=$((bad + least - ran))
    elif [ "$status" != 0 ]; then
        echo "suites: $name ended with status $status" >&2
        bad=$((bad + 1))
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    printf '== %s: %d good, %d not, %d s\n' "$name" "$good" "$bad" $((SECONDS - started))
}

for suite in "${wanted[@]}"; do
    case $suite in
    smuggle) run smuggle 126 02_smuggle.py product ;;
    abuse | grpc)
        if ! python=$("$here/setup.sh" "$venv"); then
            echo "suites: the Python packages of $suite cannot be had" >&2
            # The short run is everybody's, also where there is no package index; the whole one wants all suites.
            [ "$short" = 1 ] || exit 1
            python=python3
            echo "suites: $suite skipped"
            continue
        fi
        if [ "$suite" = abuse ]; then
            run abuse 42 03_h2_abuse.py product
        else
            run grpc 37 07_grpc.py product
        fi
        ;;
    faults) run faults 39 05_faults.py product ;;
    drain) run drain 4 06_drain.py product ;;
    slow)
        if [ "$short" = 1 ]; then
            run slow 3 08_slow.py product --only 'half-headers|body-drip|keepalive-idle'
        else
            python=$("$here/setup.sh" "$venv")
            run slow 12 08_slow.py product
        fi
        ;;
    vtc)
        if command -v varnishtest >/dev/null; then
            run vtc 2 09_own_vtc.py product
        else
            echo "suites: no varnishtest here: vtc skipped (Debian package varnish)"
        fi
        ;;
    esac
done
echo "suites: $passed passed, $failed failed"
[ "$failed" = 0 ]
