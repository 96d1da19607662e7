"""`http:URL`: an encoder behind an API, which gets images and gives vectors."""

from __future__ import annotations

import io
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from fedmia.encoders._remote import Pixels, load_function
from fedmia.encoders.base import EncoderFacts, EncoderForm, LoadedEncoder, LoadOptions
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from fedmia.storage.durable import DiskError
from fedmia.untrusted.arrays import read_npy
from fedmia.untrusted.text import parse_json

BUSY = (429, 502, 503, 504)  # statuses after which the same request may succeed
TRIES = 6
TIMEOUT = 120.0  # seconds that an answer may take
LARGEST = 1 << 28  # bytes of an answer


class Http(EncoderForm):
    """An API that answers a batch of images with their vectors."""

    written = "http:URL"
    order = 9

    def takes(self, spec: str) -> bool:
        return spec.startswith(("http://", "https://"))

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The API at `source`. It gets a POST of an .npy file: float32 (B, C, H, W), pixels in
        [0, 1] unless mean and std are given. It answers with float32 (B, D) as .npy, or as JSON.

        Raises:
            InputError: nobody answers, or not with vectors.
        """
        api = Api(source, tries=1)
        try:
            loaded = load_function(
                EncoderFacts(source, load_options),
                api,
                f"{source} {load_options.mean} {load_options.std}",
                load_options.batch,
                load_options.rate,
            )
        except DiskError as error:
            raise InputError(str(error)) from None
        api.tries = TRIES
        loaded.notes.append(Note("images-sent", {"url": source}))
        return loaded


class Api:
    """Asks a URL; where it is busy or away, again after 1, 2, 4, .. seconds.

    Args:
        url: of the API. FEDMIA_API_KEY of the environment, if any, is sent as a bearer token. A
            proxy of the environment stands between, unless the URL is of this machine.
        tries: most requests for one answer.
    """

    def __init__(self, url: str, tries: int) -> None:
        self.url, self.tries = url, tries
        self.proxy = find_proxy(url)
        handlers = [] if self.proxy else [urllib.request.ProxyHandler({})]
        self._opener = urllib.request.build_opener(*handlers)
        self.headers = {"Content-Type": "application/octet-stream"}
        if key := os.environ.get("FEDMIA_API_KEY"):
            self.headers["Authorization"] = f"Bearer {key}"

    def __call__(self, images: Pixels) -> Any:
        """Vectors (B, D) of images float32 (B, C, H, W).

        Raises:
            RuntimeError: the API refuses these images.
            DiskError: it gives no answer.
        """
        file = io.BytesIO()
        np.save(file, images)
        for attempt in range(self.tries):
            request = urllib.request.Request(self.url, file.getvalue(), self.headers)
            wait = 2.0**attempt
            try:
                with self._opener.open(request, timeout=TIMEOUT) as reply:
                    return _vectors(reply.read(LARGEST))
            except urllib.error.HTTPError as error:
                why = f"status {error.code} {error.reason}"
                if error.code not in BUSY:
                    body = " ".join(error.read(200).decode(errors="replace").split())
                    why = f"{why}: {body}".removesuffix(": ")
                    raise RuntimeError(f"{why}{self._by_proxy()}") from None
                wait = max(wait, _seconds(error.headers.get("Retry-After")))
            except (OSError, HTTPException) as error:
                why = " ".join(str(getattr(error, "reason", error)).split())
            if attempt + 1 < self.tries:
                time.sleep(wait)
        raise DiskError(
            f"{self.url} gives no answer to {self.tries} requests: {why}{self._by_proxy()}"
        )

    def _by_proxy(self) -> str:
        """That a proxy stands between, which may be what is away or refuses."""
        advice = "unset it, or name the host in no_proxy, if the API needs none"
        return f" (through the proxy {self.proxy}: {advice})" if self.proxy else ""


def find_proxy(url: str) -> str:
    """The proxy between this process and a URL.

    Args:
        url: with scheme and host.

    Returns:
        Its address, without name and password, and the variable of the environment that names it;
        empty where there is none, and of loopback addresses.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:  # a name
        loopback = host == "localhost" or host.endswith(".localhost")
    if loopback or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    if not (proxy := urllib.request.getproxies().get(parts.scheme)):
        return ""
    name = f"{parts.scheme}_proxy"
    variable = name if name in os.environ else name.upper()
    return f"{proxy.rpartition('@')[2]} of {variable}"


def _seconds(header: str | None) -> float:
    """The wait that a busy server asks for, at most two minutes."""
    return min(float(header), 120.0) if header and header.strip().isdecimal() else 0.0


def _vectors(reply: bytes) -> Any:
    try:
        if reply.startswith(b"\x93NUMPY"):
            return read_npy("the answer", reply)
        return np.array(parse_json(reply), dtype=np.float32)
    except (ValueError, TypeError):
        raise RuntimeError("the answer is neither .npy nor a list of lists of numbers") from None
