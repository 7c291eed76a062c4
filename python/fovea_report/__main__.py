"""Reads a description of pictures and writes each as PNG and SVG: python -m fovea_report pictures.json FOLDER."""

import errno
import json
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from . import style
from .heat import draw_heat
from .lengths import draw_lengths
from .roofline import draw_roofline

DRAW = {
    "time": draw_lengths,
    "scaling": draw_lengths,
    "speedup": draw_lengths,
    "memory": draw_lengths,
    "published": draw_lengths,
    "heat": draw_heat,
    "roofline": draw_roofline,
}

OUTPUT_LOST = 3  # exit code, as of every verb of the program
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def draw(picture: dict, looks: style.Looks, folder: Path) -> None:
    style.save(DRAW[picture["kind"]](picture, looks), folder, picture["name"])


def leave_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def begin() -> None:
    """In each process of the pool, which would go on to its next picture after a KeyboardInterrupt."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    style.apply()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if len(sys.argv) != 3:
        sys.exit("usage: python -m fovea_report pictures.json FOLDER")
    description = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if description.get("schema") != "fovea.pictures/1":
        sys.exit(f"{sys.argv[1]}: not a description of pictures (schema fovea.pictures/1)")
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    looks = style.Looks(description["implementations"])
    with ProcessPoolExecutor(initializer=begin) as pool:
        done = [pool.submit(draw, picture, looks, folder) for picture in description["pictures"]]
    try:
        for one in done:
            one.result()  # raises what drawing raised
    except OSError as lost:
        if lost.errno not in FULL:
            raise
        print(lost, file=sys.stderr)
        sys.exit(OUTPUT_LOST)


if __name__ == "__main__":
    main()
