"""What an audit says in the terminal of what it guessed, and the way out that its errors name."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.auditing.conftest import MEMBERS, NONMEMBERS, Audit, Sides, sides, textures


def pictures(folder: Path, broken: int) -> Sides:
    """Folders of colour images, some of those of members cut off."""
    images = textures(MEMBERS + NONMEMBERS).images.transpose(0, 2, 3, 1)
    for at, pixels in enumerate(images):
        file = folder / ("members" if at < MEMBERS else "nonmembers") / f"{at:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
        if at < broken:
            file.write_bytes(file.read_bytes()[:40])
    return Sides(folder / "members", folder / "nonmembers")


def test_gray_images__the_error_names_channels_and_they_do(audit: Audit, tmp_path: Path) -> None:
    gray = sides(tmp_path, channels=1)
    done = audit(gray.flags, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert "--channels rgb repeats the gray channel" in done.err
    done = audit(f"{gray.flags} --channels rgb", tmp_path / "A")
    assert done.code == 0 and done.report["split"]["channels"] == 3


def test_unreadable_images__the_error_names_the_flag_and_the_report_counts(
    audit: Audit, tmp_path: Path
) -> None:
    both = pictures(tmp_path / "images", broken=3)
    flags = f"--members folder:{both.members} --nonmembers folder:{both.nonmembers}"
    done = audit(flags, tmp_path / "A")
    assert done.code == 2 and not (tmp_path / "A").exists()
    assert "3 images (" in done.err and "--skip-unreadable leaves them out" in done.err
    done = audit(f"{flags} --skip-unreadable", tmp_path / "A")
    assert done.code == 0, done.err
    split = done.report["split"]
    assert split["known_members"] + split["scored_members"] == MEMBERS - 3
    assert "3 images" in done.err and any("3 images" in note for note in done.report["notes"])
