"""Arrays in files: every name is read back, and any other file is an error that allocates no memory."""

import errno
import io
import os
import pathlib
import pickle
import random
import re
import stat
import struct
import subprocess
import sys
import threading
import zipfile
import zlib

import numpy as np
import pytest
import safetensors
import tensorkv as mx

NAMES = [
    "w",
    "w.npy",
    "w.npy.npy",
    ".npy",
    "",
    "1",
    1,
    -1,
    0,
    2**70,
    "a\0b",
    "a",
    "a:b",
    "/etc/x",
    "x/",
    "ü",
    "%41",
    "A",
]
NAMES += ["\ud800", "a\nb", "file", "dict", "key:float32:w", "\u2028", "n" * 60_000, "ü" * 5_000]


def bits(data):
    """Return a comparable value, equal for equal results."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    return type(data), [(type(n), n, a.dtype_name, a.shape, a._numpy_for_reading().tobytes()) for n, a in pairs]


def test_every_name_comes_back_with_its_type_and_its_array(tmp_path):
    data = {name: mx.nd.full((2,), i) for i, name in enumerate(NAMES)}
    mx.nd.save(tmp_path / "f", data)
    assert bits(mx.nd.load(tmp_path / "f")) == bits(data)
    for name in NAMES:
        mx.nd.save(tmp_path / "f", {name: mx.nd.ones(())})
        assert list(mx.nd.load(tmp_path / "f")) == [name]


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
)
def test_every_dtype_and_shape_comes_back(tmp_path, dtype):
    for shape in ((), (0,), (3,), (2, 0, 4), (2, 3, 4), (1,) * 8):
        data = [mx.nd.ones(shape, dtype=dtype), mx.nd.array(np.arange(6).reshape(2, 3)).astype(dtype)]
        mx.nd.save(tmp_path / "f", data)
        assert bits(mx.nd.load(tmp_path / "f")) == bits(data)
    turned = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.savez(tmp_path / "t.npz", **{"item:float32:0": turned})
    assert mx.nd.load(tmp_path / "t.npz")[0].asnumpy().tolist() == turned.tolist()


def test_numpy_reads_the_files_and_files_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "f.npz"
    mx.nd.save(path, {"w": mx.nd.ones((2,)), "w.npy": mx.nd.zeros((2,))})
    with np.load(path) as files:
        assert files["key:float32:w"].tolist() == [1, 1]
    np.savez(path, **{"key:float32:w": np.ones(2, np.float32), "key:int64:1": np.zeros(1, np.int64)})
    assert list(mx.nd.load(path)) == ["w", "1"]


@pytest.mark.parametrize("name", [None, 1.0, (1,), b"w", True, "x" * 60_001, "\0" * 30_000], ids=repr)
def test_a_name_that_no_file_can_hold_is_refused_and_the_old_file_stays(tmp_path, name):
    mx.nd.save(tmp_path / "f", [mx.nd.ones((1,))])
    with pytest.raises(mx.errors.InvalidArgumentError, match="save: the name"):
        mx.nd.save(tmp_path / "f", {name: mx.nd.ones((1,))})
    assert len(mx.nd.load(tmp_path / "f")) == 1 and os.listdir(tmp_path) == ["f"]


# ---- paths


def test_a_new_file_has_the_permissions_that_open_gives_and_an_old_one_keeps_its_own(tmp_path):
    path = tmp_path / "f"
    before = os.umask(0o027)
    try:
        mx.nd.save(path, [])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    mx.nd.save(path, [mx.nd.ones((1,))])
    assert stat.S_IMODE(path.stat().st_mode) == 0o604 and len(mx.nd.load(path)) == 1


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "f", tmp_path / "link"
    link.symlink_to(target)
    for count in (1, 2):  # the first makes the file
        mx.nd.save(link, [mx.nd.ones((1,))] * count)
        assert link.is_symlink() and len(mx.nd.load(target)) == count
    assert os.listdir(target.parent) == ["f"]


def test_paths_may_be_bytes_and_errors_name_them(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    mx.nd.save(path, [mx.nd.ones((1,))])
    assert len(mx.nd.load(path)) == 1
    with open(path, "wb") as file:
        file.write(b"x")
    with pytest.raises(mx.errors.InvalidArgumentError, match="udcff': not written by tkv.nd.save"):
        mx.nd.load(path)


@pytest.mark.parametrize("path", ["x\0y", b"x\0y", pathlib.Path("x\0y")])
def test_a_path_with_a_zero_byte_is_refused_by_its_name(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for form in ("npz", "mxnet"):
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"^save: the path 'x' goes on behind a zero byte"):
            mx.nd.save(path, mx.nd.ones((2,)), format=form)
    with pytest.raises(mx.errors.InvalidArgumentError, match=r"^load: the path 'x' goes on behind a zero byte"):
        mx.nd.load(path)
    assert os.listdir(tmp_path) == []


def test_what_is_no_regular_file_is_neither_replaced_nor_read(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(mx.errors.InvalidArgumentError, match="no regular file"):
        mx.nd.save(fifo, [])
    read = []
    thread = threading.Thread(target=lambda: read.append(error_of(fifo)), daemon=True)
    thread.start()
    thread.join(30)
    assert "no regular file" in read[0] and stat.S_ISFIFO(fifo.stat().st_mode)
    with pytest.raises(IsADirectoryError):
        mx.nd.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        mx.nd.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        mx.nd.save(tmp_path / "none" / "f", [])


# ---- hostile files


def error_of(path):
    with pytest.raises(mx.errors.InvalidArgumentError) as caught:
        mx.nd.load(path)
    assert type(caught.value) is mx.errors.InvalidArgumentError
    text = str(caught.value)
    assert text.startswith(f"load {str(path)!r}: not written by tkv.nd.save") and len(text) < 800
    return text


SEEDS = {
    "dict": {"w": mx.nd.full, "b.npy": mx.nd.full, 3: mx.nd.full},
    "list": [mx.nd.full] * 2,
    "empty list": [],
    "empty dict": {},
}


def seed(name):
    data = SEEDS[name]
    if isinstance(data, dict):
        return {n: make((2,), i, dtype="int32") for i, (n, make) in enumerate(data.items())}
    return [make((i, 2), i, dtype="bfloat16") for i, make in enumerate(data)]


@pytest.fixture(params=SEEDS)
def whole(request, tmp_path):
    mx.nd.save(tmp_path / "f", seed(request.param))
    return bits(seed(request.param)), (tmp_path / "f").read_bytes()


def is_refused_or_equal(path, content, wanted):
    path.write_bytes(content)
    try:
        found = mx.nd.load(path)
    except mx.errors.InvalidArgumentError:
        error_of(path)
        return True
    assert bits(found) == wanted
    return False


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path, whole):
    for size in range(len(whole[1])):
        (tmp_path / "cut").write_bytes(whole[1][:size])
        error_of(tmp_path / "cut")


def test_a_file_with_more_at_either_end_is_refused(tmp_path, whole):
    for content in (whole[1] + b"\0", b"\0" + whole[1], whole[1] * 2, whole[1] + bytes(100)):
        (tmp_path / "more").write_bytes(content)
        error_of(tmp_path / "more")


@pytest.mark.edges
@pytest.mark.parametrize("flip", [0xFF, 0x01, 0x80, 0x20])
def test_a_flipped_byte_is_refused_or_is_one_that_says_nothing(tmp_path, whole, flip):
    wanted, content = whole
    refused = 0
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= flip
        refused += is_refused_or_equal(tmp_path / "f", changed, wanted)
    assert refused > len(content) / 3  # the rest are times, versions and attributes of the archive


@pytest.mark.edges
def test_bytes_that_are_overwritten_lost_or_doubled_are_refused_or_say_nothing(tmp_path, whole):
    wanted, content = whole
    dice = random.Random(0)
    for _ in range(1000):
        a, b = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        piece = bytes(dice.choice((0, 255, dice.randrange(256))) for _ in range(min(b - a, dice.choice((2, 4, 8)))))
        changed = dice.choice((content[:a] + piece + content[a + len(piece) :], content[:a] + content[b:]))
        is_refused_or_equal(tmp_path / "f", changed, wanted)


def test_a_record_that_is_taken_out_of_the_directory_is_missed(tmp_path):
    path = tmp_path / "f"
    mx.nd.save(path, {"a": mx.nd.ones((2,)), "b": mx.nd.zeros((2,))})
    content = path.read_bytes()
    start, second = content.index(b"PK\1\2"), content.rindex(b"PK\1\2")
    end = content.rindex(b"PK\5\6")
    for cut in ((start, second), (second, end)):
        directory = (content[:end])[start : cut[0]] + content[cut[1] : end]
        for offset in (start, start - (cut[1] - cut[0])):
            tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), max(offset, 0), 0)
            path.write_bytes(content[:start] + directory + tail)
            error_of(path)


HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"


def archive(*members, compression=zipfile.ZIP_STORED):
    """Return an archive of members, each a name and its bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as zipped:
        for name, content in members:
            zipped.writestr(name, content)
    return out.getvalue()


