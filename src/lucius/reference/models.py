"""Embedding models: one built in, one in the extra `embedding`, and one behind an endpoint."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lucius.platform import Attempt, NonRetryable, ServiceUnusable
from lucius.reference import vectors
from lucius.reference.endpoint import Endpoint, read_endpoint

PREFIX = "LUCIUS_EMBEDDING"
HASH = vectors.MODEL
WORDLLAMA = "wordllama-256"
WORDLLAMA_HINT = f"the model {WORDLLAMA!r} needs its library: pip install '.[embedding]' in a clone of LUCIUS"
BATCH_TEXTS_MAX = 64
BATCH_CHARACTERS_MAX = 100_000
BATCH_SECONDS_MAX = 60.0
DIMENSIONS_MAX = 8_192
LOOK_SECONDS = 0.5

Vector = list[float]


class EmbeddingModel(Protocol):
    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], attempt: Attempt) -> list[Vector]:
        """A vector for each text, of length one (or all zero for a text without content), all equally long."""


def embedding_model(name: Any) -> EmbeddingModel:
    """The model of this name; without a name, the endpoint's model if there is one, else the built-in one.

    A named model that is not available is refused: vectors of another model would mislead.
    """
    endpoint = embedding_endpoint()
    if name in (None, "", "default"):
        return EndpointModel(endpoint) if endpoint else HashModel()
    if name == HASH:
        return HashModel()
    if name == WORDLLAMA:
        return _wordllama
    if endpoint and name == endpoint.model:
        return EndpointModel(endpoint)
    here = ", ".join([HASH, WORDLLAMA, *([endpoint.model] if endpoint else [])])
    raise NonRetryable("MODEL_UNKNOWN", f"the model {name!r} is not available; this service has {here}")


def embedding_endpoint() -> Endpoint | None:
    endpoint = read_endpoint(PREFIX)
    if endpoint and endpoint.model in (HASH, WORDLLAMA, "default"):
        raise ServiceUnusable(f"{PREFIX}_MODEL={endpoint.model} is the name of a built-in model")
    return endpoint


class HashModel:
    name = HASH

    def embed(self, texts: Sequence[str], attempt: Attempt) -> list[Vector]:
        return [vectors.vector(text) for text in texts]


class WordLlamaModel:
    """Trained static word vectors; the package includes the weights, so nothing is downloaded."""

    name = WORDLLAMA

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Any = None

    def embed(self, texts: Sequence[str], attempt: Attempt) -> list[Vector]:
        while not self._lock.acquire(timeout=LOOK_SECONDS):
            attempt.check()
        try:
            self._loaded = self._loaded or _load_wordllama()
            made = self._loaded.embed(list(texts), norm=False).tolist()
        finally:
            self._lock.release()
        return [normalised(one) for one in made]


_wordllama = WordLlamaModel()


def _load_wordllama() -> Any:
    try:
        library = importlib.import_module("wordllama")
    except ModuleNotFoundError as error:
        raise NonRetryable("MODEL_NOT_INSTALLED", WORDLLAMA_HINT) from error
    folder = Path(str(library.__file__)).parent
    return library.WordLlama.load(cache_dir=folder, disable_download=True)


class EndpointModel:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.name = endpoint.model

    def embed(self, texts: Sequence[str], attempt: Attempt) -> list[Vector]:
        made: list[Vector] = []
        for batch in batches(texts):
            attempt.check()
            made += self._embed_batch(batch)
        if len({len(one) for one in made}) > 1:
            raise self._endpoint.invalid("has vectors of different lengths")
        return made

    def _embed_batch(self, texts: Sequence[str]) -> list[Vector]:
        body = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        answer = self._endpoint.post("/embeddings", body, BATCH_SECONDS_MAX)
        try:
            found = {one["index"]: one["embedding"] for one in answer["data"]}
        except (KeyError, TypeError) as error:
            raise self._endpoint.invalid("has no 'data' with an 'index' and an 'embedding' in each item") from error
        if set(found) != set(range(len(texts))) or not all(is_vector(one) for one in found.values()):
            raise self._endpoint.invalid(f"does not have one vector of numbers for each of {len(texts)} texts")
        return [normalised(found[index]) for index in range(len(texts))]


def batches(texts: Sequence[str]) -> list[list[str]]:
    """In order, each within the limits on texts and characters, unless a single text exceeds them."""
    made: list[list[str]] = []
    size = 0
    for text in texts:
        if not made or len(made[-1]) >= BATCH_TEXTS_MAX or size + len(text) > BATCH_CHARACTERS_MAX:
            made.append([])
            size = 0
        made[-1].append(text)
        size += len(text)
    return made


def is_vector(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= DIMENSIONS_MAX
        and all(isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in value)
    )


def normalised(values: Sequence[float]) -> Vector:
    norm = math.hypot(*values)
    if not math.isfinite(norm) or not norm:
        return [0.0] * len(values)
    return [round(value / norm, 6) for value in values]
