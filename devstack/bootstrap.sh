#!/usr/bin/env bash
# Makes .venv of this checkout usable: finds Python >= 3.11, creates the environment, installs the pinned packages.
# Usage: devstack/bootstrap.sh [dev]     ("dev" adds the test and lint tools)
# Run it or source it (". devstack/bootstrap.sh dev"); it leaves nothing behind in the caller but .venv.
# A stamp (hash of the requirement files and of the Python version) makes every later call cost some milliseconds.

seckill_bootstrap() (
    set -euo pipefail
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
    venv=$root/.venv
    wanted=("$root/requirements.txt" "$root/devstack/requirements.txt")
    if [ "${1:-}" = dev ]; then wanted+=("$root/requirements-dev.txt"); fi  # anything else is the arguments of a sourcing script
    stamp=$venv/.seckill-stamp-${#wanted[@]}

    say() { printf 'seckill: %s\n' "$*" >&2; }
    # pyvenv.cfg names the interpreter and its version: no Python has to be started to know it.
    fingerprint() { cat "${wanted[@]}" "$venv/pyvenv.cfg" 2>/dev/null | cksum; }
    fresh() { [ -x "$venv/bin/python" ] && [ -f "$stamp" ] && [ "$(<"$stamp")" = "$(fingerprint)" ]; }

    if fresh; then return 0; fi

    free_kib=$(df -Pk "$root" | awk 'NR == 2 { print $4 }')
    if [ "${free_kib:-0}" -lt 2097152 ]; then
        say "less than 2 GB free in $root ($((free_kib / 1024)) MB): free some disk space, then run this again"
        return 4
    fi

    find_python() {
        local candidate
        for candidate in "${SECKILL_PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
            if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
                "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
                command -v "$candidate"
                return 0
            fi
        done
        return 1
    }

    # Two starts at once must not install into each other's environment. Without flock(1) we go unlocked.
    exec 9<"$root/devstack/bootstrap.sh"
    if command -v flock >/dev/null 2>&1; then flock 9; fi
    if fresh; then return 0; fi

    if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
        if ! python=$(find_python); then
            say "Python 3.11 or newer not found: install it (apt install python3 python3-venv) or name it in SECKILL_PYTHON"
            return 4
        fi
        if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
            say "$python has no venv module: apt install python3-venv, then run this again"
            return 4
        fi
        say "creating .venv with $python"
        rm -rf "$venv"
        "$python" -m venv "$venv" || { say "could not create $venv (see above)"; return 4; }
    fi

    say "installing packages (first start or changed requirements)"
    arguments=()
    for file in "${wanted[@]}"; do arguments+=(-r "$file"); done
    log=$venv/pip.log
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check --quiet "${arguments[@]}" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        say "pip could not install the packages (last lines above, all in $log): check network, proxy and pip settings, then run this again"
        return 3
    fi
    fingerprint >"$stamp"
)

seckill_bootstrap "$@"
