"""What a cell showed: known kinds, plain texts and PNG pictures only, from whatever a student's process claims."""

import base64
import re


def outputs_of(claimed: object, room: int) -> list[dict]:
    """Return outputs in notebook format from what a student's process claims: known kinds, plain texts, PNG only."""
    outputs = []
    for output in claimed if isinstance(claimed, list) else []:
        kept = _output(output) if isinstance(output, dict) else None
        if kept is None:
            continue
        room -= len(str(kept))
        if room < 0:
            outputs.append(dict(output_type="stream", name="stderr", text="[more output is left out]\n"))
            break
        outputs.append(kept)
    return outputs


def _output(output: dict) -> dict | None:
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return dict(output_type="stream", name=name, text=plain(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        return dict(
            output_type="error",
            ename=plain(output.get("ename"))[:200],
            evalue=plain(output.get("evalue")),
            traceback=[plain(line) for line in lines] if isinstance(lines, list) else [],
        )
    data = output.get("data")
    if kind not in ("display_data", "execute_result") or not isinstance(data, dict):
        return None
    kept = {"text/plain": plain(data.get("text/plain"))}
    if (picture := png(data.get("image/png"))) is not None:
        kept["image/png"] = picture
    shown = dict(output_type=kind, data=kept, metadata={})
    if kind == "execute_result":
        count = output.get("execution_count")
        shown["execution_count"] = count if type(count) is int else None
    return shown


def plain(text: object) -> str:
    """Return a text without control characters; empty if it is none."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text) if isinstance(text, str) else ""


def png(text: object) -> str | None:
    """Return a picture in base64 if it is one, by its first bytes."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        return None
    return base64.b64encode(data).decode() if data.startswith(b"\x89PNG\r\n\x1a\n") else None


def one_text(text: str, limit: int) -> str:
    """Return a text without control characters, cut to a size."""
    text = plain(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."
