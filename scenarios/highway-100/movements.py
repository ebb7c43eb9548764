#!/usr/bin/env python3
"""Makes movements.ns2: 100 vehicles on a motorway, 4 minutes, always the same.

Two lanes in each direction: lorries on the right at 22 to 25 m/s, cars on the left at 28 to 38 m/s. No
vehicle overtakes within a lane. Car following is the Intelligent Driver Model (Treiber, Hennecke, Helbing
2000). The script writes the movement in ns-2's format, one order for each vehicle every ten seconds.

    ./movements.py > movements.ns2
"""

import random

SECONDS, STEP, EVERY = 240, 0.1, 10
VEHICLES = 100
# Acceleration and comfortable braking (m/s2), standstill gap (m), time gap (s), length (m).
A, B, S0, T, LENGTH = 1.2, 2.0, 3.0, 1.4, 6.0


class Lane:
    def __init__(self, rng, direction, y, start, gaps, speeds, count):
        self.direction, self.y, self.start = direction, y, start
        self.wanted = [rng.uniform(*speeds) for _ in range(count)]
        self.speed = [min(w, 30.0) for w in self.wanted]
        at, self.place = 0.0, []
        for _ in range(count):
            self.place.append(-at)
            at += rng.uniform(*gaps)

    def step(self):
        news = []
        for n, (x, v) in enumerate(zip(self.place, self.speed)):
            free = 1 - (v / self.wanted[n]) ** 4
            if n == 0:
                interaction = 0.0
            else:
                gap = max(self.place[n - 1] - x - LENGTH, 0.1)
                closing = v - self.speed[n - 1]
                wish = S0 + max(0.0, v * T + v * closing / (2 * (A * B) ** 0.5))
                interaction = (wish / gap) ** 2
            news.append(max(0.0, v + A * (free - interaction) * STEP))
        for n, v in enumerate(news):
            self.place[n] += (self.speed[n] + v) / 2 * STEP
        self.speed = news

    def places(self):
        return [(self.start + self.direction * x, self.y) for x in self.place]


def main():
    rng = random.Random(100)
    # The first vehicles of both directions are about to meet.
    lanes = [
        Lane(rng, +1, -6.0, 2500.0, (150, 250), (22, 25), 18),
        Lane(rng, +1, -2.0, 2500.0, (70, 170), (28, 38), 32),
        Lane(rng, -1, 6.0, 3000.0, (150, 250), (22, 25), 18),
        Lane(rng, -1, 2.0, 3000.0, (70, 170), (28, 38), 32),
    ]
    samples = []
    for step in range(int(SECONDS / STEP) + 1):
        if step % int(EVERY / STEP) == 0:
            samples.append([place for lane in lanes for place in lane.places()])
        for lane in lanes:
            lane.step()
    print("# Made by movements.py. Nodes 0 to 17: lorries to the east, 18 to 49: cars to the east,")
    print("# 50 to 67: lorries to the west, 68 to 99: cars to the west.")
    for node in range(VEHICLES):
        x, y = samples[0][node]
        print(f"$node_({node}) set X_ {x:.2f}\n$node_({node}) set Y_ {y:.2f}")
        for n in range(len(samples) - 1):
            (x0, _), (x1, y1) = samples[n][node], samples[n + 1][node]
            speed = abs(round(x1, 2) - round(x0, 2)) / EVERY
            print(f'$ns_ at {n * EVERY} "$node_({node}) setdest {x1:.2f} {y1:.2f} {speed:.4f}"')


main()
