#!/bin/sh
# A crawl API on Celery, whole, on this machine: Redis, N Celery workers, the API with its dashboard, and Flower.
#
#   scripts/start-distributed.sh [N]        start what is not running, with N workers (default 2)
#   scripts/start-distributed.sh scale M    have M workers, while all the rest goes on
#   scripts/start-distributed.sh status     what is running; exits with 1 if something is not
#   scripts/start-distributed.sh stop       end all of it; the data stays
#   scripts/start-distributed.sh clean      the same, and remove the data and the logs
#
# With --compose before any of these, it is done in containers (scripts/distributed), with --system by the programs of
# this system. Without either: as it was started; else in containers where there is no redis-server but compose works.
#
# Variables: REDIS_PORT (6379), API_PORT (8080), FLOWER_PORT (5555), DISTRIBUTED_FOLDER (.shoal/distributed: data, logs
# and process ids), PYTHON; CELERY_BROKER_URL for a broker that is there already; and all of CELERY_… and SHOAL_….
# In containers: COMPOSE_PROJECT_NAME (shoal-distributed), PIP_INDEX_URL; SHOAL_TOKEN for a token of your own.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
folder=${DISTRIBUTED_FOLDER:-.shoal/distributed}
redis_port=${REDIS_PORT:-6379}
api_port=${API_PORT:-8080}
flower_port=${FLOWER_PORT:-5555}
own_redis=
[ -n "${CELERY_BROKER_URL:-}" ] || own_redis=1
. "$here/distributed/compose.sh"

fail() {
  echo "$1" >&2
  [ -z "${2:-}" ] || echo "  try: $2" >&2
  exit 1
}

is_number() { case $1 in '' | *[!0-9]*) return 1 ;; *) [ "$1" -le 256 ] ;; esac; }

# A process is known by its id and the moment it began: ids are used again. One that has ended and that nobody has
# asked about yet (Z) is none.
began() { ps -o stat= -o lstart= -p "$1" 2>/dev/null | sed '/^Z/d; s/^[^ ]* *//'; }

is_running() {
  [ -f "$folder/$1.pid" ] || return 1
  { read -r pid && read -r since; } <"$folder/$1.pid" || return 1
  [ -n "$since" ] && [ "$(began "$pid")" = "$since" ]
}

# start NAME COMMAND…: in the background, in a process group of its own, unless it is running.
start() {
  name=$1
  shift
  if is_running "$name"; then return 0; fi
  : >"$folder/$name.log"
  setsid "$@" </dev/null >>"$folder/$name.log" 2>&1 9>&- &
  pid=$!
  printf '%s\n%s\n' "$pid" "$(began "$pid")" >"$folder/$name.pid"
}

# end NAME: ask, wait, and after half a minute do not ask any more.
end() {
  if is_running "$1"; then
    echo "stopping $1"
    kill -TERM "$pid" 2>/dev/null || true
    waited=0
    while is_running "$1" && [ "$waited" -lt 300 ]; do
      sleep 0.1
      waited=$((waited + 1))
    done
    kill -KILL "-$pid" 2>/dev/null || true
  fi
  rm -f "$folder/$1.pid"
}

# until_true WHAT NAME COMMAND…: wait for a process to be ready; says why where it ends instead.
until_true() {
  what=$1 name=$2
  shift 2
  waited=0
  until "$@"; do
    if ! is_running "$name" || [ "$waited" -gt 600 ]; then
      tail -n 15 "$folder/$name.log" >&2
      fail "$what did not start; its log is $folder/$name.log" "fix what it says, then start this again"
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
}

answers() { "$python" -c "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)" "$1" 2>/dev/null; }
is_ready() { grep -q ' ready\.' "$folder/$1.log"; }
is_redis() {
  "$python" -c "
import socket, sys
with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2) as s:
    s.sendall(b'PING\r\n')
    sys.exit(not s.recv(100).startswith((b'+PONG', b'-NOAUTH')))" "$1" 2>/dev/null
}

workers() { ls "$folder" 2>/dev/null | sed -n 's/^worker-\([0-9]*\)\.pid$/\1/p' | sort -n; }

find_python() {
  for candidate in "${PYTHON:-}" "$here/../.venv/bin/python" python3 python; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c 'import shoal' 2>/dev/null; then
      python=$(command -v "$candidate")
      return
    fi
  done
  fail "no Python here has shoal" "pip install '.[celery,redis]' flower in the folder of shoal's source, or set PYTHON"
}

check_installed() {
  find_python
  "$python" -c 'import celery, hiredis' 2>/dev/null ||
    fail "Celery is not installed for $python" "$python -m pip install '.[celery,redis]' in the folder of shoal's source"
  command -v setsid >/dev/null 2>&1 || fail "setsid is not installed" "apt-get install util-linux"
  [ -z "$own_redis" ] || is_running redis || is_redis "$redis_port" || command -v redis-server >/dev/null 2>&1 ||
    fail "Redis is not installed" "apt-get install redis-server, or $0 --compose, or set CELERY_BROKER_URL to one that runs elsewhere"
}

# Before anything is started, so that nothing is left half started.
check_ports() {
  if ! is_running api && answers "$api_port"; then fail "port $api_port is in use" "API_PORT=8081 $0"; fi
  "$python" -c 'import flower' 2>/dev/null || return 0
  if ! is_running flower && answers "$flower_port"; then fail "port $flower_port is in use" "FLOWER_PORT=5556 $0"; fi
}

