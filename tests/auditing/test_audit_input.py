"""Bad input to an audit: one line that names the value, exit code 2, nothing made."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.audit import main
from tests.auditing.conftest import Audit, Sides, sides, textures, write


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
        ("--attacks similarty", "unknown attack 'similarty'; did you mean 'similarity'?"),
        ("--attacks similarity,similarity", "attack 'similarity' is named twice"),
        ("--encodr x", "unknown option --encodr; did you mean '--encoder'?"),
        ("--know 3", "unknown option --know; did you mean '--known'?"),
        ("--quiet=1", "--quiet takes no value, got '1'"),
        ("extra", "unexpected argument 'extra'"),
        ("--known", "--known needs a value"),
        ("--known 1", "--known must be >= 2, got 1"),
        ("--known many", "--known must be int or none, got 'many'"),
        ("--known 3 --known 4", "--known is given twice"),
        ("--seed -1", "--seed must be >= 0, got -1"),
        ("--std 0", "--std must be > 0, got 0.0"),
        ("--mean 0.1,0.2", "--mean: 2 values for images of 3 channels"),
        ("--device tpu", "--device must be auto, cpu, cuda or cuda:N, got 'tpu'"),
        ("--precision half", "unknown --precision value 'half'"),
        ("--precision bfloat16 --encoder x.onnx", "--precision bfloat16: an ONNX program computes"),
        ("--query-budget 0", "--query-budget must be >= 1, got 0"),
        ("--attack.similarity.vews 3", "did you mean 'views'?"),
        ("--attack.lpla.p 9", "--attack.lpla.p must be <= 5, got 9"),
        ("--attack.lpla.reading guess", "unknown --attack.lpla.reading value 'guess'"),
        ("--attack.fe-mi.p 9", "--attack.fe-mi.p"),
        ("--attack.similarity.views 4 --attacks lpla", "options for attack 'similarity', which"),
        ("--members.pixels 8", "--members.pixels is no option of dataset 'npz', but of synth"),
        ("--members.pixls 8", "unknown option --members.pixls: dataset 'npz' has no"),
        ("--augment.crop_mi 0.3", "did you mean 'augment.crop_min'?"),
        ("--augment.flip 2", "--augment.flip must be <= 1"),
        ("--sweep seed=1,2", "--sweep must be known=N,N,.. or query_budget=N,N,.., got 'seed=1,2'"),
        ("--sweep known=1,2", "--sweep known needs positive values (known: 2 or more), got '1,2'"),
        ("--sweep known=4,x", "--sweep known must be list of int, got '4,x'"),
        ("--sweep known=4,4", "a value is given twice in '4,4'"),
        ("--shadows 2 --shadow-encoders x", "give one"),
        ("--shadow.epochs 2", "--shadow.epochs is given without --shadows N"),
        ("--shadow-data synthetic", "--shadow-data is given without --shadows N"),
        ("--shadows 2 --shadow.count 3", "--shadow.count: --shadows N says how many"),
        ("--shadows 2 --shadow.epoch 3", "did you mean 'shadow.epochs'?"),
        ("--shadow-encoders nowhere", "--shadow-encoders 'nowhere': no such folder"),
        ("--config no-such.yaml", "no config file or preset 'no-such.yaml'"),
        ("--encoder timm", "unknown encoder 'timm'"),
        ("--encoder nowhere.pt2", "encoder 'nowhere.pt2': no such file"),
        ("--encoder weights.pth", "encoder 'weights.pth': no such file"),
        ("--encoder torchvision:resnet19", "did you mean 'resnet18'?"),
        ("--encoder tests.auditing.brought:tin", "cannot load encoder"),
        ("--encoder tests.auditing.brought:grey", "the images have 3 channels"),
        ("--encoder tests.auditing.brought:broken", "is not finite for 16 of 16 images (NaN or"),
        (
            "--encoder tests.auditing.brought:rigid --size 16",
            "brought:rigid fails on images of 3x16x16",
        ),
        ("--members synthetic", "--members is given without --nonmembers"),
        ("--nonmembers digits --members= ", "--members must be"),
        ("--members npz:gone.npz --nonmembers digits", "--members: npz: no such file"),
        ("--members digits --nonmembers digits", "share 1797 byte-equal images"),
        ("--known 30", "26 members and 40 non-members are too few for --known 30"),
        ("--query-budget 20", "no attack could run; similarity: --query-budget 20: needs at least"),
        ("--attacks ascent,encodermi-t", "no attack could run; ascent: takes part in the training"),
        ("--attacks encodermi-t,baseline-a", "needs shadow encoders (--shadows N, or"),
    ],
)
def test_flags__one_line_names_the_value(
    flags: str, named: str, audit: Audit, tmp_path: Path
) -> None:
    assert named in refused(audit, flags, tmp_path / "new" / "AUDIT")


def test_encoder__missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--members", "digits", "--nonmembers", "digits"]) == 2
    assert "--encoder is missing: RUN[@round], FILE.pt2" in capsys.readouterr().err


def test_images__neither_side_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--encoder", "tests.auditing.brought:tiny"]) == 2
    assert capsys.readouterr().err == (
        "fedmia: error: --members DATASET and --nonmembers DATASET are missing\n"
    )


def test_images__of_two_sizes_or_channels(audit: Audit, archives: Sides, tmp_path: Path) -> None:
    for name, pixels, channels in (("small", 6, 3), ("grey", 8, 1)):
        other = textures(12, pixels, channels)
        file = write(tmp_path / f"{name}.npz", other.images, other.labels)
        flags = f"--members npz:{archives.members} --nonmembers npz:{file}"
        message = refused(audit, flags, tmp_path / "new" / "AUDIT")
        assert f"--members are images of 3x8x8, --nonmembers of {channels}x{pixels}" in message


def test_images__an_overlap_is_counted_and_its_first_pair_named(
    audit: Audit, archives: Sides, tmp_path: Path
) -> None:
    members, others = textures(20, seed=5), textures(20, seed=6)
    images = others.images.copy()
    images[[3, 9, 11]] = members.images[[7, 2, 5]]
    file = write(tmp_path / "m.npz", members.images, members.labels)
    other = write(tmp_path / "o.npz", images, others.labels)
    flags = f"--members npz:{file} --nonmembers npz:{other}"
    message = refused(audit, flags, tmp_path / "new" / "AUDIT")
    assert "share 3 byte-equal images (the first: member 2, non-member 9)" in message


def test_images__an_empty_folder(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    flags = f"--nonmembers digits --members folder:{tmp_path}/empty"
    message = refused(audit, flags, tmp_path / "new" / "AUDIT")
    assert message.startswith("--members: folder: no images in ")


def test_out__occupied_is_left_as_it_is(audit: Audit, tmp_path: Path) -> None:
    out = tmp_path / "AUDIT"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert "already holds 'notes.txt'" in refused(audit, "", out)
    assert "is a file" in refused(audit, "", out / "notes.txt")
    assert "cannot be made" in refused(audit, "", out / "notes.txt" / "AUDIT")
    for held in ("seed: 7", "- a list", "a: b: c", "\udcff"):
        (out / "config.yaml").write_bytes(held.encode(errors="surrogateescape"))
        assert "already holds another run or audit" in refused(audit, "", out)
        assert (out / "config.yaml").read_bytes() == held.encode(errors="surrogateescape")


def test_out__an_empty_folder_stays_when_nothing_could_run(audit: Audit, tmp_path: Path) -> None:
    out = tmp_path / "AUDIT"
    out.mkdir()
    refused(audit, "--query-budget 20", out)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: b: c", "{file} is not valid YAML: mapping values are not allowed here (line 1)"),
        ("\udcff", "cannot read config file '{file}': not UTF-8 text"),
        ("- encoder", "{file} must hold a mapping of options, holds list"),
        ("", "{file} must hold a mapping of options, holds nothing"),
        ("enccoder: x", "unknown option enccoder in {file}; did you mean 'encoder'?"),
        ("3: x", "{file} is not valid YAML: key '3' is not a name (line 1)"),
        ("encoder: 3", "encoder in {file} must be str, got 3"),
        ("encoder: x\nencoder: y", "{file} is not valid YAML: key 'encoder' is written twice"),
        ("encoder: x\nstd: [1e-3, 0]", "std in {file} must be > 0, got 0.0"),
        ("encoder: x\nknown: [3]", "known in {file} must be int or none, got [3]"),
        ("encoder: x\nattack: 3", "attack in {file} must be a mapping of options, got 3"),
        (
            "encoder: x\nattack: {{lpla: 3}}",
            "attack.lpla in {file} must be a mapping of options, got 3",
        ),
        ("encoder: x\nattacks: similarty", "did you mean 'similarity'?"),
        ("encoder: x\naugment: {{a: 2}}", "unknown option augment.a in {file}"),
        (
            "encoder: x\nmembers_options: {{}}",
            "members_options.OPTION in {file} needs members: DATASET",
        ),
    ],
)
def test_config__broken(text: str, named: str, audit: Audit, tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_bytes(text.format().encode(errors="surrogateescape"))
    message = refused(audit, f"--config {file}", tmp_path / "new" / "AUDIT")
    assert named.format(file=file) in message


def test_known__too_few_for_an_attack_is_said_of_it_alone(audit: Audit, tmp_path: Path) -> None:
    done = audit("--known 2 --attacks similarity,lpla,combined", tmp_path / "AUDIT")
    assert done.code == 0 and done.names() == ["similarity"]
    for name, who in (("lpla", "lpla"), ("combined", "a classifier")):
        assert done.not_run[name] == (
            f"{who} needs at least 2 known members and non-members, got 1 and 1, with a part of 2 "
            "and 2 left out to choose the threshold"
        )
    assert "Not run: lpla: lpla needs at least 2 known" in " ".join(done.out.split())


def test_size__follows_an_encoder_that_takes_one_only(audit: Audit, tmp_path: Path) -> None:
    other = sides(tmp_path, pixels=12)
    done = audit(f"--encoder tests.auditing.brought:rigid {other.flags}", tmp_path / "AUDIT")
    assert done.code == 0 and done.report["split"]["size"] == 32
    assert any("brought to 32x32 pixels" in note for note in done.report["notes"])


def test_names__an_error_says_how_to_write_a_folder_of_images_or_of_transformers(
    audit: Audit, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "vit" / "model.safetensors").write_bytes(b"")
    out, folder = tmp_path / "OUT", tmp_path / "vit"
    for encoder in (folder, folder / "model.safetensors"):
        assert f"--encoder hf:{folder}" in refused(audit, f"--encoder {encoder}", out)
    line = refused(audit, f"--members {tmp_path / 'images'} --nonmembers digits", out)
    assert f"a folder of this name is folder:{tmp_path / 'images'}" in line
