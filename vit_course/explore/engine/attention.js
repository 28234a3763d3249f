"use strict";
// Lesson 3: multi-head self-attention.
{
  const { tensor } = vit;

  // the queries, keys or values: "s (three heads e) -> three heads s e"
  function splitHeads(qkv, third, heads) {
    const [s, width] = qkv.shape;
    const e = width / 3 / heads;
    const part = tensor([heads, s, e]);
    for (let head = 0, to = 0; head < heads; head++) {
      for (let token = 0; token < s; token++) {
        const from = token * width + (third * heads + head) * e;
        for (let i = 0; i < e; i++) part.data[to++] = qkv.data[from + i];
      }
    }
    return part;
  }

  // "heads s e -> s (heads e)"; a head that is switched off leaves zeros
  function mergeHeads(outputs, off) {
    const [heads, s, e] = outputs.shape;
    const merged = tensor([s, heads * e]);
    for (let head = 0; head < heads; head++) {
      if (off(head)) continue;
      for (let token = 0; token < s; token++) {
        const from = (head * s + token) * e;
        merged.data.set(outputs.data.subarray(from, from + e), (token * heads + head) * e);
      }
    }
    return merged;
  }

  // "heads i e, heads j e -> heads i j"
  function dotProducts(queries, keys) {
    const [heads, s, e] = queries.shape;
    const scores = tensor([heads, s, s]);
    for (let head = 0, to = 0; head < heads; head++) {
      for (let i = 0; i < s; i++) {
        for (let j = 0; j < s; j++, to++) {
          const [query, key] = [(head * s + i) * e, (head * s + j) * e];
          scores.data[to] = vit.dot(queries.data, query, keys.data, key, e);
        }
      }
    }
    return scores;
  }

  // "heads i j, heads j e -> heads i e"
  function weightedMeans(weights, values) {
    const [heads, s, e] = values.shape;
    const outputs = tensor([heads, s, e]);
    for (let head = 0, to = 0; head < heads; head++) {
      for (let i = 0; i < s; i++) {
        const row = weights.data.subarray((head * s + i) * s, (head * s + i + 1) * s);
        for (let k = 0; k < e; k++) {
          let sum = 0;
          for (let j = 0; j < s; j++) sum += row[j] * values.data[(head * s + j) * e + k];
          outputs.data[to++] = sum;
        }
      }
    }
    return outputs;
  }

  // softmax(q kᵀ / √e) v for every head, heads merged, output projection
  function multiHeadSelfAttention(model, layer, x, { silenced, leftOut }, record) {
    const name = `encoder.layers.${layer}.self_attention`;
    const at = `layers.${layer}.`;
    const heads = model.sizes.num_heads;
    const qkv = vit.linear(model, `${name}.qkv`, x);
    ["queries", "keys", "values"].forEach((part, third) => {
      record[at + part] = splitHeads(qkv, third, heads);
    });
    const e = qkv.shape[1] / 3 / heads;
    record[`${at}scores`] = vit.dotProducts(record[`${at}queries`], record[`${at}keys`]);
    record[`${at}weights`] = vit.softmax(record[`${at}scores`], e ** -0.5, leftOut);
    record[`${at}head_outputs`] = vit.weightedMeans(record[`${at}weights`], record[`${at}values`]);
    const off = (head) => silenced?.has(`${layer}.${head}`);
    record[`${at}merged`] = mergeHeads(record[`${at}head_outputs`], off);
    record[`${at}attention_output`] = vit.linear(model, `${name}.out_proj`, record[`${at}merged`]);
    return record[`${at}attention_output`];
  }

  Object.assign(vit, { dotProducts, weightedMeans, multiHeadSelfAttention });
}