start_redis() {
  [ -n "$own_redis" ] || return 0
  if is_running redis; then return 0; fi
  if is_redis "$redis_port"; then
    echo "using the Redis that is at port $redis_port already"
    return 0
  fi
  if answers "$redis_port"; then
    fail "port $redis_port is in use, and not by Redis" "REDIS_PORT=6380 $0"
  fi
  mkdir -p "$folder/redis"
  start redis redis-server --port "$redis_port" --bind 127.0.0.1 --dir "$folder/redis" --appendonly yes --save ''
  until_true Redis redis is_redis "$redis_port"
}

# What API and workers keep on this machine for the queue: removed with the rest, unless it was here before.
note_state() {
  [ ! -f "$folder/state" ] || return 0
  state=$(SHOAL_QUEUE=${SHOAL_QUEUE:-$CELERY_BROKER_URL} "$python" -c '
from pathlib import Path
from shoal.config.load import load
print(Path(load({}).state_folder).absolute())')
  [ -e "$state" ] || printf '%s\n' "$state" >"$folder/state"
}

start_worker() {
  start "worker-$1" "$python" -m celery -A shoal.integrations.celery worker --loglevel INFO -n "worker$1@%h"
}

set_workers() {
  number=1
  while [ "$number" -le "$1" ]; do
    start_worker "$number"
    number=$((number + 1))
  done
  for number in $(workers); do
    [ "$number" -le "$1" ] || end "worker-$number"
  done
  for number in $(workers); do
    until_true "worker $number" "worker-$number" is_ready "worker-$number"
  done
}

start_api() {
  SHOAL_ENGINE=celery SHOAL_QUEUE=${SHOAL_QUEUE:-$CELERY_BROKER_URL} SHOAL_LISTEN=${SHOAL_LISTEN:-127.0.0.1:$api_port} \
    start api "$python" -m shoal serve
  until_true "the API" api answers "$api_port"
}

start_flower() {
  if ! "$python" -c 'import flower' 2>/dev/null; then
    echo "Flower is not installed, all the rest is: $python -m pip install flower"
    return 0
  fi
  start flower "$python" -m celery -A shoal.integrations.celery flower --address=127.0.0.1 --port="$flower_port"
  until_true Flower flower answers "$flower_port"
}

show_status() {
  complete=0
  for name in redis api flower $(workers | sed 's/^/worker-/'); do
    if is_running "$name"; then
      echo "$name: running, process $pid"
    elif [ "$name" = redis ] && { [ -z "$own_redis" ] || is_redis "$redis_port"; }; then
      echo "redis: not ours"
    else
      echo "$name: not running"
      complete=1
    fi
  done
  [ -n "$(workers)" ] || { echo "workers: none"; complete=1; }
  return $complete
}

stop_all() {
  # Workers at the same time: each may finish what it has begun.
  for number in $(workers); do if is_running "worker-$number"; then kill -TERM "$pid" 2>/dev/null || true; fi; done
  for number in $(workers); do end "worker-$number"; done
  end flower
  end api
  end redis
}

choose_way() {
  [ -z "$way" ] || return 0
  way=system
  if is_running api; then return 0; fi
  if [ -f "$folder/settings.env" ]; then
    way=compose
  elif [ -n "$own_redis" ] && ! command -v redis-server >/dev/null 2>&1 && find_compose && engine_answers; then
    way=compose
  fi
}

way=
case ${1:-} in
  --compose | --system)
    way=${1#--}
    shift
    ;;
esac
command=${1:-2}
case $command in
  start) command=${2:-2} ;;
esac
mkdir -p "$folder" || fail "$folder cannot be made" "DISTRIBUTED_FOLDER=/another/folder $0"
folder=$(CDPATH= cd -- "$folder" && pwd)
exec 9>"$folder/lock"
if command -v flock >/dev/null 2>&1; then
  flock -w 120 9 || fail "another $0 is at work in $folder" "wait until it has ended"
fi
choose_way
if [ "$way" = compose ]; then
  echo "in containers, by compose"
  run_compose "$command" "${2:-}"
  exit
fi
: "${CELERY_BROKER_URL:=redis://127.0.0.1:$redis_port/0}"
export CELERY_BROKER_URL
case $command in
  status)
    find_python
    show_status
    ;;
  stop)
    stop_all
    ;;
  clean)
    stop_all
    if [ -f "$folder/state" ]; then
      state=$(sed -n 1p "$folder/state")
      rm -rf "$state"
      rmdir "$(dirname "$state")" 2>/dev/null || true
    fi
    rm -rf "$folder"/redis "$folder"/*.log "$folder"/lock "$folder"/state
    rmdir "$folder" 2>/dev/null && rmdir "$(dirname "$folder")" 2>/dev/null || true
    echo "removed $folder"
    ;;
  scale)
    is_number "${2:-}" || fail "scale takes the number of workers, up to 256" "$0 scale 4"
    check_installed
    is_running api || fail "nothing is running in $folder" "$0 $2"
    set_workers "$2"
    show_status
    ;;
  *)
    is_number "$command" || fail "$command is not a command: [N], scale M, status, stop or clean" "$0 4"
    [ ! -f "$folder/settings.env" ] || fail "containers were started from $folder" \
      "$0 --compose clean, or DISTRIBUTED_FOLDER=/another/folder $0 --system $command"
    check_installed
    check_ports
    note_state
    start_redis
    set_workers "$command"
    start_api
    start_flower
    show_status || true
    echo "API and dashboard: http://127.0.0.1:$api_port · Flower: http://127.0.0.1:$flower_port · logs: $folder"
    ;;
esac
