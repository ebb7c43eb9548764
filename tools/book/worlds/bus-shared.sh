# The same with a shared key (RFC 4285) in place of key pairs.
shared=yes
. "$WORLDS/bus.sh"
