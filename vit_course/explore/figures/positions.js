"use strict";
// How similar the position embedding of one token is to those of all patches.
figures.kinds.positions = (figure) => {
  const { element, number, paint, colorsAround } = drawing;
  const { words, embeddings, grid } = figure.data;
  const { fill, tuple } = figures;
  const [rows, columns] = grid;
  const [s, d] = embeddings.shape;

  const vectors = Array.from({ length: s }, (_, i) => {
    const vector = embeddings.data.subarray(i * d, (i + 1) * d);
    const length = Math.max(Math.hypot(...vector), 1e-12);
    return vector.map((value) => value / length);
  });
  // the cosine similarities of one token's position with those of the patches
  const similarities = vectors.map((one) => Float64Array.from(vectors.slice(1), (other) => {
    return one.reduce((sum, value, i) => sum + value * other[i], 0);
  }));
  const tokenOf = (selected) => figures.tokenOf(selected, grid);
  const average = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;

  function summary(selected, values) {
    if (!selected) {
      return fill(words.class_token, {
        lowest: number(Math.min(...values), 2),
        highest: number(Math.max(...values), 2),
        mean: number(average(values), 2),
      });
    }
    const groups = { near: [], row: [], column: [], elsewhere: [] };
    values.forEach((value, i) => {
      const down = Math.abs(Math.floor(i / columns) - selected[0]);
      const across = Math.abs((i % columns) - selected[1]);
      if (down + across === 0) return;
      if (down <= 1 && across <= 1) groups.near.push(value);
      else groups[down === 0 ? "row" : across === 0 ? "column" : "elsewhere"].push(value);
    });
    const found = Object.entries(groups).filter(([, list]) => list.length).map(([name, list]) => {
      return fill(words[name], { mean: number(average(list), 2) });
    });
    if (!found.length) return words.alone;
    return fill(words.patch, { query: tuple(selected), groups: found.join(", ") });
  }

  let shown; // the similarities that are drawn
  const options = figures.tokenCells(figure, grid);
  const left = figure.panel("");
  const map = figure.cells(left.host, {
    ...options,
    label: "The similarities with the selected position. Arrow keys select another position.",
    words: (...cell) => `patch ${tuple(cell)}: ${number(shown[tokenOf(cell) - 1], 2)}`,
  });
  const right = figure.panel("");
  right.caption.textContent = "similarities of every position";
  const mosaic = figure.cells(right.host, {
    ...options,
    label: "One small map for every position. Arrow keys select a position.",
    words: (...cell) => `position of patch ${tuple(cell)}`,
    hover: (cell) => figure.preview(cell && { selected: cell }),
  });
  const ticks = ["−1", "0", "1"].map((tick) => element("span", {}, tick));
  right.host.parentElement.append(element("div", { class: "vit-legend around" },
    element("span", {}, "cosine similarity"), element("i"), element("span", {}, ...ticks)));

  function drawMosaic(colorOf) {
    const [height, width] = [2 * rows + 2, 2 * columns + 2]; // with an empty frame
    paint(mosaic.canvas, rows * height, columns * width, (i) => {
      const [y, x] = [Math.floor(i / (columns * width)), i % (columns * width)];
      const [row, column] = [((y % height) - 1) >> 1, ((x % width) - 1) >> 1];
      if (![row, column].every((at, axis) => at >= 0 && at < grid[axis])) return 0;
      const token = tokenOf([Math.floor(y / height), Math.floor(x / width)]);
      return colorOf(similarities[token][row * columns + column]);
    });
  }

  function draw(state) {
    const values = shown = similarities[tokenOf(state.selected)];
    const colorOf = colorsAround(1);
    drawMosaic(colorOf);
    paint(map.canvas, rows, columns, (i) => colorOf(values[i]));
    const whose = state.selected ? `patch ${tuple(state.selected)}` : "the class token";
    left.caption.textContent = `similarities with the position of ${whose}`;
    const marks = state.selected ? [["pin", ...state.selected]] : [];
    for (const part of [map, mosaic]) part.mark(marks);
    return { words: summary(state.selected, values), values };
  }
  const help = "Click a position, or use Tab and the arrow keys; Escape selects the class token.";
  return { help, draw };
};
