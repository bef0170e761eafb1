import json, socket


class MediumClient:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.connect(str(path))
        self.f = self.s.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.s.close()

    def _do(self, **k):
        self.s.sendall(json.dumps(k).encode() + b"\n")
        return json.loads(self.f.readline())

    def stats(self):
        return self._do(op="stats")

    def set_link(self, link, **k):
        return self._do(op="set", link=link, **k)
