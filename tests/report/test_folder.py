"""What `fovea report` does to the folder that it is written to, and how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PROGRAM, row


def report(*arguments, **more) -> subprocess.CompletedProcess:
    words = [PROGRAM, "report", "--python", sys.executable, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **more)


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out"


def test_earlier_reports_are_removed_and_other_files_kept(write, out, tmp_path):
    many = write([row("naive", 1), row("naive", 1, mask="none"), row("naive", 1, **{"pass": "bwd"})], "many.jsonl")
    assert report(many, "-o", out, "--no-pictures").returncode == 0
    tables = len(list((out / "tables").iterdir()))
    mine = [out / "tables/mine.csv", out / "mine.txt", tmp_path / "beside.txt"]
    for one in mine:
        one.write_text("keep me")
    with (out / "files.txt").open("a") as listed:
        listed.write(f"../beside.txt\n{many}\n")
    assert report(write([row("naive", 1)], "one.jsonl"), "-o", out, "--no-pictures").returncode == 0
    assert len(list((out / "tables").iterdir())) < tables + 1
    assert all(one.exists() for one in [*mine, many])


def test_a_refused_report_leaves_the_folder_unchanged(write, out, tmp_path):
    good, bad = write([row("naive", 1)]), tmp_path / "bad.jsonl"
    bad.write_text("no record\n")
    for arguments in ([bad], [tmp_path / "none.jsonl"], [good, "--baseline", "nobody"]):
        ended = report(*arguments, "-o", out)
        assert ended.returncode == 2 and ended.stderr and not out.exists()


def test_a_python_without_the_packages_is_refused_with_the_remedy(write, out):
    ended = subprocess.run([PROGRAM, "report", str(write([row("naive", 1)])), "-o", str(out), "--python", "/bin/false"],
                           capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "scripts/setup" in ended.stderr and not out.exists()


def test_a_torn_line_is_warned_about_once(write, out):
    path = write([row("naive", 1), row("fused", 1)])
    path.write_text(path.read_text()[:-9])
    ended = report(path, "-o", out, "--no-pictures")
    assert ended.returncode == 0 and ended.stderr.count(str(path)) == 1


def test_an_impossible_folder_is_named(write, out):
    out.write_text("a file")
    ended = report(write([row("naive", 1)]), "-o", out)
    assert ended.returncode == 2 and str(out) in ended.stderr and out.read_text() == "a file"


def test_a_full_disk_loses_the_output(write, out):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
    ended = report(write([row("naive", 1)]), "-o", out, "--no-pictures", preexec_fn=limit)
    assert ended.returncode == 3 and "could not be written" in ended.stderr and ended.stdout == ""


def test_json_is_one_object(write, out):
    ended = report(write([row("naive", 1)]), "-o", out, "--no-pictures", "--json")
    said = json.loads(ended.stdout)
    assert said["schema"] == "fovea.report/1" and Path(said["page"]).exists()


def test_the_folder_lists_all_its_files(write, out):
    rows = [row(impl, ms, lq=n) for impl, ms in (("naive", 2), ("cpu.avx2", 1)) for n in (128, 256, 512)]
    assert report(write(rows), "-o", out).returncode == 0
    listed = (out / "files.txt").read_text().split()
    found = {str(one.relative_to(out)) for one in out.rglob("*") if one.is_file()} - {"files.txt"}
    assert found == set(listed) and {"rows.csv", "index.html", "report.md", "tables/summary.csv"} <= found
    assert any(name.startswith("pictures/") for name in found)


def test_control_characters_of_a_record_are_escaped(write, out):
    ended = report(write([row("a\x1b[31m", 1)]), "-o", out, "--no-pictures")
    assert "\x1b" not in ended.stdout and ended.returncode == 0


def test_an_interrupt_ends_every_process(write, out):
    rows = [row("naive", n, lq=128 * n, d=d, mask=mask, **{"pass": pass_}) for n in range(1, 9)
            for d in (16, 32, 64, 128, 256)
            for mask in ("none", "causal") for pass_ in ("fwd", "bwd", "e2e")]
    process = subprocess.Popen([PROGRAM, "report", "--python", sys.executable, str(write(rows)), "-o", str(out)],
                               text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    while process.poll() is None and not list(out.glob("pictures/*.png")):
        time.sleep(0.05)
    assert process.poll() is None, "it ended before it could be interrupted"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)  # the pipe ends when none that could write to it is left
    assert process.returncode == -signal.SIGINT
