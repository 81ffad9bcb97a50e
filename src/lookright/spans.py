"""Which tokens of a prompt belong to which image."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lookright.errors import InputError


def visual_regions(tokens: Sequence[int], image_token: int, counts: Sequence[int]) -> list[int]:
    """Per token the position of the image whose visual token it is, -1 for text.

    The visual tokens stand in the images' order; `counts` says how many each image has (one image
    may be many tiles, rows or frames: only the total of each matters).
    """
    found = sum(token == image_token for token in tokens)
    if found != sum(counts):
        raise InputError(
            f"the prompt holds {found} visual tokens, but its {len(counts)} images have "
            f"{sum(counts)}; does the caption or question contain the model's image token?"
        )
    owners = (position for position, count in enumerate(counts) for _ in range(count))
    return [next(owners) if token == image_token else -1 for token in tokens]


def counts_by_runs(tokens: Sequence[int], image_token: int, images: int) -> list[int]:
    """Visual tokens per image where each image is one unbroken run of them."""
    counts: list[int] = []
    previous = None
    for token in tokens:
        if token == image_token:
            if previous != image_token:
                counts.append(0)
            counts[-1] += 1
        previous = token
    if len(counts) != images:
        raise InputError(
            f"the prompt shows {images} images, but {len(counts)} runs of visual tokens were "
            "found: this processor does not say which tokens are whose"
        )
    return counts


def with_delimiters(
    regions: Sequence[int], tokens: Sequence[int], special: Collection[int]
) -> list[int]:
    """Regions widened to whole spans: from an image's first to its last visual token, with the
    special token that opens every image and the one that closes every image, where there is such a
    token (vision_start .. vision_end)."""
    spans = []
    for position in range(max(regions) + 1):
        own = [index for index, region in enumerate(regions) if region == position]
        spans.append((own[0], own[-1] + 1))
    opens = _common([tokens[start - 1] if start else None for start, _ in spans], special)
    closes = _common([tokens[stop] if stop < len(tokens) else None for _, stop in spans], special)
    widened = list(regions)
    for position, (start, stop) in enumerate(spans):
        widened[start - opens : stop + closes] = [position] * (stop + closes - start + opens)
    return widened


def _common(tokens: Sequence[int | None], special: Collection[int]) -> bool:
    """Whether these are all one and the same special token."""
    return len(set(tokens)) == 1 and tokens[0] in special
