"""Arrays of other frameworks and capsules of DLPack: what is read, what is refused, and that each is deleted once."""

import numpy
import pytest

import fovea
import formulas
from dlpack_capsules import READ_ONLY, Export, Exporter

P = formulas.problem()
OUT, LSE = fovea.attention(*P.inputs)


def keys_of(k):
    return fovea.attention(P.q, k, P.v)


@pytest.mark.parametrize("words", [{}, {"version": (1, 0)}, {"version": (1, 9)}, {"byte_offset": 64},
                                   {"with_strides": False}, {"device": (3, 0)},
                                   {"version": (1, 0), "flags": READ_ONLY}], ids=str)
def test_capsules_are_read_and_deleted_once(words):
    export = Export(P.k, **words)
    out, lse = keys_of(export.capsule)
    assert numpy.array_equal(out, OUT) and numpy.array_equal(lse, LSE)
    assert export.deleted == 1 and export.name.startswith(b"used_dltensor")


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_without_a_deleter(version):
    export = Export(P.k, version=version, with_deleter=False)  # nothing else keeps its memory
    assert numpy.array_equal(keys_of(export.capsule)[0], OUT) and export.deleted == 0


@pytest.mark.parametrize("words, exception, message", [
    ({"name": b"used_dltensor"}, BufferError, 'k: got a capsule named "used_dltensor"; wanted "dltensor".*once'),
    ({"name": b"tensor"}, BufferError, 'k: got a capsule named "tensor"'),
    ({"version": (2, 0)}, BufferError, "k: got a capsule of DLPack 2; wanted one of DLPack 1"),
    ({"version": (0, 9)}, BufferError, "k: got a capsule of DLPack 0; wanted one of DLPack 1"),
    ({"dtype": (2, 32, 2)}, TypeError, "k: got PyCapsule; wanted an array of float32"),
    ({"dtype": (2, 64, 1)}, TypeError, "k: got PyCapsule; wanted an array of float32"),
    ({"dtype": (6, 8, 1)}, TypeError, "k: got PyCapsule; wanted an array of float32"),
    ({"device": (8, 0)}, ValueError, "k: got a device of DLPack's type 8; wanted the CPU or CUDA")], ids=str)
def test_capsules_that_are_refused(words, exception, message):
    export = Export(P.k, **words)
    before = export.name
    with pytest.raises(exception, match=message):
        keys_of(export.capsule)
    # Deleted by the call, or not consumed: then by whoever made it.
    assert export.deleted == (0 if export.name == before else 1)


def test_a_capsule_is_consumed_once():
    export = Export(P.k)
    keys_of(export.capsule)
    with pytest.raises(BufferError, match='k: got a capsule named "used_dltensor"'):
        keys_of(export.capsule)
    assert export.deleted == 1


def test_a_read_only_capsule_as_a_result():
    out = numpy.full_like(OUT, 7)
    with pytest.raises(ValueError, match="out: the array is read-only; wanted one that can be written"):
        fovea.attention(*P.inputs, out=Export(out, version=(1, 0), flags=READ_ONLY).capsule)
    assert (out == 7).all()
    fovea.attention(*P.inputs, out=Export(out, version=(1, 0)).capsule)
    assert numpy.array_equal(out, OUT)


@pytest.mark.parametrize("knows_versions", [True, False])
def test_an_object_is_asked_for_a_capsule(knows_versions):
    exporter = Exporter(Export(P.k, version=(1, 0) if knows_versions else None), knows_versions=knows_versions)
    assert numpy.array_equal(keys_of(exporter)[0], OUT)
    assert exporter.asked == [{"max_version": (1, 0)}, {}][:1 if knows_versions else 2]
    assert exporter.export.deleted == 1


@pytest.mark.parametrize("error, exception, message", [
    (BufferError("not this type"), TypeError, "k: got .*Exporter; wanted an array of float32"),
    (RuntimeError("the device is lost"), RuntimeError, "the device is lost"),
    (KeyboardInterrupt("now"), KeyboardInterrupt, "now")], ids=repr)
def test_an_object_that_raises(error, exception, message):
    with pytest.raises(exception, match=message):
        keys_of(Exporter(Export(P.k), error=error))


def test_an_object_that_exports_something_else():
    export = Export(P.k)
    export.capsule = "no capsule"
    with pytest.raises(BufferError, match='k: got a capsule named ""; wanted "dltensor"'):
        keys_of(Exporter(export))
