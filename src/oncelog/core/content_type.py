"""When two content types are the same: the media type counts, in any case; parameters such as a charset do not."""


def media_type(content_type: str) -> str:
    """The type alone, as it is compared."""
    return content_type.partition(";")[0].strip().lower()


def is_same_type(one: str, other: str) -> bool:
    """Whether records of one belong into a stream of the other."""
    return one == other or media_type(one) == media_type(other)
