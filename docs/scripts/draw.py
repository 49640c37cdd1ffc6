"""Draws the diagrams of the documentation into docs/images."""

from __future__ import annotations

from pathlib import Path

from diagrams import DIAGRAMS

IMAGES = Path(__file__).parents[1] / "images"

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")
        print(f"docs/images/{name}")
