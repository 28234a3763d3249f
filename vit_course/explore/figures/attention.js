"use strict";
// Which tokens a token attends to: by layer and head, or rolled out over the layers.
figures.kinds.attention = (figure) => {
  const { element, percent, paint, attentionColors } = drawing;
  const { words, maps, image, grid, prediction } = figure.data;
  const { fill, tuple } = figures;
  const [rows, columns] = grid;
  const [layers, heads, s] = maps.shape;
  const NEAR = 2; // patches, between the centers

  // the attention weights of one query token, in one head
  const row = (layer, head, query) => {
    const start = ((layer * heads + head) * s + query) * s;
    return maps.data.subarray(start, start + s);
  };
  const mean = (layer, query) => Float64Array.from({ length: s }, (_, j) => {
    let sum = 0;
    for (let head = 0; head < heads; head++) sum += row(layer, head, query)[j];
    return sum / heads;
  });

  // the product of (A + I) / 2 over the layers, the last one on the left
  const rollouts = [];
  function rollout(layer) {
    if (layer < 0) return Array.from({ length: s }, (_, i) => {
      return Float64Array.from({ length: s }, (__, j) => Number(i === j));
    });
    rollouts[layer] ??= rollout(layer - 1).map((_, i, before) => {
      const weights = mean(layer, i);
      const result = before[i].map((value) => value / 2);
      weights.forEach((weight, k) => {
        for (let j = 0; j < s; j++) result[j] += (weight / 2) * before[k][j];
      });
      return result;
    });
    return rollouts[layer];
  }

  function compute({ layer, head, rollout: rolled, selected }) {
    const query = figures.tokenOf(selected, grid);
    if (rolled) return [fill(words.rollout, { layer }), rollout(layer)[query]];
    if (head === "mean") return [fill(words.mean, { layer }), mean(layer, query)];
    return [fill(words.head, { layer, head }), row(layer, head, query)];
  }

  function summary(selected, what, values) {
    const patches = [...values.slice(1)];
    const most = Math.max(...patches);
    const index = patches.indexOf(most);
    const best = tuple([Math.floor(index / columns), index % columns]);
    const facts = { what, best, most: percent(most), token: percent(values[0]) };
    if (!selected) {
      const all = patches.reduce((sum, weight) => sum + weight, 0);
      let [half, sum] = [0, 0];
      for (const weight of patches.toSorted((a, b) => b - a)) {
        half++;
        sum += weight;
        if (sum >= all / 2) break;
      }
      return fill(words.class_token, { ...facts, half, count: patches.length });
    }
    const isNear = (_, i) => {
      const away = [Math.floor(i / columns) - selected[0], (i % columns) - selected[1]];
      return away[0] ** 2 + away[1] ** 2 <= NEAR ** 2;
    };
    const near = patches.filter(isNear);
    const sum = near.reduce((total, weight) => total + weight, 0);
    const uniform = percent(near.length / s);
    return fill(words.patch, { ...facts, query: tuple(selected), near: percent(sum), uniform });
  }

  let shown; // the weights that are drawn
  figure.range("layer", "layer", { min: 0, max: layers - 1 });
  const play = figure.button("Play", () => (timer ? stop() : start()));
  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  function start() {
    play.textContent = "Stop";
    figure.save({ layer: 0 });
    timer = setInterval(() => {
      const { layer } = figure.state();
      if (layer + 1 === layers || !play.isConnected) stop();
      else figure.save({ layer: layer + 1 });
    }, 900);
  }
  figure.check("rollout up to this layer", (state) => state.rollout, (on) => {
    figure.save({ rollout: on });
  });
  const options = figures.tokenCells(figure, grid);

  const left = figure.panel("");
  left.caption.textContent = prediction;
  const picture = figure.cells(left.host, {
    ...options,
    label: "The image. Arrow keys select a patch as the query token, Escape the class token.",
    words: (...cell) => `patch ${tuple(cell)}`,
    hover: (cell) => figure.preview(cell && { selected: cell }),
  });
  picture.box.classList.add("image");
  paint(picture.canvas, ...image.shape.slice(1), figures.pixels(image));
  const overlay = element("canvas", { class: "vit-overlay" });
  picture.canvas.after(overlay);

  const middle = figure.panel("");
  const map = figure.cells(middle.host, {
    ...options,
    label: "The attention weights. Arrow keys select another query token.",
    words: (...cell) => `patch ${tuple(cell)}: ${percent(shown[figures.tokenOf(cell, grid)], 1)}`,
  });

  const right = figure.panel("");
  const thumbs = ["mean", ...Array(heads).keys()].map((head) => {
    const canvas = element("canvas");
    const button = element("button", {
      type: "button",
      onclick: () => figure.save({ head, rollout: false }),
      onpointerenter: (event) => {
        if (event.pointerType === "mouse") figure.preview({ head, rollout: false });
      },
      onpointerleave: () => figure.preview(null),
    }, canvas, head === "mean" ? "mean" : `head ${head}`);
    return { head, canvas, button };
  });
  right.host.append(element("div", { class: "vit-thumbs" }, ...thumbs.map(({ button }) => button)));
  const ticks = ["0", "0.04", "0.25", "0.56", "1"].map((tick) => element("span", {}, tick));
  right.host.parentElement.append(element("div", { class: "vit-legend" },
    element("span", {}, "attention weight"), element("i"), element("span", {}, ...ticks)));

  function draw(state) {
    const [what, values] = compute(state);
    shown = values;
    const colorOf = attentionColors();
    paint(map.canvas, rows, columns, (i) => colorOf(values[i + 1]));
    paint(overlay, rows, columns, (i) => drawing.attentionOverlay(values[i + 1]));
    middle.caption.textContent = what;
    right.caption.textContent = `heads of layer ${state.layer}`;
    for (const { head, canvas, button } of thumbs) {
      const [, weights] = compute({ ...state, head, rollout: false });
      paint(canvas, rows, columns, (i) => colorOf(weights[i + 1]));
      button.setAttribute("aria-pressed", !state.rollout && head === state.head);
    }
    const marks = state.selected ? [["pin", ...state.selected]] : [];
    for (const part of [picture, map]) part.mark(marks);
    return { words: summary(state.selected, what, values), values };
  }
  const help = "Click a patch, or use Tab and the arrow keys; Escape selects the class token.";
  return { help, draw };
};
