"""The tutorial of contracts/README.md, followed to the letter in an empty project: files are written, commands run."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from bot.contract.load import dump_yaml, parse_yaml
from tests.contracts.judging import CONTRACTS

HEADING = "A contract from nothing"
CONTRACT = "prefix_sum"


def blocks() -> Iterator[tuple[str, str]]:
    """What heads each fenced block of the tutorial, and what it holds."""
    tokens = MarkdownIt().parse((CONTRACTS / "README.md").read_text(encoding="utf-8"))
    inside = False
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open" and before.tag == "h2":
            inside = token.content == HEADING
        if inside and token.type == "fence":
            yield token.info, token.content


def write(folder: Path, name: str, text: str) -> None:
    """A file as it stands; of `contract.yaml` the keys that the text has."""
    path = folder / name
    if path.suffix == ".yaml":
        held = parse_yaml(path.read_text(encoding="utf-8"), name)
        text = dump_yaml(held | parse_yaml(text, "the tutorial"))
    path.write_text(text, encoding="utf-8")


def run(session: str, project: Path) -> None:
    """Commands after `$`, each followed by lines that it prints, `…` standing for anything. Where they tell of a
    refusal, the exit code is 1."""
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command, promised in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=project,
            env=os.environ | {"PATH": commands, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        said = " ".join(done.stdout.split())
        assert done.returncode == (1 if re.search("✗|incorrect", promised) else 0), f"{command}\n{done.stdout}"
        for line in promised.splitlines():
            wanted = ".*".join(re.escape(part.strip()) for part in line.split("…"))
            assert re.search(wanted, said), f"{command} does not say {line!r}, but\n{done.stdout}"


@pytest.mark.alone
@pytest.mark.sandbox
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_contract_comes_out_of_the_tutorial(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    commands = 0
    for head, text in blocks():
        kind, _, name = head.partition(" ")
        if kind == "console":
            run(text, tmp_path)
            commands += text.count("$ ")
        else:
            write(tmp_path / "contracts" / CONTRACT, name, text)
    assert commands >= 8
    assert f"name: {CONTRACT}" in (tmp_path / "contracts" / CONTRACT / "contract.yaml").read_text(encoding="utf-8")
