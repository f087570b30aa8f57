"use strict";
// One row per rival of the baseline: its difference, the interval, and the band of equivalence.
// Small dots are the single federations of a summary.
DRAW.forest = (chart, width) => {
  const { data } = chart, rows = data.rows.filter(isShown);
  const svg = canvasOf(chart, width, 50 + ROW * Math.max(1, rows.length));
  if (!rows.length) return svg;
  const box = { left: nameWidth(rows), right: width - 22, top: 6, bottom: 10 + ROW * rows.length };
  const dots = (r) => r.federations || [];
  const ends = rows.flatMap((r) => [r.low, r.high, r.difference, ...dots(r).map((dot) => dot[1])]).filter((v) => v !== null);
  const [low, high] = range([...ends, -data.margin, data.margin], false);
  const x = scale(low, high, box.left, box.right);
  svg.append(svgNode("rect", {
    x: x(-data.margin), y: box.top, width: x(data.margin) - x(-data.margin), height: box.bottom - box.top,
    fill: "var(--soft)", "fill-opacity": 0.15, class: "margin",
  }));
  axisX(svg, x, box, ticks(low, high, Math.max(3, width / 130)), data.x, (v) => tickText(v, false));
  svg.append(line(x(0), box.top, x(0), box.bottom, { stroke: "var(--ink)" }));
  rows.forEach((r, i) => {
    const y = box.top + ROW * (i + 0.5) + 2, tint = color(r.method);
    rowLabel(svg, r, box.left - 8, y);
    if (r.low !== null) svg.append(line(x(r.low), y, x(r.high), y, { stroke: tint, "stroke-width": 2.4 }));
    for (const [, value] of dots(r)) {
      svg.append(svgNode("circle", { cx: x(value), cy: y + 9, r: 2.4, fill: tint, "fill-opacity": 0.7, class: "federation" }));
    }
    if (r.difference !== null) {
      const decided = r.answer === "better" || r.answer === "worse";
      svg.append(svgNode("circle", {
        cx: x(r.difference), cy: y, r: 5, stroke: tint, "stroke-width": 2, fill: decided ? tint : "var(--paper)",
        class: "estimate",
      }));
    }
    const area = svgNode("rect", { x: 0, y: y - ROW / 2, width, height: ROW, fill: "transparent", class: "hover" });
    svg.append(area);
    follow(svg, area, (_x, _y, event) => showTip(event, `${r.method}: ${r.note}`, [
      ["difference", number(r.difference)], ["low", number(r.low)], ["high", number(r.high)],
      ...(r.details || [["p", r.p]]).concat(dots(r)).map(([name, value]) => [name, number(value)]),
    ]));
  });
  return svg;
};
