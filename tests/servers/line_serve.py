"""`oncelog`, with the face of lines in its list: `python -m tests.servers.line_serve serve --line 127.0.0.1:0 …`."""

from oncelog.servers.faces import FACES
from tests.servers.line_face import LINE

FACES.append(LINE)

if __name__ == "__main__":
    from oncelog.cli.main import main

    main()
