# The same commands in containers; scripts/start-distributed.sh reads this file, and has set here, folder and the ports.
# shellcheck shell=sh disable=SC2154

services='redis api celery-worker flower'

# The plug-in of docker, or the program that came before it.
find_compose() {
  if docker compose version >/dev/null 2>&1; then
    program='docker compose'
  elif docker-compose version >/dev/null 2>&1; then
    program=docker-compose
  else
    return 1
  fi
}

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

check_compose() {
  command -v docker >/dev/null 2>&1 || fail "Docker is not installed" "apt-get install docker.io docker-compose, or $0 --system"
  find_compose || fail "Docker is here, but compose is not" "apt-get install docker-compose, or $0 --system"
  engine_answers || fail "Docker is installed, but its engine does not answer" \
    "systemctl start docker, and be in the group docker; docker version says more"
}

compose() {
  # $program may be two words.
  DISTRIBUTED_FOLDER=$folder API_PORT=$api_port FLOWER_PORT=$flower_port \
    $program --project-name "$COMPOSE_PROJECT_NAME" --file "$here/distributed/compose.yml" "$@"
}

# Settings of the caller that make sense in a container, for env_file: quoted, so that nothing in them is expanded.
settings() {
  env | sed -n "s/^\(CELERY_[A-Z_]*\|SHOAL_[A-Z_]*\)=.*'.*/\1 has a quote (') in it and is not handed to the containers/p" >&2
  env | sed -n -e "/'/d" -e '/^CELERY_BROKER_URL=/d' -e '/^SHOAL_QUEUE=/d' -e '/^SHOAL_TOKEN=/d' -e '/^SHOAL_CONFIG=/d' \
    -e "s/^\(CELERY_[A-Z_]*\)=\(.*\)/\1='\2'/p" -e "s/^\(SHOAL_[A-Z_]*\)=\(.*\)/\1='\2'/p"
}

# In a container the API cannot tell who asks, so everybody needs a token: the caller's, or one made here and kept.
keep_token() {
  [ -n "${SHOAL_TOKEN:-}" ] || [ ! -s "$folder/token.env" ] || return 0
  token=${SHOAL_TOKEN:-$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')}
  case $token in
    *"'"*) fail "a quote (') in SHOAL_TOKEN cannot be handed to a container" "SHOAL_TOKEN=\$(openssl rand -hex 24) $0 --compose" ;;
  esac
  echo "SHOAL_TOKEN='$token'" >"$folder/token.env"
}

# ids SERVICE, health ID
ids() { compose ps -q "$1" 2>/dev/null; }
health() {
  docker inspect --format '{{if .State.Running}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}' "$1" 2>/dev/null
}

compose_status() {
  complete=0
  for service in $services; do
    found=$(ids "$service")
    [ -n "$found" ] || { echo "$service: not running"; complete=1; }
    for id in $found; do
      state=$(health "$id") || state=gone
      echo "$service: $state, container $(printf '%.12s' "$id")"
      [ "$state" = healthy ] || complete=1
    done
  done
  return $complete
}

wait_for_health() {
  waited=0
  until status=$(compose_status); do
    # A container that ended is started again by Docker, and would be for ever.
    if [ "$waited" -gt 300 ] || echo "$status" | grep -q ': unhealthy'; then
      echo "$status" >&2
      compose logs --tail 15 >&2
      fail "not all containers became healthy" "fix what they say, then start this again; $0 --compose stop ends them"
    fi
    sleep 1
    waited=$((waited + 1))
  done
  echo "$status"
}

# compose_up N FLAG…
compose_up() {
  number=$1
  shift
  compose up -d --scale "celery-worker=$number" "$@" || fail "compose could not start all of it" \
    "where a port is in use: API_PORT=8081 FLOWER_PORT=5556 $0 --compose $number; $0 --compose stop ends the rest"
  if [ "$number" = 0 ]; then compose_status || true; else wait_for_health; fi
}

run_compose() {
  export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-shoal-distributed}"
  case $1 in
    status | stop | clean | scale) ;;
    *) is_number "$1" || fail "$1 is not a command: [N], scale M, status, stop or clean" "$0 --compose 4" ;;
  esac
  if [ "$1" = scale ]; then
    is_number "${2:-}" || fail "scale takes the number of workers, up to 256" "$0 --compose scale 4"
  fi
  if is_running api; then fail "it is running with this system's own packages" "$0 --system stop"; fi
  check_compose
  umask 077
  if [ ! -f "$folder/settings.env" ]; then
    case $1 in
      status | scale) fail "nothing was started in containers from $folder" "$0 --compose ${2:-2}" ;;
      stop) return 0 ;;
    esac
  fi
  touch "$folder/settings.env" "$folder/token.env"
  case $1 in
    status) compose_status ;;
    stop) compose down ;;
    clean)
      compose down --volumes
      docker image rm "$COMPOSE_PROJECT_NAME" >/dev/null 2>&1 || true
      rm -f "$folder/settings.env" "$folder/token.env" "$folder/lock"
      rmdir "$folder" 2>/dev/null || true
      echo "removed the containers, the volume and the image $COMPOSE_PROJECT_NAME"
      ;;
    scale)
      [ -n "$(ids api)" ] || fail "nothing is running in $COMPOSE_PROJECT_NAME" "$0 --compose $2"
      compose_up "$2" --no-recreate --no-deps celery-worker
      ;;
    *)
      [ -z "${CELERY_BROKER_URL:-}" ] || fail "the containers have a Redis of their own, and CELERY_BROKER_URL is set" \
        "unset CELERY_BROKER_URL, or $0 --system $1"
      settings >"$folder/settings.env"
      keep_token
      compose build api || fail "the image could not be built" "fix what is said above, then start this again"
      compose_up "$1"
      echo "API and dashboard: http://127.0.0.1:$api_port · Flower: http://127.0.0.1:$flower_port · token: $folder/token.env"
      ;;
  esac
}
