# What .ci/run and .ci/deep share: steps, tests that are recorded, and a verdict of at most twenty lines as the last that is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As the image is built: what is tested is what is shipped, and a clone elsewhere finds what was compiled here.
export GOFLAGS="${GOFLAGS:-} -trimpath" CGO_ENABLED=0
out=$(mktemp -d)
: >"$out/verdicts"
now=start

step() {
  now=$1
  printf '\n=== %s (%ss)\n' "$now" "$SECONDS"
}

# said keeps what a step that is no test says, for the verdict.
said() { tee -a "$out/said"; }

# The logs of nodes that belong to a failed test are long: their beginning is shown, and all of what is no log.
shorter='length > 600 { $0 = substr($0, 1, 600) " …" } /^(    )+[a-z_]+\.go:[0-9]+: time=/ { if (++logs > 400) next } { print; fflush() }'

# tests NAME ARGUMENTS: runs go test by gotestsum, whose flags come before a --.
tests() {
  local record="$out/$1.json" code=0 judged=0 tags="" module=none
  shift
  if [[ " $* " =~ " -tags "([a-z_]+) ]]; then tags="-tags ${BASH_REMATCH[1]} "; fi
  if [[ " $* " =~ " -C "([a-z/]+) ]]; then module=${BASH_REMATCH[1]}; fi # another module than this one
  go tool gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary all --jsonfile "$record" "$@" 2>&1 |
    tee "$out/output" | awk "$shorter" || code=$?
  go run ./internal/verdict "$record" >"$out/verdict" || judged=$?
  sed "s/^     repeat: go test /&$tags/; s|^\(     repeat: go test \)\(.* \)\./$module\$|\1-C $module \2.|" "$out/verdict" >>"$out/verdicts"
  if [ "$code" -ne 0 ] && ! grep -q '^FAIL' "$out/verdict"; then grep -v '^$' "$out/output" | tail -n 5 >>"$out/said"; fi
  [ "$code" -eq 0 ] && [ "$judged" -eq 0 ]
}

# once and twice are flags of tests: where time and other processes have a say, a test that fails is run once more, and named FLAKY if it passes then. A race, a
# panic or more than five failures are no accident.
once=()
twice=(--rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test)

# What is said at the end. Nothing in it may fail: the exit code is that of the steps.
report() {
  local code=$1
  {
    if [ "$code" -eq 0 ]; then
      grep '^FLAKY' "$out/verdicts" | sort -u | head -n 19
      printf '=== passed in %ss\n' "$SECONDS"
    else
      printf '=== FAILED in step "%s" after %ss\n' "$now" "$SECONDS"
      { grep -v '^FLAKY' "$out/verdicts"; cut -c1-300 "$out/said" 2>/dev/null; grep '^FLAKY' "$out/verdicts"; } | head -n 19
    fi
  } || true
  rm -rf "$out"
  exit "$code"
}
trap 'code=$?; printf "\n"; report "$code"' EXIT

# install_program PROGRAM PACKAGE: what some tests need, and skip without.
install_program() {
  command -v "$1" >/dev/null && return
  step "install $2"
  (apt-get update -qq && apt-get install -y -qq "$2") >/dev/null 2>&1 || echo "$2 could not be installed; the tests that need it will skip"
}

# install_browser: what looks at the page.
has_browser() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }
install_browser() { has_browser || install_program chromium chromium; }
