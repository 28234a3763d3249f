"use strict";
// Lesson 5: the Vision Transformer.
{
  const { tensor } = vit;

  // the class token, or the mean of the patch tokens that are not left out: (s, d) -> (1, d)
  function pooled(tokens, pool, leftOut = new Set()) {
    const [s, d] = tokens.shape;
    if (pool === "token") return tensor([1, d], tokens.data.slice(0, d));
    const mean = tensor([1, d]);
    const count = s - 1 - leftOut.size;
    for (let i = d; i < s * d; i++) {
      if (!leftOut.has(Math.floor(i / d))) mean.data[i % d] += tokens.data[i] / count;
    }
    return mean;
  }

  /**
   * Classify one image, and return every tensor on the way by its name, such as `layers.2.queries`.
   *
   * model: as `vit.readModel` returns it. image: (c, h, w), values in [0, 1].
   * changes: `silenced`, a set of heads such as "2.1" that add nothing to their layer's output;
   * `leftOut`, a set of tokens that no token attends to; `order`, the number of the patch that
   * takes each place; `positions`, false to add none.
   */
  function forward(model, image, changes = {}) {
    const { mean, std } = model.about;
    const area = image.shape[1] * image.shape[2];
    const normalized = image.data.map((value, i) => {
      const channel = Math.floor(i / area);
      return (value - mean[channel]) / std[channel];
    });
    const record = { image: tensor(image.shape, normalized) };
    const x = vit.imageEmbedding(model, record.image, changes, record);
    const tokens = vit.encoder(model, x, changes, record);
    record.pooled = vit.pooled(tokens, model.sizes.pool, changes.leftOut);
    record.logits = vit.linear(model, "head", record.pooled);
    record.probabilities = vit.softmax(record.logits);
    return record;
  }

  Object.assign(vit, { pooled, forward });
}
