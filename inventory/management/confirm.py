"""The question that a command asks before it does what cannot be taken back."""

from django.core.management.base import CommandError


def require_yes(question: str) -> None:
    """Ask, and go on only when the answer is "yes".

    Raises:
        CommandError: another answer, or nobody is there to answer (no terminal).
    """
    try:
        answer = input(f"{question} Type yes: ")
    except EOFError:
        answer = ""
    if answer.strip() != "yes":
        raise CommandError("not confirmed, nothing was done; use --yes to go on without a question")
