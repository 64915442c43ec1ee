#!/usr/bin/env bash
# Run a command on the first of two Ray nodes that share nothing, emulating two machines.
#
#   benchmarks/two_nodes.sh [-c FILE_OR_FOLDER]... [-o OUT] COMMAND ...
#
# Each node has its own network and mount namespace with its own address, /tmp, /dev/shm and home;
# only the installed software is shared. The command starts in an empty folder of node 1, into which
# -c copies; files it leaves in ./out are copied to OUT. $NODE_2 runs a command on the second node, as
# in `$NODE_2 ls /dev/shm`, and $RAY_NODE_2 restarts Ray there after it was killed.
# Needs Linux, util-linux and iproute2, but no privileges. All processes end with this script.
set -euo pipefail

copied=() out=""
while getopts "c:o:" option; do
  case $option in
    c) copied+=("$(realpath "$OPTARG")") ;;
    o) mkdir -p "$OPTARG"; out=$(realpath "$OPTARG") ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))

if [ -z "${TWO_NODES:-}" ]; then
  options=()
  for path in ${copied[@]+"${copied[@]}"}; do options+=(-c "$path"); done
  [ -z "$out" ] || options+=(-o "$out")
  bin=$(dirname "$(command -v agentrl || realpath "$(dirname "$0")/../.venv/bin/agentrl")")
  exec env TWO_NODES="$bin" unshare --user --map-root-user --net --mount --pid --fork --kill-child \
    --mount-proc "$(realpath "$0")" ${options[@]+"${options[@]}"} "$@"
fi

export PATH="$TWO_NODES:$PATH"
first=10.77.0.1 second=10.77.0.2
[ -z "$out" ] || mount --bind "$out" /mnt
tar -C / -cf /dev/shm/copied.$$ ${copied[@]+"${copied[@]#/}"} --files-from /dev/null 2>/dev/null
exec 9< "/dev/shm/copied.$$"; rm "/dev/shm/copied.$$"

# The checkout and the installation stay visible, read-only, where they are below /tmp.
installed=$(dirname "$TWO_NODES")
checkout=$(realpath "$(dirname "$0")/..")
export installed checkout
mount --bind "$checkout" /srv && mount -o remount,bind,ro /srv
mount --bind "$installed" /media && mount -o remount,bind,ro /media
own_folders='mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; mkdir -p /tmp/home
[ -d "$checkout" ] || { mkdir -p "$checkout"; mount -o bind,ro /srv "$checkout"; }
[ -d "$installed" ] || { mkdir -p "$installed"; mount -o bind,ro /media "$installed"; }'
eval "$own_folders"
mkdir /tmp/job /tmp/copied
tar -C /tmp/copied -xf - <&9
for path in ${copied[@]+"${copied[@]}"}; do mv "/tmp/copied$path" /tmp/job/; done

unshare --net --mount sleep infinity &
node=$!
until [ "$(readlink "/proc/$node/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
export NODE_2="nsenter --net --mount --target $node env HOME=/tmp/home"
ip link add name node-1 type veth peer name node-2
ip link set node-2 netns "$node"
for device in lo node-1; do ip link set "$device" up; done
ip address add $first/24 dev node-1
$NODE_2 sh -ec "$own_folders; for device in lo node-2; do ip link set \$device up; done
  ip address add $second/24 dev node-2"

export HOME=/tmp/home RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN
# On busy cores, Ray's nodes start late, and its niced workers hardly get to run.
export RAY_raylet_start_wait_time_s=200 RAY_worker_niceness=0
unset RAY_TMPDIR
options="--num-cpus 1 --object-store-memory 400000000 --disable-usage-stats"
cd /tmp/job
ray start --head --node-ip-address $first --port 6379 --include-dashboard false $options >/tmp/ray.log
export RAY_NODE_2="$NODE_2 ray start --address $first:6379 --node-ip-address $second $options"
$RAY_NODE_2 >>/tmp/ray.log
export RAY_ADDRESS=$first:6379
code=0
"$@" || code=$?
[ -z "$out" ] || [ ! -d out ] || cp -r out/. /mnt/
exit $code
