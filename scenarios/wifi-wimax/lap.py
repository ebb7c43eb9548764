#!/usr/bin/env python3
"""Makes lap.trace: the signal of a Wi-Fi access point in a vehicle that drives in circles, one lap of 30 s.

The circle has a circumference of 125 m, the vehicle goes 10 to 20 km/h, 15 on average, and passes the access
point at 2 m. Received power falls with the third power of the distance from -30 dBm at 1 m; obstacles add a
slow fading of 1.5 dB that is the same in every lap. A reading every 100 ms.

    ./lap.py > lap.trace
"""

import math
import random

CIRCUMFERENCE, SECONDS, STEP = 125.0, 30.0, 0.1
RADIUS = CIRCUMFERENCE / math.tau
# The access point stands 2 m outside of the circle.
AP = RADIUS + 2.0


def speed(t):
    """Returns metres per second: between 10 and 20 km/h, with one cycle per lap."""
    return (15.0 - 5.0 * math.cos(math.tau * t / SECONDS)) / 3.6


def fading(steps):
    """Returns the fading in dB, correlated over some metres. The end of the lap equals its start."""
    rng = random.Random(16)
    waves = [(n, rng.uniform(0, math.tau), rng.gauss(0, 1)) for n in range(1, 9)]
    values = [sum(a * math.sin(math.tau * n * s / steps + p) for n, p, a in waves) for s in range(steps)]
    scale = 1.5 / (sum(v * v for v in values) / steps) ** 0.5
    return [v * scale for v in values]


steps = round(SECONDS / STEP)
print("# Signal of the Wi-Fi uplink on one lap: see lap.py.")
print("time signal")
way = 0.0
for step, fade in enumerate(fading(steps)):
    # The lap begins beside the access point.
    angle = math.tau * way / CIRCUMFERENCE
    x, y = RADIUS * math.cos(angle), RADIUS * math.sin(angle)
    distance = math.hypot(AP - x, y)
    print(f"{step * STEP:.1f} {-30 - 30 * math.log10(distance) + fade:.0f}")
    way += speed(step * STEP) * STEP
print(f"{SECONDS:.0f} repeat")
