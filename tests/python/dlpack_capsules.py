"""Capsules of DLPack made by hand, with what no framework here exports: other versions, devices, types and flags."""

import ctypes

FLOAT, CPU, READ_ONLY = 2, 1, 1


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", Type),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


_new, _rename, _name = (getattr(ctypes.pythonapi, f"PyCapsule_{word}") for word in ("New", "SetName", "GetName"))
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


class Export:
    """A capsule over the memory of a NumPy array. `deleted` counts the calls of its deleter."""

    def __init__(self, array, name=None, version=None, flags=0, device=(CPU, 0), dtype=(FLOAT, 32, 1), byte_offset=0,
                 with_strides=True, with_deleter=True):
        self.array, self.deleted = array, 0
        self._deleter = DELETER(self._delete) if with_deleter else DELETER()
        numbers = ctypes.c_int64 * array.ndim
        self._shape = numbers(*array.shape)
        self._strides = numbers(*(stride // array.itemsize for stride in array.strides))
        tensor = Tensor(array.ctypes.data - byte_offset, Device(*device), array.ndim, Type(*dtype), self._shape,
                        self._strides if with_strides else None, byte_offset)
        if version is None:
            self._managed = Managed(tensor, None, self._deleter)
        else:
            self._managed = Versioned((ctypes.c_uint32 * 2)(*version), None, self._deleter, flags, tensor)
        # A capsule does not copy its name.
        self._named = name or (b"dltensor" if version is None else b"dltensor_versioned")
        self.capsule = _new(ctypes.addressof(self._managed), self._named, None)

    def _delete(self, _):
        self.deleted += 1

    @property
    def name(self):
        return _name(self.capsule)


class Exporter:
    """An object with the methods of DLPack. `asked` holds the keywords of each call."""

    def __init__(self, export, device=(CPU, 0), knows_versions=True, error=None):
        self.export, self.device, self.knows_versions, self.error = export, device, knows_versions, error
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **words):
        self.asked.append(words)
        if not self.knows_versions and "max_version" in words:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if self.error is not None:
            raise self.error
        return self.export.capsule
