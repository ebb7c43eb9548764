"""`python3 conformance/recorded/author [--check]`: writes the inputs of all cases; with --check, reads the recorded
outputs with the tester's own codec and says which are not what the standards want."""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "nemo")]

from author import flows, home_agent, home_link, mobile_router, multiple  # noqa: E402, F401
from author.story import STORIES  # noqa: E402


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("expected nothing or --check")
    if not sys.argv[1:]:
        for story in STORIES:
            story.write(FOLDER)
        known = {story.path(FOLDER, "in") for story in STORIES}
        for stray in set(FOLDER.glob("rfc*/*.in.jsonl")) - known:
            print(f"no story writes {stray.relative_to(FOLDER)}")
        print(f"{len(STORIES)} cases")
        return
    wrong = [line for story in STORIES for line in story.check(FOLDER)]
    for line in wrong:
        print(line)
    print(f"{len(STORIES)} cases, {len(wrong)} answers that are not what the standards want")
    sys.exit(1 if wrong else 0)


main()
