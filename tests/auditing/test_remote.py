"""Encoders behind an API, and functions: what is sent, how often, what happens when it fails."""

from __future__ import annotations

import io
import json
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedmia
from fedmia.encoders import http
from fedmia.encoders.base import LoadOptions, load
from fedmia.encoders.http import TRIES
from fedmia.encoders.memory import load_module
from fedmia.settings.errors import InputError
from tests.auditing.brought import tiny
from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, Sides, numbers

CONSTANTS = "--mean 0 --std 1"  # of a module; an API normalises by itself
Answer = tuple[int, bytes]
# An array's header without its numbers.
TERABYTES = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1099511627776)}".ljust(117) + b"\n"
)


class Api:
    """The tiny encoder behind a URL. `script` answers in its place as long as it says something."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.url = f"http://{address[0]}:{address[1]}/embed"
        self.encoder = module().eval()
        self.batches: list[np.ndarray] = []
        self.headers: list[dict[str, str]] = []
        self.script: Callable[[int], Answer | None] = lambda count: None
        self.as_json = False

    def answer(self, body: bytes, headers: dict[str, str]) -> Answer:
        self.headers.append(headers)
        scripted = self.script(len(self.headers))
        if scripted is not None:
            return scripted
        images = np.load(io.BytesIO(body))
        self.batches.append(images)
        with torch.no_grad():
            vectors = self.encoder(torch.from_numpy(images)).numpy()
        if self.as_json:
            return 200, json.dumps(vectors.tolist()).encode()
        out = io.BytesIO()
        np.save(out, vectors)
        return 200, out.getvalue()

    @property
    def images(self) -> int:
        return sum(map(len, self.batches))


def sleeps(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """This thread sleeps so; others, such as the heartbeat's, as they do."""
    real, own = time.sleep, threading.current_thread()

    def by_thread(seconds: float) -> None:
        (sleep if threading.current_thread() is own else real)(seconds)

    monkeypatch.setattr(time, "sleep", by_thread)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = served.answer(body, dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    sleeps(monkeypatch, lambda seconds: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Api(server.server_address[:2])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


def module() -> nn.Module:
    """The encoder of the API, in this process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return tiny()


def test_api__scores_are_the_modules_and_each_image_is_sent_once(
    api: Api, audit: Audit, tmp_path: Path
) -> None:
    flags = "--attacks similarity,lpla --known 6"
    ours = audit(f"--encoder {__name__}:module {CONSTANTS} {flags}", tmp_path / "M").report
    done = audit(f"--encoder {api.url} --batch 16 {flags}", tmp_path / "A")
    assert done.code == 0, done.err
    for a, b in zip(ours["attacks"], done.report["attacks"], strict=True):
        assert (a["name"], a["auc"], a["low"]) == (b["name"], b["auc"], b["low"])
    scores = [(tmp_path / one / "scores.csv").read_text().split() for one in "MA"]
    for a, b in zip(*scores, strict=True):
        if a[0].isdigit():
            left, right = (np.array(line.split(",")[-2:], float) for line in (a, b))
            # Sums of smaller batches differ in the last digit, which LpLA's classifier magnifies.
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)
    assert max(map(len, api.batches)) == 16 and api.batches[-1].dtype == np.float32
    sent = [one.tobytes() for batch in api.batches[6:] for one in batch]  # after a first look
    assert max(sent.count(one) for one in {*sent}) <= 1 + 2  # a look asks twice, and not again
    assert f"are sent to {api.url}" in done.err
    announced = int(done.err.split("about ")[1].split()[0].replace(",", ""))
    everyone = (MEMBERS + NONMEMBERS) * 4  # plain, and three views
    assert 0.7 * everyone < announced < 1.4 * everyone and api.images < announced + 200
    assert done.report["controls"]["untrained"] == []
    assert done.report["encoder"]["form"] == "API or function"


@pytest.mark.slow
def test_api__its_plan_says_how_many_images_it_sends_and_would_send(
    api: Api, audit: Audit, tmp_path: Path
) -> None:
    flags = f"--encoder {api.url} --attacks similarity,lpla --known 6 --quiet"
    planned = audit(f"{flags} --plan --json", tmp_path / "A")
    row, sent = json.loads(planned.out), api.images
    assert row["images_sent_for_the_plan"] == sent and not (tmp_path / "A").exists()
    assert row["smallest_auc"] and "control" not in " ".join(row["not_run"])
    assert audit(flags, tmp_path / "A").code == 0
    assert row["images_sent"] == pytest.approx(api.images - sent, rel=0.2)


def test_api__that_fails_midway_is_gone_on_with(api: Api, audit: Audit, tmp_path: Path) -> None:
    flags = f"--encoder {api.url} --batch 8 --known 6"
    whole = audit(flags).report
    asked = len(api.headers)
    api.script = lambda count: (503, b"") if count > asked + 25 else None
    broken = audit(flags, tmp_path / "A")
    assert broken.code == 74 and f"no answer to {TRIES} requests: status 503" in broken.err
    assert "goes on with this audit" in broken.err
    api.script, before = lambda count: None, api.images
    done = audit(flags, tmp_path / "A")
    assert done.code == 0 and numbers(done.report) == numbers(whole)
    assert api.images - before < 0.9 * before
    api.encoder[0].weight.data *= 2  # another model by now
    again = audit(f"{flags} --attacks lpla", tmp_path / "A")
    assert again.code == 2


def test_api__another_model_behind_the_url_is_refused(
    api: Api, audit: Audit, tmp_path: Path
) -> None:
    asked = f"--encoder {api.url} --batch 8 --known 6"
    api.script = lambda count: (503, b"") if count > 20 else None
    assert audit(asked, tmp_path / "A").code == 74
    api.script = lambda count: None
    api.encoder[0].weight.data *= 2
    refused = audit(asked, tmp_path / "A")
    assert refused.code == 2 and "another encoder by now" in refused.err


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"no such page"), "status 404 Not Found: no such page"),
        ((200, b"<html>"), "neither .npy nor a list"),
        ((200, b"[1, 2]"), "expected (1, D)"),
        ((200, b"[" * 100_000), "neither .npy nor a list"),
        ((200, TERABYTES), "neither .npy nor a list"),
        ((503, b""), "no answer to 1 requests: status 503"),
    ],
)
def test_api__that_answers_no_vectors_is_one_line(
    answer: Answer, words: str, api: Api, audit: Audit, tmp_path: Path
) -> None:
    api.script = lambda count: answer
    done = audit(f"--encoder {api.url} --known 6", tmp_path / "A")
    assert done.code == 2 and words in done.err and api.url in done.err
    assert not (tmp_path / "A").exists()


def test_api__waits_as_the_server_asks_answers_json_and_sees_the_key(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.setenv("FEDMIA_API_KEY", "secret")
    api.as_json = True
    loaded = load(api.url)
    assert (loaded.access, loaded.channels, loaded.size) == ("black_box", 3, None)
    assert api.headers[0]["Authorization"] == "Bearer secret"
    asked = len(api.headers)
    api.script = lambda count: (429, b"") if count <= asked + 3 else None
    pixels = torch.rand(2, 3, 8, 8)
    expected = api.encoder(pixels)
    torch.testing.assert_close(loaded.method.encoder(pixels), expected, atol=1e-6, rtol=1e-6)
    assert waited == [1, 2, 4]


def test_rate__is_kept_and_a_function_is_asked_like_an_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, asked = [0.0], list[tuple[float, int]]()

    def embed(images: np.ndarray) -> Any:
        asked.append((clock[0], len(images)))
        return images.reshape(len(images), -1)[:, :4]

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    remote = http.load_function(http.EncoderFacts("f", http.LoadOptions()), embed, "f", 10, 5.0)
    asked.clear()
    start = clock[0] = 100.0
    remote.method.encoder(torch.rand(25, 3, 8, 8))
    assert asked == [(start, 10), (start + 2, 10), (start + 4, 5)]


@pytest.mark.parametrize("failure", [0.0, np.nan])
def test_function__that_fails_on_some_images_is_not_taken_for_an_answer(failure: float) -> None:
    def embed(images: np.ndarray) -> np.ndarray:
        vectors = images.reshape(len(images), -1)[:, :5] + 1
        return np.where(images[:, 0, :1, 0] > 0.9, failure, vectors)

    encoder = load_module(embed, LoadOptions(size=8)).method.encoder
    fine, odd = (torch.full((2, 3, 8, 8), value) for value in (0.5, 1.0))
    assert encoder(fine).shape == (2, 5) and encoder(0 * fine).shape == (2, 5)
    with pytest.raises(OSError, match="zeros, NaN or infinity to 1 of .* it fails on these"):
        encoder(torch.cat([fine, odd[:1]]))


def test_function__of_zeros_alone_is_an_answer() -> None:
    """That of a collapsed encoder, which has a verdict of its own."""
    loaded = load_module(lambda images: np.zeros((len(images), 5)), LoadOptions(size=8))
    assert not loaded.method.encoder(torch.full((2, 3, 8, 8), 0.5)).any()


def test_function__of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(2, 3, 8, 8\)|expected"):
        http.load_function(
            http.EncoderFacts("f", http.LoadOptions(size=8)), lambda images: images, "f"
        )


def test_function__of_a_session_is_audited_in_batches_at_a_rate(
    archives: Sides, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waited, asked, network = list[float](), deque[np.ndarray](), module().eval()

    def embed(images: np.ndarray) -> Any:
        asked.append(images)
        with torch.no_grad():
            return network(torch.from_numpy(images)).tolist()

    sleeps(monkeypatch, waited.append)
    sides = [f"npz:{side}" for side in (archives.members, archives.nonmembers)]
    options: dict[str, Any] = {"attacks": ["similarity", "lpla"], "known": 6, "quiet": True}
    options |= {"threads": 1, "attack": {"similarity": {"views": 3}}}
    own = fedmia.audit_encoder(network, *sides, mean=0, std=1, **options)
    limits = {"batch": 7, "rate": 10.0, "out": tmp_path / "F"}
    run = fedmia.audit_encoder(embed, *sides, **limits, **options)
    assert run.attacks["auc"].equals(own.attacks["auc"])
    # Some processors round a batch of another size differently, and lpla standardises norms.
    np.testing.assert_allclose(run.scores.to_numpy(float), own.scores.to_numpy(float), rtol=1e-3)
    assert max(map(len, asked)) == 7
    assert sum(wait > 0.1 for wait in waited) > len(asked) / 2
    config = run.records.config
    assert config["encoder"]["name"].startswith("in memory: embed (function ")
    assert (config["encoder"]["batch"], config["encoder"]["rate"]) == (7, 10.0)
    before = len(asked)
    fedmia.audit_encoder(embed, *sides, **limits, **(options | {"attacks": ["lpla"], "attack": {}}))
    assert len(asked) - before < before / 2  # a first look; the rest is on the disk
    with pytest.raises(InputError, match="already holds another run or audit"):
        fedmia.audit_encoder(lambda images: embed(images), *sides, **limits, **options)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "text": lambda file: file.write_text("no file of SQLite" * 100),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:5000]),
    "another": lambda file: run_sql(file, "DROP TABLE answers", "CREATE TABLE answers (x INT)"),
    "vectors": lambda file: run_sql(file, "UPDATE answers SET vector = x'00'"),
}


def run_sql(file: Path, *statements: str) -> None:
    with sqlite3.connect(file) as base:
        for one in statements:
            base.execute(one)


@pytest.mark.slow(seconds=1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_answers__that_are_damaged_are_named_and_the_advice_works(
    damage: str, api: Api, tmp_path: Path
) -> None:
    file = tmp_path / "answers.sqlite"
    remember(api, file)
    assert file.stat().st_mode & 0o777 == 0o600
    DAMAGES[damage](file)
    with pytest.raises(InputError) as error:
        remember(api, file)
    assert str(file) in str(error.value) and "remove it" in str(error.value)
    file.unlink()
    remember(api, file)


def remember(api: Api, file: Path) -> Any:
    """An encoder whose answers to a first look lie in a file."""
    remote = load(api.url).remote
    assert remote is not None
    remote.remember(file)
    return remote


def test_answers__an_error_of_the_system_is_none_of_the_file(api: Api, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="a folder is in its place"):
        remember(api, tmp_path / "folder")
    answers = remember(api, file := tmp_path / "answers.sqlite")._answers
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    answers._open.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(OSError, match="database is locked"):
        answers.store({b"1": bytes(4)})


@pytest.mark.parametrize(
    ("url", "variable", "proxy"),
    [
        ("http://api.example/embed", "http_proxy", "127.0.0.1:1 of http_proxy"),
        ("https://api.example/embed", "HTTPS_PROXY", "127.0.0.1:1 of HTTPS_PROXY"),
        ("http://api.example/embed", "https_proxy", ""),
        ("http://127.8.0.1:80/embed", "http_proxy", ""),
        ("http://[::1]:80/embed", "http_proxy", ""),
        ("http://localhost:80/embed", "http_proxy", ""),
        ("http://inside.example/embed", "http_proxy", ""),
    ],
)
def test_proxy__of_the_environment_is_named_and_not_asked_for_this_machine(
    url: str, variable: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(variable, "http://user:secret@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert http.find_proxy(url).removeprefix("http://") == proxy
    if proxy:
        with pytest.raises(OSError) as error:
            http.Api(url, 1)(np.zeros((1, 3, 2, 2), np.float32))
        assert "refused" in str(error.value) and f"the proxy {http.find_proxy(url)}" in str(
            error.value
        )
        assert "secret" not in str(error.value)


def test_proxy__of_a_dead_address_is_in_no_local_servers_way(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert load(api.url).remote is not None and api.images
