"""What a worker may say, and what it may be when it says nothing. Only its public methods are used.

Before a call, a program without torch speaks raw bytes in the worker's place, in a real sandbox; in a call, a candidate
does so that has found the descriptor.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from bot.errors import InfrastructureError
from bot.verify import mounts
from bot.verify import sandbox as module
from bot.verify.calls import Answered, Failure, Worker
from bot.verify.protocol import Done, Raised, Ready, pack
from bot.verify.sandbox import OUTPUT_KEPT
from tests.sandbox.conftest import HEAD, SIZES, STREAM, called, case, everything, leaves_nothing

pytestmark = pytest.mark.sandbox

DONE, READY = pack(Done()), pack(Ready(torch="0"))
Start = Callable[[str], Worker]
SPEAKER = """
import os, signal, socket, sys, time
wire = socket.socket(fileno={wire})
send = wire.send
def hear():
    if not wire.recv(1 << 16):
        os._exit(0)
def serve():
    while True:
        hear()
        send({done!r})
{script}
time.sleep(600)
"""


@pytest.fixture
def speak(contract, monkeypatch) -> Iterator[Start]:
    """Start a worker that is a script, and not ours; short waits."""
    monkeypatch.setattr("bot.verify.calls.LOAD_SECONDS", 0.6)
    monkeypatch.setattr("bot.verify.calls.CALL_SECONDS", 0.6)
    monkeypatch.setattr("bot.verify.calls.Worker.call_seconds", 0.6)
    monkeypatch.setattr("bot.verify.calls.READY_SECONDS", 5.0)
    real = mounts.worker_command
    started: list[Worker] = []

    def start(script: str) -> Worker:
        def command(wire: int, limits: mounts.Limits, **options: bool) -> list[str]:
            program = real(wire, limits, fork=False, shared_uid=True)[0]
            return [program, "-I", "-S", "-B", "-c", SPEAKER.format(wire=wire, done=DONE, script=script)]

        monkeypatch.setattr(module, "worker_command", command)
        started.append(Worker(contract, "bubblewrap", everything()))
        return started[-1]

    with leaves_nothing(descriptors=False):
        yield start
        for worker in started:
            worker.close()


AT_LOAD = f"send({READY!r}); hear()\n"
AT_BIND = f"{AT_LOAD}send({DONE!r}); hear()\n"
AT_RELEASE = f"{AT_BIND}send({DONE!r}); hear()\n"


def load(worker: Worker) -> Failure | None:
    return worker.load("")


def bind(worker: Worker) -> Failure | None:
    assert worker.load("") is None
    slot = worker.bind(SIZES, frozenset())
    return slot if isinstance(slot, Failure) else None


def release(worker: Worker) -> Failure | None:
    assert worker.load("") is None
    slot = worker.bind(SIZES, frozenset())
    assert not isinstance(slot, Failure), slot
    return worker.release(slot)


POINTS = {"load": (AT_LOAD, load), "bind": (AT_BIND, bind), "release": (AT_RELEASE, release)}
FALSE_MESSAGES = {
    "NaN": b'{"op":"raised","text":NaN}',
    "infinity": b'{"op":"done","call":Infinity}',
    "-infinity": b"[-Infinity]",
    "a key twice": b'{"op":"done","op":"done"}',
    "deep": b"[" * 60_000,
    "deep and closed": b'{"op":' * 9000 + b"1" + b"}" * 9000,
    "more than any answer": DONE + b" " * (64 * 1024),
    "exactly a packet": b" " * (64 * 1024),
    "an order": b'{"op":"release","slot":1}',
    "no kind": b"{}",
    "another key": b'{"op":"done","verdict":"improved"}',
    "ready again": READY,
    "a long text": b'{"op":"raised","text":"' + b"x" * 2001 + b'"}',
    "a text that is a number": b'{"op":"raised","text":1}',
    "a list": b"[]",
    "null": b"null",
    "a number of 60,000 digits": b"9" * 60_000,
    "not JSON": b"done",
    "two in one": DONE + DONE,
    "not UTF-8": b'{"op":"raised","text":"\xff\xfe"}',
    "a lone surrogate": b'{"op":"raised","text":"\\ud800"}',
    "pickle": b"cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("message", FALSE_MESSAGES.values(), ids=FALSE_MESSAGES)
def test_a_false_message_is_tampering(speak, message) -> None:
    """Instead of the answer to `load`, which every other answer is parsed like."""
    failed = load(speak(f"{AT_LOAD}send({message!r})"))
    assert failed is not None
    assert failed.kind == "tampered", failed


@pytest.mark.parametrize("point", ["bind", "release"])
@pytest.mark.parametrize("message", ["NaN", "a key twice", "more than any answer", "ready again", "an order"])
def test_so_it_is_at_every_point(speak, point, message) -> None:
    script, ask = POINTS[point]
    failed = ask(speak(f"{script}send({FALSE_MESSAGES[message]!r})"))
    assert failed is not None
    assert failed.kind == "tampered"


@pytest.mark.parametrize("message", ["NaN", "more than any answer", "an order", "a key twice"])
def test_before_it_is_ready_only_ours_runs(speak, message) -> None:
    """A worker that does not say `ready` is ours and broken."""
    with pytest.raises(InfrastructureError, match="did not come up"):
        speak(f"send({FALSE_MESSAGES[message]!r})").ready()


ENDS = {
    "exits with 0": ("os._exit(0)", "exit status 0"),
    "kills itself": ("os.kill(os.getpid(), 9)", "signal 9"),
    "closes the socket": ("wire.close()", "closed its connection"),
    "an empty packet": ("send(b'')", "closed its connection"),
    "shuts the socket": ("wire.shutdown(socket.SHUT_RDWR)", "closed its connection"),
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("end", ENDS)
def test_it_dies_at_any_point(speak, point, end) -> None:
    """`build_failed` while it is loaded, `incorrect` afterwards."""
    script, ask = POINTS[point]
    act, why = ENDS[end]
    failed = ask(speak(script + act))
    assert failed is not None
    assert failed.kind == ("build_failed" if point == "load" else "incorrect")
    assert why in failed.text


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    "act", ["pass", "os.kill(os.getpid(), 19)", "\nwhile True: pass"], ids=["sleeps", "stops", "spins"]
)
def test_it_never_answers(speak, point, act) -> None:
    script, ask = POINTS[point]
    begun = time.monotonic()
    failed = ask(speak(script + act))
    assert failed is not None
    assert failed.kind == "timed_out"
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("act", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_it_dies_before_it_is_ready(speak, act) -> None:
    with pytest.raises(InfrastructureError, match="must act"):
        speak(act).ready()


@pytest.mark.parametrize("point", ["load", "bind"])
def test_it_answers_twice(speak, point) -> None:
    """The second lies there when the next thing is asked."""
    script, ask = POINTS[point]
    worker = speak(f"{script}send({DONE!r}); send({DONE!r})\nserve()")
    if point == "load":
        assert ask(worker) is None
        time.sleep(0.1)
        failed = worker.bind(SIZES, frozenset())
    else:
        assert worker.load("") is None
        slot = worker.bind(SIZES, frozenset())
        assert not isinstance(slot, Failure)
        time.sleep(0.1)
        failed = worker.release(slot)
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.text) == ("tampered", "sent a message that nobody asked for")


def test_it_answers_before_it_is_asked(speak) -> None:
    worker = speak(f"send({READY!r}); send({DONE!r}); serve()")
    worker.ready()
    time.sleep(0.1)
    failed = worker.load("")
    assert failed is not None
    assert failed.kind == "tampered"


def test_it_answers_when_time_is_up(speak) -> None:
    """The late answer is one that nobody waits for any more."""
    worker = speak(f"{AT_LOAD}time.sleep(1.2); send({DONE!r}); serve()")
    failed = worker.load("")
    assert failed is not None
    assert failed.kind == "timed_out"
    time.sleep(0.8)
    later = worker.bind(SIZES, frozenset())
    assert isinstance(later, Failure)
    assert later.kind == "tampered"


def test_it_floods_its_streams(speak) -> None:
    """100 MB on each; the end is kept, nothing blocks, and the answer after it counts."""
    worker = speak(
        f"{AT_LOAD}for _ in range(100):\n    os.write(1, b'o' * (1 << 20)); os.write(2, b'e' * (1 << 20))\n"
        f"send({DONE!r}); serve()"
    )
    begun = time.monotonic()
    failed = worker.load("")
    # Where the machine is slow it is the candidate's own time.
    assert failed is None or failed.kind == "timed_out"
    assert time.monotonic() - begun < 10
    assert len(worker.sandbox.output.text()) <= OUTPUT_KEPT


def test_it_floods_the_wire(speak) -> None:
    worker = speak(f"{AT_LOAD}\nwhile True:\n    send({DONE!r})")
    assert worker.load("") is None
    time.sleep(0.1)
    failed = worker.bind(SIZES, frozenset())
    assert isinstance(failed, Failure)
    assert failed.kind == "tampered"


def test_it_sends_descriptors(speak) -> None:
    """They are not taken: the answer counts, and no descriptor of ours is new."""
    send = f"socket.send_fds(wire, [{DONE!r}], [0, 1, 2])\nserve()"
    worker = speak(AT_LOAD + send)
    assert worker.load("") is None
    slot = worker.bind(SIZES, frozenset())
    assert not isinstance(slot, Failure)


def test_what_it_raised_is_its_text(speak) -> None:
    """Bounded, and only ever text."""
    failed = load(speak(f"{AT_LOAD}send({pack(Raised(text='ValueError: <b>no</b>'))!r})"))
    assert failed == Failure("build_failed", "ValueError: <b>no</b>")


FIND = f"""
def wires():
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{{entry}}").startswith("socket"):
                found.append(socket.socket(fileno=os.dup(int(entry))))
        except OSError:
            pass
    return found

