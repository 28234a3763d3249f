"use strict";
// What the visitor has chosen, the tensors that follow from it, and the address that holds both.
globalThis.explorer = {};
{
  const CHOICES = {
    image: 0, // of the shipped images; null for a drawing or a file
    token: 0, // the query token
    layer: 0,
    head: 0,
    off: [], // heads, such as "2.1"
    without: [], // patches that are left out
    shuffle: 0, // the seed of the order of the patches; 0 keeps them in their places
    positions: true,
    overlay: "attention", // what is laid over the image
    cell: null, // the number that is explained, such as "layers.0.weights:1.25.31"
    step: 0, // of the tour; 0 when it is closed
  };
  const UNCHANGED = { off: [], without: [], shuffle: 0, positions: true };
  const state = { ...structuredClone(CHOICES), tool: "select" };
  const listeners = [];

  // a seed always gives the same order
  function shuffled(count, seed) {
    const order = [...Array(count).keys()];
    let random = seed;
    for (let i = count - 1; i > 0; i--) {
      random = (Math.imul(random, 1664525) + 1013904223) >>> 0; // below 2³²
      const j = Math.floor((random / 2 ** 32) * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  function grid() {
    const { image_size: [height, width], patch_size: p } = explorer.model.sizes;
    return { rows: height / p, columns: width / p, patch: p, count: (height * width) / p / p };
  }

  const order = () => (state.shuffle ? shuffled(grid().count, state.shuffle) : null);

  function compute(without = state.without) {
    return vit.forward(explorer.model, explorer.picture, {
      silenced: new Set(state.off),
      leftOut: new Set(without.map((patch) => patch + 1)),
      order: order(),
      positions: state.positions,
    });
  }

  const changes = (of = state) => Object.keys(UNCHANGED).map((name) => of[name]).join(";");
  const changed = () => changes() !== changes(UNCHANGED);

  // compute again what depends on the picture and on the changes to the model, then draw
  function refresh(newPicture = true) {
    if (newPicture) explorer.unchanged = vit.forward(explorer.model, explorer.picture);
    explorer.record = changed() ? compute() : explorer.unchanged;
    explorer.version = (explorer.version ?? 0) + 1;
    draw();
  }

  function draw() {
    const all = `${explorer.version} ${drawing.theme()}`;
    for (const each of listeners) {
      const now = `${all} ${each.depends()}`;
      if (now === each.drawn) continue;
      each.drawn = now;
      each.listener();
    }
  }

  // to be drawn again when the numbers or the theme change, or what `depends` returns
  function onDraw(listener, depends = () => "") {
    listeners.push({ listener, depends, drawn: null });
  }

  // a new entry in the browser's history for each explained number: Back leads to the last one
  function set(choices) {
    const pinned = "cell" in choices && choices.cell && choices.cell !== state.cell;
    const before = changes();
    if (choices.image !== undefined && choices.image !== null) explorer.show(choices.image);
    Object.assign(state, choices);
    if (choices.cell) explorer.openSheet(true);
    const another = choices.image ?? choices.shuffle; // not a stroke of a drawing
    if (another !== undefined) document.getElementById("image-panel").scrollTop = 0;
    if (changes() !== before || "image" in choices) refresh("image" in choices);
    else draw();
    if (pinned) writeAddress("pushState");
    else setTimeout(writeAddress, 0, "replaceState"); // takes long, so the page is drawn first
  }

  function writeAddress(how) {
    const address = `#${written()}`;
    if (address !== (location.hash || "#")) history[how](null, "", address);
  }

  function written() {
    const words = new URLSearchParams();
    for (const [name, usual] of Object.entries(CHOICES)) {
      if (String(state[name]) !== String(usual)) words.set(name, state[name]);
    }
    return words.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  }

  // the choices that an address holds; what does not fit the model is passed over
  function read(address) {
    const words = new URLSearchParams(address.replace(/^#/, ""));
    const { sizes } = explorer.model;
    const whole = (name, below) => {
      const value = Number(words.get(name) ?? CHOICES[name]);
      return Number.isInteger(value) && value >= 0 && value < below ? value : CHOICES[name];
    };
    const list = (name) => (words.get(name) ?? "").split(",").filter(Boolean);
    const headExists = (name) => {
      const [layer, head] = (name.match(/^\d+\.\d+$/)?.[0] ?? "").split(".").map(Number);
      return layer < sizes.num_layers && head < sizes.num_heads;
    };
    const patchExists = (patch) => Number.isInteger(patch) && patch >= 0 && patch < grid().count;
    return {
      image: words.get("image") === "null" && state.image === null ? null
        : whole("image", vit.shipped.labels.length),
      token: whole("token", grid().count + 1),
      layer: whole("layer", sizes.num_layers),
      head: whole("head", sizes.num_heads),
      off: list("off").filter(headExists),
      without: list("without").map(Number).filter(patchExists),
      shuffle: whole("shuffle", 2 ** 31),
      positions: words.get("positions") !== "false",
      overlay: ["none", "effect"].find((name) => name === words.get("overlay")) ?? "attention",
      cell: words.get("cell") || null,
      step: whole("step", document.querySelectorAll("#tour-steps li").length + 1),
    };
  }

  const tokenName = (token) => {
    if (token === 0) return "the class token";
    const { columns } = grid();
    const patch = token - 1;
    return `patch ${patch} (row ${Math.floor(patch / columns)}, column ${patch % columns})`;
  };
  const pairName = (part, i, j) => (part === "weights"
    ? `${tokenName(i)} attends to ${tokenName(j)}`
    : `query of ${tokenName(i)}, key of ${tokenName(j)}`);

  const percent = (share) => drawing.percent(share, 1);
  const say = (words) => { document.getElementById("status").textContent = words; };

  Object.assign(explorer, { CHOICES, UNCHANGED, state, set, read, refresh, draw, onDraw });
  Object.assign(explorer, { compute, changed, order, grid, tokenName, pairName });
  Object.assign(explorer, { percent, say });
}