def npy(shape="(2,)", descr="<f4", content=bytes(8), text=None, version=b"\1\0"):
    header = (text or HEADER.format(descr, shape)).encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(header) & 0xFFFF) + header + content


def overlapping():
    """Return an archive whose members are one and the same, a thousand times."""
    one = archive(("item:float32:0.npy", npy()))
    start, end = one.index(b"PK\1\2"), one.rindex(b"PK\5\6")
    directory = one[start:end] * 1000
    return one[:start] + directory + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1000, 1000, len(directory), start, 0)


KEY = "key:float32:w.npy"
HOSTILE = {
    "a shape of 2**40": archive((KEY, npy("(1099511627776,)"))),
    "a shape beyond 64 bits": archive((KEY, npy("(9999999999999999999, 9999999999999999999)"))),
    "a product that wraps": archive((KEY, npy("(4294967296, 4294967296)", content=b""))),
    "no elements, extents beyond 64 bits": archive((KEY, npy("(0, 9999999999999999999)", content=b""))),
    "a negative extent": archive((KEY, npy("(-2,)"))),
    "too many axes": archive((KEY, npy("(" + "1, " * 200 + ")", content=bytes(4)))),
    "64 axes": archive((KEY, npy("(" + "1, " * 64 + ")", content=bytes(4)))),
    "fewer bytes than the shape": archive((KEY, npy("(3,)"))),
    "more bytes than the shape": archive((KEY, npy("(1,)"))),
    "another dtype than the tag": archive((KEY, npy("(2,)", "<i4"))),
    "a wider dtype than the tag": archive((KEY, npy("(1,)", "<f8"))),
    "big endian": archive((KEY, npy("(2,)", ">f4"))),
    "objects": archive((KEY, npy("(1,)", "|O"))),
    "a record dtype": archive((KEY, npy(text="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"))),
    "a deep header": archive((KEY, npy(text="(" * 5000))),
    "a header that calls": archive((KEY, npy(text="{'descr': __import__('os').abort(), }"))),
    "another version of npy": archive((KEY, npy(version=b"\3\0"))),
    "no npy": archive((KEY, b"hello")),
    "an empty member": archive((KEY, b"")),
    "an unknown dtype": archive(("key:float99:w.npy", npy())),
    "an unknown kind": archive(("what:float32:w.npy", npy())),
    "a name of another make": archive(("arr_0.npy", npy())),
    "no .npy": archive(("key:float32:w", npy())),
    "a list without a start": archive(("item:float32:1.npy", npy())),
    "a list in disorder": archive(("item:float32:1.npy", npy()), ("item:float32:0.npy", npy())),
    "a list that is a dict": archive(("item:float32:0.npy", npy()), (KEY, npy())),
    "a place that is no number": archive(("item:float32:x.npy", npy())),
    "a number with a zero before": archive(("int:float32:01.npy", npy())),
    "a long number": archive(("int:float32:" + "9" * 5000 + ".npy", npy())),
    "one name twice, quoted": archive((KEY, npy()), ("quoted:float32:%77.npy", npy())),
    "a compressed bomb": archive((KEY, npy("(25000000,)", content=bytes(10**8))), compression=zipfile.ZIP_DEFLATED),
    "members that overlap": overlapping(),
    "a comment": archive((KEY, npy())).replace(b"\0\0PK", b"\0\0PK")[:-2] + b"\2\0hi",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path, name):
    (tmp_path / "f").write_bytes(HOSTILE[name])
    error_of(tmp_path / "f")


