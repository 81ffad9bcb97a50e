"""The candidates' joint log-probabilities: a trie of their tokens, normalised node by node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lookright.errors import InputError

#: Stands for "the answer ends here" among a node's children; real token ids are not negative.
END = -1


@dataclass(frozen=True)
class Node:
    """A place where candidates part: the tokens said so far and what may follow."""

    prefix: tuple[int, ...]
    children: tuple[int, ...]  # token ids, and END


@dataclass(frozen=True)
class Trie:
    """All candidates' token sequences; nodes with a single child are left out (probability 1)."""

    nodes: tuple[Node, ...]  # the root first, where candidates part at the first token
    paths: tuple[tuple[tuple[int, int], ...], ...]  # per candidate: (node, child) along its way
    ends: tuple[int, ...]  # token ids that end an answer; their probabilities are summed

    @property
    def later(self) -> tuple[int, ...]:
        """Indices of the nodes that need tokens beyond the prompt."""
        return tuple(index for index, node in enumerate(self.nodes) if node.prefix)


def build_trie(
    identifiers: Sequence[str],
    tokens: Sequence[Sequence[int]],
    ends: Sequence[int],
    *,
    shared: bool = False,
) -> Trie:
    """The trie of `tokens`, one sequence for each identifier, each followed by the end of turn.

    `shared`: beyond the first token every node is normalised over what may follow any of them, as
    the released code does (from 20 numbers on that is more than may follow each).
    """
    if not ends:
        raise InputError("the model names no end-of-turn token (generation_config.eos_token_id)")
    sequences = [(*map(int, sequence), END) for sequence in tokens]
    for name, sequence in zip(identifiers, sequences, strict=True):
        if len(sequence) == 1:
            raise InputError(f"identifier {name!r} has no token in this model's tokenizer")
        if set(sequence[:-1]) & set(ends):
            raise InputError(f"identifier {name!r} contains the end-of-turn token")
    by_tokens: dict[tuple[int, ...], str] = {}
    for name, sequence in zip(identifiers, sequences, strict=True):
        if sequence in by_tokens:
            raise InputError(
                f"identifiers {by_tokens[sequence]!r} and {name!r} are the same tokens to this "
                "model: choose others"
            )
        by_tokens[sequence] = name
    followers: dict[tuple[int, ...], list[int]] = {}
    for sequence in sequences:
        for depth, token in enumerate(sequence):
            children = followers.setdefault(sequence[:depth], [])
            if token not in children:
                children.append(token)
    parting = {prefix: children for prefix, children in followers.items() if len(children) > 1}
    if shared:
        beyond = dict.fromkeys(token for p in parting if p for token in parting[p])
        parting = {prefix: list(beyond) if prefix else parting[()] for prefix in parting}
    nodes = tuple(Node(p, tuple(parting[p])) for p in sorted(parting, key=lambda p: (len(p), p)))
    index = {node.prefix: number for number, node in enumerate(nodes)}
    paths = tuple(
        tuple(
            (index[sequence[:depth]], parting[sequence[:depth]].index(token))
            for depth, token in enumerate(sequence)
            if sequence[:depth] in parting
        )
        for sequence in sequences
    )
    return Trie(nodes, paths, tuple(sorted(set(map(int, ends)))))


def node_tokens(trie: Trie, node: Node) -> list[int]:
    """The vocabulary ids whose logits decide at a node (END is all the ids that end an answer)."""
    return [t for child in node.children for t in (trie.ends if child == END else (child,))]


def node_log_probs(trie: Trie, node: Node, logits: Tensor) -> Tensor:
    """Restricted log-softmax at one node, appendix B: [batch, ids of `node_tokens`] -> [batch,
    children], in float32."""
    logits = logits.float()
    columns = []
    start = 0
    for child in node.children:
        width = len(trie.ends) if child == END else 1
        columns.append(logits[:, start : start + width].logsumexp(-1))
        start += width
    return torch.stack(columns, -1).log_softmax(-1)


def joint_log_probs(trie: Trie, per_node: Sequence[Tensor]) -> Tensor:
    """log P(c_k) for every candidate: the sum along its path. [batch, candidates].

    They sum to 1 as they are, but for a shared normalisation, which leaves some over.
    """
    sums = [
        torch.stack([per_node[node][:, child] for node, child in path]).sum(0)
        for path in trie.paths
    ]
    return torch.stack(sums, -1).log_softmax(-1)


def penalised(logits: Tensor, ids: Sequence[int], said: Tensor, penalty: float) -> Tensor:
    """Logits [batch, ids], those of tokens in `said` [batch, tokens] lowered as by `generate`."""
    if penalty == 1.0:
        return logits
    wanted = torch.tensor(ids, device=said.device)
    heard = (said[:, :, None] == wanted).any(1).to(logits.device)
    return torch.where(heard, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
