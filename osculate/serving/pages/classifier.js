// A classifier: uncertain inputs, reliability, and entropy in and out of distribution.

import { Chart, chooser, element, inWords, legend, mean, median, percent, picture, section, shape, short, slider, soft, table } from "./draw.js";

const KINDS = { network: "first", posterior: "second" };
// Those of the two that the run has, and the last of them.
const kindsOf = (found) => Object.keys(KINDS).filter((kind) => kind in found);
const lastOf = (found) => kindsOf(found).at(-1);
const words = (found) => legend(...kindsOf(found).map((kind) => [KINDS[kind], kind]));

export function show(content, main) {
  main.append(uncertain(content), reliability(content), entropies(content));
}

function uncertain({ uncertain: inputs, classes, columns, scores, inputs: count }) {
  const detail = element("div", { class: "big", "aria-live": "polite" });
  const buttons = inputs.map((input, place) => {
    const name = `test input ${input.index}, ${input.label}, entropy ${short(input.entropy[lastOf(scores)])}`;
    const shown = input.picture ? picture(input.picture, "") : null;
    shown?.setAttribute("aria-hidden", "true");
    return element("button", { type: "button", "aria-pressed": "false", "aria-label": name, on: { click: () => select(place) } },
      shown, element("span", { text: shown ? input.label : `${input.index}: ${input.label}` }));
  });
  function select(place) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(at === place)));
    detail.replaceChildren(...detailOf(inputs[place], classes, columns));
  }
  const list = element("ul", { class: "list" }, ...buttons.map((button) => element("li", {}, button)));
  const made = section("Most uncertain inputs",
    soft(`The ${inputs.length} of ${count} test inputs whose predictive of the ${lastOf(scores)} has the largest entropy, with their true class.`),
    element("div", { class: "columns" }, list, detail));
  if (inputs.length) select(0);
  return made;
}

function* detailOf(input, classes, columns) {
  const image = input.picture && picture(input.picture, `test input ${input.index}`);
  yield element("h2", { text: `Test input ${input.index}: ${input.label}` });
  if (input.row.length) yield table(["Column", "Value"], columns.map((column, at) => [column.name, inWords(input.row[at], column)]));
  else yield image ?? soft(`Begins with ${input.values.map(short).join(", ")}`);
  const kinds = kindsOf(input.entropy);
  yield legend(...kinds.map((kind) => [KINDS[kind], `${kind}, entropy ${short(input.entropy[kind])} nats`]));
  const order = classes.map((name, place) => ({ name, place }))
    .sort((a, b) => input.probabilities[kinds.at(-1)][b.place] - input.probabilities[kinds.at(-1)][a.place]).slice(0, 12);
  yield element("div", { class: kinds.length > 1 ? "bars" : "bars alone", role: "group", "aria-label": "probabilities" }, ...order.flatMap(({ name, place }) => [
    element("span", { text: name }),
    ...kinds.map((kind) => bar(input.probabilities[kind][place], kind, KINDS[kind])),
  ]));
}

