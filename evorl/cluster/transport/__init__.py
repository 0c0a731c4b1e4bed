"""Messages between the driver of a group and its workers.

wire.py defines the format of messages; connection.py packs, numbers and checks them. shared_memory.py and host.py pass
arrays within a host, broadcast_relay.py between hosts. authentication.py and curve.py decide which processes may
connect. What the messages cause is in evorl.cluster.workers. Start with wire.py.
"""
