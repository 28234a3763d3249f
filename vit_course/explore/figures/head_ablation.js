"use strict";
// Heads that are switched off, and what the model still gets right.
figures.kinds.head_ablation = (figure) => {
  const { element, percent, paint, colorsAround } = drawing;
  const { words, alone, names, every } = figure.data;
  const labels = [...figure.data.labels.data];
  const { fill } = figures;
  const [layers, heads] = alone.shape;
  const LIMIT = 0.05; // where the color scale ends
  const SLICE = 20; // ms of work, after which the page can respond
  const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const key = (off) => off.map((head) => head.join(".")).sort().join();
  const correct = (bits) => [...bits].map(Number); // 1 where the prediction of an image is right

  // without Python, the model runs here; it is loaded when a head is first switched off
  const known = { "": every };
  let job = 0;
  let done = 0; // images
  let loading = null;
  let failed = false;
  const load = (path) => new Promise((resolve, reject) => {
    const src = new URL(path, figure.folder).href;
    document.head.append(element("script", { src, onload: resolve, onerror: reject }));
  });
  async function loadEngine() {
    const engine = ["tensor", "weights", "embedding", "attention", "encoder", "model", "shipped"];
    for (const name of engine) await load(`../explorer/${name}.js`);
    await load("ablation_images.js");
    const model = vit.readModel(vit.fromPlanes(vit.shipped.model));
    const bytes = vit.decoded(vit.ablationImages);
    const { in_channels, image_size } = model.sizes;
    const shape = [in_channels, ...image_size];
    const size = shape.reduce((a, b) => a * b);
    return labels.map((label, i) => {
      const pixels = bytes.subarray(i * size, (i + 1) * size);
      const image = vit.tensor(shape, Float32Array.from(pixels, (byte) => byte / 255));
      return (silenced) => {
        const { data } = vit.forward(model, image, { silenced }).logits;
        return Number(data.indexOf(Math.max(...data)) === label);
      };
    });
  }
  async function compute(off) {
    const mine = ++job;
    const silenced = new Set(off.map((head) => head.join(".")));
    loading ??= loadEngine();
    const classifiers = await loading;
    let bits = "";
    while (bits.length < classifiers.length) {
      const until = performance.now() + SLICE;
      while (bits.length < classifiers.length && performance.now() < until) {
        bits += classifiers[bits.length](silenced);
      }
      await new Promise((next) => { setTimeout(next); });
      if (mine !== job) return;
      done = bits.length;
      figure.draw();
    }
    known[key(off)] = bits;
    done = 0;
    figure.save({ answer: { off, right: bits } });
  }

  function switchHeads(off) {
    job++;
    done = 0;
    failed = false;
    figure.save({ off });
    if (!figure.local) return;
    const right = known[key(off)];
    if (right) figure.save({ answer: { off, right } });
    else compute(off).catch(() => {
      loading = null; // a file that has not arrived is fetched again
      failed = true;
      figure.draw();
    });
  }
  const isOff = (layer, head) => figure.state().off.some(([l, h]) => l === layer && h === head);
  const toggle = (layer, head) => {
    const { off } = figure.state();
    const others = off.filter(([l, h]) => l !== layer || h !== head);
    const more = [...off, [layer, head]].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    switchHeads(isOff(layer, head) ? others : more);
  };

  const ofLayer = (layer) => Array.from({ length: heads }, (_, head) => [layer, head]);
  const presets = { "as clicked": null, "all on": [] };
  for (let layer = 0; layer < layers; layer++) presets[`layer ${layer} off`] = ofLayer(layer);
  presets["all off"] = [...Array(layers).keys()].flatMap(ofLayer);
  const preset = ({ off }) => {
    return Object.keys(presets).find((name) => presets[name] && key(presets[name]) === key(off));
  };
  figure.select("heads", Object.keys(presets), (state) => preset(state) ?? "as clicked", (name) => {
    if (presets[name]) switchHeads(presets[name]);
  });

  const whole = mean(correct(every));
  const left = figure.panel("");
  left.caption.textContent = "right with one head off, in %";
  const about = (layer, head) => {
    const share = percent(alone.data[layer * heads + head], 1);
    const now = isOff(layer, head) ? "off" : "on";
    return `layer ${layer}, head ${head}, ${now}: ${share} with only this one off`;
  };
  const grid = figure.cells(left.host, {
    label: "Heads by layer (rows). Arrow keys move, Enter and Space switch a head off or on.",
    shape: () => [layers, heads],
    words: about,
    pin: toggle,
  });
  const shares = Array.from(alone.data, (share) => drawing.number(100 * share, 1));
  const written = shares.map((share) => element("span", {}, share));
  const numbers = element("div", { class: "vit-numbers" }, ...written);
  numbers.style.gridTemplate = `repeat(${layers}, 1fr) / repeat(${heads}, 1fr)`;
  grid.canvas.after(numbers);
  numbers.hidden = heads > 8; // they would not fit
  const ticks = ["−5", "no change", "+5 points"].map((tick) => element("span", {}, tick));
  left.host.append(element("div", { class: "vit-legend around" },
    element("span", {}, "accuracy"), element("i"), element("span", {}, ...ticks)));

  const right = figure.panel("medium");
  const classes = [...new Set(labels)].sort((a, b) => a - b).map((index) => {
    const members = labels.flatMap((label, i) => (label === index ? [i] : []));
    const [bar, before, shown] = [element("i"), element("b"), element("span")];
    const then = mean(members.map((i) => correct(every)[i]));
    before.style.left = `${100 * then}%`;
    const name = element("span", {}, `${names[index]} (${members.length})`);
    const row = [name, element("div", { class: "vit-track" }, bar, before), shown];
    return { members, bar, shown, row };
  });
  right.host.append(element("div", { class: "vit-classes" }, ...classes.flatMap(({ row }) => row)));
  right.caption.textContent = "right in each class (images); the marks show all heads on";
  const most = Math.max(...classes.map(({ members }) => members.length)) / labels.length;

  function draw({ off, answer }) {
    const colorOf = colorsAround(LIMIT);
    paint(grid.canvas, layers, heads, (i) => colorOf(alone.data[i] - whole));
    grid.mark(off.map((head) => ["out", ...head]));
    if (key(answer.off) !== key(off)) {
      if (failed) return { words: "The model could not be loaded.", values: null };
      const state = loading && done ? `${done} of ${labels.length} images` : "starting";
      return { words: `Computing the predictions without these heads: ${state}.`, busy: true };
    }
    const values = correct(answer.right);
    for (const { members, bar, shown } of classes) {
      const share = mean(members.map((i) => values[i]));
      bar.style.width = `${100 * share}%`;
      shown.textContent = percent(share);
    }
    const number = off.length;
    const which = number > 1 ? words.some : number ? words.one : words.none;
    return {
      values,
      words: fill(words.text, {
        off: fill(which, { number, heads: layers * heads }), right: percent(mean(values), 1),
        count: labels.length, every: percent(whole, 1), most: percent(most),
      }),
    };
  }
  const help = "Click heads to switch them off; by keys: Tab, the arrow keys, then Space or Enter.";
  return { help, draw };
};
