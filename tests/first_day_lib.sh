# Shared by the scripts of first days, which source it: the working directory, the Python, and checks of one step each.
#
# ROOT is the checkout, WORK a new directory (removed at the end unless FIRST_DAY_DIR names it), PYTHON that of
# THESPIS_PYTHON or of an environment in WORK, which the script makes.
set -uo pipefail

ROOT=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "${FIRST_DAY_DIR:-}" ]; then
  WORK=$FIRST_DAY_DIR && mkdir -p "$WORK"
else
  WORK=$(mktemp -d) && trap 'rm -rf "$WORK"' EXIT
fi
WORK=$(cd "$WORK" && pwd)
case ${THESPIS_PYTHON:-} in
  "") PYTHON=$WORK/venv/bin/python ;;
  */*) PYTHON=$(cd "$(dirname "$THESPIS_PYTHON")" && pwd)/$(basename "$THESPIS_PYTHON") ;;
  *) PYTHON=$(command -v "$THESPIS_PYTHON") ;;
esac
cd "$WORK" || exit 2
export PYTHONPATH=$WORK${PYTHONPATH:+:$PYTHONPATH} COLUMNS=100 JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$WORK/jax_cache}

PASSED=0 FAILED=0 CODE=0 PROBLEM=""
OUT=$WORK/stdout ERR=$WORK/stderr

# Run a command; its output is in $OUT and $ERR, its exit code in $CODE.
t() { "$PYTHON" -m thespis "$@" >"$OUT" 2>"$ERR" </dev/null; CODE=$?; }
py() { "$PYTHON" "$@" >"$OUT" 2>"$ERR" </dev/null; CODE=$?; }

fail() { [ -n "$PROBLEM" ] || PROBLEM=$1; }
code() { [ "$CODE" = "$1" ] || fail "exit code $CODE, not $1"; }
out() { grep -qE -- "$1" "$OUT" || fail "stdout lacks: $1"; }
err() { grep -qE -- "$1" "$ERR" || fail "stderr lacks: $1"; }
one_line() { [ "$(wc -l <"$ERR")" = 1 ] || fail "stderr has $(wc -l <"$ERR") lines, not one"; }
file() { [ -s "$1" ] || fail "$1 is missing or empty"; }
holds() { grep -qE -- "$2" "$1" || fail "$1 lacks: $2"; }
# A Python expression that must be true; `read(path)` reads JSON.
true_in_python() {
  local script="import json, sys, glob; read = lambda path: json.load(open(path)); sys.exit(0 if ($1) else 1)"
  "$PYTHON" -c "$script" 2>>"$ERR" || fail "not true: $1"
}

# The verdict of a step: one line; of a failed one also the ends of its last output.
verdict() {
  if [ -z "$PROBLEM" ]; then
    PASSED=$((PASSED + 1)) && printf 'ok    %s\n' "$1"
  else
    FAILED=$((FAILED + 1)) && printf 'FAIL  %s: %s\n' "$1" "$PROBLEM"
    tail -n 12 "$OUT" | sed 's/^/      | /'
    tail -n 12 "$ERR" | sed 's/^/      ! /'
  fi
  PROBLEM=""
}

check() { # NAME COMMAND... -- REGEX: exit code 0, and stdout or stderr has the expected text
  local name=$1 command=()
  shift
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  t "${command[@]}"
  code 0 && { cat "$OUT" "$ERR" | grep -qE -- "$2" || fail "output lacks: $2"; }
  verdict "$name"
}

refused() { # NAME REGEX COMMAND...: a mistake costs one line and exit code 2
  local name=$1 line=$2
  shift 2
  t "$@"
  code 2 && one_line && err "$line"
  verdict "$name"
}
