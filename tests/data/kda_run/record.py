"""Composes the recorded run of `kda_prefill` from the three kernels beside this file.

The turns are written by hand; nothing in them is a measurement. To compose it again after a kernel has changed:
`python tests/data/kda_run/record.py`.
"""

from pathlib import Path

from bot.agent.journal import End, Entry, Header, line_of
from bot.agent.model import ToolCall, Turn
from bot.agent.task import Budget, Submitted

HERE = Path(__file__).parent
RECORDING = HERE.parents[2] / "bot" / "agent" / "recordings" / "kda_prefill.jsonl"
KERNEL = "kernels/kda_prefill/torch_chunked.py"

HEADER = Header(
    model="a hand-written record",
    contract="kda_prefill",
    contract_version=1,
    contract_digest="",
    device="cpu",
    budget=Budget(),
    proctor="0.1.0",
    python="3.11",
)


def compose() -> str:
    """The journal: header, turns, end."""
    entries: list[Entry] = [HEADER, *_turns(), End(stop=Submitted(attempt=3))]
    return "".join(line_of(entry) + "\n" for entry in entries)


def _turns() -> list[Turn]:
    return [
        _turn(1, "I read the contract and see what is there to start from.", _read("contract.md"), _read(".")),
        _turn(
            2,
            "The baseline walks token by token. Chunks of 16 tokens turn most of that into matrix products. The norms "
            "of q and k cost two reductions a token; on ordinary data they hardly move, so one constant, "
            "0.1778209953, may do. If that is wrong, the check will say so.",
            *_attempt("01_constant_norm.py"),
        ),
        _turn(
            3,
            "Refused: the norm belongs to the function and cannot be a constant. I write that down.",
            (
                "journal",
                {"note": "A constant in place of the norm of q and k is refused: it holds for one input only."},
            ),
        ),
        _turn(
            4,
            "Now with real norms. What is left is the loop that carries the state from chunk to chunk. A fast gate "
            "fades the state within 32 tokens, so windows of 32 tokens might not wait for each other at all.",
            *_attempt("02_truncated.py"),
        ),
        _turn(
            5,
            "Refused as well: the gate may be slow, and then nothing fades. No shortcut in the mathematics, then: "
            "real norms, and the state carried exactly through every chunk.",
            *_attempt("03_chunked.py"),
        ),
        _turn(
            6,
            "The chunked form is exact. Whether it is faster the exam will say: I hand it in, with the lesson.",
            (
                "journal",
                {"note": "Cutting the history is refused: a slow gate remembers. Exact chunks need no cut."},
            ),
            ("submit", {"path": KERNEL}),
        ),
    ]


Wish = tuple[str, dict[str, str]]


def _read(path: str) -> Wish:
    return "read", {"path": path}


def _attempt(file: str) -> list[Wish]:
    source = (HERE / file).read_text(encoding="utf-8")
    return [("write", {"path": KERNEL, "source": source}), ("check", {"path": KERNEL})]


def _turn(number: int, text: str, *wishes: Wish) -> Turn:
    calls = [
        ToolCall(id=f"turn{number}_{place}", name=name, arguments=dict(arguments))
        for place, (name, arguments) in enumerate(wishes, start=1)
    ]
    return Turn(text=text, calls=calls)


if __name__ == "__main__":
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text(compose(), encoding="utf-8")
