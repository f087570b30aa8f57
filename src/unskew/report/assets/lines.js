"use strict";
// Curves with bands, and histograms as steps.
function range(values, share) {
  let low = Math.min(...values), high = Math.max(...values);
  const room = 0.05 * (high - low || Math.abs(high) || 1);
  low -= room;
  high += room;
  return share ? [Math.max(0, low), Math.min(1, high)] : [low, high];
}

function pathOf(xs, ys) {
  let path = "", open = false;
  ys.forEach((y, i) => {
    if (y !== null) path += `${open ? "L" : "M"}${xs[i].toFixed(1)} ${y.toFixed(1)}`;
    open = y !== null;
  });
  return path;
}

DRAW.curves = (chart, width) => {
  const { data } = chart, series = data.series.filter(isShown);
  const height = 280, box = { left: 54, right: width - 10, top: 8, bottom: height - 40 };
  const svg = canvasOf(chart, width, height);
  const known = series.flatMap((s) => [...s.low, ...s.high, ...(s.points || [])]).filter((v) => v !== null);
  if (!known.length) return svg;
  const xs = series.flatMap((s) => s.x), first = Math.min(...xs), last = Math.max(...xs);
  const x = scale(first, Math.max(last, first + 1), box.left, box.right);
  const [low, high] = range(known, data.share), y = scale(low, high, box.bottom, box.top);
  const whole = ticks(first, last, Math.max(3, width / 90)).filter(Number.isInteger);
  axisX(svg, x, box, whole, data.x, (v) => String(v));
  axisY(svg, y, box, ticks(low, high, 5), (v) => tickText(v, data.share));
  for (const s of series) {
    const ready = s.x.map((_, i) => i).filter((i) => s.low[i] !== null && s.high[i] !== null);
    const edge = [...ready.map((i) => [s.x[i], s.high[i]]), ...ready.reverse().map((i) => [s.x[i], s.low[i]])];
    const points = edge.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
    svg.append(svgNode("polygon", { points, fill: color(s.method), "fill-opacity": series.length > 3 ? 0.09 : 0.15 }));
  }
  for (const s of series) {
    const d = pathOf(s.x.map(x), s.mean.map((v) => (v === null ? null : y(v))));
    svg.append(svgNode("path", {
      d, fill: "none", stroke: color(s.method), "stroke-width": 2, "stroke-linejoin": "round",
      "stroke-dasharray": dash(s.method), class: "curve",
    }));
    (s.points || []).forEach((v, i) => {
      if (v === null) return;
      svg.append(svgNode("circle", {
        cx: x(s.x[i]), cy: y(v), r: 2.5, fill: color(s.method), "fill-opacity": 0.6,
      }));
    });
    if (s.x.length === 1 && s.mean[0] !== null) {
      svg.append(svgNode("circle", { cx: x(s.x[0]), cy: y(s.mean[0]), r: 3.5, fill: color(s.method) }));
    }
  }
  hoverCurves(svg, series, box, x, y, data);
  return svg;
};

function hoverCurves(svg, series, box, x, y, data) {
  const marks = svgNode("g", {}), rounds = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
  const area = svgNode("rect", {
    x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
    fill: "transparent", class: "hover",
  });
  svg.append(marks, area);
  follow(svg, area, (px, _, event) => {
    const round = rounds.reduce((best, r) => (Math.abs(x(r) - px) < Math.abs(x(best) - px) ? r : best));
    const atRound = series
      .map((s) => ({ s, i: s.x.indexOf(round) }))
      .filter(({ s, i }) => i >= 0 && s.mean[i] !== null)
      .map(({ s, i }) => ({ method: s.method, mean: s.mean[i], sd: s.high[i] - s.mean[i] }))
      .sort((a, b) => b.mean - a.mean);
    marks.replaceChildren(line(x(round), box.top, x(round), box.bottom, { stroke: "var(--soft)" }));
    for (const h of atRound) {
      marks.append(svgNode("circle", { cx: x(round), cy: y(h.mean), r: 3.5, fill: color(h.method) }));
    }
    showTip(event, `${data.x} ${round}`, atRound.map((h) => [h.method, number(h.mean, data.share), color(h.method)]));
  }, () => marks.replaceChildren());
}

DRAW.histograms = (chart, width) => {
  const { data } = chart, { edges } = data, series = data.series.filter(isShown);
  const height = 260, box = { left: 54, right: width - 14, top: 8, bottom: height - 40 };
  const svg = canvasOf(chart, width, height);
  if (!series.length) return svg;
  const top = Math.max(...series.flatMap((s) => s.shares));
  const x = scale(edges[0], edges[edges.length - 1], box.left, box.right), y = scale(0, top * 1.05, box.bottom, box.top);
  axisX(svg, x, box, data.ticks.map(([position]) => position), data.x, (v) => data.ticks.find(([position]) => position === v)[1]);
  axisY(svg, y, box, ticks(0, top, 4), (v) => tickText(v, true));
  for (const s of series) {
    const steps = s.shares.map((share, i) => `L${x(edges[i])} ${y(share)}L${x(edges[i + 1])} ${y(share)}`);
    svg.append(svgNode("path", {
      d: `M${box.left} ${y(0)}${steps.join("")}L${box.right} ${y(0)}`, fill: color(s.method), "fill-opacity": 0.13,
      stroke: color(s.method), "stroke-width": 1.8, "stroke-dasharray": dash(s.method), class: "steps",
    }));
  }
  const area = svgNode("rect", {
    x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top,
    fill: "transparent", class: "hover",
  });
  svg.append(area);
  follow(svg, area, (px, _, event) => {
    const bin = Math.max(0, Math.min(data.bins.length - 1, edges.findIndex((edge) => px < x(edge)) - 1));
    showTip(event, `weight ${data.bins[bin]}`, series.map((s) => [s.method, number(s.shares[bin], true), color(s.method)]));
  });
  return svg;
};
