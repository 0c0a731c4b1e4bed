#!/bin/sh
# Be the head of a Ray cluster until this process ends: Ctrl-C or `kill PID` ends it, and all that Ray started with it.
#
#     scripts/ray_head.sh [options of ray start]
#
# EVORL_RAY_DIR  folder for Ray's sockets and logs; a short path, since those of sockets are limited
# RAY_AUTH_MODE  token (default): who joins shows the token of ~/.ray/auth_token, which is drawn where there is none
set -eu
umask 077

dir=${EVORL_RAY_DIR:-/tmp/evorl-ray-$(id -u)}
export RAY_AUTH_MODE="${RAY_AUTH_MODE:-token}" RAY_USAGE_STATS_ENABLED=0

mkdir -p "$dir"
[ "$(stat -c %u "$dir")" = "$(id -u)" ] || { echo "ray_head: $dir is another user's" >&2 && exit 2; }
chmod 700 "$dir" # below it Ray lets everybody write
chmod -f 700 ~/.ray && chmod -f 600 ~/.ray/auth_token || :
[ "$RAY_AUTH_MODE" != token ] || ray get-auth-token --generate > /dev/null 2>&1 # keeps one that is there
echo "ray_head: pid $$, log in $dir/head-$$.log"
exec ray start --head --block --include-dashboard=false --temp-dir="$dir/ray" --log-style=record "$@" \
    > "$dir/head-$$.log" 2>&1