def test_the_hostile_files_are_hostile_by_what_they_are_called(tmp_path):
    (tmp_path / "f").write_bytes(archive((KEY, npy())))
    assert mx.nd.load(tmp_path / "f")["w"].asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("field", ["size", "crc", "offset", "method", "flags"])
def test_a_directory_that_lies_about_a_member_is_refused(tmp_path, field):
    content = bytearray(archive((KEY, npy())))
    start = content.index(b"PK\1\2")
    at, form = {"size": (20, "<II"), "crc": (16, "<I"), "offset": (42, "<I"), "method": (10, "<H"), "flags": (8, "<H")}[
        field
    ]
    for value in (1, 3, 8, 9, 12, 14, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF):
        changed = bytearray(content)
        values = (value, value) if field == "size" else (value & (0xFFFF if form == "<H" else 0xFFFFFFFF),)
        struct.pack_into(form, changed, start + at, *values)
        (tmp_path / "f").write_bytes(changed)
        error_of(tmp_path / "f")


def test_contents_that_changed_with_their_checksum_in_the_directory_only_are_what_the_file_says(tmp_path):
    content = bytearray(archive((KEY, npy(content=struct.pack("<2f", 1, 2)))))
    at = content.index(struct.pack("<2f", 1, 2))
    content[at : at + 4] = struct.pack("<f", 5)
    (tmp_path / "f").write_bytes(content)
    assert "CRC" in error_of(tmp_path / "f")
    member = npy(content=struct.pack("<2f", 5, 2))
    struct.pack_into("<I", content, content.index(b"PK\1\2") + 16, zlib.crc32(member))
    (tmp_path / "f").write_bytes(content)
    assert mx.nd.load(tmp_path / "f")["w"].asnumpy().tolist() == [5, 2]


