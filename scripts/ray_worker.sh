#!/bin/sh
# Be a worker of a Ray cluster until this process ends: Ctrl-C or `kill PID` ends it, and all that Ray started with it.
#
#     scripts/ray_worker.sh HEAD[:PORT] [options of ray start]
#
# EVORL_RAY_DIR  folder for Ray's sockets and logs; a short path, since those of sockets are limited
# RAY_AUTH_MODE  token (default): shows the token of ~/.ray/auth_token, a copy of the head's
set -eu
umask 077

[ $# -gt 0 ] || { echo "usage: scripts/ray_worker.sh HEAD[:PORT] [options of ray start]" >&2 && exit 2; }
head=$1
shift
case $head in *:*) ;; *) head=$head:6379 ;; esac
dir=${EVORL_RAY_DIR:-/tmp/evorl-ray-$(id -u)}
export RAY_AUTH_MODE="${RAY_AUTH_MODE:-token}" RAY_USAGE_STATS_ENABLED=0

mkdir -p "$dir"
[ "$(stat -c %u "$dir")" = "$(id -u)" ] || { echo "ray_worker: $dir is another user's" >&2 && exit 2; }
chmod 700 "$dir" # below it Ray lets everybody write
chmod -f 700 ~/.ray && chmod -f 600 ~/.ray/auth_token || :
echo "ray_worker: pid $$, of $head, log in $dir/worker-$$.log"
exec ray start --address="$head" --block --temp-dir="$dir/ray" --log-style=record "$@" > "$dir/worker-$$.log" 2>&1
