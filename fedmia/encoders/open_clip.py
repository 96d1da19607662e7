"""`open_clip:NAME`: the image tower of an architecture of open_clip."""

from __future__ import annotations

from typing import Any

from fedmia.encoders._errors import import_extra, unknown_model_error
from fedmia.encoders._hooked import hook_backbone
from fedmia.encoders._module import build, load_weights, load_white_box
from fedmia.encoders.base import Constants, EncoderForm, LoadContext, LoadedEncoder, LoadOptions


class OpenClipModel(EncoderForm):
    """The image tower of an architecture of open_clip."""

    written = "open_clip:NAME"
    order = 8
    prefix = "open_clip"
    takes_checkpoint = True

    def load(self, source: str, load_options: LoadOptions) -> LoadedEncoder:
        """The image tower of `source`; its weights are the checkpoint's, else random. The text
        tower is not built.

        Size and normalisation are the architecture's where the user gives none.

        Raises:
            InputError: open_clip is not installed, no such model, a checkpoint that does not fit.
        """
        library = import_extra("open_clip", "open_clip:NAME", "clip")
        parts = import_extra("open_clip.model", "open_clip:NAME", "clip")
        config = library.get_model_config(source)
        context = LoadContext(f"open_clip:{source}", load_options)
        if config is None:
            raise unknown_model_error("open_clip", source, library.list_models())
        vision = {**config["vision_cfg"], "timm_model_pretrained": False}
        context.size = load_options.size or int(vision.get("image_size", 224))
        vision["image_size"] = context.size

        def make() -> Any:
            options = parts.CLIPVisionCfg(**vision)
            quick = bool(config.get("quick_gelu", False))
            return parts._build_vision_tower(config["embed_dim"], options, quick)

        module = build(context, make).eval()
        load_weights(context, module)
        context.constants = _constants(library, source, context.notes)
        return load_white_box(context, *hook_backbone(context, module, (3,)))


def _constants(library: Any, name: str, notes: list[str]) -> Constants:
    """The normalisation that all public weights of the architecture share, else OpenAI's."""
    pretrained, usual = library.pretrained, library.constants
    own = (usual.OPENAI_DATASET_MEAN, usual.OPENAI_DATASET_STD)
    tags = pretrained.list_pretrained_tags_by_model(name)
    configurations = [pretrained.get_pretrained_cfg(name, tag) for tag in tags]
    constants = {
        (tuple(c.get("mean") or own[0]), tuple(c.get("std") or own[1])) for c in configurations
    }
    if len(constants) == 1:
        return constants.pop()
    if constants:
        notes.append("Public weights of this architecture differ in their normalisation: OpenAI's.")
    return own
