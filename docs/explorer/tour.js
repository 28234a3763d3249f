"use strict";
// A first visit, step by step: each step has words, a place on the page, and choices that it makes.
{
  const { element, state, percent, number } = explorer;
  const PATCH = 30; // the patch to which the class token attends most in layer 1, head 0, for image 0
  const byId = (id) => document.getElementById(id);

  const STEPS = [
    {
      title: "One image, ten classes",
      place: "#image-panel",
      choices: { image: 0, token: 0, layer: 0, head: 0, overlay: "none", cell: null },
      words: () => `A Vision Transformer with 139,018 parameters runs in this page. It has read an image of 28 × 28 `
        + `pixels and given each of ten classes a probability. The largest belongs to “${explorer.top().name}”, `
        + `with ${percent(explorer.top().share)}. The tour follows the numbers from the pixels to this prediction.`,
    },
    {
      title: "Patches",
      place: "#tokens",
      choices: { token: 26, overlay: "none", cell: "patches:25.0" },
      words: () => `The model cuts the image into 7 × 7 patches of 4 × 4 pixels, because attention compares every `
        + `element with every other one, and 784 single pixels would be too many. Patch 25 is outlined. Each row of `
        + `the first map is one patch, written as a vector of 16 numbers.`,
    },
    {
      title: "Tokens",
      place: "#tokens",
      choices: { token: 26, cell: "tokens:26.0" },
      words: () => `A linear layer turns each patch into a token, which is a vector of 64 features. “Why this number?” `
        + `shows the arithmetic for the first feature of patch 25: 16 products of a pixel and a learned weight, plus `
        + `a bias. Click any number in any map to see its arithmetic.`,
    },
    {
      title: "Class token and positions",
      place: "#tokens",
      choices: { token: 0, cell: "embedding:0.0" },
      words: () => `The first row of the second map is the class token. It is learned, it belongs to no patch, and the `
        + `prediction is read from it at the end. A position embedding is added to every token because attention `
        + `itself does not depend on the order of the tokens.`,
    },
    {
      title: "Queries and keys",
      place: "#head-maps",
      choices: { layer: 1, head: 0, token: 0, overlay: "attention", cell: `layers.1.scores:0.0.${PATCH}` },
      words: () => `In a head, each token has a query and a key, which are vectors of 16 features. A query is compared `
        + `with every key by a dot product, and the result is the score of the two tokens. Here the query of the class `
        + `token meets the key of patch ${PATCH - 1}, in layer 1, head 0.`,
    },
    {
      title: "Attention weights",
      place: "#head-maps",
      choices: { layer: 1, head: 0, token: 0, cell: `layers.1.weights:0.0.${PATCH}` },
      words: () => `The scores are divided by √16, and the softmax turns each row into weights that add up to 1. The `
        + `class token gives patch ${PATCH - 1} the weight ${number(explorer.value("layers.1.weights", [0, 0, PATCH]))}, `
        + `and it collects that share of the patch’s value vector.`,
    },
    {
      title: "Layers and heads",
      place: "#attention",
      choices: { layer: 3, head: 0, token: 0, cell: null },
      words: () => `The model has 4 layers with 4 heads each. Every small map shows how much the query token attends to `
        + `each patch, and all of them use the same colors. Click a map to lay it over the image, or click a patch of `
        + `the image to make it the query token.`,
    },
    {
      title: "The residual stream",
      place: "#block",
      choices: { layer: 3, cell: "layers.3.output:0.0" },
      words: () => `What the heads collect is added to each token. Then the MLP transforms each token on its own, and its `
        + `output is added as well. The tokens that pass from block to block in this way are called the residual stream.`,
    },
    {
      title: "Logits",
      place: "#prediction",
      choices: { cell: `logits:0.9` },
      words: () => `After the last layer, the classification head reads the class token alone. Ten linear combinations of its `
        + `64 features are the logits, and one more softmax turns them into the probabilities.`,
    },
    {
      title: "Switch heads off",
      place: "#attention",
      choices: { image: 4, off: ["0.1"], layer: 0, head: 1, cell: null },
      words: () => `This shirt was taken for a T-shirt. With head 1 of layer 0 switched off, the prediction is `
        + `“${explorer.top().name}”, with ${percent(explorer.top().share)}, although no other number of the model was `
        + `changed. The marks on the bars show the unchanged model.`,
    },
    {
      title: "Which patches decide?",
      place: "#image-panel",
      choices: { image: 0, off: [], overlay: "effect", layer: 3, head: 0, token: 0 },
      words: () => `Attention shows where a head looks, but not which patches decide. For that, each patch is left out in `
        + `turn. Red patches support the prediction: without them, its logit falls. Now it is your turn: draw a shoe, `
        + `shuffle the patches, or remove the positions.`,
    },
  ];

  function go(step, moves = true) {
    const choices = STEPS[step - 1]?.choices ?? {};
    const usual = { off: [], without: [], shuffle: 0, positions: true };
    const { image = 0 } = choices;
    explorer.set({ ...usual, ...(state.image === image ? {} : { image }), ...choices, step });
    if (step) explorer.openSheet(true);
    if (step === 0 || !moves) return;
    document.querySelector(STEPS[step - 1].place)?.scrollIntoView({ block: "start" });
    byId("tour-title").focus({ preventScroll: true });
  }

  function close() {
    explorer.set({ off: [], without: [], shuffle: 0, positions: true, step: 0 });
    try { localStorage.setItem("explorer-tour", "seen"); } catch { /* a browser that stores nothing */ }
    byId("start-tour").focus({ preventScroll: true });
  }

  function draw() {
    const step = STEPS[state.step - 1];
    byId("tour").hidden = !step;
    for (const place of document.querySelectorAll(".toured")) place.classList.remove("toured");
    if (!step) return;
    document.querySelector(step.place)?.classList.add("toured");
    byId("tour-title").textContent = `${state.step} of ${STEPS.length}: ${step.title}`;
    byId("tour-words").textContent = step.words();
    byId("tour-back").disabled = state.step === 1;
    byId("tour-next").textContent = state.step === STEPS.length ? "Explore on your own" : "Next";
  }

  function makeTour() {
    explorer.onDraw(draw);
    byId("start-tour").addEventListener("click", () => go(1));
    byId("tour-back").addEventListener("click", () => go(state.step - 1));
    byId("tour-next").addEventListener("click", () => (state.step === STEPS.length ? close() : go(state.step + 1)));
    byId("tour-close").addEventListener("click", close);
  }

  Object.assign(explorer, { makeTour, goToStep: go });
}
