"""Every format that is accepted is opened, and bytes that are none are named."""

import io

import numpy as np
import pytest
from PIL import Image

from hardtack.base.errors import UserError
from hardtack.data.decode import FORMATS, decode_bytes

PICTURE = Image.fromarray(np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3))


@pytest.mark.parametrize("name", [*FORMATS, "MPO"])
def test_a_format_is_opened(name):
    file = io.BytesIO()
    PICTURE.save(file, format=name)
    image = decode_bytes(file.getvalue(), "picture")
    assert image.shape == (32, 32, 3)
    lossy = ("JPEG", "MPO", "WEBP", "GIF")
    assert name in lossy or np.array_equal(image, np.asarray(PICTURE))


def test_bytes_that_are_no_image_say_so():
    with pytest.raises(UserError, match="cannot read the image picture: cannot identify image file"):
        decode_bytes(b"nonsense", "picture")
