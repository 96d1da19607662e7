"""Make up a hospital's folder: a list of images of patients, and an encoder of half of them.

    python examples/hospital.py HOSPITAL

1,200 images of 90 patients from two devices: 12 bits in DICOM (with pydicom, else PNG) and in
16-bit PNG, in three sizes. The list Aufnahmen.csv has a byte order mark and semicolons; file names
with umlauts are written otherwise on the disk than in the list, as some systems do. encoder.pt2
was trained on the images of the list's part "train".
"""

import sys
import unicodedata
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, normalize

PATIENTS, IMAGES, SIDE, BITS = 90, 1200, 32, 12
SIZES = (96, 96), (96, 128), (120, 80)  # rows, columns
NAMES = "Müller", "Köhler", "Weiß", "Jäger", "Özdemir", "Schulz"


def draw_images(rng):
    """Draw each image's patient, device and pixels: what is a patient's own, and what is not."""
    whose = rng.permutation(np.arange(IMAGES) % PATIENTS)
    own = torch.tensor(rng.normal(size=(PATIENTS, 1, 6, 6)), dtype=torch.float32)
    for patient in whose:
        device, size = int(rng.integers(2)), SIZES[rng.integers(3)]
        new = torch.tensor(rng.normal(size=(1, 6, 6)), dtype=torch.float32)
        blobs = interpolate((0.5 * own[patient] + new)[None], size, mode="bicubic")[0, 0].numpy()
        values = blobs + (0.1, 0.2)[device] * rng.normal(size=size)
        scaled = np.clip(values * 400 + 2048, 0, 2**BITS - 1)
        yield int(patient), device, scaled.astype(np.uint16)


def write_dicom(path, values):
    """Write a DICOM file, if pydicom is there; returns whether it is."""
    try:
        from pydicom.dataset import Dataset, FileMetaDataset
        from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid
    except ImportError:
        return False
    scan = Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.file_meta.MediaStorageSOPClassUID = scan.SOPClassUID = SecondaryCaptureImageStorage
    scan.file_meta.MediaStorageSOPInstanceUID = scan.SOPInstanceUID = generate_uid()
    scan.Rows, scan.Columns = values.shape
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, BITS, 11, 0
    scan.SamplesPerPixel, scan.PhotometricInterpretation = 1, "MONOCHROME2"
    scan.WindowCenter, scan.WindowWidth = 2048, 4096
    scan.PixelData = values.tobytes()
    scan.save_as(path, enforce_file_format=True)
    return True


def write_images(folder, drawn):
    """Write the files and the list; returns the images that are trained on, (N, 1, SIDE, SIDE)."""
    lines, trained = ["Datei;Diagnose;Teil;Patient;Klinik"], []
    for number, (patient, device, values) in enumerate(drawn):
        name = f"{NAMES[patient % len(NAMES)]}_{number:04}"
        disk = folder / "bilder" / unicodedata.normalize("NFD", name)
        suffix = ".dcm"
        if device == 1 or not write_dicom(disk.with_suffix(suffix), values):
            suffix = ".png"
            Image.fromarray(values).save(disk.with_suffix(suffix))
        part, finding = ("train", "test")[patient % 2], ("ohne", "Herd")[number % 2]
        clinic = "AB"[patient % 4 // 2]
        lines.append(f"bilder/{name}{suffix};{finding};{part};P{patient:03};{clinic}")
        if part == "train":
            side = min(values.shape)
            top, left = ((length - side) // 2 for length in values.shape)
            square = values[top : top + side, left : left + side].astype(np.float32)
            pixels = torch.from_numpy(square / (2**BITS - 1))[None, None]
            trained.append(interpolate(pixels, SIDE, mode="bilinear", antialias=True))
    (folder / "Aufnahmen.csv").write_text("\n".join([*lines, ""]), encoding="utf-8-sig")
    return (torch.cat(trained) - 0.5) / 0.25


def train_encoder(images, epochs=40):
    """Train a small network by SimCLR with crops alone."""
    widths = 1, 16, 32, 64
    layers = [
        layer
        for low, high in zip(widths, widths[1:], strict=False)
        for layer in (nn.Conv2d(low, high, 3, stride=2, padding=1), nn.ReLU())
    ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            views = [normalize(model(crop(images[rows]))) for _ in range(2)]
            loss = cross_entropy(views[0] @ views[1].T / 0.1, torch.arange(len(rows)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def crop(images):
    """Cut a random square of at least 20 x 20 pixels out of the images, and resize it to theirs."""
    size = int(torch.randint(20, SIDE + 1, ()))
    top, left = torch.randint(SIDE + 1 - size, (2,)).tolist()
    return interpolate(images[:, :, top : top + size, left : left + size], SIDE, mode="bilinear")


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("usage: python examples/hospital.py FOLDER, one that is not there yet")
    folder = Path(sys.argv[1])
    (folder / "bilder").mkdir(parents=True)
    torch.manual_seed(0)
    model = train_encoder(write_images(folder, draw_images(np.random.default_rng(0))))
    batch = {0: torch.export.Dim("images", min=1, max=4096)}
    program = torch.export.export(model, (torch.zeros(2, 1, SIDE, SIDE),), dynamic_shapes=(batch,))
    torch.export.save(program, folder / "encoder.pt2")
    print(f"{folder}: Aufnahmen.csv, bilder, encoder.pt2")
