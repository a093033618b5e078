"""Crops and flips of images by keys."""

import pytest
import torch
from torch.nn import functional

from support.misuse import assert_mentions, misuse_message
from tacit import Augment
from tacit.core.sample_keys import fold, sample_keys

IMAGES = torch.arange(1.0, 1 + 2 * 3 * 5).view(2, 3, 5).expand(4000, 2, 3, 5)
KEYS = sample_keys(0, 0, 4000)


def by_hand(image, crop, flip):
    """All images that a crop and a flip can make of one."""
    padded = functional.pad(image, (crop,) * 4)
    height, width = image.shape[-2:]
    for mirror in (False, True)[: 1 + flip]:
        for down in range(2 * crop + 1):
            for right in range(2 * crop + 1):
                part = padded[:, down : down + height, right : right + width]
                yield part.flip(-1) if mirror else part


@pytest.mark.parametrize(("crop", "flip"), [(0, True), (1, False), (2, True)])
def test_every_crop_and_flip_is_equally_likely(crop, flip):
    found = Augment(crop, flip)(IMAGES, KEYS)
    expected = list(by_hand(IMAGES[0], crop, flip))
    counts = torch.stack([(found == one).flatten(1).all(1) for one in expected]).sum(1)
    assert int(counts.sum()) == 4000
    mean = 4000 / len(expected)
    assert float((counts - mean).abs().max()) < 5 * mean**0.5


def test_an_image_depends_on_its_own_key_only():
    augment = Augment(2, flip=True)
    together = augment(IMAGES[:12], KEYS[:12])
    assert torch.equal(augment(IMAGES[:1], KEYS[7:8]), together[7:8])
    blocks = augment(IMAGES[:12].reshape(3, 4, 2, 3, 5), KEYS[:12].view(3, 4))
    assert torch.equal(blocks.flatten(0, 1), together)
    assert not torch.equal(augment(IMAGES[:12], fold(KEYS[:12], 1)), together)


def test_nothing_to_do_and_other_types():
    assert torch.equal(Augment()(IMAGES, KEYS), IMAGES)
    whole = Augment(1, flip=True)(IMAGES.to(torch.uint8), KEYS)
    assert torch.equal(whole.float(), Augment(1, flip=True)(IMAGES, KEYS))


@pytest.mark.parametrize("shape", [(5,), (5, 5), (1, 2, 5), (1, 5, 2)])
def test_inputs_that_are_no_images_are_refused(shape):
    assert_mentions(misuse_message(Augment(2).check, shape), str(shape), "crop = 2")


@pytest.mark.parametrize("options", [{"crop": -1}, {"crop": 1.5}, {"flip": 1}])
def test_bad_options_are_refused(options):
    misuse_message(Augment, **options)
