"use strict";
// The panel "Why this number?".
{
  const { element, number } = drawing;
  const { state } = explorer;

  // go to the map that shows a number, and explain it
  function follow(name, index) {
    const [, layer] = name.match(/^layers\.(\d+)\./) ?? [];
    const part = name.split(".").at(-1);
    const choices = { cell: `${name}:${index.join(".")}` };
    if (layer) choices.layer = Number(layer);
    if (index.length === 3) choices.head = index[0];
    if (part === "patches") choices.token = index[0] + 1;
    else if (!["pooled", "logits", "probabilities"].includes(part)) choices.token = index.at(-2);
    explorer.set(choices);
    document.querySelector(`[data-part="${part}"]`)?.scrollIntoView({ block: "nearest" });
  }

  const link = (label, to) => element(
    "button", { type: "button", class: "term", onclick: () => follow(...to) }, label,
  );

  function row({ label, from, a, b, product }, largest) {
    const bar = element("span", { class: product < 0 ? "bar less" : "bar" });
    bar.style.setProperty("--size", Math.abs(product) / largest);
    return element("tr", {},
      element("th", { scope: "row" }, link(label, from)),
      ...[a, b, product].map((each) => element("td", {}, number(each))),
      element("td", {}, bar));
  }

  // the largest products; a button in the last row adds the others
  const SHOWN = 16;
  function tableOf({ names, terms, bias, total, products: sumOfProducts }) {
    const largest = Math.max(...terms.map(({ product }) => Math.abs(product)), 1e-12);
    const heads = [...names, "product"].map((name) => element("th", { scope: "col" }, name));
    const added = bias === undefined ? ""
      : `; with the bias ${number(bias)}, the result is ${number(total)}`;
    const words = `The ${terms.length} products add up to ${number(sumOfProducts)}${added}`;
    const rows = (some) => some.map((term) => row(term, largest));
    const others = terms.slice(SHOWN);
    const last = element("tr", {},
      element("th", { scope: "row", colspan: 3 }, element("button", {
        type: "button", class: "term", onclick: () => last.replaceWith(...rows(others)),
      }, `${others.length} smaller ones`)),
      element("td", {}, number(others.reduce((all, { product }) => all + product, 0))),
      element("td"));
    return [
      element("p", { class: "sum" }, words),
      element("table", {}, element("caption", {}, "The largest products come first, and all numbers are rounded."),
        element("thead", {}, element("tr", {}, ...heads, element("td"))),
        element("tbody", {}, ...rows(terms.slice(0, SHOWN)), others.length ? last : "")),
    ];
  }

  function drawWhy() {
    const panel = document.getElementById("why");
    const found = explorer.explain(state.cell);
    document.getElementById("why-empty").hidden = Boolean(found);
    panel.replaceChildren();
    if (!found) return;
    const { title, operation, place, lines = [], table, from = [], code, lesson, digits } = found;
    const links = from.flatMap(([label, ...to], i) => [i ? " or " : "Go to ", link(label, to)]);
    const [section] = lesson.match(/(?<=#)[\d.]+/);
    const shownValue = element("output", {}, number(found.value, digits));
    panel.append(
      element("p", { class: "value" }, element("b", {}, title), shownValue),
      element("p", { class: "place" }, place),
      element("p", {}, operation),
      element("ol", { hidden: !lines.length }, ...lines.map((line) => element("li", {}, line))),
      element("p", { hidden: !from.length }, ...links),
      ...(table ? tableOf(table) : []),
      element("p", { class: "code" }, element("code", {}, code)),
      element("p", {}, element("a", { href: lesson }, `Section ${section} of the course`)),
    );
    explorer.say(`${title}, ${place}: ${number(found.value, digits)}`);
  }

  // on a narrow screen the explanations are a sheet at the lower edge
  function openSheet(open) {
    document.body.classList.toggle("sheet-open", open);
    document.getElementById("sheet").setAttribute("aria-expanded", open);
  }

  // scroll until the sheet no longer covers the number that is explained
  function uncover() {
    const sheet = document.querySelector("aside");
    const mark = document.querySelector("main .pin")?.getBoundingClientRect();
    const covered = mark ? mark.bottom + 24 - sheet.getBoundingClientRect().top : 0;
    if (getComputedStyle(sheet).position === "fixed" && covered > 0) scrollBy(0, covered);
  }

  Object.assign(explorer, { follow, drawWhy, openSheet, uncover });
}
