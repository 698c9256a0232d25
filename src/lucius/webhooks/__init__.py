"""Webhooks: notifying a client that its job has ended."""

from lucius.webhooks.sender import WebhookSender

__all__ = ["WebhookSender"]
