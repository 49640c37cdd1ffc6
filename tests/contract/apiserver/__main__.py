"""`python -m tests.contract.apiserver FILE...`: repeat recorded conversations.

Prints what differs, and as its last line EXACT/TOTAL in lines of the files, and how many lines
differ only in what docs/parity-api.md lists.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.contract.apiserver.file_replay import lines_of, replayed_lines

PRINTED_MAX = 3


def main(paths: list[str]) -> int:
    """Repeat the files; 0 if every line is exact or listed."""
    if not paths:
        print("usage: python -m tests.contract.apiserver FILE...", file=sys.stderr)
        return 2
    exact = listed = total = of_clients = 0
    for path in map(Path, paths):
        for result in replayed_lines(lines_of(path)):
            of_clients += result.is_of_client
            if result.is_of_client:
                continue
            total += 1
            exact += result.exact
            listed += not result.exact and not result.differences
            for text in result.differences[:PRINTED_MAX]:
                print(f"{path.name} {result.name}: {text}")
            left = len(result.differences) - PRINTED_MAX
            if left > 0:
                print(f"{path.name} {result.name}: and {left} more")
    if of_clients:
        print(f"{of_clients} lines of clients were left out: they do not stand alone")
    print(f"{exact}/{total}, {listed} listed")
    return 0 if exact + listed == total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
