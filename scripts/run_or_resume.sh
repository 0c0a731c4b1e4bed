#!/bin/sh
# A run that whoever restarts jobs may start again and again: the first time it begins, later it goes on from its
# last checkpoint, and once it is done it only prints its result.
#
#     scripts/run_or_resume.sh RUN_DIR [words of evorl.run]
set -eu

[ $# -gt 0 ] || { echo "usage: scripts/run_or_resume.sh RUN_DIR [words of evorl.run]" >&2 && exit 2; }
run=$1
shift
if [ -e "$run/.hydra/config.yaml" ]; then # written last: before that it is no run
    exec python -m evorl.run "resume=$run"
fi
exec python -m evorl.run "$@" "hydra.run.dir=$run"
