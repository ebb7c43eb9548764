# The same with the bus out of service: its own station does not run yet.
off=yes
. "$WORLDS/bus.sh"