def say(message):
    for one in wires():
        one.send(message)

def later(act, seconds=0.05):
    def wait():
        time.sleep(seconds)
        act()
    threading.Thread(target=wait, daemon=True).start()

DONE = {DONE!r}
"""
CALL = "\ndef run(x, offset, scale, cu_seqlens, y):\n    {act}\n"
IN_A_CALL: dict[str, tuple[str, set[str]]] = {
    "it forges an answer": ("say(DONE)", {"tampered"}),
    "it forges and exits with 0": ("say(DONE) or os._exit(0)", {"incorrect", "tampered"}),
    "it exits with 0": ("os._exit(0)", {"incorrect"}),
    "it kills itself": ("os.kill(os.getpid(), 9)", {"incorrect"}),
    "it stops itself": ("os.kill(os.getpid(), 19)", {"timed_out"}),
    "it closes the wire": ("[one.shutdown(socket.SHUT_RDWR) for one in wires()]", {"incorrect", "tampered"}),
    "it raises what cannot be shown": ("raise type('E' * 100, (Exception,), {})('\\ud800' * 5000)", {"incorrect"}),
    "it leaves by an exception": ("raise SystemExit(0)", {"incorrect"}),
}


@pytest.mark.parametrize(("act", "kinds"), IN_A_CALL.values(), ids=IN_A_CALL)
def test_in_a_call(contract, act, kinds) -> None:
    with leaves_nothing(descriptors=False), Worker(contract, "bubblewrap", everything()) as worker:
        begun = time.monotonic()
        worker.ready()
        answer = called(worker, HEAD + FIND + CALL.format(act=act), seconds=1.0)
        assert isinstance(answer, Failure), answer
        assert answer.kind in kinds, answer
        assert time.monotonic() - begun < 15


def test_a_late_message_of_a_helper_and_floods_in_a_call(contract) -> None:
    """200 MB of output cost the candidate its own time; what a thread sends afterwards nobody asked for."""
    flood = "[os.write(fd, b'x' * (1 << 20)) for _ in range(100) for fd in (1, 2)]; y.zero_(); x.sum().item() or 1; "
    act = f"{flood} later(lambda: say(DONE))"
    with leaves_nothing(), Worker(contract, "bubblewrap", everything()) as worker:
        assert worker.load(HEAD + FIND + CALL.format(act=act)) is None
        answer = worker.run(case(contract), STREAM.child("flood"), 20.0)
        if isinstance(answer, Answered):
            time.sleep(0.3)
            answer = worker.run(case(contract), STREAM.child("again"), 20.0)
        assert isinstance(answer, Failure)
        assert answer.kind == "tampered"
        assert len(worker.sandbox.output.text()) <= OUTPUT_KEPT
