"""Tag in several connections at once, each of which breaks after some asks in some way and is made anew.

``reconnecting_tag.py CONNECTIONS FAULTS COUNT``: it writes how many faults there were to the file COUNT.
"""

from __future__ import annotations

import random
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))
import evorl_client
import tag

tag.TICKS = 20  # shorter than what a connection lasts
CONNECTIONS, FAULTS, COUNT = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
lock, faults = threading.Lock(), 0


class Broken(Exception):
    pass


def connection(number):
    draw = random.Random(number)
    while True:
        left = draw.randint(50, 130)

        class Breaking(tag.Tag):
            def view(self, side):
                nonlocal left
                left -= 1
                if left == 0 and faults < FAULTS:
                    break_off(self.battle._client, draw.choice(["cut", "cut", "half", "garbage", "freeze"]), draw)
                return super().view(side)

        try:
            evorl_client.Client(tag.OFFER, Breaking).run()
            return
        except (Broken, OSError):
            pass


def break_off(client, how, draw):
    global faults
    with lock:
        faults += 1
        COUNT.write_text(str(faults))
    if how == "half":
        client._socket.sendall(struct.pack("<I", 1000) + bytes(10))
    if how == "garbage":
        data = draw.randbytes(draw.randint(1, 200))
        client._socket.sendall(struct.pack("<I", len(data)) + data)
    if how in ("freeze", "garbage"):
        time.sleep(1.5)
    client._socket.close()
    raise Broken


threads = [threading.Thread(target=connection, args=(number,), daemon=True) for number in range(CONNECTIONS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
