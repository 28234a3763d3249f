"use strict";
// The picture that the model reads: a shipped one, a drawing, or a file; and a checkpoint's file.
{
  const { element, packed, paint } = drawing;
  const { state } = explorer;
  const SIDE = 28; // of the shipped images, in pixels
  const area = SIDE * SIDE;

  // brightness in [0, 1], averaged over areas to the size that the model reads
  function fitted(shade, height, width) {
    const { in_channels: channels, image_size: [rows, columns] } = explorer.model.sizes;
    const picture = vit.tensor([channels, rows, columns]);
    for (let i = 0; i < rows * columns; i++) {
      const [y, x] = [Math.floor(i / columns), i % columns];
      const [top, left] = [Math.floor((y * height) / rows), Math.floor((x * width) / columns)];
      const bottom = Math.max(Math.ceil(((y + 1) * height) / rows), top + 1);
      const right = Math.max(Math.ceil(((x + 1) * width) / columns), left + 1);
      for (let c = 0; c < channels; c++) {
        let sum = 0;
        for (let v = top; v < bottom; v++) for (let u = left; u < right; u++) sum += shade(v, u, c);
        picture.data[c * rows * columns + i] = sum / ((bottom - top) * (right - left));
      }
    }
    return picture;
  }

  function show(image) {
    const pixels = explorer.images.subarray(image * area, (image + 1) * area);
    explorer.picture = fitted((y, x) => pixels[y * SIDE + x] / 255, SIDE, SIDE);
    const label = explorer.labelNames[vit.shipped.labels[image]];
    explorer.caption = `Test image ${image}. Its label is “${label}”.`;
  }

  // paint a soft dot of the picture's pixels around a point
  let queued = false;
  function dot(y, x, radius) {
    const [channels, rows, columns] = explorer.picture.shape;
    const brightness = document.getElementById("erase").checked ? 0 : 0.85;
    for (let i = 0; i < rows * columns; i++) {
      const distance = Math.hypot(Math.floor(i / columns) + 0.5 - y, (i % columns) + 0.5 - x);
      const share = Math.min(Math.max(radius + 0.5 - distance, 0), 1);
      for (let c = 0; c < channels; c++) {
        const at = c * rows * columns + i;
        explorer.picture.data[at] += share * (brightness - explorer.picture.data[at]);
      }
    }
    drawn();
  }

  function drawn() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      explorer.caption = "Your drawing has no label.";
      explorer.set({ image: null });
    });
  }

  function drawAt(event, box) {
    const frame = box.getBoundingClientRect();
    const [, rows, columns] = explorer.picture.shape;
    const y = ((event.clientY - frame.top) / frame.height) * rows;
    dot(y, ((event.clientX - frame.left) / frame.width) * columns, rows / 16);
  }

  // for the keyboard: a dot of the size of a patch
  function fillPatch(row, column) {
    const { patch } = explorer.grid();
    dot((row + 0.5) * patch, (column + 0.5) * patch, patch / 2);
  }

  function clear() {
    explorer.picture = vit.tensor(explorer.picture.shape);
    state.without = [];
    drawn();
  }

  // lesson 7.9: the largest square in the middle; a light background becomes dark
  async function openPicture(file) {
    const bitmap = await createImageBitmap(file);
    const side = Math.min(bitmap.width, bitmap.height);
    const size = Math.min(side, 448);
    const canvas = element("canvas", { width: size, height: size });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white";
    context.fillRect(0, 0, size, size);
    context.imageSmoothingQuality = "high";
    const corner = [Math.floor((bitmap.width - side) / 2), Math.floor((bitmap.height - side) / 2)];
    context.drawImage(bitmap, ...corner, side, side, 0, 0, size, size);
    const { data } = context.getImageData(0, 0, size, size);
    const color = explorer.model.sizes.in_channels === 3;
    const mean = (at) => (data[at] + data[at + 1] + data[at + 2]) / 3 / 255;
    const last = size - 1;
    const around = (i) => [i, last * size + i, i * size, i * size + last];
    const edge = [...Array(size).keys()].flatMap(around);
    const brightness = edge.reduce((sum, pixel) => sum + mean(4 * pixel), 0) / edge.length;
    const light = !color && brightness > 0.5;
    explorer.picture = fitted((y, x, c) => {
      const at = 4 * (y * size + x);
      const shade = color ? data[at + c] / 255 : mean(at);
      return light ? 1 - shade : shade;
    }, size, size);
    const { image_size: [rows, columns] } = explorer.model.sizes;
    explorer.caption = `${file.name}: the square in the middle, reduced to ${rows} × ${columns}`
      + `${light ? ", and inverted because the background is light" : ""}.`;
    explorer.set({ image: null, shuffle: 0, without: [] });
  }

  async function openCheckpoint(file) {
    const model = vit.readModel(await file.arrayBuffer());
    vit.forward(model, explorer.picture); // what cannot be computed is reported, and nothing has changed
    Object.assign(explorer, { model });
    Object.assign(state, explorer.CHOICES, { off: [], without: [] });
    show(0);
    explorer.unchanged = vit.forward(model, explorer.picture);
    explorer.fitModel();
    makeImages(vit.shipped.labels); // its answers are not known
    explorer.refresh();
    explorer.say(`${file.name} is loaded.`);
    const words = `${describe(file.name)}. Load the page again to return.`;
    document.getElementById("model").textContent = words;
    document.getElementById("start-tour").hidden = true;
  }

  function describe(name) {
    const { num_layers, num_heads, hidden_dim, mlp_dim, patch_size } = explorer.model.sizes;
    const parameters = Object.values(explorer.model.tensors);
    const count = parameters.reduce((sum, { data }) => sum + data.length, 0);
    return `${name}: ${num_layers} layers, ${num_heads} heads, hidden_dim ${hidden_dim}, `
      + `mlp_dim ${mlp_dim}, patch_size ${patch_size}, ${count.toLocaleString("en-US")} parameters`;
  }

  async function open(file) {
    if (!file) return;
    const problem = document.getElementById("problem");
    problem.textContent = "";
    try {
      await (file.name.endsWith(".safetensors") ? openCheckpoint(file) : openPicture(file));
    } catch (error) {
      problem.textContent = file.name.endsWith(".safetensors") ? error.message
        : `${file.name} is not a picture that this browser can read.`;
    }
  }

  // `answers`: the class that the model predicts for each image
  function makeImages(answers) {
    const host = document.getElementById("images");
    host.replaceChildren(...vit.shipped.labels.map((label, image) => {
      const canvas = element("canvas");
      paint(canvas, SIDE, SIDE, (i) => {
        const gray = explorer.images[image * area + i];
        return packed(gray, gray, gray);
      });
      const wrong = answers[image] !== label;
      const title = `Image ${image}, ${explorer.labelNames[label]}`
        + (wrong ? `; the model predicts ${explorer.labelNames[answers[image]]}` : "");
      return element("button", {
        type: "button",
        class: wrong && "wrong",
        "data-image": image,
        "aria-label": title,
        title,
        onclick: () => explorer.set({ image }),
      }, canvas);
    }));
  }

  Object.assign(explorer, { show, drawAt, fillPatch, clear, open, describe, makeImages });
}
