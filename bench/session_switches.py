"""Table of compat switches that explain differences from kube-batch v0.5, by case.

    python bench/session_switches.py FILE.jsonl.gz... [--cases]

FILE: session cases. --cases: a line per case before the table.
"""

import sys

from stowplan.conformance.compat_switches import find_switches, switches_table
from stowplan.conformance.session_cases import read_case
from stowplan.inputs.files import read_lines


def main(arguments: list[str]) -> None:
    files = [a for a in arguments if not a.startswith("--")]
    found = []
    for file in files:
        for line in read_lines(file):
            entry = find_switches(read_case(line))
            found.append(entry)
            if "--cases" in arguments:
                print(entry.id, *entry.switches, flush=True)
    print(*switches_table(found), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
