"use strict";
// Lesson 4: the MLP, the encoder block and the encoder.
{
  function mlpBlock(model, layer, x, record) {
    const name = `encoder.layers.${layer}.mlp`;
    const at = `layers.${layer}.`;
    const hidden = vit.linear(model, `${name}.linear_1`, x);
    record[`${at}mlp_hidden`] = hidden;
    record[`${at}mlp_activated`] = vit.tensor(hidden.shape, hidden.data.map(vit.gelu));
    record[`${at}mlp_output`] = vit.linear(model, `${name}.linear_2`, record[`${at}mlp_activated`]);
    return record[`${at}mlp_output`];
  }

  // x = x + self_attention(ln_1(x)), then x + mlp(ln_2(x))
  function encoderBlock(model, layer, x, changes, record) {
    const name = `encoder.layers.${layer}`;
    const at = `layers.${layer}.`;
    const ln_1 = vit.layerNorm(model, `${name}.ln_1`, x);
    const between = vit.add(x, vit.multiHeadSelfAttention(model, layer, ln_1, changes, record));
    const ln_2 = vit.layerNorm(model, `${name}.ln_2`, between);
    const output = vit.add(between, vit.mlpBlock(model, layer, ln_2, record));
    const of_layer = { ln_1, after_attention: between, ln_2, output };
    for (const [part, value] of Object.entries(of_layer)) record[at + part] = value;
    return output;
  }

  function encoder(model, x, changes, record) {
    for (let layer = 0; layer < model.sizes.num_layers; layer++) {
      x = encoderBlock(model, layer, x, changes, record);
    }
    record.ln = vit.layerNorm(model, "encoder.ln", x);
    return record.ln;
  }

  Object.assign(vit, { mlpBlock, encoderBlock, encoder });
}
