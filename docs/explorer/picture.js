"use strict";
// The image that the model has read, with attention or the effects of its patches laid over it.
{
  const { element, number, packed, paint } = drawing;
  const { state, tokenName, grid } = explorer;
  const byId = (id) => document.getElementById(id);

  // the brightness of what the model has read, with the patches where a shuffle has put them
  function seen() {
    const { in_channels: channels, image_size: [, width], patch_size: p } = explorer.model.sizes;
    const { mean, std } = explorer.model.about;
    const { data } = explorer.record.patches;
    return (i) => {
      const [y, x] = [Math.floor(i / width), i % width];
      const patch = Math.floor(y / p) * (width / p) + Math.floor(x / p);
      const shade = (c) => {
        const value = data[((patch * channels + c) * p + (y % p)) * p + (x % p)];
        return 255 * (value * std[c] + mean[c]);
      };
      const gray = shade(0);
      return channels === 3 ? packed(gray, shade(1), shade(2)) : packed(gray, gray, gray);
    };
  }

  const weightsTo = (layer, head, token) => {
    const { shape: [, s], data } = explorer.record[`layers.${layer}.weights`];
    return data.subarray((head * s + token) * s, (head * s + token + 1) * s);
  };

  // how far the logit of the predicted class falls when each patch is left out, one after the other
  const LARGE_EFFECT = 2; // from here on, the color is the strongest one, for every image
  explorer.falls = [];
  function measureEffects() {
    if (state.overlay !== "effect") return;
    const answer = top().index;
    const before = explorer.record.logits.data[answer];
    const falls = explorer.falls = [];
    const next = () => {
      if (explorer.falls !== falls || state.overlay !== "effect") return;
      const until = performance.now() + 10;
      while (falls.length < grid().count && performance.now() < until) {
        const { logits } = explorer.compute([...state.without, falls.length]);
        falls.push(before - logits.data[answer]);
      }
      drawPicture();
      if (falls.length < grid().count) setTimeout(next);
    };
    setTimeout(next);
  }

  // the patch without which the logit falls most; −1 if it falls without none
  const strongest = () => explorer.falls.indexOf(Math.max(...explorer.falls, 0));
  const leaveOutStrongest = () => explorer.set({ without: [...state.without, strongest()] });

  function top(record = explorer.record) {
    const { data } = record.probabilities;
    const index = data.indexOf(Math.max(...data));
    return { index, name: explorer.model.about.class_names[index], share: data[index] };
  }

  function effectWords(fall) {
    if (fall === undefined) return "not measured yet";
    const size = number(Math.abs(fall));
    if (Number(size) === 0) return "no effect on the logit";
    return `without it, the logit ${fall > 0 ? "falls" : "rises"} by ${size}`;
  }

  let picture, overlay;
  let preview = null; // the head under the mouse
  function makePicture() {
    overlay = element("canvas", { class: "overlay" });
    const cellWords = (row, column) => {
      const token = row * grid().columns + column + 1;
      const words = [tokenName(token)];
      const weight = weightsTo(state.layer, state.head, state.token)[token];
      if (state.without.includes(token - 1)) words.push("left out");
      else if (state.overlay === "attention") words.push(`weight ${number(weight, 4)}`);
      else if (state.overlay === "effect") words.push(effectWords(explorer.falls[token - 1]));
      return words.join(", ");
    };
    picture = explorer.cells(byId("picture"), {
      label: "The image, patch by patch. Arrow keys move, Enter selects a patch.",
      shape: () => [grid().rows, grid().columns],
      words: cellWords,
      pin(row, column) {
        const patch = row * grid().columns + column;
        if (state.tool === "select") explorer.set({ token: patch + 1 });
        else if (state.tool === "draw") explorer.fillPatch(row, column);
        else explorer.set({ without: toggled(state.without, patch) });
      },
      drag: (event, box) => explorer.drawAt(event, box),
      drawing: () => state.tool === "draw",
    });
    picture.box.classList.add("image");
    picture.canvas.after(overlay);
    explorer.onDraw(drawPixels);
    explorer.onDraw(measureEffects, () => state.overlay);
    explorer.onDraw(drawPicture, () => {
      return [state.overlay, state.layer, state.head, state.token, state.cell];
    });
  }

  const toggled = (list, item) => {
    return list.includes(item) ? list.filter((each) => each !== item) : [...list, item].sort();
  };

  function drawPixels() {
    picture.size();
    paint(picture.canvas, ...explorer.model.sizes.image_size, seen());
  }

  function drawPicture() {
    const { rows, columns } = grid();
    picture.canvas.style.opacity = state.overlay === "none" ? 1 : 0.55;
    const { layer, head } = preview ?? state;
    const weights = weightsTo(layer, head, state.token);
    paint(overlay, rows, columns, (patch) => {
      if (state.overlay === "attention") return drawing.attentionOverlay(weights[patch + 1]);
      const fall = state.overlay === "effect" ? explorer.falls[patch] ?? 0 : 0;
      const opacity = 210 * Math.sqrt(Math.min(Math.abs(fall) / LARGE_EFFECT, 1));
      return fall > 0 ? packed(225, 60, 60, opacity) : packed(60, 130, 230, opacity);
    });
    const place = (patch) => [Math.floor(patch / columns), patch % columns];
    const marks = state.without.map((patch) => ["out", ...place(patch)]);
    if (state.token) marks.push(["pin", ...place(state.token - 1)]);
    const key = explorer.keyToken();
    if (key) marks.push(["pin other", ...place(key - 1)]);
    picture.mark(marks);
    const { falls } = explorer;
    const [most, done] = [strongest(), falls.length === grid().count];
    byId("strongest").hidden = state.overlay !== "effect";
    byId("strongest").disabled = !done || most < 0;
    const about = {
      none: "The overlay is off.",
      attention: `Orange: how much ${tokenName(state.token)} attends to each patch, in layer `
        + `${layer}, head ${head}. Its weight for the class token is ${number(weights[0], 3)}.`
        + (state.off.includes(`${layer}.${head}`) ? " This head is switched off." : ""),
      effect: done
        ? `Red: the logit of “${top().name}” falls without this patch`
          + (most < 0 ? "" : `, most (by ${number(falls[most], 2)}) without ${tokenName(most + 1)}`)
          + `. Blue: it rises. The colors are strongest from ${LARGE_EFFECT} on.`
        : `Each patch is left out in turn: ${falls.length} of ${grid().count}.`,
    };
    byId("overlay-words").textContent = about[state.overlay];
  }

  function previewHead(which) {
    preview = which;
    drawPicture();
  }

  Object.assign(explorer, { top, leaveOutStrongest, weightsTo, toggled });
  Object.assign(explorer, { makePicture, previewHead });
}
