"""Draws the handouts' schemes, which show no measurements: each follows from a formula or an example alone.

    .venv/bin/python -m figures.schemes.draw        all of them, into docs/pictures

Each picture carries a digest of the code that has drawn it, and the tests compare: change one, and draw it again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from figures.schemes import curves, reductions, sharding, steps

PICTURES: dict[str, Callable[[], Figure]] = {
    "one_step": steps.one_step,
    "overlapped_step": steps.overlapped_step,
    "bucket_overhead": curves.bucket_overhead,
    "sync_batch_norm": reductions.sync_batch_norm,
    "variance": curves.variance,
    "ring_steps": reductions.ring_steps,
    "06_sharded_optimizer.step": sharding.sharded_step,
    "06_sharded_optimizer.memory": partial(sharding.memory_over_ranks, "03", "06"),
    "07_fully_sharded.unit": sharding.sharded_unit,
    "07_fully_sharded.memory": partial(sharding.memory_over_ranks, "03", "06", "07"),
}
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
KEY = "ddp-lab-scheme"  # of the digest in a PNG's metadata


def digest() -> str:
    """Of all code that draws schemes, and of the style."""
    here = Path(__file__).parent
    sources = [*sorted(here.glob("*.py")), here.parent / "lib" / "style.py"]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def digest_of(picture: Path) -> str:
    """Of the code that has drawn it; empty if that was something else."""
    with Image.open(picture) as image:
        return str(image.info.get(KEY, ""))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the pictures")
    options = parser.parse_args(arguments)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, draw in PICTURES.items():
            figure = draw()
            figure.savefig(options.out / f"{name}.png", dpi=150, metadata={KEY: digest()})
            plt.close(figure)
            print(f"wrote {options.out / name}.png")
    except OSError as error:
        print(f"cannot write to {options.out}: {error.strerror}; choose another folder with --out", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
