"""A process that publishes KV cache events as vLLM's publisher does: PUB for the batches, ROUTER for the replay.

``python kv_publisher.py PORT REPLAY_PORT KEPT``: reads one JSON command a line, answers ``ok``. ``publish`` sends a
batch of events; ``lose`` counts a batch and keeps it for replay without sending it; ``raw`` sends frames as they are.
"""

import json
import select
import sys
from collections import deque

import msgspec
import zmq


def main() -> None:
    port, replay_port, kept = (int(text) for text in sys.argv[1:])
    context = zmq.Context()
    pub, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    pub.bind(f"tcp://127.0.0.1:{port}")
    router.bind(f"tcp://127.0.0.1:{replay_port}")
    buffer: deque[tuple[int, bytes]] = deque(maxlen=kept)
    number = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        readable = select.select([sys.stdin], [], [], 0.01)[0]
        if router.poll(0):
            client, _, first = router.recv_multipart()
            for one, payload in buffer:
                if one >= int.from_bytes(first, "big"):
                    router.send_multipart((client, b"", one.to_bytes(8, "big"), payload))
            router.send_multipart((client, b"", (-1).to_bytes(8, "big", signed=True), b""))
        if not readable:
            continue
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        if command["do"] == "raw":
            pub.send_multipart([text.encode() for text in command["frames"]])
        else:
            batch = {"ts": 1.0, "events": command["events"]} if command["maps"] else [1.0, command["events"], 0]
            payload = msgspec.msgpack.encode(batch)
            if command["do"] == "publish":
                pub.send_multipart((b"", number.to_bytes(8, "big"), payload))
            buffer.append((number, payload))
            number += 1
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
