"use strict";
// Lesson 5.7: a safetensors file. Eight bytes hold the length of the header, which is JSON and says
// where each tensor begins and ends; the numbers follow.
{
  const NOT_OURS = "This is not a checkpoint that the course's training command saved.";

  // buffer: the bytes of a safetensors file of this course -> {sizes, about, tensors}
  function readModel(buffer) {
    let header, saved;
    try {
      const length = Number(new DataView(buffer).getBigUint64(0, true));
      header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
      saved = JSON.parse(header.__metadata__.vit_course);
      delete header.__metadata__;
      const tensors = {};
      for (const [name, { dtype, shape, data_offsets: [start, end] }] of Object.entries(header)) {
        if (dtype !== "F32") throw new Error(`${name} is ${dtype}, not F32`);
        if (8 + length + end > buffer.byteLength) throw new Error("it is cut short");
        const bytes = buffer.slice(8 + length + start, 8 + length + end);
        tensors[name] = vit.tensor(shape, new Float32Array(bytes));
      }
      const { model: sizes, ...about } = saved;
      if (!tensors["head.weight"]) throw new Error("it has no head");
      return { sizes, about, tensors };
    } catch (error) {
      throw new Error(`${NOT_OURS} (${error.message})`);
    }
  }

  // base64 text -> bytes
  const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  // The page's own copy of the file has the first bytes of all numbers, then all second bytes, and
  // so on, because it compresses better.
  function fromPlanes(text) {
    const planes = decoded(text);
    const count = planes.length / 4;
    const bytes = new Uint8Array(planes.length);
    planes.forEach((byte, i) => {
      bytes[(i % count) * 4 + Math.floor(i / count)] = byte;
    });
    return bytes.buffer;
  }

  Object.assign(vit, { readModel, decoded, fromPlanes });
}
