"use strict";
// Lesson 2: from an image to a sequence of tokens.
{
  const { tensor } = vit;

  // image (c, h, w) -> patches (n, c p1 p2), row by row from the top left
  function patchify(image, p) {
    const [channels, height, width] = image.shape;
    const columns = width / p;
    const patches = tensor([(height / p) * columns, channels * p * p]);
    for (let c = 0, from = 0; c < channels; c++) {
      for (let y = 0; y < height; y++) {
        for (let x = 0; x < width; x++, from++) {
          const patch = Math.floor(y / p) * columns + Math.floor(x / p);
          const to = ((patch * channels + c) * p + (y % p)) * p + (x % p);
          patches.data[to] = image.data[from];
        }
      }
    }
    return patches;
  }

  // patch `order[i]` takes the place of patch i
  function reorder(patches, order) {
    const width = patches.shape[1];
    const moved = tensor(patches.shape);
    order.forEach((from, to) => {
      moved.data.set(patches.data.subarray(from * width, (from + 1) * width), to * width);
    });
    return moved;
  }

  // z_0 = [x_class; x_p E] + E_pos
  function imageEmbedding(model, image, { order, positions = true }, record) {
    const parameter = (name) => model.tensors[`embedding.${name}`].data;
    const patches = vit.patchify(image, model.sizes.patch_size);
    record.patches = order ? reorder(patches, order) : patches;
    const projection = "embedding.patch_embedding.projection";
    record.patch_tokens = vit.linear(model, projection, record.patches);
    const [n, d] = record.patch_tokens.shape;
    record.tokens = tensor([n + 1, d]);
    record.tokens.data.set(parameter("class_token"));
    record.tokens.data.set(record.patch_tokens.data, d);
    record.positions = tensor([n + 1, d], positions ? parameter("pos_embedding") : undefined);
    record.embedding = vit.add(record.tokens, record.positions);
    return record.embedding;
  }

  Object.assign(vit, { patchify, imageEmbedding });
}