function bar(share, kind, type) {
  const svg = shape("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(shape("rect", { x: 0, y: 2, width: 100 * share, height: 10, class: `fill-${type}` }));
  return element("span", { class: "bar" }, svg, element("small", { text: percent(share), "aria-label": `${kind} ${percent(share)}` }));
}

export function bins(scores, count) {
  const made = Array.from({ length: count }, () => ({ size: 0, confidence: 0, right: 0 }));
  scores.confidence.forEach((confidence, place) => {
    const bin = made[Math.min(count - 1, Math.floor(confidence * count))];
    bin.size += 1;
    bin.confidence += confidence;
    bin.right += scores.right[place];
  });
  return made.filter((bin) => bin.size);
}

export function calibrationError(scores, count) {
  const gaps = bins(scores, count).map((bin) => Math.abs(bin.confidence - bin.right));
  return gaps.reduce((sum, gap) => sum + gap, 0) / scores.confidence.length;
}

function reliability({ scores }) {
  const place = element("div", {});
  const numbers = element("div", { "aria-live": "polite" });
  const control = slider("Bins", { min: 2, max: 40, step: 1, value: 12, words: String, change: (count) => {
    const chart = new Chart({ x: [0, 1], y: [0, 1], xTitle: "confidence", yTitle: "share of right predictions", title: "reliability" });
    chart.line([[0, 0], [1, 1]], "even");
    for (const kind of kindsOf(scores)) {
      const type = KINDS[kind];
      const points = bins(scores[kind], count).map((bin) => [bin.confidence / bin.size, bin.right / bin.size, bin.size]);
      chart.line(points, type);
      for (const [x, y, size] of points) chart.dot(x, y, type, 2 + 8 * Math.sqrt(size / scores[kind].right.length));
    }
    chart.says(`in ${count} bins, ${kindsOf(scores).map((kind) => `${kind}: ${percent(mean(scores[kind].right))} right at a mean confidence of ${percent(mean(scores[kind].confidence))}, mean distance from the line ${percent(calibrationError(scores[kind], count))}`).join("; ")}.`);
    place.replaceChildren(chart.svg);
    numbers.replaceChildren(table(["", "accuracy", "mean confidence", "ECE"], kindsOf(scores).map((kind) => [
      kind, percent(mean(scores[kind].right)), percent(mean(scores[kind].confidence)), percent(calibrationError(scores[kind], count)),
    ])));
  } });
  control.moved();
  return section("Reliability", element("div", { class: "columns" },
    element("figure", {}, place, words(scores)),
    element("div", {}, control.label, numbers,
      soft("Larger dots stand for more inputs. On the dashed line, confidence is the share of right predictions; ECE is the mean distance from it."))));
}

function entropies({ inside, outside, classes }) {
  const titles = Object.keys(outside);
  const place = element("div", {});
  const numbers = element("div", { "aria-live": "polite" });
  const most = Math.log(classes.length);
  let set = 0;
  let kind = lastOf(inside);
  const start = [...inside[kind]].sort((a, b) => a - b)[Math.floor(0.95 * (inside[kind].length - 1))];
  const control = slider("Threshold of the entropy, nats", { min: 0, max: most, step: most / 200, value: start, change: draw });
  const sets = titles.length > 1 ? chooser("Out of distribution:", titles, (at) => { set = at; draw(); }) : null;
  const kinds = kindsOf(inside).length > 1 ? chooser("Entropy of", kindsOf(inside).reverse(), (at) => { kind = kindsOf(inside).reverse()[at]; draw(); }) : null;
  function draw() {
    const threshold = Number(control.input.value);
    const within = inside[kind];
    const without = titles.length ? outside[titles[set]][kind] : [];
    const rows = [within, without].map((values) => histogram(values, most));
    const chart = new Chart({ x: [0, most], y: [0, Math.max(...rows.flat(), 0.01)], xTitle: "entropy, nats", yTitle: "share of inputs", title: "histogram of entropies" });
    rows.forEach((shares, at) => {
      if (!(at ? without : within).length) return;
      const width = most / shares.length;
      chart.line(shares.flatMap((share, bin) => [[bin * width, share], [(bin + 1) * width, share]]), at ? "first" : "second");
    });
    chart.line([[threshold, 0], [threshold, chart.y[1]]], "mark");
    place.replaceChildren(chart.svg);
    const above = (values) => values.filter((value) => value > threshold).length / values.length;
    const half = (values, name) => `${name}: half are above ${short(median(values))} nats, ${percent(above(values))} above the threshold`;
    chart.says(`${[half(within, "test inputs"), ...(without.length ? [half(without, titles[set])] : [])].join("; ")}.`);
    const found = [["test inputs above the threshold (false alarms)", percent(above(within))]];
    if (without.length) found.push([`${titles[set]} below the threshold (missed)`, percent(1 - above(without))], ["AUROC", area(within, without).toFixed(3)]);
    numbers.replaceChildren(table(["Error rates", ""], found));
  }
  draw();
  const key = titles.length ? legend(["first", "out of distribution"], ["second", "test inputs"]) : soft("No out-of-distribution data are known for these data.");
  return section("Entropy in and out of distribution", element("div", { class: "columns" },
    element("figure", {}, place, key),
    element("div", {}, control.label, sets?.label, kinds?.label, numbers)));
}

function histogram(values, most, count = 30) {
  const shares = Array(count).fill(0);
  for (const value of values) shares[Math.min(count - 1, Math.floor((value / most) * count))] += 1 / values.length;
  return shares;
}

// The share of pairs in which the input out of distribution has the larger entropy, ties by half.
export function area(within, without) {
  const sorted = [...within].sort((a, b) => a - b);
  const count = (value, strict) => {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (strict ? sorted[middle] < value : sorted[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const sum = without.reduce((total, value) => total + (count(value, true) + count(value, false)) / 2, 0);
  return sum / (within.length * without.length);
}
