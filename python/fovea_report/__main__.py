"""fovea report: records in, a folder with a page, Markdown, CSV and pictures out."""

import argparse
import json
import signal
import sys
from pathlib import Path

from . import training
from .published_pages import pages
from .render import Report
from .study import make_study
from .vocabulary import Refused, ask

LIST = "files.txt"  # of a report, in its folder
OK, REFUSED, OUTPUT_LOST = 0, 2, 3  # exit codes, as of every verb of the program
HERE, BUILT = Path(__file__).parent, Path(__file__).resolve().parents[2] / "build/release/fovea"  # of the sources


class Folder:
    """The folder of a report. It keeps a list of the report's files, so that the next report removes only these."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            (path / "tables").mkdir(parents=True, exist_ok=True)
        except OSError as failed:
            raise Refused(f"{path}: cannot be written to ({failed.strerror})") from None
        listed = path / LIST
        for name in listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []:
            if name and not Path(name).is_absolute() and ".." not in Path(name).parts:
                (path / name).unlink(missing_ok=True)
        listed.unlink(missing_ok=True)

    def add(self, name: str) -> Path:
        """Where to write a file. The list grows line by line, so that it is right even after an interruption."""
        (self.path / name).parent.mkdir(exist_ok=True)
        with (self.path / LIST).open("a", encoding="utf-8") as listed:
            listed.write(f"{name}\n")
        return self.path / name


def printable(text: str) -> str:
    """Escapes control characters: the text of a record must not control the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fovea report", description="Make tables and pictures from files of records.")
    parser.add_argument("records", nargs="+", type=Path, help="files that fovea bench, profile or train wrote")
    parser.add_argument("-o", "--output", type=Path, default=Path("report"), help="folder to write to (report)")
    parser.add_argument("--baseline", default="", help="implementation that speed-ups are over (default: the first)")
    parser.add_argument("--no-pictures", action="store_true", help="tables only")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--program", default=BUILT if BUILT.exists() else "fovea", help="fovea, for the vocabulary")
    parser.add_argument("--published", type=Path, default=HERE / "published_tables", help="folder of published tables")
    return parser.parse_args()


def make_report(options: argparse.Namespace) -> Report | training.Report:
    if found := training.trainings_of(options.records):
        if options.baseline:
            raise Refused("--baseline is for times; these records hold steps of a training")
        return training.Report(found)
    study = make_study(options.records, ask(options.program), options.baseline)
    return Report(study, pages(study, options.published) if len(study.rows) else [])


def run(options: argparse.Namespace) -> None:
    report = make_report(options)
    folder = Folder(options.output)
    if not options.no_pictures:
        report.draw(folder.add)
    for name, text in report.files().items():
        folder.add(name).write_text(text, encoding="utf-8")
    page = str(options.output / "index.html")
    for warning in report.warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    if options.json:
        print(json.dumps({"schema": "fovea.report/1", "page": page, "headline": report.headline,
                          "observations": report.observations}, ensure_ascii=False))
    else:
        print("\n".join(map(printable, [report.headline, *(f"- {said}" for said in report.observations), page])))


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
