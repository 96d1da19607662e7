"""Notes on an encoder: what was guessed, resized or left out where it was loaded."""

from __future__ import annotations

from collections.abc import Sequence

from fedmia.settings.errors import opt

# -- the images that it takes -------------------------------------------------------------------


def unknown_normalisation(channels: int) -> str:
    what = "ImageNet's constants are" if channels == 3 else "mean 0.5 and deviation 0.25 are"
    constants = f"{what} taken where {opt('data.mean')} and {opt('data.std')} give none."
    return f"The encoder does not say how its pixels were normalised: {constants}"


def public_normalisations_differ() -> str:
    return "Public weights of this architecture differ in their normalisation: OpenAI's."


def normalised_by_file(name: str) -> str:
    return f"Pixels are normalised by {name} and std of the file's own."


def size_of_file(name: str, size: int) -> str:
    return f"Images are brought to the file's {name}, {size} pixels."


def size_of_configuration(size: int) -> str:
    says = f"Images are brought to {size} pixels a side, as timm's configuration says"
    return f"{says}: if the network was trained on others, {opt('data.size')} takes their size."


def brought_to_size(size: int, encoder: str) -> str:
    return f"Every image was brought to {size}x{size} pixels, the size of {encoder}."


def another_size_than_run(trained: int, size: int) -> str:
    return f"The run trained on {trained}x{trained} pixels; the images have {size}."


def resizing_not_done(where: str, fields: Sequence[str]) -> str:
    done = "images of another size are cut to their middle square and resized by bilinear"
    return f"{where} says {', '.join(fields)}, which is not done: {done} interpolation."


def fixed_batch(encoder: str, images: int) -> str:
    return f"{encoder} takes {images} images at a time: the last are filled up."


# -- its file -----------------------------------------------------------------------------------


def fields_unread(where: str, fields: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in fields)
    return f"{where}: not read: {listed}."


def settings_unread(settings: Sequence[str]) -> str:
    listed = ", ".join(settings[:6]) + ", .." * (len(settings) > 6)
    return f"The file's settings are not read beside its tensors: {listed}."


def no_processor(file: str) -> str:
    return f"The folder has no {file}."


def network_chosen(networks: Sequence[str], chosen: str) -> str:
    listed = ", ".join(f"'{name}'" for name in networks)
    choice = f"'{chosen}' was taken; {opt('encoder.checkpoint_key')} takes another."
    return f"The file holds the networks {listed}: {choice}"


def names_converted() -> str:
    return "timm's own code converted the file's names (and its positions to the images' size)."


def parts_joined(weights: int) -> str:
    return f"{weights} weights of the file were pruned or normed: their parts were joined."


def positions_resampled(name: str) -> str:
    return f"Positions '{name}' were resampled to the size of the images."


def weights_without_place(weights: int, encoder: str) -> str:
    return f"{weights} of the file's weights find no place in {encoder}: left out."


def weights_missing(weights: int) -> str:
    return f"{weights} of the encoder's weights are random: the file lacks them."


def weights_as_float32(kinds: Sequence[str]) -> str:
    return f"Weights in {', '.join(kinds)} are kept as float32."


def random_weights(encoder: str) -> str:
    nothing = "nothing was trained. Without --checkpoint there is nothing to leak."
    return f"{encoder}: random weights: {nothing}"


# -- its architecture ---------------------------------------------------------------------------


def heads_of_code_base(heads: int, form: str) -> str:
    return f"Attention has {heads} heads, as in {form}'s own ViTs of this width."


def heads_assumed(heads: int) -> str:
    return f"Attention is taken to have {heads} heads, which no shape of a tensor tells."


def quick_gelu() -> str:
    return "OpenAI's weights: QuickGELU in place of GELU."


def small_stem(padding: int) -> str:
    stem = f"taken with stride 1, padding {padding} and no max-pooling, as on small images."
    return f"The file's first convolution is 3x3: {stem}"


def no_first_relu() -> str:
    return "No ReLU follows the first norm, as where layers are numbered so."


def norms_without_statistics() -> str:
    return "The file's norms keep no statistics: taken for group norms of 32 groups."


def head_of_file() -> str:
    return "The output 'encoder' is that of the file's projection head, 'avgpool' its input."


def head_unfit(length: int) -> str:
    return f"The file's projection head takes no vectors of length {length}: left out."


def unknown_head() -> str:
    return "The file's projection head is of an unknown make, and is left out."


# -- what can be read of it ---------------------------------------------------------------------


def no_gradient(encoder: str) -> str:
    return f"No gradient of {encoder} reaches a weight: it is a black box."


def torchscript(encoder: str) -> str:
    return f"{encoder} is TorchScript, whose layers run no hooks: none are read."


def images_sent(url: str) -> str:
    return f"Each image is sent to {url}."


def output_chosen(encoder: str, outputs: str, chosen: str) -> str:
    audited = f"'{chosen}' is audited; {opt('encoder.embedding')} names another."
    return f"{encoder} returns {outputs}: {audited}"


def constant_output(encoder: str, images: int) -> str:
    return f"{encoder} gives the same output for all {images} images looked at."


def random_output(encoder: str, layer: str) -> str:
    where = f"from layer '{layer}' on (dropout or random masks in its forward pass)"
    again = f"{encoder} answers the same image differently when it is asked again, {where}"
    return f"{again}: its scores depend on chance."


def one_place_map(encoder: str) -> str:
    one = f"The last map of {encoder} is 1x1 for images of this size"
    return f"{one}, which has no parts to compare; {opt('data.size')} enlarges them."


# -- vectors in its place -----------------------------------------------------------------------


def vectors_given(views: int) -> str:
    vectors = f"its vectors of {views} view{'s' * (views > 1)} of each image were given"
    unchecked = "Nobody checked that members and non-members went through the same views."
    return f"The encoder was not asked: {vectors}. {unchecked}"


def vectors_as_float32(where: str, kind: str) -> str:
    return f"{where}: {kind}, read as float32."


def pandas_index_out(where: str, columns: Sequence[str]) -> str:
    return f"{where}: the index that pandas stored ({', '.join(columns)}) was left out."


# -- its place in a federation ------------------------------------------------------------------


def model_under_attack(round: int, last: bool, before: str) -> str:
    here = f"round {round}, the last of the run" if last else f"round {round}"
    other = f"{before} is the last one before them"
    return f"The encoder is the model of {here}, after attacked rounds; {other}."


def scored_by_round(rounds: Sequence[int], models: int) -> str:
    listed = ", ".join(map(str, rounds))
    return f"Scored by round: {len(rounds)} of the {models} models that were kept, {listed}."
