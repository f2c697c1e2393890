"""MD5 sums of the published CIFAR-C files, as they leave Zenodo's archives: the proof that a file is the official one.

Two independent public data loaders list the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping

from hardtack.data.official.arrays import ArrayFile

PUBLISHED = {
    "cifar10c": {
        "labels": "c439b113295ed5254878798ffe28fd54",
        "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
        "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
        "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
        "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
        "glass_blur": "7361fb4019269e02dbf6925f083e8629",
        "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
        "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
        "snow": "bb238de8555123da9c282dea23bd6e55",
        "frost": "31f6ab3bce1d9934abfb0cc13656f141",
        "fog": "7b397314b5670f825465fbcd1f6e9ccd",
        "brightness": "0a81ef75e0b523c3383219c330a85d48",
        "contrast": "3c8262171c51307f916c30a3308235a8",
        "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
        "pixelate": "0f14f7e2db14288304e1de10df16832f",
        "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
        "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
        "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
        "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
        "saturate": "1cfae0964219c5102abbb883e538cc56",
    },
    "cifar100c": {
        "labels": "bb4026e9ce52996b95f439544568cdb2",
        "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
        "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
        "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
        "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
        "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
        "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
        "zoom_blur": "0204613400c034a81c4830d5df81cb82",
        "snow": "0237be164583af146b7b144e73b43465",
        "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
        "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
        "brightness": "f22d7195aecd6abb541e27fca230c171",
        "contrast": "322bb385f1d05154ee197ca16535f71e",
        "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
        "pixelate": "96c00c60f144539e14cffb02ddbd0640",
        "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
        "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
        "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
        "spatter": "12ccf41d62564d36e1f6a6ada5022728",
        "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
    },
}


def differing(kind: str, files: Mapping[str, ArrayFile]) -> tuple[str, ...]:
    """The names among `files` whose bytes are not the published ones; reads every file whole."""
    return tuple(name for name, file in files.items() if file.md5() != PUBLISHED[kind].get(name))
