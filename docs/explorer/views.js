"use strict";
// What the page shows beside the image: the prediction, the heads, and a map for every tensor.
{
  const { element, number, packed, paint } = drawing;
  const { percent, state, tokenName, grid, top, toggled } = explorer;
  const byId = (id) => document.getElementById(id);

  // a list of one bar per class; a click explains the number
  function makeBars(id, part) {
    const bars = explorer.model.about.class_names.map((name, k) => {
      const [bar, before, shown] = ["share", "before", "number"].map((kind) => {
        return element("span", { class: kind });
      });
      const button = element(
        "button", { type: "button", onclick: () => explorer.follow(part, [0, k]) },
        element("span", { class: "name" }, name),
        element("span", { class: "track" }, bar, before),
        shown,
      );
      return { item: element("li", {}, button), bar, before, shown, button };
    });
    byId(id).replaceChildren(...bars.map(({ item }) => item));
    return bars;
  }

  // from zero, which is at `origin` of the track, to the number; the mark is the unchanged model's
  function drawBar({ bar, before, shown }, now, then, origin, words) {
    const place = (share) => `${100 * (origin + share)}%`;
    bar.style.left = place(Math.min(now, 0));
    bar.style.width = `${100 * Math.abs(now)}%`;
    before.style.left = place(then);
    before.hidden = !explorer.changed();
    shown.textContent = words;
  }

  let probabilities, logits;
  function drawBars() {
    const { record, unchanged } = explorer;
    const best = top();
    const [now, then] = [record.logits.data, unchanged.logits.data];
    const longest = 2 * Math.max(...[...now, ...then].map(Math.abs));
    probabilities.forEach((bar, k) => {
      const [share, was] = [record, unchanged].map((each) => each.probabilities.data[k]);
      drawBar(bar, share, was, 0, percent(share));
      drawBar(logits[k], now[k] / longest, then[k] / longest, 0.5, number(now[k]));
      for (const { button } of [bar, logits[k]]) button.classList.toggle("best", k === best.index);
    });
    byId("answer").textContent = `${best.name} ${percent(best.share)}`;
    const was = top(explorer.unchanged);
    let words = "The model is unchanged.";
    if (state.shuffle && !state.positions) {
      words = "Without positions, the order of the patches makes no difference.";
    } else if (explorer.changed()) {
      words = `The marks show the unchanged model: ${was.name}, ${percent(was.share)}.`;
    }
    byId("before-words").textContent = words;
    byId("label").textContent = explorer.caption;
    byId("e").textContent = explorer.model.sizes.hidden_dim / explorer.model.sizes.num_heads;
  }

  let heads = [];
  function makeHeads() {
    const { num_layers: layers, num_heads: count } = explorer.model.sizes;
    heads = [];
    const table = byId("heads");
    table.replaceChildren(element("thead", {}, element("tr", {}, element("td"),
      ...[...Array(count).keys()].map((head) => element("th", { scope: "col" }, `head ${head}`)))));
    const body = table.appendChild(element("tbody"));
    for (let layer = 0; layer < layers; layer++) {
      const row = body.appendChild(element("tr"));
      row.append(element("th", { scope: "row" }, `layer ${layer}`));
      for (let head = 0; head < count; head++) {
        const name = `${layer}.${head}`;
        const canvas = element("canvas");
        const show = element("button", {
          type: "button", class: "thumb", "aria-label": `Show layer ${layer}, head ${head}`,
          onclick: () => explorer.set({ layer, head, overlay: "attention" }),
          onpointerenter: () => explorer.previewHead({ layer, head }),
          onpointerleave: () => explorer.previewHead(null),
        }, canvas);
        const on = element("input", {
          type: "checkbox", role: "switch", "aria-label": `Layer ${layer}, head ${head} is on`,
          onchange: () => explorer.set({ off: toggled(state.off, name) }),
        });
        const knob = element("span", { "aria-hidden": "true" });
        row.append(element("td", {}, show, element("label", { class: "switch" }, on, knob)));
        heads.push({ layer, head, name, canvas, show, on });
      }
    }
  }

  // the class token has a cell of its own above the grid of patches
  function drawHeads() {
    const { rows, columns } = grid();
    const colorOf = drawing.attentionColors();
    byId("token-name").textContent = tokenName(state.token);
    byId("class-token").setAttribute("aria-pressed", state.token === 0);
    for (const { layer, head, name, canvas, show, on } of heads) {
      const weights = explorer.weightsTo(layer, head, state.token);
      paint(canvas, rows + 1, columns, (i) => {
        if (i > 0 && i < columns) return 0;
        return colorOf(weights[i === 0 ? 0 : i - columns + 1]);
      });
      on.checked = !state.off.includes(name);
      show.classList.toggle("off", !on.checked);
    }
    byId("heads-words").textContent = `Query token: ${tokenName(state.token)}.`
      + (state.off.length ? ` Switched off: ${state.off.length} of ${heads.length} heads.` : "");
  }

  // layers and heads as radio buttons
  function makeChoices() {
    const { num_layers, num_heads } = explorer.model.sizes;
    for (const [name, count] of [["layer", num_layers], ["head", num_heads]]) {
      for (const group of document.querySelectorAll(`[data-choose="${name}"]`)) {
        const choose = (i) => element("input", {
          type: "radio", name: group.id, value: i, onchange: () => explorer.set({ [name]: i }),
        });
        group.replaceChildren(element("legend", {}, name));
        for (let i = 0; i < count; i++) {
          group.append(element("label", {}, choose(i), element("span", {}, String(i))));
        }
      }
    }
  }

  function drawChoices() {
    for (const input of document.querySelectorAll("fieldset input")) {
      const choice = input.closest("fieldset").dataset.choose ?? input.name;
      input.checked = input.value === String(state[choice]);
    }
    for (const { layer, head, show } of heads) {
      show.setAttribute("aria-pressed", layer === state.layer && head === state.head);
    }
    byId("positions").checked = state.positions;
    byId("draw-tools").hidden = state.tool !== "draw";
    byId("without-words").hidden = state.tool !== "without";
    byId("shuffle").setAttribute("aria-pressed", state.shuffle > 0);
    byId("shuffle").textContent = state.shuffle ? "Undo the shuffle" : "Shuffle the patches";
    byId("reset").disabled = !explorer.changed();
    for (const button of document.querySelectorAll("#images button")) {
      button.setAttribute("aria-pressed", Number(button.dataset.image) === state.image);
    }
  }

  const layer = (part, title, more) => ({ part, title, ofLayer: true, ...more });
  const wide = { cell: 5 };
  const MAPS = { // where, and which tensors, with the signs between them; "" begins a new line
    norm: [layer("ln_1", "LayerNorm")],
    patches: [{ part: "patches", title: "patches", rows: "patch", columns: "value", cell: 6 }],
    tokens: [
      { part: "tokens", title: "tokens" }, "+",
      { part: "positions", title: "position embeddings" }, "=",
      { part: "embedding", title: "sum" },
    ],
    scores: [
      layer("queries", "queries", wide), "·", layer("keys", "keys", wide), "→",
      layer("scores", "scores", { columns: "key token", cell: 5 }), "",
      layer("weights", "attention weights", { columns: "key token", cell: 5 }), "·",
      layer("values", "values", wide), "→", layer("head_outputs", "head output", wide),
    ],
    block: [
      layer("merged", "merged heads"), "→", layer("attention_output", "attention output"), "→",
      layer("after_attention", "residual stream"), "",
      layer("ln_2", "LayerNorm"), "→", layer("mlp_hidden", "MLP, before GELU"), "",
      layer("mlp_activated", "MLP, after GELU"), "→", layer("mlp_output", "MLP output"), "",
      layer("output", "residual stream after the block"),
    ],
    prediction: [
      { part: "ln", title: "final LayerNorm" }, "",
      { part: "pooled", title: "what the classification head reads", rows: "", cell: 8 },
    ],
  };

  function makeZoom() {
    const host = byId("zoom");
    const words = element("figcaption");
    const shape = () => [explorer.model.sizes.in_channels * grid().patch, grid().patch];
    host.replaceChildren(words);
    const patch = () => state.token - 1; // −1 for the class token, which has no pixels
    const zoom = explorer.cells(host, {
      label: "The pixels of the selected patch. Arrow keys move, Enter explains a number.",
      shape,
      words: (row, column) => {
        const value = explorer.value("patches", [patch(), row * grid().patch + column]);
        return `pixel (${row}, ${column}): ${number(value)}`;
      },
      pin: (row, column) => explorer.follow("patches", [patch(), row * grid().patch + column]),
    });
    explorer.onDraw(() => {
      const [rows, columns] = shape();
      host.style.visibility = state.token ? "" : "hidden"; // the class token has no pixels
      if (!state.token) return;
      words.replaceChildren(element("b", {}, `patch ${patch()}`), ` ${rows} × ${columns}`);
      zoom.size();
      const { mean, std } = explorer.model.about;
      paint(zoom.canvas, rows, columns, (i) => {
        const channel = Math.floor(i / columns / columns);
        const value = explorer.value("patches", [patch(), i]);
        const gray = 255 * (value * std[channel] + mean[channel]);
        return packed(gray, gray, gray);
      });
    }, () => state.token);
  }

  function makeViews() {
    explorer.makePicture();
    makeZoom();
    for (const [id, maps] of Object.entries(MAPS)) {
      const host = byId(`${id}-maps`);
      for (const map of maps) {
        if (typeof map !== "string") {
          explorer.tensorMap(host, map);
          continue;
        }
        host.append(element("span", { class: map ? "sign" : "turn", "aria-hidden": "true" }, map));
      }
    }
    explorer.onDraw(drawBars);
    explorer.onDraw(drawHeads, () => state.token);
    explorer.onDraw(drawChoices, () => [state.layer, state.head, state.tool, state.overlay]);
    explorer.onDraw(explorer.drawWhy, () => state.cell);
  }

  // what depends on the sizes of the model
  function fitModel() {
    probabilities = makeBars("bars", "probabilities");
    logits = makeBars("logit-bars", "logits");
    makeHeads();
    makeChoices();
    explorer.limits = explorer.limitsOf(explorer.unchanged);
  }

  let playing = null;
  function play() {
    clearInterval(playing);
    const button = byId("play");
    const stop = () => {
      clearInterval(playing);
      playing = null;
      button.textContent = "Play through the layers";
    };
    if (playing) return stop();
    button.textContent = "Stop";
    explorer.set({ layer: 0, overlay: "attention" });
    playing = setInterval(() => {
      if (state.layer + 1 === explorer.model.sizes.num_layers) return stop();
      explorer.set({ layer: state.layer + 1 });
      explorer.say(`Layer ${state.layer}`);
    }, 1200);
  }

  Object.assign(explorer, { makeViews, fitModel, play });
}
