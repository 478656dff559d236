#!/bin/sh
# Numbers of an earlier life of this container must not be added to this one's.
set -eu
if [ -n "${PROMETHEUS_MULTIPROC_DIR:-}" ]; then
    mkdir -p "$PROMETHEUS_MULTIPROC_DIR"
    rm -f "$PROMETHEUS_MULTIPROC_DIR"/*.db
fi
exec "$@"
