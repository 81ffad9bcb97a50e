"""The Hugging Face model itself: what its parts are, and one pass through them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from lookright.attention import ONE_PASS, Probe, attention_layers, collected, probing
from lookright.candidates import Trie, joint_log_probs, node_log_probs, node_tokens, penalised
from lookright.errors import InputError, reason
from lookright.families import check_family
from lookright.head import Said, candidate_logits, find_head, heard
from lookright.softened import Softening
from lookright.vision import Features, encode, join, served


@dataclass(frozen=True, eq=False)
class Reading:
    """What one pass over a batch gave, on the CPU."""

    log_probs: Tensor  # [batch, candidates]
    attention: Tensor  # [batch, layers, images]
    heads: Tensor | None = None  # [batch, layers, heads, images]
    tokens: Tensor | None = None  # [batch, layers, tokens]


class Backbone:
    """A loaded image-text-to-text model, and where its decoder, its vision and its head are."""

    def __init__(self, hf: Any) -> None:
        self.hf = hf.eval()
        self.family: str = hf.config.model_type
        check_family(hf.config)
        self.text_config = hf.config.get_text_config(decoder=True)
        self.decoder: nn.Module = hf.get_decoder()
        self.base: nn.Module = next(
            (
                part
                for part in (getattr(hf, "model", None), hf)
                if part is not None and hasattr(part, "get_image_features")
            ),
            hf,
        )
        self.layers = attention_layers(self.decoder)
        if not self.layers:
            raise InputError(f"{self.family} models give no evidence: no attention layer was found")
        self.head = find_head(hf, self.decoder)
        self.image_token = _image_token(hf.config)
        self._parameters = inspect.signature(hf.forward).parameters
        self._three_axes = any(
            hasattr(self.base, name) for name in ("get_rope_index", "compute_3d_position_ids")
        )

    @property
    def attention(self) -> str:
        """The attention implementation the decoder runs with."""
        return str(self.text_config._attn_implementation)

    @property
    def device(self) -> torch.device:
        """Where its inputs go."""
        return torch.device(self.hf.device)

    @property
    def dtype_name(self) -> str:
        return str(self.hf.dtype).removeprefix("torch.")

    def takes(self, name: str) -> bool:
        """Whether its forward pass has this input by name."""
        return name in self._parameters

    def ends(self, tokenizer: Any) -> list[int]:
        """The tokens that end an answer, by its generation config or its tokenizer."""
        config = getattr(self.hf, "generation_config", None)
        ends = getattr(config, "eos_token_id", None)
        ends = tokenizer.eos_token_id if ends is None else ends
        return [] if ends is None else list(ends) if isinstance(ends, list) else [ends]

    @property
    def repetition_penalty(self) -> float:
        """What its generation config lowers tokens of the prompt by; 1.0 where it says nothing."""
        config = getattr(self.hf, "generation_config", None)
        return float(getattr(config, "repetition_penalty", None) or 1.0)

    def check_length(self, tokens: int, what: str) -> None:
        limit = getattr(self.text_config, "max_position_embeddings", None)
        if limit is not None and tokens > limit:
            raise InputError(
                f"instance {what!r}: its prompt has {tokens} tokens, and the model reads at most "
                f"{limit}; show fewer or smaller images"
            )

    def fingerprint(self) -> str:
        """A short hash of sampled weights, to tell apart checkpoints that have no revision."""
        digest = sha256(self.family.encode())
        for name, value in self.hf.state_dict().items():
            digest.update(f"{name}{tuple(value.shape)}".encode())
            if value.device.type != "meta" and value.numel():
                step = max(1, value.numel() // 16)
                sample = value.detach().flatten()[::step][:16].to("cpu", torch.float32)
                digest.update(sample.numpy().tobytes())
        return f"weights-{digest.hexdigest()[:12]}"

    @torch.inference_mode()
    def encode(self, images: Sequence[Mapping[str, Tensor]]) -> list[Features]:
        """Vision features of processed images."""
        accepted = inspect.signature(self.base.get_image_features).parameters  # type: ignore[arg-type]
        wanted = [{k: v for k, v in image.items() if k in accepted} for image in images]
        with ONE_PASS:
            return encode(self.base, wanted, self.device)

    @torch.inference_mode()
    def read(
        self,
        inputs: Mapping[str, Tensor],
        features: Sequence[Features] | None,
        regions: Tensor,
        images: int,
        trie: Trie,
        heads: bool = False,
        tokens: bool = False,
        penalty: float = 1.0,
        sofa_sigma: float | None = None,
    ) -> Reading:
        """One pass over the prompts, and where candidates share a first token one more step.

        `penalty` lowers the logits of candidates that stand in the prompt, as `generate` does;
        `sofa_sigma` softens the masks between visual tokens.
        """
        softening = None if sofa_sigma is None else self._softening(inputs, sofa_sigma)
        probe = Probe(regions.to(self.device), images, keep_heads=heads, keep_tokens=tokens)
        cache = DynamicCache(config=self.text_config) if trie.later else None
        watched = probing(self.decoder, self.attention, probe, softening)
        with ONE_PASS, self._with_images(features), watched:
            said, last = self._forward(
                self._prepared(inputs),
                use_cache=cache is not None,
                past_key_values=cache,
                logits_to_keep=1,
            )
        per_node: list[Tensor] = [torch.empty(0)] * len(trie.nodes)
        for index, node in enumerate(trie.nodes):
            if not node.prefix:
                ids = node_tokens(trie, node)
                logits = self._logits(said, slice(None), -1, ids)
                logits = penalised(logits, ids, _said(inputs), penalty)
                per_node[index] = node_log_probs(trie, node, logits)
        if trie.later:
            steps = self._later_nodes(inputs, cache, last, trie, penalty)
            for index, logits in zip(trie.later, steps, strict=True):
                per_node[index] = node_log_probs(trie, trie.nodes[index], logits)
        return Reading(
            joint_log_probs(trie, per_node).cpu(),
            collected(probe.rows, self.layers, self.family),
            collected(probe.heads, self.layers, self.family) if heads else None,
            collected(probe.tokens, self.layers, self.family) if tokens else None,
        )

    @torch.inference_mode()
    def generate(
        self,
        inputs: Mapping[str, Tensor],
        features: Sequence[Features] | None,
        max_new_tokens: int,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Generated tokens [batch, at most max_new_tokens], without the prompt's."""
        moved = {k: v.to(self.device) for k, v in inputs.items()}
        with ONE_PASS, self._with_images(features):
            rows = self.hf.generate(**moved, max_new_tokens=max_new_tokens, **options)
        return torch.as_tensor(rows)[:, moved["input_ids"].shape[1] :].cpu()

    # -- inside a pass ---------------------------------------------------------------------------

    def _prepared(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """Inputs on the device, with positions where left padding would shift them."""
        moved: dict[str, Any] = {k: v.to(self.device) for k, v in inputs.items() if self.takes(k)}
        if not self._three_axes and self.takes("position_ids"):
            mask = moved["attention_mask"]
            moved["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return moved

    def _softening(self, inputs: Mapping[str, Tensor], sigma: float) -> Softening:
        if self.attention not in ("sdpa", "eager"):
            raise InputError(
                f"settings, field 'sofa_sigma': {self.attention} attention takes no mask to soften;"
                " load the model with base_attention='sdpa'"
            )
        if not any(Softening.applies(layer) for layer in self.layers):
            raise InputError(
                f"settings, field 'sofa_sigma': {self.family} attends in the layers "
                f"{', '.join(map(str, self.layers))} only, and SoFA softens layers 0, 2, 4, ..."
            )
        return Softening(inputs["input_ids"].to(self.device) == self.image_token, sigma)

    def _forward(self, inputs: dict[str, Any], **options: Any) -> tuple[Said, Tensor | None]:
        """What the head said, and the last positions the decoder saw."""
        options = {k: v for k, v in options.items() if self.takes(k) or k == "use_cache"}
        with heard(self.head) as said, _positions(self.decoder) as positions:
            said.logits = self.hf(**inputs, **options, return_dict=True).logits
        return said, positions[-1][..., -1:] if positions else None

    def _logits(self, said: Said, rows: slice, at: int, ids: Sequence[int]) -> Tensor:
        return candidate_logits(self.head, self.text_config, said, rows, at, ids)

    def _later_nodes(
        self,
        inputs: Mapping[str, Tensor],
        cache: Any,
        last: Tensor | None,
        trie: Trie,
        penalty: float,
    ) -> list[Tensor]:
        """Logits at the nodes beyond the first token, all in one step on the prompt's cache."""
        nodes = [trie.nodes[index] for index in trie.later]
        batch, count = inputs["input_ids"].shape[0], len(nodes)
        depth = max(len(node.prefix) for node in nodes)
        tokens = torch.tensor(
            [[*node.prefix, *[node.prefix[-1]] * (depth - len(node.prefix))] for node in nodes],
            device=self.device,
        ).repeat(batch, 1)  # [batch * nodes, depth]; what follows a prefix is never looked at
        mask = inputs["attention_mask"].to(self.device).repeat_interleave(count, 0)
        mask = torch.cat([mask, mask.new_ones(batch * count, depth)], 1)
        rows = torch.arange(batch, device=self.device).repeat_interleave(count)
        cache.reorder_cache(rows)  # which caches of linear attention know, too
        step: dict[str, Any] = {
            "input_ids": tokens,
            "attention_mask": mask,
            "past_key_values": cache,
        }
        if last is not None and self.takes("position_ids"):
            last = last.expand(*last.shape[:-2], batch, 1).repeat_interleave(count, -2)
            step["position_ids"] = last + 1 + torch.arange(depth, device=last.device)
        with ONE_PASS:
            said, _ = self._forward(step, use_cache=True)
        found = []
        for index, node in enumerate(nodes):
            ids = node_tokens(trie, node)
            logits = self._logits(said, slice(index, None, count), len(node.prefix) - 1, ids)
            prefix = torch.tensor([node.prefix] * batch)
            so_far = torch.cat([_said(inputs), prefix], 1)
            found.append(penalised(logits, ids, so_far, penalty))
        return found

    @contextmanager
    def _with_images(self, features: Sequence[Features] | None) -> Iterator[None]:
        with ExitStack() as stack:
            if features is not None:
                stack.enter_context(served(self.base, join(features)))
            yield


@contextmanager
def _positions(decoder: nn.Module) -> Iterator[list[Tensor]]:
    """The positions that go into the decoder while inside, where it is given any."""
    seen: list[Tensor] = []

    def see(_: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if isinstance(named.get("position_ids"), Tensor):
            seen.append(named["position_ids"])

    hook = decoder.register_forward_pre_hook(see, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


def _said(inputs: Mapping[str, Tensor]) -> Tensor:
    """[batch, tokens] what each prompt holds; -1 where it is padded."""
    return inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -1)


def _image_token(config: Any) -> int:
    """The id whose embeddings the vision features replace."""
    for name in ("image_token_id", "image_token_index"):
        token = getattr(config, name, None)
        if isinstance(token, int):
            return token
    raise InputError(f"{config.model_type} models give no evidence: they name no image token")


def load_config(name: str, revision: str | None, trust_remote_code: bool) -> Any:
    """A model's configuration; families that give no evidence are refused here, by name."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    if (name.startswith((".", "/", "~")) or name.count("/") > 1) and not os.path.isdir(name):
        raise InputError(f"there is no folder {name!r} (a name on the hub has the form owner/name)")
    with said_plainly(name):
        config = AutoConfig.from_pretrained(
            name, revision=revision, trust_remote_code=trust_remote_code
        )
    check_family(config)
    if (
        config.model_type not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        and not trust_remote_code
    ):
        raise InputError(
            f"{config.model_type} models give no evidence: transformers has no class for them "
            "that reads images and writes text"
        )
    return config


def load_backbone(
    name: str,
    config: Any,
    device: str | None,
    dtype: str | torch.dtype | None,
    revision: str | None,
    base_attention: str | None,
    trust_remote_code: bool,
    from_pretrained: Mapping[str, Any],
) -> Backbone:
    """Load weights (safetensors only) onto a device, saying plainly what stands in the way."""
    from transformers import AutoModelForImageTextToText

    where = device or best_device()
    if where.startswith("meta"):
        raise InputError("cannot use the device 'meta': it holds no numbers")
    try:
        torch.empty(0, device=where)  # before the weights are read
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"cannot use the device {where!r}: {reason(error)}") from None
    with said_plainly(name):
        hf = AutoModelForImageTextToText.from_pretrained(
            name,
            dtype=dtype or (torch.float32 if where == "cpu" else "auto"),
            attn_implementation=base_attention or _base_attention(config),
            use_safetensors=True,
            revision=revision,
            trust_remote_code=trust_remote_code,
            **from_pretrained,
        )
    if "device_map" not in from_pretrained:
        try:
            hf.to(torch.device(where))  # type: ignore[arg-type]  # its wrapper hides the signature
        except RuntimeError as error:
            raise InputError(f"cannot put the model on {where!r}: {reason(error)}") from None
    return Backbone(hf)


@contextmanager
def said_plainly(name: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, ImportError, AttributeError, TypeError) as error:
        raise InputError(f"cannot load the model {name!r}: {reason(error)}") from None


def _base_attention(config: Any) -> str | None:
    """Eager where a softcap bends the scores, which SDPA refuses; else SDPA where the model can."""
    text = config.get_text_config(decoder=True)
    return "eager" if getattr(text, "attn_logit_softcapping", None) else None


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
