"""fovea report: records in, a folder with a page, Markdown, CSV and pictures out."""

import argparse
import json
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from . import drawing, training
from .pictures import pictures_of
from .published_pages import pages
from .render import Report, files
from .study import make_study
from .vocabulary import Refused, ask

OK, REFUSED, OUTPUT_LOST = 0, 2, 3  # exit codes, as of every verb of the program
ROOT = Path(__file__).resolve().parents[2]


class Folder:
    """The folder of a report. It keeps a list of the report's files, so that the next report removes only these."""

    LIST = "files.txt"

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            (path / "tables").mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise Refused(f"{path}: cannot be written to ({failed.strerror})") from None
        listed = path / self.LIST
        for name in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []:
            if name and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (path / name).unlink(missing_ok=True)
        listed.unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        self.made(name)
        (self.path / name).write_text(text, encoding="utf-8")

    def made(self, name: str) -> None:
        """The list grows line by line, so that it is right even after an interruption."""
        (self.path / name).parent.mkdir(exist_ok=True)
        with (self.path / self.LIST).open("a", encoding="utf-8") as listed:
            listed.write(f"{name}\n")


def begin() -> None:
    """Prepares a process that draws: it would otherwise continue after a KeyboardInterrupt, and outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()


def draw_all(report: Report, folder: Folder) -> None:
    report.pictures = pictures_of(report.study, report.pages)
    shown = report.shown_pictures()
    for picture in report.pictures:
        folder.made(f"pictures/{picture.name}.png")
    with ProcessPoolExecutor(initializer=begin) as pool:
        drawn = [pool.submit(drawing.draw, picture, report.looks, folder.path / "pictures", picture in shown)
                 for picture in report.pictures]
        report.panels = {picture.name: one.result() for picture, one in zip(report.pictures, drawn)}


def printable(text: str) -> str:
    """Escapes control characters: the text of a record must not control the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fovea report", description="Make tables and pictures from files of records.")
    parser.add_argument("records", nargs="+", type=Path, help="files that fovea bench or fovea train wrote")
    parser.add_argument("-o", "--output", type=Path, default=Path("report"), help="folder to write to (report)")
    parser.add_argument("--baseline", default="", help="implementation that speed-ups are over (default: the first)")
    parser.add_argument("--no-pictures", action="store_true", help="tables only")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--program", default=f"{ROOT}/build/release/fovea", help="fovea, which prints the vocabulary")
    parser.add_argument("--published", type=Path, default=ROOT / "data/published", help="folder of published tables")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    found = training.trainings_of(options.records)
    if found:
        report_trainings(found, options)
    else:
        report_rows(options)


def report_trainings(found: list[training.Training], options: argparse.Namespace) -> None:
    if options.baseline:
        raise Refused("--baseline is for times; these records hold steps of a training")
    folder = Folder(options.output)
    svg = ""
    if not options.no_pictures:
        folder.made("pictures/loss.png")
        svg = training.draw(found, options.output / "pictures/loss.png")
    for name, text in training.files(found, svg).items():
        folder.write(name, text)
    tell(options, [warning for one in found for warning in one.warnings], training.headline(found),
         [said for one in found for said in training.sentences(one)])


def report_rows(options: argparse.Namespace) -> None:
    study = make_study(options.records, ask(options.program), options.baseline)
    report = Report(study, pages(study, options.published) if len(study.rows) else [])
    folder = Folder(options.output)
    if not options.no_pictures:
        draw_all(report, folder)
    for name, text in files(report).items():
        folder.write(name, text)
    tell(options, study.warnings, report.headline, report.observations)


def tell(options: argparse.Namespace, warnings: list[str], headline: str, observations: list[str]) -> None:
    page = options.output / "index.html"
    for warning in warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    if options.json:
        print(json.dumps({"schema": "fovea.report/1", "page": str(page), "headline": headline,
                          "observations": observations}, ensure_ascii=False))
    else:
        print("\n".join(map(printable, [headline, *(f"- {said}" for said in observations), str(page)])))


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = arguments()
    try:
        run(options)
    except Refused as refused:
        print(printable(f"fovea report: {refused}"), file=sys.stderr)
        return REFUSED
    except OSError as lost:
        print(f"fovea report: {lost.filename or options.output} could not be written: {lost.strerror}", file=sys.stderr)
        return OUTPUT_LOST
    return OK


if __name__ == "__main__":
    sys.exit(main())
