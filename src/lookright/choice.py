"""What a selector answers: one image, with what the model said and where it looked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fsdecode
from typing import TYPE_CHECKING, Any

import numpy as np

from lookright.errors import InputError
from lookright.evidence import Evidence, EvidenceArray
from lookright.methods import METHODS
from lookright.methods.posterior import log_posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from lookright.calibration import Calibration
    from lookright.instance import ImageSource, Instance

    Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """One decision; everything in it is by image, in the order the images were given."""

    text: str  # the caption, or the question
    names: tuple[str, ...]  # what the images are called
    ranking: tuple[int, ...]  # the images, best first
    scores: Doubles  # [N] the method's distribution
    vanilla: Doubles  # [N] the model's own distribution
    attention: (
        Doubles  # [N] the attention's distribution: the posterior, or raw without calibration
    )
    method: str
    warning: str | None = None

    @property
    def index(self) -> int:
        """The chosen image."""
        return self.ranking[0]

    @property
    def confidence(self) -> float:
        """The chosen image's share in the method's distribution."""
        return float(self.scores[self.index])

    @property
    def diverged(self) -> bool:
        """Whether the logits' pick is not the attention's pick."""
        return int(self.vanilla.argmax()) != int(self.attention.argmax())

    @property
    def corrected(self) -> bool:
        """Whether the answer is not the one the logits alone give."""
        return self.index != int(self.vanilla.argmax())

    def explain(self) -> str:
        """A short table of all images, and what to make of it."""
        from lookright.choice_text import as_text, choice_table

        return as_text(choice_table(self))

    def plot(self, target: int | None = None) -> Figure:
        """What the model says, where it looks, and what the method makes of it, as bars."""
        from lookright.report.plots import logits_against_attention

        return logits_against_attention(
            self.vanilla,
            self.attention,
            names=self.names,
            target=target,
            debiased=(self.method, self.scores),
            title=self.text,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "index": self.index,
            "confidence": self.confidence,
            "images": list(self.names),
            "scores": self.scores.tolist(),
            "vanilla": self.vanilla.tolist(),
            "attention": self.attention.tolist(),
            "diverged": self.diverged,
            "corrected": self.corrected,
            "method": self.method,
            "warning": self.warning,
        }

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return (
            f"Choice(index={self.index}, image={self.names[self.index]!r}, "
            f"confidence={self.confidence:.3f}, method={self.method!r}, "
            f"corrected={self.corrected}, diverged={self.diverged})"
        )


@dataclass(frozen=True)
class Ranked:
    """One image's place in a ranking."""

    rank: int  # counted from 1
    index: int
    name: str
    score: float
    vanilla: float
    attention: float


@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """The best images, best first; it iterates, and `ranking[0]` is the best."""

    choice: Choice
    images: tuple[Ranked, ...]

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.images)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> Ranked:
        return self.images[place]

    def explain(self) -> str:
        """A short table, best first."""
        from lookright.choice_text import as_text, ranking_table

        return as_text(ranking_table(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "ranking": [
                {"rank": r.rank, "index": r.index, "image": r.name, "score": r.score}
                | {"vanilla": r.vanilla, "attention": r.attention}
                for r in self.images
            ],
            "method": self.choice.method,
            "warning": self.choice.warning,
        }

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        best = ", ".join(f"{r.index}: {r.score:.3f}" for r in self.images)
        return f"Ranking({best})"


def choose(
    instance: Instance,
    evidence: Sequence[Evidence],
    method: str,
    parameters: Mapping[str, Any],
    calibration: Calibration | None,
    preset: str = "paper",
) -> Choice:
    """The decision from one instance's evidence: of its own order, and for methods over shifts of
    all its cyclic ones (the own order first).
    """
    array = EvidenceArray.of(evidence).checked()
    scores = METHODS[method](array, calibration, **parameters)[0, 0]  # [N]
    own = array.log_probs[0, 0].astype(np.float64)  # [N]; in its own order, position k is image k
    return Choice(
        text=instance.caption or instance.question or "",
        names=image_names(instance.images),
        ranking=tuple(int(image) for image in np.argsort(-scores, kind="stable")),
        scores=_softmax(scores),
        vanilla=_softmax(own),
        attention=_attention(array, parameters, calibration, preset),
        method=method,
    )


def rank(choice: Choice, top: int | None) -> Ranking:
    """The first `top` images of a decision, all by default."""
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError(f"top={top!r}: must be a number of images, 1 or more")
    return Ranking(
        choice,
        tuple(
            Ranked(
                rank=place,
                index=image,
                name=choice.names[image],
                score=float(choice.scores[image]),
                vanilla=float(choice.vanilla[image]),
                attention=float(choice.attention[image]),
            )
            for place, image in enumerate(choice.ranking[:top], start=1)
        ),
    )


def image_names(images: Sequence[ImageSource]) -> tuple[str, ...]:
    """File names, whole paths where two are alike, and "image 0" where there is no file."""
    paths = [
        fsdecode(image) if isinstance(image, (str, PathLike)) else f"image {index}"
        for index, image in enumerate(images)
    ]
    paths = [f"image {k}" if p[:5].lower() == "data:" else p for k, p in enumerate(paths)]
    short = [path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path for path in paths]
    names = short if len(set(short)) == len(set(paths)) else paths
    return tuple(name.encode("utf-8", "backslashreplace").decode() for name in names)


def _attention(
    array: EvidenceArray,
    parameters: Mapping[str, Any],
    calibration: Calibration | None,
    preset: str,
) -> Doubles:
    """[N] where the model looked, by the method's own parameters (else the preset's), averaged over
    the orders shown.

    With a calibration, the posterior that purified attention and lad use; without, raw attention.
    """
    name = "raw_attention" if calibration is None else "purified_attention"
    shared = {p: v for p, v in parameters.items() if p in METHODS[name].defaults}
    chosen = METHODS[name].parameters(preset, shared)
    if "k" not in parameters and chosen["k"] != "all":
        chosen["k"] = min(chosen["k"], len(array.layers))
    tau = chosen.pop("tau", 1.0)
    aggregate = chosen.pop("aggregate", "means")
    prior = calibration if parameters.get("prior", True) else None
    log_pi = tau * log_posterior(array, prior, aggregate=aggregate, **chosen)  # [P, 1, N]
    by_image = np.empty_like(log_pi)
    np.put_along_axis(by_image, array.orders, _softmax(log_pi), axis=-1)
    mean: Doubles = by_image.mean(axis=(0, 1))
    return mean


def _softmax(scores: Doubles) -> Doubles:
    shares: Doubles = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return shares
