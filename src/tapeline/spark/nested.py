"""Values inside lists, structs and maps: each is checked as text before it becomes a value.

Left alone, Spark's reader of JSON rounds a decimal, makes null of a number that does not fit, and
takes minutes to read one such as 1e-99999999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

Leaf = Callable[[Column, str], Column]  # a text and the name of its type: the value, or null
Check = Callable[[Column], Column]
VALUE, CORRUPT = "v", "_corrupt"
OPTIONS = {"columnNameOfCorruptRecord": CORRUPT, "mode": "PERMISSIVE"}


def parse(text: Column, kind: str) -> Column:
    """A nested value with all that is inside as text, and whether its shape is another one."""
    texts = _texts(DataType.fromDDL(kind))
    shape = StructType([StructField(VALUE, texts), StructField(CORRUPT, StringType())])
    return F.from_json(F.concat(F.lit(f'{{"{VALUE}":'), text, F.lit("}")), shape, OPTIONS)


def value_of(parsed: Column, kind: str, leaf: Leaf) -> Column:
    """The typed value; null inside where a text is not one."""
    return _typed(DataType.fromDDL(kind), parsed.getField(VALUE), leaf)


def misshapen(parsed: Column) -> Column:
    """Whether something inside is no list, struct or map where one was declared."""
    return parsed.getField(CORRUPT).isNotNull()


def misfits(parsed: Column, name: str, kind: str, leaf: Leaf) -> Iterator[tuple[str, str, Column]]:
    """Path and type of everything inside that is not text, and whether a value there is none."""
    for path, inner, check in _checks(DataType.fromDDL(kind), name, leaf):
        yield path, inner, check(parsed.getField(VALUE))


def _texts(kind: DataType) -> DataType:
    """The same shape, text inside."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _texts(one.dataType)) for one in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_texts(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _texts(kind.valueType))
    return StringType()


def _typed(kind: DataType, texts: Column, leaf: Leaf) -> Column:
    if kind == _texts(kind):
        return texts
    if isinstance(kind, StructType):
        inner = [
            _typed(one.dataType, texts.getField(one.name), leaf).alias(one.name) for one in kind
        ]
        return F.when(texts.isNotNull(), F.struct(*inner))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(texts, lambda one: _typed(element, one, leaf))
    if isinstance(kind, MapType):
        value = kind.valueType
        return F.transform_values(texts, lambda _, one: _typed(value, one, leaf))
    return leaf(texts, kind.simpleString())


def _checks(kind: DataType, path: str, leaf: Leaf) -> Iterator[tuple[str, str, Check]]:
    if isinstance(kind, StructType):
        for one in kind:
            for found, inner, check in _checks(one.dataType, f"{path}.{one.name}", leaf):
                yield found, inner, _of_field(one.name, check)
    elif isinstance(kind, ArrayType):
        for found, inner, check in _checks(kind.elementType, path, leaf):
            yield found, inner, _of_some(check)
    elif isinstance(kind, MapType):
        for found, inner, check in _checks(kind.valueType, path, leaf):
            yield found, inner, _of_some(check, F.map_values)
    elif not isinstance(kind, StringType):
        name = kind.simpleString()
        yield path, name, lambda text: text.isNotNull() & leaf(text, name).isNull()


def _of_field(name: str, check: Check) -> Check:
    return lambda column: check(column.getField(name))


def _of_some(check: Check, elements: Check = lambda column: column) -> Check:
    return lambda column: F.exists(
        elements(column), lambda one: F.coalesce(check(one), F.lit(False))
    )
