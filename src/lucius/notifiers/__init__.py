"""Sends notifications: webhooks, JSON bodies made from templates, e-mail."""

from lucius.notifiers.sender import NotificationSender

__all__ = ["NotificationSender"]
