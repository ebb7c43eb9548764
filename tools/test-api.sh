#!/bin/sh
# A real station against docs/openapi.json: schemathesis (tools/setup.sh test installs it) makes requests of the
# description, good ones and bad ones, and sees whether the answers are as described, whether what makes no sense is
# refused, and that nothing ends in a server error. The station is in a network namespace of its own: home agent,
# GeoNetworking and facilities, with tokens.
#
#   tools/test-api.sh PROGRAM [smoke]
#
# Left out: requests whose answer is a stream, which has no end; and whether what the description allows is always
# accepted, since it has no words for what one field demands of another.
set -eu
cd "$(dirname "$0")/.."

program=$(realpath "${1:?the program}")
amount=${2:-full}
tool=out/tools/schemathesis/bin/schemathesis
if [ "${CARNET_IN_NAMESPACE:-}" != 1 ]; then
  map=
  [ "$(id -u)" = 0 ] || map=--map-root-user
  CARNET_IN_NAMESPACE=1 exec unshare --net $map "$0" "$program" "$amount"
fi

work=$(mktemp -d)
station=
trap 'kill $station 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
ip link set lo up
token=an-operator-of-a-test
install -m 600 /dev/null "$work/tokens"
echo "operate $token" >"$work/tokens"
cat >"$work/station.toml" <<END
[station]
name = "under-test"
socket = "$work/socket"
http = "127.0.0.1:8440"
http_tokens = "$work/tokens"

[dataplane]
path = "tun"

[home_agent]
address = "2001:db8:1::1"
home_prefix = "2001:db8:1::/64"

[[home_agent.mobile_router]]
home_address = "2001:db8:1::1234"
prefixes = ["2001:db8:a::/64"]
auth = { spi = 300, key = "000102030405060708090a0b0c0d0e0f" }

[geonet]
interface = "udp:[::1]:8947,[::1]:8948"
position = "fixed:48.8375,2.1008"

[facilities]

[[geonet.area]]
name = "crossing"
shape = "circle"
center = [48.8375, 2.1008]
radius = "300m"
END
"$program" run --config "$work/station.toml" >"$work/log" 2>&1 &
station=$!
tries=0
until [ -S "$work/socket" ]; do
  tries=$((tries + 1))
  if [ $tries -gt 100 ] || ! kill -0 $station; then cat "$work/log"; exit 1; fi
  sleep 0.1
done

# A smoke takes what the description suggests by itself; the full run makes up much more.
case $amount in
smoke) phases=examples,coverage; examples=1 ;;
*) phases=examples,coverage,fuzzing; examples=100 ;;
esac
cd "$work" # It leaves its things where it stands.
"$OLDPWD/$tool" run "$OLDPWD/docs/openapi.json" --url http://127.0.0.1:8440 --header "Authorization: Bearer $token" \
  --exclude-path-regex '^/v1/(events|messages|gnrecv|gnping)$' \
  --phases "$phases" --max-examples $examples --seed 1 --generation-deterministic \
  --exclude-checks positive_data_acceptance --request-timeout 10 --no-color
kill -0 $station
