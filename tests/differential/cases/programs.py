"""Random DataFrame programs: a source, some steps, one to three actions or writes on what came out or on the way."""

from __future__ import annotations

from random import Random

from tests.differential.case import Case
from tests.differential.cases.endings import ENDINGS
from tests.differential.cases.frames import Program
from tests.differential.cases.steps import STEPS


def program(random: Random) -> Case:
    made = Program(random)
    frame = made.source()
    frames = [frame]
    for _ in range(random.choice([1, 2, 3, 3, 4, 5])):
        step = random.choices(list(STEPS), list(STEPS.values()))[0]
        frame = step(made, frame)
        frames.append(frame)
    for number in range(random.choice([1, 1, 2, 3])):
        if number:
            made.add(f'r.moment("{number}")')
        ending = random.choices(list(ENDINGS), list(ENDINGS.values()))[0]
        ending(made, frame if random.random() < 0.8 else random.choice(frames[1:]))
    return Case("program", made.text())


FAMILIES = {"program": program}
