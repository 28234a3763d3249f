"use strict";
// A first visit, step by step. The page has the words of each step, its place, and its choices.
{
  const { number } = drawing;
  const { state, percent } = explorer;
  const byId = (id) => document.getElementById(id);
  const steps = [...document.querySelectorAll("#tour-steps li")];
  const VALUES = {
    answer: () => `“${explorer.top().name}”`,
    share: () => percent(explorer.top().share),
    cell: () => number(explorer.explain(state.cell)?.value ?? 0, 4),
  };

  function scrollToPlace() {
    const place = document.querySelector(steps[state.step - 1].dataset.place);
    const wide = innerWidth >= 1180; // otherwise the tour covers the lower half
    const [, part] = state.cell?.match(/(\w+):/) ?? [];
    const fits = place.offsetHeight < (wide ? 0.8 : 0.35) * innerHeight;
    const target = (fits ? null : place.querySelector(`[data-part="${part}"]`)) ?? place;
    target.scrollIntoView({ block: wide && (fits || target !== place) ? "center" : "start" });
  }

  let own = null; // what the visitor had drawn or opened before the tour
  function go(step) {
    const { picture, caption } = explorer;
    if (!state.step) own = state.image === null ? { picture, caption } : null;
    const { choices } = steps[step - 1].dataset;
    const wanted = explorer.read(choices);
    const named = [...new URLSearchParams(choices).keys()].map((name) => [name, wanted[name]]);
    const image = wanted.image === state.image ? {} : { image: wanted.image };
    explorer.set({ ...explorer.UNCHANGED, ...image, ...Object.fromEntries(named), step });
    explorer.openSheet(true);
  }

  function close() {
    const back = own && state.image !== null; // nothing is newly drawn
    if (back) Object.assign(explorer, own);
    explorer.set({ ...explorer.UNCHANGED, ...(back && { image: null }), step: 0 });
    try { localStorage.setItem("explorer-tour", "seen"); } catch { /* nothing can be stored */ }
    explorer.openSheet(false);
    byId("start-tour").focus({ preventScroll: true });
  }

  function draw() {
    const step = steps[state.step - 1];
    byId("tour").hidden = !step;
    document.querySelector(".toured")?.classList.remove("toured");
    if (!step) return;
    document.querySelector(step.dataset.place).classList.add("toured");
    byId("tour-title").textContent = `${state.step} of ${steps.length}: ${step.title}`;
    byId("tour-words").replaceChildren(...step.cloneNode(true).childNodes);
    for (const place of document.querySelectorAll("#tour-words [data-value]")) {
      place.textContent = VALUES[place.dataset.value]();
    }
    byId("tour-back").disabled = state.step === 1;
    byId("tour-next").textContent = state.step === steps.length ? "Explore on your own" : "Next";
  }

  function makeTour() {
    const move = (step) => {
      go(step);
      scrollToPlace();
      byId("tour-title").focus({ preventScroll: true });
    };
    explorer.onDraw(draw, () => [state.step, state.cell]);
    byId("start-tour").addEventListener("click", () => move(1));
    byId("tour-back").addEventListener("click", () => move(state.step - 1));
    byId("tour-next").addEventListener("click", () => {
      if (state.step === steps.length) close();
      else move(state.step + 1);
    });
    byId("tour-close").addEventListener("click", close);
  }

  Object.assign(explorer, { makeTour, goToStep: go, scrollToPlace });
}
