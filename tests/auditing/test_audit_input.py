"""Bad input to an audit: one line that names the value, exit code 2, nothing made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auditing.conftest import Audit, sides
from tests.commands import fedmia


def refused(audit: Audit, flags: str, out: Path) -> str:
    """The one line that an audit into `out` is refused with."""
    before = sorted(out.parent.rglob("*"))
    done = audit(flags, out)
    assert (done.code, done.out) == (2, "")
    lines = [line for line in done.err.splitlines() if line.startswith("fedmia: error: ")]
    assert len(lines) == 1 and done.err.splitlines()[-1] == lines[0]
    assert "Traceback" not in done.err and sorted(out.parent.rglob("*")) == before
    return lines[0].removeprefix("fedmia: error: ")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--attacks similarity,similarity", "attack 'similarity' is named twice"),
        ("--encodr x", "unknown option --encodr; did you mean '--encoder'?"),
        ("--known 1", "split.known (--known): 1, must be >= 2"),
        ("--known many", "split.known (--known): 'many', must be int or none"),
        ("--std 0", "data.std (--std): 0.0, must be > 0"),
        ("--mean 0.1,0.2", "data.mean (--mean): 2 values for images of 3 channels"),
        ("--precision half", "encoder.precision (--precision): unknown value 'half'"),
        (
            "--precision bfloat16 --encoder x.onnx",
            "(--precision) bfloat16: an ONNX program",
        ),
        ("--attack.lpla.reading guess", "attack.lpla.reading: unknown value 'guess'"),
        ("--attack.similarity.views 4 --attacks lpla", "options for attack 'similarity', which"),
        ("--members.pixels 8", "members.pixels is no option of dataset 'npz', but of synth"),
        ("--members.pixls 8", "unknown option members.pixls: dataset 'npz' has no"),
        ("--prior 1", "prior (--prior): 1.0, must be < 1"),
        ("--prior 0", "prior (--prior): 0.0, must be > 0"),
        ("--sweep known=1,2", "'known=1,2', must be of positive values (known: 2 or more)"),
        ("--sweep known=4,x", "sweep (--sweep): '4,x', must be list of int"),
        ("--sweep known=4,4", "sweep (--sweep): 'known=4,4', must be of values that differ"),
        ("--shadows 2 --shadow-encoders x", "give one"),
        ("--shadow.epochs 2", "shadow.epochs is given without shadow.count (--shadows) N"),
        (
            "--shadow-data synthetic",
            "(--shadow-data) is given without shadow.count (--shadows) N",
        ),
        ("--shadows 2 --shadow.count 3", "--shadows and --shadow.count are the same option"),
        ("--encoder tests.auditing.brought:grey", "the images have 3 channels"),
        ("--encoder tests.auditing.brought:broken", "is not finite for 16 of 16 images (NaN or"),
        ("--encoder tests.auditing.brought:rigid --size 16", "rigid fails on images of 3x16x16"),
        ("--members synthetic", "members (--members) is given without nonmembers (--nonmembers)"),
        ("--nonmembers digits --members= ", "members (--members): '', must be"),
        ("--members npz:gone.npz --nonmembers digits", "members: npz: no such file"),
        ("--known 30", "26 members and 40 non-members are too few for split.known (--known) 30"),
        ("--query-budget 20", "no attack could run; similarity: query_budget 20: needs at least"),
        ("--attacks ascent,encodermi-t", "no attack could run; ascent: takes part in the training"),
    ],
)
def test_flags__one_line_names_the_value(
    flags: str, named: str, audit: Audit, tmp_path: Path
) -> None:
    assert named in refused(audit, flags, tmp_path / "new" / "AUDIT")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (
            "--members digits --nonmembers digits",
            "encoder.name (--encoder) is missing: RUN[@round], FILE.pt2",
        ),
        (
            "--encoder tests.auditing.brought:tiny",
            "members DATASET and nonmembers DATASET are missing\n",
        ),
    ],
)
def test_required__what_is_missing_is_named(flags: str, named: str) -> None:
    ran = fedmia(f"audit {flags}")
    assert ran.code == 2 and ran.err.startswith(f"fedmia: error: {named}")


def test_out__occupied_is_left_as_it_is(audit: Audit, tmp_path: Path) -> None:
    out = tmp_path / "AUDIT"
    out.mkdir()
    refused(audit, "--query-budget 20", out)
    assert list(out.iterdir()) == []  # empty as it was
    (out / "notes.txt").write_text("mine")
    assert "already holds 'notes.txt'" in refused(audit, "", out)
    assert "is a file" in refused(audit, "", out / "notes.txt")
    assert "cannot be made" in refused(audit, "", out / "notes.txt" / "AUDIT")
    for config in (b"seed: 7", b"- a list", b"a: b: c", b"\xff"):
        (out / "config.yaml").write_bytes(config)
        assert "already holds another run or audit" in refused(audit, "", out)
        assert (out / "config.yaml").read_bytes() == config


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("enccoder: x", "{file}: unknown option enccoder; did you mean 'encoder'?"),
        ("encoder: 3", "{file}: encoder.name (--encoder): 3, must be str"),
        ("encoder: x\nstd: [1e-3, 0]", "{file}: data.std (--std): 0.0, must be > 0"),
        ("encoder: x\nknown: [3]", "{file}: split.known (--known): [3], must be int or none"),
        ("encoder: x\nattack: {lpla: 3}", "{file}: attack.lpla: 3, must be a mapping of options"),
        ("encoder: x\naugment: {a: 2}", "{file}: unknown option augment.a"),
        ("encoder: x\nmembers.a: 1", "{file}: members.a needs members DATA"),
    ],
)
def test_config__broken(text: str, named: str, audit: Audit, tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text(text)
    message = refused(audit, f"--config {file}", tmp_path / "new" / "AUDIT")
    assert named.format(file=file) in message


def test_known__too_few_for_an_attack_is_said_of_it_alone(audit: Audit) -> None:
    done = audit("--known 2 --attacks similarity,lpla,combined")
    assert done.code == 0 and done.names() == ["similarity"]
    for name, who in (("lpla", "lpla"), ("combined", "a classifier")):
        assert done.not_run[name] == (
            f"{who} needs at least 2 known members and non-members, got 1 and 1, with a part of 2 "
            "and 2 left out to choose the threshold"
        )


def test_gray_images__the_error_names_channels_and_they_do(audit: Audit, tmp_path: Path) -> None:
    gray = sides(tmp_path, channels=1)
    line = refused(audit, gray.flags, tmp_path / "A")
    assert "(--channels) rgb repeats the gray channel" in line
    done = audit(f"{gray.flags} --channels rgb")
    assert done.code == 0 and done.report["split"]["channels"] == 3


def test_size__follows_an_encoder_that_takes_one_only(audit: Audit, tmp_path: Path) -> None:
    other = sides(tmp_path, pixels=12)
    flags = f"--encoder tests.auditing.brought:rigid {other.flags}"
    done, shown = audit(flags), audit(flags, text=True)
    assert done.code == 0 and done.report["split"]["size"] == 32
    for guess in ("brought to 32x32 pixels", "ImageNet's constants are"):
        assert any(guess in note for note in done.report["notes"])
        assert sum(guess in line for line in shown.err.splitlines()) == 1  # in the terminal too


def test_names__an_error_says_how_to_write_a_folder_of_images_or_of_transformers(
    audit: Audit, tmp_path: Path
) -> None:
    for folder in ("images", "vit"):
        (tmp_path / folder).mkdir()
    (tmp_path / "vit" / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "vit" / "model.safetensors").write_bytes(b"")
    out, folder = tmp_path / "OUT", tmp_path / "vit"
    for encoder in (folder, folder / "model.safetensors"):
        assert f"encoder.name (--encoder) hf:{folder}" in refused(
            audit, f"--encoder {encoder}", out
        )
    images = tmp_path / "images"
    for one, other in (("members", "nonmembers"), ("nonmembers", "members")):
        line = refused(audit, f"--{one} {images} --{other} digits", out)
        assert f"a folder of this name is folder:{images}" in line
