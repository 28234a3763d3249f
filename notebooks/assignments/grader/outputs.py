"""What a cell showed, in notebook format: plain texts and PNG pictures only, whatever a student's process claims."""

import base64
import re


def outputs_of(claimed: object, room: int) -> tuple[list[dict], int]:
    """Return outputs from what a student's process claims, and how much room they leave of so many characters."""
    outputs = []
    for each in claimed if isinstance(claimed, list) else []:
        texts = [plain(text) if isinstance(text, str) else "" for text in each] if isinstance(each, list) else []
        room -= 100 + sum(len(text) + text.count("\n") for text in texts)  # a line and an output take room, too
        if room < 0:
            outputs.append(stream("stderr", "[more output is left out]\n"))
            break
        match texts:
            case ["stdout" | "stderr" as name, text]:
                outputs.append(stream(name, text))
            case ["display", text, picture]:
                data = {"text/plain": text} | ({"image/png": picture} if is_png(picture) else {})
                outputs.append(dict(output_type="display_data", data=data, metadata={}))
            case ["error", kind, message, traceback]:
                lines = traceback.split("\n")
                outputs.append(dict(output_type="error", ename=kind[:200], evalue=message, traceback=lines))
    return outputs, room


def stream(name: str, text: str) -> dict:
    """Return an output of lines of text."""
    return dict(output_type="stream", name=name, text=text)


def plain(text: str) -> str:
    """Return a text without control characters and halves of surrogate pairs."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text).encode("utf-8", "replace").decode()


def is_png(text: str) -> bool:
    """Whether a text is a picture in base64, by its first bytes."""
    try:
        return base64.b64decode(text, validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    except ValueError:
        return False
