"""Draws the diagrams of the documentation, and the README's picture of real output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from diagrams import DIAGRAMS
from svg import terminal

FOLDER = Path(__file__).parent
IMAGES = FOLDER.parent / "images"
COMMAND = ["stowplan", "explain", "train", "--cluster", "example.yaml"]


def explained() -> str:
    """What `stowplan explain` prints about a pod that fits nowhere, as a picture."""
    environment = os.environ | {"COLUMNS": "130", "NO_COLOR": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", *COMMAND],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not ran.stdout:
        raise RuntimeError(ran.stderr)
    lines = [f"$ {' '.join(COMMAND)}", *(line.rstrip() for line in ran.stdout.splitlines())]
    return terminal(lines, "Output of stowplan explain: why each node refuses a pod")


def images() -> dict[str, str]:
    """Name -> text of every image that is drawn."""
    return {name: draw() for name, draw in DIAGRAMS.items()} | {"explain.svg": explained()}


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, text in images().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
        print(f"docs/images/{name}")
