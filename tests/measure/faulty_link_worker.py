"""A process that measures links, with a fault: `links` starts it as a script.

FAULT=zeros    device 1 gets nothing but zeros
FAULT=flip     device 0 gets one changed number in a large tensor
FAULT=hang     device 2 never answers anyone
FAULT=die      device 1 is killed when it is asked for the first time
FAULT=fail     device 1 fails in the middle of an exchange
FAULT=silent   device 1 ends with a message before it is ready
"""

import importlib.util
import json
import os
import signal
import sys
import time

SPEC = importlib.util.spec_from_file_location("link_worker", os.environ["WORKER"])
worker = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worker)


class FaultyLine(worker.Line):
    def send(self, tensor):
        if FAULT == "hang" and POSITION == 2:
            time.sleep(600)
        if FAULT == "die" and POSITION == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "fail" and POSITION == 1:
            msg = "out of\nluck"
            raise ValueError(msg)
        super().send(tensor)

    def receive(self, tensor):
        super().receive(tensor)
        self._spoil(tensor)

    def swap(self, out, into):
        super().swap(out, into)
        self._spoil(into)

    def _spoil(self, tensor):
        if FAULT == "zeros" and POSITION == 1:
            tensor.zero_()
        if FAULT == "flip" and POSITION == 0 and len(tensor) > 1:
            tensor[len(tensor) // 2] += 1


if __name__ == "__main__":
    FAULT, POSITION = os.environ["FAULT"], json.loads(sys.argv[1])["position"]
    if FAULT == "silent" and POSITION == 1:
        sys.exit("no driver here")
    worker.Line = FaultyLine
    worker.main()
