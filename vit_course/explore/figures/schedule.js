"use strict";
// The learning rate of every step: linear warm-up, then cosine decay.
figures.kinds.schedule = (figure) => {
  const { element, percent } = drawing;
  const { words, most_steps } = figure.data;

  // Lesson 6: learning_rate_schedule; `final_share` is the last rate as a share of the peak
  function compute({ peak, total_steps: total, warmup_steps, final_share }) {
    const warmup = Math.min(warmup_steps, total);
    const final = final_share * peak;
    const top = Math.max(warmup - 1, 0);
    return Float64Array.from({ length: total }, (_, step) => {
      if (step < warmup) return (peak * (step + 1)) / warmup;
      const progress = Math.min((step - top) / Math.max(total - 1 - top, 1), 1);
      return final + ((peak - final) * (1 + Math.cos(Math.PI * progress))) / 2;
    });
  }
  const scientific = (value, digits = 2) => {
    return value.toExponential(digits).replace(/e([+-])(\d)$/, "e$10$2");
  };
  const stepOf = ({ step, total_steps: total }) => Math.min(step, total - 1);

  figure.range("peak", "peak", {
    min: -5,
    max: -1,
    step: 0.05,
    from: (exponent) => Number((10 ** exponent).toPrecision(6)),
    to: Math.log10,
    show: (peak) => scientific(peak, 1),
  });
  figure.range("total_steps", "total steps", { min: 2, max: most_steps });
  figure.range("warmup_steps", "warm-up steps", { min: 0, max: (state) => state.total_steps });
  figure.range("final_share", "final, as a share of the peak", {
    min: 0, max: 1, step: 0.01, show: (share) => percent(share),
  });

  let rates = compute(figure.state());
  const say = (step) => `step ${step}: ${scientific(rates[step])}`;
  const { host, caption } = figure.panel("wide");
  const plot = figure.cells(host, {
    label: "The learning rate of every step. Arrow keys, Home and End select a step.",
    shape: () => [1, figure.state().total_steps],
    words: (_, step) => say(step),
    pin: (_, step) => figure.save({ step }),
    selected: () => [0, stepOf(figure.state())],
  });
  const make = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const box = { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" };
  const svg = make("svg", box);
  const warm = make("rect", { class: "warmup", x: 0, y: 0, height: 1 });
  const curve = make("path", { class: "curve" });
  svg.append(warm, curve);
  plot.canvas.replaceWith(svg);
  const [zero, last] = [element("span", {}, "step 0"), element("span")];
  host.append(element("div", { class: "vit-axis" }, zero, last));

  function draw(state) {
    const { peak, total_steps: total } = state;
    const warmup = Math.min(state.warmup_steps, total);
    rates = compute(state);
    const step = stepOf(state);
    const points = Array.from(rates, (rate, i) => `${(i + 0.5) / total} ${1 - rate / peak / 1.1}`);
    curve.setAttribute("d", `M${points.join("L")}`);
    warm.setAttribute("width", warmup / total);
    plot.mark([["pin", 0, step]]);
    const highest = scientific(1.1 * peak, 1);
    caption.textContent = `learning rate, from 0 to ${highest}; warm-up in yellow`;
    last.textContent = `step ${total - 1}`;
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / total;
    return {
      values: rates,
      words: figures.fill(words.step, {
        step, last: total - 1, rate: scientific(rates[step]), share: percent(rates[step] / peak),
        warmup: percent(warmup / total), mean: percent(mean / peak),
      }),
    };
  }
  return { help: "Click the curve to read a step, or use Tab and the arrow keys.", draw };
};
