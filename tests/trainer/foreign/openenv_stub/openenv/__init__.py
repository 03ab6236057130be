"""The part of OpenEnv's public API that its clients use, for tests where OpenEnv is not installed.

Same names, same calls, same messages; the transport is one JSON object a line over TCP instead of a WebSocket.
"""
