"""Mutated records, what lies beside them, and tables: each is taken, or refused in one sentence."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from mutations import of_bytes, of_json

from fluxbench.analysis.audit.judge import audit
from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.rebuilt import Rebuilt
from fluxbench.analysis.verification.verify import verify
from fluxbench.records import files
from fluxbench.report.audit.text import text
from fluxbench.site.collect import collect
from fluxbench.site.draw import draw
from fluxbench.site.intake import add

PUBLISHED = Path(__file__).resolve().parents[3] / "reports" / "h200" / "flux" / "records"
WORKLOAD = "flux1-1024px-t128"
DRAWN = 100  # of so many mutations one is drawn
FILES = ("jsonl", "samples.json.gz", "control.json", "capabilities.json", "device.json", "rates.json")
TABLE = b"""gpu,implementation,workload,pass,dtype,causal,batch,seq_len,heads,kv_heads,head_dim,median_ms
NVIDIA H200,x,,forward,bfloat16,true,1,4608,24,24,128,0.4
H200,sage,flux1-1024px-t512,backward,fp8,,1,,24,,128,0.5
"""


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """The records of one cell at one workload, with all that lies beside them."""
    home = tmp_path / "reports" / "sent" / "flux" / "records"
    home.mkdir(parents=True)
    for path in (*PUBLISHED.glob("triton.*"), PUBLISHED / "device.json", PUBLISHED / "rates.json"):
        shutil.copyfile(path, home / path.name)
    records = [record for record in files.read(home / "triton.jsonl") if record.workload.name == WORKLOAD]
    files.write(home / "triton.jsonl", records)
    samples = json.loads(gzip.decompress((home / "triton.samples.json.gz").read_bytes()))
    series = [one for one in samples["series"] if one.get("workload", WORKLOAD) == WORKLOAD]
    (home / "triton.samples.json.gz").write_bytes(gzip.compress(json.dumps({"series": series}).encode()))
    rebuilt = Rebuilt(cell.read(home / "triton.jsonl"))  # an interval is of all workloads of a variant together
    for index, record in enumerate(records):
        timings = rebuilt.timings(record.variant, record.method_version)[WORKLOAD]
        records[index] = msgspec.structs.replace(record, timings={name: of.timing for name, of in timings.items()})
    files.write(home / "triton.jsonl", records)
    for path in home.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_bytes())))
    return home


def mutated(path: Path) -> Iterator[bytes]:
    """Yield what a file may hold in its place; a compressed one is mutated inside and out."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        yield from of_json(content)
        return
    for number, (inside, outside) in enumerate(zip(of_json(gzip.decompress(content)), of_bytes(content), strict=True)):
        yield outside if number % 5 == 0 else gzip.compress(inside, 1)


@pytest.mark.parametrize("end", FILES)
def test_whatever_was_sent_is_taken_or_refused(sent: Path, tmp_path: Path, end: str) -> None:
    assert add(sent, tmp_path / "whole").problems == ()
    path = sent / (end if end in ("device.json", "rates.json") else f"triton.{end}")
    for number, content in enumerate(mutated(path)):
        path.write_bytes(content)
        if number % 2:
            intake = add(sent, tmp_path / "theirs", "new")
            problems = list(intake.problems)
            assert bool(problems) == (intake.folder is None), number
            if intake.folder:
                shutil.rmtree(intake.folder)
        else:
            [target] = draw(sent.parents[2]).targets if number % DRAWN == 0 else collect(sent.parents[2], verify)
            problems = target.problems
        assert max(map(len, problems), default=0) < 1500, number


def test_whatever_a_table_holds_is_checked_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    for content in of_bytes(TABLE):
        path.write_bytes(content)
        try:
            judged = audit(path)
        except ValueError:  # which the command turns into a sentence
            continue
        assert len(judged.rows) <= content.count(b"\n") + content.count(b"\r") + 1
        assert max(map(len, text(judged).splitlines())) < 3000
