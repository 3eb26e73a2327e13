"""Images in folders: one's own, and MSTAR."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from continual_crust.data import Dataset, load_dataset
from continual_crust.data.folder import _natural
from continual_crust.errors import InputError


def grey(value: int = 100, size: tuple[int, int] = (8, 8), mode: str = "L") -> Image.Image:
    return Image.new(mode, size, value)


def save(path: Path, image: Image.Image | None = None, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or grey()).save(path, **options)
    return path


def tree(root: Path, train: str = "train", test: str = "test") -> Path:
    """Two classes of one grey 8 × 8 image each, to train and to test."""
    for part in (train, test):
        for value, name in enumerate(("cat", "dog")):
            save(root / part / name / "0.png", grey(100 + value))
    return root


def with_image(root: Path, name: str, image: Image.Image, **options: object) -> Dataset:
    """The data set with one more training image, the last of the class of dogs."""
    tree(root)
    save(root / "train" / "dog" / name, image, **options)
    return load_dataset("folder", root)


def test_classes_are_folders(tmp_path: Path) -> None:
    dataset = load_dataset("folder", tree(tmp_path))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train_images.shape == (2, 1, 8, 8)
    assert dataset.train_images[:, 0, 0, 0].tolist() == [100, 101]
    assert dataset.train_labels.tolist() == dataset.test_labels.tolist() == [0, 1]


def test_classes_and_images_are_in_natural_order(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("class 10", "class 9", "Class 1"):
            for number in (10, 2, 1):
                save(tmp_path / part / name / f"{number}.png", grey(number))
    dataset = load_dataset("folder", tmp_path)
    assert dataset.class_names == ("Class 1", "class 9", "class 10")
    assert dataset.train_images[:, 0, 0, 0].tolist() == [1, 2, 10] * 3


@given(st.lists(st.text("aA01²٣. ", max_size=6)))
def test_natural_order_does_not_depend_on_the_order_before(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(names, key=_natural) == sorted(backwards, key=_natural)


def test_litter_is_ignored(tmp_path: Path) -> None:
    tree(tmp_path)
    for litter in (
        ".DS_Store",
        "train/.DS_Store",
        "train/cat/.DS_Store",
        "test/cat/Thumbs.db",
        "train/notes.txt",
    ):
        (tmp_path / litter).write_bytes(b"litter")
    (tmp_path / "train" / ".cache").mkdir()
    for litter in ("$RECYCLE.BIN", "System Volume Information", "lost+found", "@eaDir", "#recycle", "__MACOSX"):
        save(tmp_path / "train" / litter / "1.png", grey(1))  # no class of deleted images, and of small copies
        save(tmp_path / "test" / "cat" / litter / "1.png", grey(1))
    assert load_dataset("folder", tmp_path).train_images.shape == (2, 1, 8, 8)


def test_one_colour_image_makes_all_colour(tmp_path: Path) -> None:
    dataset = with_image(tmp_path, "1.png", Image.new("RGB", (8, 8), (1, 2, 3)))
    assert dataset.image_shape == (3, 8, 8)
    assert dataset.train_images[0, :, 0, 0].tolist() == [100, 100, 100]
    assert dataset.train_images[-1, :, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "image", "value"),
    [
        ("1.png", Image.fromarray(np.full((8, 8), 51 * 257, np.uint16)), [51]),
        ("1.png", Image.fromarray(np.full((8, 8), 65_535, np.uint16)), [255]),
        ("1.tif", Image.fromarray(np.full((8, 8), 51 * 257, np.uint16)), [51]),
        ("1.tif", Image.fromarray(np.full((8, 8), 51 * 257, np.int32)), [51]),
        ("1.png", Image.new("1", (8, 8), 1), [255]),
        ("1.png", Image.new("LA", (8, 8), (7, 255)), [7]),
        ("1.png", Image.new("LA", (8, 8), (7, 0)), [255]),
        ("1.png", Image.new("RGBA", (8, 8), (0, 100, 200, 255)), [0, 100, 200]),
        ("1.png", Image.new("RGBA", (8, 8), (0, 100, 200, 0)), [255, 255, 255]),
        ("1.gif", Image.new("RGB", (8, 8), (255, 0, 0)).convert("P"), [255, 0, 0]),
        ("1.jpg", Image.new("CMYK", (8, 8), (0, 0, 0, 0)), [255, 255, 255]),
        ("1.webp", Image.new("RGB", (8, 8), (255, 255, 255)), [255, 255, 255]),
        ("1.bmp", grey(9), [9]),
    ],
)
def test_every_kind_of_pixel_becomes_bytes(name: str, image: Image.Image, value: list[int], tmp_path: Path) -> None:
    dataset = with_image(tmp_path, name, image)
    assert dataset.train_images[-1, :, 4, 4].tolist() == value


def test_a_white_drawing_on_nothing_does_not_vanish(tmp_path: Path) -> None:
    drawing = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    drawing.paste((255, 255, 255, 255), (2, 2, 6, 6))
    pixels = with_image(tmp_path, "1.png", drawing).train_images
    assert any(image.min() == 0 and image.max() == 255 for image in pixels)


def test_a_transparent_palette_colour_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30])
    dataset = with_image(tmp_path, "1.png", image, transparency=0)
    assert dataset.train_images[-1].unique().tolist() == [255]


def test_a_camera_held_sideways_is_understood(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8), np.uint8)
    pixels[:, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise, so the left column belongs on top
    dataset = with_image(tmp_path, "1.png", Image.fromarray(pixels), exif=exif)
    assert dataset.train_images[-1, 0, 0].tolist() == [255] * 8
    assert not dataset.train_images[-1, 0, 1:].any()


def mixed_sizes(root: Path) -> Path:
    """Mostly 6 wide and 10 high, one larger; a white frame around a black centre of 2 × 2."""
    for part in ("train", "test"):
        for name in ("a", "b"):
            for number, (width, height) in enumerate([(6, 10), (6, 10), (12, 4)]):
                pixels = np.full((height, width), 255, np.uint8)
                pixels[height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1] = 0
                save(root / part / name / f"{number}.png", Image.fromarray(pixels))
    return root


def test_mixed_sizes_become_the_most_common_one(tmp_path: Path) -> None:
    assert load_dataset("folder", mixed_sizes(tmp_path)).image_shape == (1, 10, 6)


def test_the_size_asked_for_is_given(tmp_path: Path) -> None:
    assert load_dataset("folder", mixed_sizes(tmp_path), image_size=16).image_shape == (1, 16, 16)


def test_a_crop_keeps_the_centre_and_pads_with_black(tmp_path: Path) -> None:
    mixed_sizes(tmp_path)
    dataset = load_dataset("folder", tmp_path, crop=True)
    assert dataset.image_shape == (1, 4, 4), "the largest square that every image has"
    centre, frame = dataset.train_images[:, 0, 1:3, 1:3], dataset.train_images.sum((1, 2, 3))
    assert not centre.any()
    assert frame.eq(12 * 255).all()
    larger = load_dataset("folder", tmp_path, crop=True, image_size=8).train_images
    assert larger[0, 0, 0].tolist() == [0] + [255] * 6 + [0]


def test_large_images_are_scaled_down_in_proportion(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("a", "b"):
            save(tmp_path / part / name / "0.png", grey(size=(896, 448)))
    assert load_dataset("folder", tmp_path).image_shape == (1, 112, 224)


def test_no_file_stays_open(tmp_path: Path) -> None:
    tree(tmp_path)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    load_dataset("folder", tmp_path)
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


def huge_png(path: Path, side: int) -> None:
    """A file of a few bytes that says it has side × side pixels."""
    content = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    for chunk in (b"IHDR" + header, b"IDAT" + zlib.compress(b"\0")):
        content += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    path.write_bytes(content)


@pytest.mark.parametrize("side", [8_001, 10_000, 30_000])
def test_an_image_that_would_fill_the_memory_is_refused(
    side: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    huge_png(tree(tmp_path) / "test" / "dog" / "huge.png", side)
    with pytest.raises(InputError, match=r"huge\.png") as raised:
        load_dataset("folder", tmp_path)
    assert str(raised.value).endswith("has more than 64,000,000 pixels; make it smaller, cut it up or remove it.")
    assert not recwarn.list


def break_tree(root: Path, what: str) -> None:
    dog = root / "train" / "dog" / "0.png"
    if what == "no test":
        (root / "test").rename(root / "trial")
    elif what == "test is a file":
        (root / "test").rename(root / "trial")
        (root / "test").touch()
    elif what == "no classes":
        (root / "train").rename(root / "old")
        (root / "train").mkdir()
    elif what == "empty class":
        (root / "train" / "empty").mkdir()
    elif what == "only to test":
        save(root / "test" / "emu" / "0.png")
    elif what == "only to train":
        save(root / "train" / "emu" / "0.png")
    elif what == "nested":
        save(root / "train" / "dog" / "puppies" / "0.png")
    elif what == "cut":
        dog.write_bytes(dog.read_bytes()[:45])
    elif what == "text":
        (root / "train" / "dog" / "notes.txt").write_text("no image")
    elif what == "empty file":
        dog.write_bytes(b"")
    elif what == "floating point":
        save(root / "train" / "dog" / "1.tif", Image.new("F", (8, 8), 0.5))
    elif what == "32 bits":
        save(root / "train" / "dog" / "1.tif", Image.new("I", (8, 8), 70_000))


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("no test", "there is no 'test' in"),
        ("test is a file", r"test cannot be read .*expected your own images"),
        ("no classes", "no class folder in .*train"),
        ("empty class", "class folder .*empty is empty"),
        ("only to test", "no class folder 'emu' in .*train"),
        ("only to train", "no class folder 'emu' in .*test"),
        ("nested", "puppies is no file"),
        ("cut", r"0\.png cannot be read"),
        ("text", r"notes\.txt cannot be read"),
        ("empty file", r"0\.png cannot be read"),
        ("floating point", r"1\.tif has pixels of more than 16 bits"),
        ("32 bits", r"1\.tif has pixels of more than 16 bits"),
    ],
)
def test_a_wrong_folder_is_one_sentence(what: str, says: str, tmp_path: Path) -> None:
    break_tree(tree(tmp_path), what)
    with pytest.raises(InputError, match=says) as raised:
        load_dataset("folder", tmp_path)
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("folder"))


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "tiff", "bmp"])
@given(data=st.data())
def test_a_damaged_image_is_refused_or_harmless(folder: Path, kind: str, data: st.DataObject) -> None:
    path = save(folder / "train" / "dog" / "0.png", grey(), format=kind)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with contextlib.suppress(InputError):
        assert len(load_dataset("folder", folder, image_size=8).train_labels) == 2


@pytest.mark.parametrize("place", [".", "mstar", "MSTAR"])
def test_mstar_is_grey_and_as_large_as_in_the_paper(place: str, tmp_path: Path) -> None:
    tree(tmp_path / place, "train_17deg", "test_15deg")
    save(tmp_path / place / "train_17deg" / "dog" / "1.png", Image.new("RGB", (10, 9)))
    dataset = load_dataset("mstar", tmp_path)
    assert dataset.name == "mstar"
    assert dataset.train_images.shape == (3, 1, 224, 224)
    assert load_dataset("mstar", tmp_path, image_size=32).image_shape == (1, 32, 32)
    assert load_dataset("mstar", tmp_path, crop=True).image_shape == (1, 8, 8)


def test_mstar_cannot_be_downloaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no 'train_17deg' in .*sdms\.afrl\.af\.mil"):
        load_dataset("mstar", tmp_path)
    with pytest.raises(InputError, match=r"cannot be downloaded; .*sdms\.afrl\.af\.mil"):
        load_dataset("mstar", tmp_path, download=True)
