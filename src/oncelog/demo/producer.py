"""One producer of the demo, a process of its own so that it can be killed. It ends when its stdin does.

python -m oncelog.demo.producer '{"url": …, "face": …, "producer": …, …}'
"""

import sys

import msgspec

from oncelog.demo import lifeline
from oncelog.demo.faces import face_of
from oncelog.demo.faces.face import Context, Told
from oncelog.errors import OncelogError


def main() -> int:
    lifeline.hold()
    told = msgspec.json.decode(sys.argv[1], type=Told)
    context = Context(told)
    try:
        face_of(told.face).run(context)
    except OncelogError as error:
        sys.stderr.write(f"{told.producer}: {type(error).__name__}: {error}\n")
        return 1
    finally:
        context.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
