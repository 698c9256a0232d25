#!/usr/bin/env bash
# A LUCIUS worker with curl: takes directives for one service, acknowledges each and reports a result.
#
#   LUCIUS_API_KEY=… examples/curl-worker.sh SERVICE [COUNT]
#
# LUCIUS_URL is the server (http://127.0.0.1:8000), COUNT how many directives to finish (1). It gives up after
# PULLS_MAX (30) empty answers. python3 only takes JSON apart; every call is curl's. See docs/how-to/curl-worker.md.
set -euo pipefail

service=${1:?usage: curl-worker.sh SERVICE [COUNT]}
count=${2:-1}
url=${LUCIUS_URL:-http://127.0.0.1:8000}
key=${LUCIUS_API_KEY:?set LUCIUS_API_KEY to a key with the role work}
pulls_max=${PULLS_MAX:-30}
wait_seconds=20

# post PATH HEADER BODY. The header goes through a file descriptor, so that no secret is seen in the process list.
post() {
  curl --silent --show-error --fail --max-time 60 \
    --retry 5 --retry-connrefused --retry-max-time 60 \
    --header 'Content-Type: application/json' --header @<(printf '%s\n' "$2") \
    --data-binary @- "$url$1" <<<"$3"
}

first_directive() {
  python3 -c 'import json, sys; found = json.load(sys.stdin)["directives"]; print(json.dumps(found[0]) if found else "")'
}

# field NAME: a field of the directive.
field() {
  python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$directive"
}

# callback FIELDS: the five fields that say which attempt is meant, and more of the caller's.
callback() {
  python3 -c '
import json, sys
directive = json.load(sys.stdin)
body = {name: directive[name] for name in ("jobId", "stepId", "tenant_id", "attempt_no", "lease_id")}
print(json.dumps(body | json.loads(sys.argv[1])))' "$1" <<<"$directive"
}

# The work itself. Put your own here: read "$directive", print the artifacts as JSON.
work() {
  printf '{"done_by": "curl", "service": "%s"}' "$service"
}

done_count=0
for ((pulls = 0; pulls < pulls_max && done_count < count; )); do
  directive=$(post /v1/directives:pull "Authorization: Bearer $key" \
    "{\"service\": \"$service\", \"max\": 1, \"wait_seconds\": $wait_seconds}" | first_directive)
  if [[ -z $directive ]]; then
    pulls=$((pulls + 1))
    continue
  fi
  token="Lucius-Callback-Token: $(field callback_token)"
  # An ACK that is refused means that the attempt is no longer current: leave it alone.
  if ! post /v1/callbacks/ack "$token" "$(callback '{}')" >/dev/null; then
    pulls=$((pulls + 1))
    continue
  fi
  answer=$(post /v1/callbacks/result "$token" "$(callback "{\"status\": \"SUCCEEDED\", \"artifacts\": $(work)}")")
  echo "$(field jobId) $(field stepId) attempt $(field attempt_no): $answer"
  done_count=$((done_count + 1))
done

if ((done_count < count)); then
  echo "gave up after $pulls_max pulls without work; $done_count of $count directives done" >&2
  exit 1
fi
