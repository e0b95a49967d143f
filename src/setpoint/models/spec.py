"""The model spec: everything about a model that memory and speed depend on, from whatever file it was read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from setpoint.models.layer import Layer
from setpoint.models.precision import Format, Precision
from setpoint.models.weights import Component, Split, Weight, layer_weights


@dataclass(frozen=True, slots=True)
class Tower:
    """An encoder beside the decoder.

    Attributes:
        kind: ``vision`` or ``audio``.
        parameters: Its weights, projector included.
        exact: Whether the count follows from stated sizes; False when the config lacks some of them and the rest
            is assumed.
    """

    kind: str
    parameters: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights of one layer that are split alike.

    Attributes:
        layer: Index of the layer; -1 outside the decoder.
        component: What they belong to.
        split: What tensor parallelism does with them.
        kv_heads: Heads among which KV projections can be divided; 0 otherwise.
        copies: Experts among which they can be dealt out; 1 otherwise.
        width: Intermediate size of one expert; 0 otherwise.
        format: How they are stored.
        size: Bytes, scales included.
    """

    layer: int
    component: Component
    split: Split
    kv_heads: int
    copies: int
    width: int
    format: Format
    size: float


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only model.

    Attributes:
        name: As the user or the Hub names it.
        model_type: ``model_type`` of the config, or ``general.architecture`` of a GGUF file.
        architecture: Class name in ``architectures``; empty when not stated.
        layers: Decoder layers in order.
        mtp_layers: Multi-token-prediction layers, used only when drafting with them.
        hidden: Hidden size.
        vocabulary: Rows of the embedding.
        tied: Embedding and output head are one matrix.
        precision: How weights are stored.
        activation_dtype: ``bfloat16``, ``float16`` or ``float32``.
        max_positions: Longest context that the config states; 0 when not stated.
        towers: Vision and audio encoders.
        extra: Further (component, parameters) pairs that no layer shows, e.g. per-layer embeddings.
        notes: What was assumed while reading, one sentence each.
    """

    name: str
    model_type: str
    architecture: str
    layers: tuple[Layer, ...]
    mtp_layers: tuple[Layer, ...]
    hidden: int
    vocabulary: int
    tied: bool
    precision: Precision
    activation_dtype: str
    max_positions: int
    towers: tuple[Tower, ...] = ()
    extra: tuple[tuple[Component, int], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """Every weight of embedding, decoder and output head; not towers and not MTP layers."""
        found = [
            Weight(
                "embed_tokens",
                Component.EMBEDDING,
                -1,
                self.vocabulary,
                self.hidden,
                active=0,
                split=Split.VOCABULARY,
                linear=False,
            )
        ]
        for index, layer in enumerate(self.layers):
            found.extend(layer_weights(layer, f"layers.{index}", index, self.hidden))
        found.append(Weight("norm", Component.NORM, -1, self.hidden, 1, split=Split.REPLICATED, linear=False))
        if not self.tied:
            found.append(Weight("lm_head", Component.LM_HEAD, -1, self.vocabulary, self.hidden, split=Split.VOCABULARY))
        found.extend(Weight(part, part, -1, 1, count, linear=False) for part, count in self.extra)
        return tuple(found)

    @cached_property
    def mtp_weights(self) -> tuple[Weight, ...]:
        """Weights of the MTP layers: a 2H by H projection beside a decoder layer each (DeepSeek-V3, section 2.2)."""
        found: list[Weight] = []
        for number, layer in enumerate(self.mtp_layers):
            index = len(self.layers) + number
            found.append(
                Weight(f"mtp.{number}.eh_proj", Component.MTP, index, self.hidden, 2 * self.hidden, linear=False)
            )
            found.extend(layer_weights(layer, f"mtp.{number}", index, self.hidden))
        return tuple(found)

    def format_of(self, weight: Weight) -> Format:
        """How a weight is stored."""
        return self.precision.of(weight.name, linear=weight.linear)

    def bytes_of(self, weight: Weight) -> float:
        """Bytes of a weight, all copies, scales included."""
        return weight.parameters * self.format_of(weight).bytes_per_weight

    @cached_property
    def stored(self) -> tuple["Stored", ...]:
        """Bytes of the decoder, embedding and head, summed over weights that are split alike."""
        return _summed(self, self.weights)

    @cached_property
    def mtp_stored(self) -> tuple["Stored", ...]:
        """Likewise of the MTP layers."""
        return _summed(self, self.mtp_weights)

    @cached_property
    def parameters_by_component(self) -> Mapping[Component, int]:
        """Parameters of decoder, embeddings, towers and MTP layers."""
        total: dict[Component, int] = {}
        for weight in self.weights:
            total[weight.component] = total.get(weight.component, 0) + weight.parameters
        for tower in self.towers:
            part = Component(tower.kind)
            total[part] = total.get(part, 0) + tower.parameters
        if self.mtp_layers:
            total[Component.MTP] = sum(w.parameters for w in self.mtp_weights)
        return total

    @cached_property
    def bytes_by_component(self) -> Mapping[Component, float]:
        """Stored bytes of the same components."""
        total: dict[Component, float] = {}
        for weight in self.weights:
            total[weight.component] = total.get(weight.component, 0.0) + self.bytes_of(weight)
        for tower in self.towers:
            part = Component(tower.kind)
            total[part] = total.get(part, 0.0) + tower.parameters * self.precision.unquantized.bytes_per_weight
        if self.mtp_layers:
            total[Component.MTP] = sum(self.bytes_of(w) for w in self.mtp_weights)
        return total

    @property
    def parameters(self) -> int:
        """All parameters but the MTP layers, as model cards count them."""
        return sum(n for part, n in self.parameters_by_component.items() if part is not Component.MTP)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters of the decoder and the head that one token is multiplied with; embedding rows excluded."""
        head = self.vocabulary * self.hidden if self.tied else 0
        return round(sum(w.active_parameters for w in self.weights)) + head

    @property
    def checkpoint_bytes(self) -> float:
        """Bytes of weights on disk, MTP layers included."""
        return sum(self.bytes_by_component.values())


def _summed(spec: ModelSpec, weights: tuple[Weight, ...]) -> tuple[Stored, ...]:
    found: dict[Stored, float] = {}
    for weight in weights:
        width = min(weight.rows, weight.columns) if weight.split is Split.EXPERTS else 0
        form = spec.format_of(weight)
        key = Stored(weight.layer, weight.component, weight.split, weight.kv_heads, weight.copies, width, form, 0.0)
        found[key] = found.get(key, 0.0) + spec.bytes_of(weight)
    return tuple(replace(key, size=size) for key, size in found.items())