def test_hostile_files_take_no_more_memory_than_they_have_bytes(tmp_path):
    for i, content in enumerate(HOSTILE.values()):
        (tmp_path / str(i)).write_bytes(content)
    script = """if True:
        import os, resource, sys
        import tensorkv as mx
        mx.nd.ones((8,)).asnumpy(); import struct, zipfile
        now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (48 << 20),) * 2)
        for name in os.listdir(sys.argv[1]):
            try:
                mx.nd.load(os.path.join(sys.argv[1], name))
            except mx.errors.InvalidArgumentError:
                continue
            sys.exit(name)
    """
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_pickle_is_named_as_one_and_never_read(tmp_path):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "p").write_bytes(pickle.dumps({"w": [1.0, 2.0]}, protocol))
        assert "it looks like a pickle" in error_of(tmp_path / "p")


def test_a_folder_that_is_not_there_is_told_with_the_path_that_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        mx.nd.save(tmp_path / "no" / "w", [mx.nd.ones((2,))])
    assert caught.value.filename == str(tmp_path / "no" / "w")


def test_every_error_of_the_system_is_an_error_of_the_package(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    under = tmp_path / "file" / "w"
    with pytest.raises(mx.errors.FileError, match="^save: .*/w: Not a directory") as caught:
        mx.nd.save(under, [mx.nd.ones((2,))])
    assert isinstance(caught.value, NotADirectoryError) and caught.value.filename == str(under)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(mx.errors.ResourceExhaustedError, match="^save: .*/file: No space left"):
            mx.nd.save(tmp_path / "file", [mx.nd.ones((2,))])
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_bytes() == b""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(mx.errors.FailedPreconditionError) as caught:
        mx.nd.save(tmp_path / "file", [mx.nd.ones((2,))])
    assert isinstance(caught.value, PermissionError)


MXNET_FILES = pathlib.Path(__file__).parent / "mxnet_files"
MXNET_CONTENTS = {  # as MXNet 1.9.1 has written them
    "list": [np.array([1, 2, 3], np.float32), np.array([[1, 2], [3, 4]])],
    "dict": {
        **{
            f"arg:{dtype}": np.arange(6, dtype=dtype).reshape(2, 3)
            for dtype in ["float16", "float32", "float64", "uint8", "int8", "int32", "int64"]
        },
        "aux:ü": np.array([7.5], np.float32),
    },
    "single": [np.ones(2, np.float32)],
    "empty": [],
    "rows": {"r": np.float32([[0] * 3, [2] * 3, [0] * 3, [2] * 3, [0] * 3]), "z": np.zeros((4, 2), np.float32)},
    "np": {
        "s": np.array(3.5, np.float32),
        "e": np.zeros((0, 3), np.float32),
        "b": np.array([True, False]),
        "w": np.ones((2, 2), np.float32),
    },
}


def dense(data):
    """Return the arrays of a list or a dict, each as NumPy's, in the same form."""

    def as_numpy(a):
        return (a.tostype("default") if a.stype == "row_sparse" else a).asnumpy()

    return {n: as_numpy(a) for n, a in data.items()} if isinstance(data, dict) else [as_numpy(a) for a in data]


def dtypes(data):
    """Return the dtypes of the arrays of a list or a dict."""
    return [array.dtype for array in (data.values() if isinstance(data, dict) else data)]


@pytest.mark.parametrize("name", MXNET_CONTENTS)
def test_files_of_mxnet_are_read_and_written(tmp_path, name):
    loaded, contents = mx.nd.load(MXNET_FILES / f"{name}.params"), MXNET_CONTENTS[name]
    np.testing.assert_equal(dense(loaded), contents)
    assert dtypes(dense(loaded)) == dtypes(contents)
    mx.nd.save(tmp_path / "f", loaded, format="mxnet")
    assert (tmp_path / "f").read_bytes() == (MXNET_FILES / f"{name}.params").read_bytes()


def test_files_of_the_first_releases_of_mxnet_are_read(tmp_path):
    values = np.float32([[1, 2, 3]])
    context_and_type = struct.pack("<iii", 1, 0, 0)
    oldest = struct.pack("<III", 2, 1, 3)
    first = struct.pack("<Iiqq", 0xF993FAC8, 2, 1, 3)
    for shape in (oldest, first):
        body = shape + context_and_type + values.tobytes()
        (tmp_path / "f").write_bytes(struct.pack("<QQQ", 0x112, 0, 2) + 2 * body + struct.pack("<Q", 0))
        np.testing.assert_equal(dense(mx.nd.load(tmp_path / "f")), [values, values])


def test_an_array_of_mxnet_that_is_not_here_is_named():
    with pytest.raises(mx.errors.InvalidArgumentError, match="storage type csr, which is not here"):
        mx.nd.load(MXNET_FILES / "csr.params")


@pytest.mark.parametrize("name", [*MXNET_CONTENTS, "csr"])
def test_no_byte_of_a_file_of_mxnet_is_trusted(tmp_path, name):
    whole = (MXNET_FILES / f"{name}.params").read_bytes()
    draw = random.Random(name)
    path = tmp_path / "f"
    for end in range(16, len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(mx.errors.InvalidArgumentError):
            mx.nd.load(path)
    for _ in range(500):
        changed = bytearray(whole)
        at = draw.randrange(16, len(whole))
        changed[at : at + 8] = draw.choice([b"\xff" * 8, bytes(8), draw.randbytes(8), b"\xff" * 7 + b"\x7f"])
        path.write_bytes(bytes(changed))
        try:
            loaded = mx.nd.load(path)
        except (mx.errors.InvalidArgumentError, mx.errors.ResourceExhaustedError):
            continue
        arrays = loaded.values() if isinstance(loaded, dict) else loaded
        assert sum(a.data.size if a.stype == "row_sparse" else a.size for a in arrays) <= len(whole)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: {1: mx.nd.ones((2,))}, "the name 1 has type int"),
        (lambda: {"w": np.ones(2)}, "'w' has type ndarray, an NDArray is needed"),
        (lambda: [mx.nd.array([1], dtype="float8_e4m3fn")], "MXNet has no float8_e4m3fn"),
    ],
)
def test_an_array_that_mxnet_does_not_have_is_not_written(tmp_path, data, said):
    (tmp_path / "f").write_bytes(b"before")
    with pytest.raises(mx.errors.InvalidArgumentError, match=re.escape(said)):
        mx.nd.save(tmp_path / "f", data(), format="mxnet")
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"before"


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(mx.errors.InvalidArgumentError, match="format='hdf5'; there are 'npz' and 'mxnet'"):
        mx.nd.save(tmp_path / "f", [mx.nd.ones((2,))], format="hdf5")


def test_a_safetensors_file_is_named_with_what_reads_it(tmp_path):
    kv = mx.kv.create()
    kv.init("w", mx.nd.ones((2,)))
    snapshot = kv.save(tmp_path)
    assert safetensors.safe_open(snapshot + "/model-00001-of-00001.safetensors", "np").metadata() == {"format": "pt"}
    with pytest.raises(mx.errors.InvalidArgumentError, match="it is a safetensors file: kv.load reads"):
        mx.nd.load(snapshot + "/model-00001-of-00001.safetensors")
