"""Types of the IR: immutable and interned, so that equal types are the same object and compare by identity.

Spelling in the pretty form (and inside `!dialect.type<...>` in the generic form):
    f32  u8  index                      scalars
    tensor<f32[M, K]>                   whole tensor, named symbolic dims
    tile<f32[?64, 32]>                  tile; `?64` is an extent only known at run time, at most 64
    buffer<f32[M, K], global, strides [?, 1]>
    vector<16xf32>  ptr<f32>  token
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias, cast


class Dyn:
    """A dim known only at run time: `M` (named), `?` (unnamed), `?64` (at most 64), `M?64` (both). Interned."""

    __slots__ = ("name", "bound")
    name: str
    bound: int | None
    _cache: ClassVar[dict[tuple[str, int | None], Dyn]] = {}

    def __new__(cls, name: str = "", bound: int | None = None) -> Dyn:
        key = (name, bound)
        self = cls._cache.get(key)
        if self is None:
            self = object.__new__(cls)
            self.name, self.bound = key
            cls._cache[key] = self
        return self

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"?{self.bound}"
        return self.name + bound or "?"

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Dyn], tuple[str, int | None]]:
        return Dyn, (self.name, self.bound)


Dim: TypeAlias = "int | Dyn"
DYN = Dyn()


def dim_bound(dim: Dim) -> int | None:
    """The largest value the dim can have, None when there is no static bound."""
    return dim if isinstance(dim, int) else dim.bound


class Type:
    """Base of all types. Subclasses list their fields in __slots__; construction with equal fields gives the same object."""

    __slots__ = ("text",)
    text: str
    _cache: ClassVar[dict[tuple[Any, ...], Any]] = {}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[Type], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__slots__)


def _shape_text(element: Scalar, shape: tuple[Dim, ...]) -> str:
    return f"{element}[{', '.join(map(str, shape))}]"


def _intern(cls: type[Any], *fields: Any) -> tuple[Any, bool]:
    key = (cls, *fields)
    self = Type._cache.get(key)  # pyright: ignore[reportPrivateUsage]
    if self is not None:
        return self, False
    self = object.__new__(cls)
    for name, field in zip(cls.__slots__, fields):
        setattr(self, name, field)
    Type._cache[key] = self  # pyright: ignore[reportPrivateUsage]
    return self, True


# name -> (kind, bits)
_SCALARS = {
    "f64": ("float", 64), "f32": ("float", 32), "f16": ("float", 16), "bf16": ("float", 16),
    "f8e4m3": ("float", 8), "f8e5m2": ("float", 8),
    "i64": ("int", 64), "i32": ("int", 32), "i16": ("int", 16), "i8": ("int", 8),
    "u64": ("uint", 64), "u32": ("uint", 32), "u16": ("uint", 16), "u8": ("uint", 8),
    "bool": ("bool", 1), "index": ("index", 64),
}  # fmt: skip
SCALAR_NAMES = tuple(_SCALARS)


class Scalar(Type):
    """A number type. `index` is a signed 64-bit integer used for addresses and extents."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Scalar:
        self, new = _intern(cls, name)
        if new:
            if name not in _SCALARS:
                del Type._cache[(cls, name)]
                raise ValueError(f"'{name}' is not a scalar type; known: {', '.join(_SCALARS)}")
            self.text = name
        return cast(Scalar, self)

    @property
    def kind(self) -> str:
        """One of float, int, uint, bool, index."""
        return _SCALARS[self.name][0]

    @property
    def bits(self) -> int:
        return _SCALARS[self.name][1]

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory (a bool takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed, unsigned or index; not bool."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "index", "float")


class TensorType(Type):
    """A whole tensor value. encoding: None = dense; later 'csr', 'n:m', ... (kept as text)."""

    __slots__ = ("shape", "element", "encoding")
    shape: tuple[Dim, ...]
    element: Scalar
    encoding: str | None

    def __new__(cls, shape: tuple[Dim, ...], element: Scalar, encoding: str | None = None) -> TensorType:
        self, new = _intern(cls, tuple(shape), element, encoding)
        if new:
            self.text = f"tensor<{_shape_text(element, shape)}{f', {encoding}' if encoding else ''}>"
        return cast(TensorType, self)


class TileType(Type):
    """A tile value. A `?n` axis holds at most n elements, its extent is carried by the value.

    layout: None until infer-layout chooses one; then the text of a tilelang.ir.layout.Layout."""

    __slots__ = ("shape", "element", "layout")
    shape: tuple[Dim, ...]
    element: Scalar
    layout: str | None

    def __new__(cls, shape: tuple[Dim, ...], element: Scalar, layout: str | None = None) -> TileType:
        self, new = _intern(cls, tuple(shape), element, layout)
        if new:
            self.text = f"tile<{_shape_text(element, shape)}{f', layout {layout}' if layout else ''}>"
        return cast(TileType, self)


class BufferType(Type):
    """Memory: `space` is global, local, shared, accumulator, or a space of the target.

    strides: None = row-major and contiguous; else one entry an axis, in elements, an int or DYN.
    layout: None, or the text of a Layout when the elements are not placed by strides (panels, fractals)."""

    __slots__ = ("shape", "element", "space", "strides", "layout")
    shape: tuple[Dim, ...]
    element: Scalar
    space: str
    strides: tuple[Dim, ...] | None
    layout: str | None

    def __new__(
        cls, shape: tuple[Dim, ...], element: Scalar, space: str = "global",
        strides: tuple[Dim, ...] | None = None, layout: str | None = None,
    ) -> BufferType:  # fmt: skip
        self, new = _intern(cls, tuple(shape), element, space, strides, layout)
        if new:
            tail = f", strides [{', '.join(map(str, strides))}]" if strides is not None else ""
            tail += f", layout {layout}" if layout else ""
            self.text = f"buffer<{_shape_text(element, shape)}, {space}{tail}>"
        return cast(BufferType, self)


class VectorType(Type):
    """A register-wide vector of `lanes` elements (vec level)."""

    __slots__ = ("lanes", "element")
    lanes: int
    element: Scalar

    def __new__(cls, lanes: int, element: Scalar) -> VectorType:
        self, new = _intern(cls, lanes, element)
        if new:
            self.text = f"vector<{lanes}x{element}>"
        return cast(VectorType, self)


class PtrType(Type):
    """Address of the first element of a run of memory (vec level)."""

    __slots__ = ("element", "space")
    element: Scalar
    space: str

    def __new__(cls, element: Scalar, space: str = "global") -> PtrType:
        self, new = _intern(cls, element, space)
        if new:
            self.text = f"ptr<{element}>" if space == "global" else f"ptr<{element}, {space}>"
        return cast(PtrType, self)


class TokenType(Type):
    """Completion of an asynchronous copy or of a remote put; loads may take tokens."""

    __slots__ = ()

    def __new__(cls) -> TokenType:
        self, new = _intern(cls)
        if new:
            self.text = "token"
        return cast(TokenType, self)


ShapedType: TypeAlias = "TensorType | TileType | BufferType"

f64, f32, f16, bf16 = Scalar("f64"), Scalar("f32"), Scalar("f16"), Scalar("bf16")
f8e4m3, f8e5m2 = Scalar("f8e4m3"), Scalar("f8e5m2")
i64, i32, i16, i8 = Scalar("i64"), Scalar("i32"), Scalar("i16"), Scalar("i8")
u64, u32, u16, u8 = Scalar("u64"), Scalar("u32"), Scalar("u16"), Scalar("u8")
bool_, index = Scalar("bool"), Scalar("index")
token = TokenType()


def element_of(type: Type) -> Scalar:
    """The scalar inside a type: a tile's, tensor's, buffer's or vector's element, or the scalar itself."""
    if isinstance(type, Scalar):
        return type
    if isinstance(type, (TensorType, TileType, BufferType, VectorType, PtrType)):
        return type.element
    raise TypeError(f"{type} has no element type")


def with_element(type: Type, element: Scalar) -> Type:
    """The same shape with another element type."""
    if isinstance(type, Scalar):
        return element
    if isinstance(type, TileType):
        return TileType(type.shape, element, type.layout)
    if isinstance(type, TensorType):
        return TensorType(type.shape, element, type.encoding)
    if isinstance(type, VectorType):
        return VectorType(type.lanes, element)
    raise TypeError(f"{type} has no element type to replace")


def shape_of(type: Type) -> tuple[Dim, ...]:
    """Shape of a tensor, tile or buffer; () of a scalar; (lanes,) of a vector."""
    if isinstance(type, (TensorType, TileType, BufferType)):
        return type.shape
    if isinstance(type, VectorType):
        return (type.lanes,)
    return ()
