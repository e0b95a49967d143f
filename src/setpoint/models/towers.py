"""Vision and audio encoders: their parameters from ``vision_config`` and ``audio_config``."""

from setpoint.models.fields import Fields
from setpoint.models.spec import Tower


def towers_of(config: Fields, hidden: int) -> tuple[Tower, ...]:
    """The encoders beside the decoder.

    A transformer encoder has 4·H² weights of attention and 2·H·I of its feed-forward part a layer (with a gate
    three matrices; encoders in use have two), a patch embedding, and a projector. Where the projector's sizes are
    not stated it is taken to be one H·D matrix, and the count is marked as not exact.
    """
    found = []
    for kind, name in (("vision", "vision_config"), ("audio", "audio_config")):
        tower = config.inner(name)
        if tower is not None and tower.values:
            found.append(_tower(kind, tower, hidden))
    return tuple(found)


def _tower(kind: str, t: Fields, hidden: int) -> Tower:
    depth = t.integer("depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers", "num_layers")
    width = t.integer("embed_dim", "vt_hidden_size", "hidden_size", "d_model")
    feed_names = ("intermediate_size", "vt_intermediate_size", "encoder_ffn_dim", "mlp_hidden_size")
    feed = t.integer(*feed_names, default=4 * width)
    attention = 4 * width * width
    if t.has("qkv_hidden_size"):
        attention = 4 * width * t.integer("qkv_hidden_size")
    count = depth * (attention + 2 * width * feed)
    patch = t.integer("patch_size", default=0) if not isinstance(t.values.get("patch_size"), list) else 0
    channels = t.integer("in_channels", "in_chans", "num_channels", default=3)
    count += width * channels * patch * patch * t.integer("temporal_patch_size", default=1)
    merge = t.integer("spatial_merge_size", default=0)
    if merge and t.has("out_hidden_size"):
        merged = width * merge * merge
        mergers = 1 + len(t.whole("deepstack_visual_indexes") or ())
        count += mergers * (merged * merged + merged * t.integer("out_hidden_size"))
        count += t.integer("num_position_embeddings", default=0) * width
        return Tower(kind, count)
    return Tower(kind, count + width * hidden, exact=False)
