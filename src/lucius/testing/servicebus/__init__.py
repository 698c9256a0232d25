"""A Service Bus for tests and for machines without Docker: AMQP 1.0 on asyncio, everything in memory.

`ServiceBusServer` is the server, `read_config` reads the Config.json of Microsoft's emulator, `Faults` are the switches
that hurt. What it does and does not do is in docs/reference/servicebus-emulator.md.
"""
