"use strict";
// Maps of clients over rounds, bubbles of the data distribution, clients as points.
function cells(map, rgbOf) {
  const canvas = document.createElement("canvas");
  canvas.width = map.values[0].length;
  canvas.height = map.values.length;
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  map.values.forEach((row, r) => row.forEach((value, c) => {
    if (value === null) return;
    image.data.set([...rgbOf(value), 255], 4 * (r * canvas.width + c));
  }));
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function drawMaps(chart, width, rgbOf, format, legend) {
  const { data } = chart, maps = data.maps.filter((m) => !m.method || (m.methods || [m.method]).some((method) => isShown({ method })));
  const across = Math.max(1, Math.min(maps.length, Math.floor(width / 330))), each = width / across;
  const tall = Math.max(110, Math.min(300, 14 * Math.max(0, ...maps.map((m) => m.values.length))));
  const block = tall + 66, height = 30 + block * Math.max(1, Math.ceil(maps.length / across));
  const svg = canvasOf(chart, width, height);
  legend(svg, width);
  maps.forEach((map, i) => {
    const rows = map.rows || data.rows, widest = Math.max(...rows.map((r) => shortened(r, 14).length));
    const left = (i % across) * each + 26 + Math.min(100, 6.4 * widest), top = 48 + Math.floor(i / across) * block;
    const box = { left, right: ((i % across) + 1) * each - 12, top, bottom: top + tall };
    const count = { x: map.values[0].length, y: map.values.length };
    if (map.method) {
      svg.append(
        svgNode("rect", { x: left, y: top - 17, width: 11, height: 11, fill: color(map.method) }),
        label(shortened(map.label || map.method, 40), left + 17, top - 7, { fill: "var(--ink)" }),
      );
    }
    svg.append(
      svgNode("rect", { x: left, y: top, width: box.right - left, height: tall, fill: "var(--empty)" }),
      svgNode("image", {
        x: left, y: top, width: box.right - left, height: tall, href: cells(map, rgbOf),
        preserveAspectRatio: "none", style: "image-rendering: pixelated", class: "map",
      }),
      label(data.y, 0, 0, { "text-anchor": "middle", transform: `translate(${(i % across) * each + 12} ${top + tall / 2}) rotate(-90)` }),
      label(data.x, (left + box.right) / 2, box.bottom + 31, { "text-anchor": "middle" }),
    );
    labelCells(svg, box, rows, count.y, (at, text) => label(shortened(text, 14), left - 5, at + 4, { "text-anchor": "end" }), "y");
    if (data.ticks) labelTicks(svg, box, data);
    else if (map.method) labelCells(svg, box, map.columns, count.x, (at, text) => label(text, at, box.bottom + 15, { "text-anchor": "middle" }), "x");
    const area = svgNode("rect", { x: left, y: top, width: box.right - left, height: tall, fill: "transparent", class: "hover" });
    svg.append(area);
    follow(svg, area, (px, py, event) => {
      const c = Math.max(0, Math.min(count.x - 1, Math.floor(((px - left) / (box.right - left)) * count.x)));
      const r = Math.max(0, Math.min(count.y - 1, Math.floor(((py - top) / tall) * count.y)));
      const head = map.method ? `${map.label || map.method}: ${data.y} ${rows[r]}, ${data.x} ${map.columns[c]}` : `${data.y} ${rows[r]}, ${map.columns[c]}`;
      const value = map.values[r][c];
      showTip(event, head, [[data.value, value === null ? data.empty || "did not participate" : format(value)]]);
    });
  });
  return svg;
}

function labelCells(svg, box, texts, count, make, way) {
  const span = way === "x" ? box.right - box.left : box.bottom - box.top, start = way === "x" ? box.left : box.top;
  const wide = way === "x" ? 14 + 7 * Math.max(...texts.map((t) => t.length)) : 15;
  const step = Math.max(1, Math.ceil((count * wide) / span));
  const steps = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000].find((s) => s >= step) || step;
  for (let i = way === "x" && steps > 1 ? steps - 1 : 0; i < count; i += steps) {
    svg.append(make(start + ((i + 0.5) * span) / count, texts[i]));
  }
}

function labelTicks(svg, box, data) {
  const x = scale(data.edges[0], data.edges[data.edges.length - 1], box.left, box.right);
  for (const [position, text] of data.ticks) {
    svg.append(label(text, x(position), box.bottom + 15, { "text-anchor": "middle" }), line(x(position), box.bottom, x(position), box.bottom + 4));
  }
}

DRAW.maps = (chart, width) => {
  const top = chart.data.top || 1;
  return drawMaps(chart, width, (v) => shade(v / top), (v) => number(v), (svg, wide) => {
    const bar = Math.min(180, wide / 3);
    const more = chart.data.maps.some((m) => m.values.some((row) => row.some((v) => v > 1.0001 * top)));
    drawShades(svg, wide - bar - 60, 2, bar, `${chart.data.value} 0`, (more ? "≥ " : "") + number(+top.toPrecision(3)));
  });
};

DRAW.clusters = (chart, width) => {
  const style = getComputedStyle(document.documentElement);
  const hues = [0, 1, 2, 3, 4, 5, 6].map((i) => style.getPropertyValue(`--m${i}`).trim());
  const rgb = (c) => [1, 3, 5].map((i) => parseInt(hues[((c % 7) + 7) % 7].slice(i, i + 2), 16));
  return drawMaps(chart, width, rgb, (v) => String(v), (svg, wide) => {
    const found = [...new Set(chart.data.maps.flatMap((m) => m.values.flat()))].filter((v) => v !== null).sort((a, b) => a - b);
    const fitting = found.slice(0, Math.min(7, Math.floor((wide - 90) / 34)));
    const start = wide - 34 * fitting.length - 8;
    svg.append(label(fitting.length < found.length ? "cluster (first)" : "cluster", start - 8, 12, { "text-anchor": "end" }));
    fitting.forEach((cluster, i) => svg.append(
      svgNode("rect", { x: start + 34 * i, y: 2, width: 11, height: 11, fill: hues[cluster % 7] }),
      label(String(cluster), start + 34 * i + 15, 12),
    ));
  });
};

DRAW.bubbles = (chart, room) => {
  const { counts, clients, classes } = chart.data, sizes = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const left = 24 + Math.min(110, 7 * Math.max(...classes.map((c) => shortened(c, 16).length)));
  const width = Math.max(room, left + 12 + 13 * clients.length), tall = Math.max(17, Math.min(30, 300 / classes.length));
  const longest = Math.max(...clients.map((c) => shortened(c, 14).length)), turned = longest > 3;
  const below = turned ? 24 + 6 * longest : 38;
  const box = { left, right: width - 8, top: 74, bottom: 74 + tall * classes.length };
  const svg = canvasOf(chart, width, box.bottom + below);
  const cell = (box.right - box.left) / clients.length, most = Math.max(1, ...counts.flat()), biggest = Math.max(1, ...sizes);
  const x = (k) => box.left + (k + 0.5) * cell, y = (c) => box.bottom - (c + 0.5) * tall, up = scale(0, biggest, 62, 10);
  for (const value of ticks(0, biggest, 2)) svg.append(line(box.left, up(value), box.right, up(value)), label(number(value), box.left - 6, up(value) + 4, { "text-anchor": "end" }));
  classes.forEach((name, c) => svg.append(line(box.left, y(c), box.right, y(c), { "stroke-opacity": 0.6 }), label(shortened(name, 16), box.left - 6, y(c) + 4, { "text-anchor": "end" })));
  const step = turned ? Math.max(1, Math.ceil(13 / cell)) : Math.max(1, Math.ceil(22 / cell));
  clients.forEach((name, k) => {
    svg.append(svgNode("rect", { x: x(k) - cell * 0.36, y: up(sizes[k]), width: cell * 0.72, height: 62 - up(sizes[k]), fill: "var(--soft)", "fill-opacity": 0.6 }));
    if (k % step) return;
    const where = turned ? { transform: `translate(${x(k) + 4} ${box.bottom + 10}) rotate(-90)`, "text-anchor": "end" } : { "text-anchor": "middle" };
    svg.append(label(shortened(name, 14), turned ? 0 : x(k), turned ? 0 : box.bottom + 15, where));
  });
  const largest = Math.min(cell, tall) * 0.49;
  counts.forEach((row, k) => row.forEach((n, c) => {
    if (n) svg.append(svgNode("circle", { cx: x(k), cy: y(c), r: Math.max(1, Math.max(largest, 6) * Math.sqrt(n / most)), fill: "var(--m0)", "fill-opacity": 0.85, class: "bubble" }));
  }));
  if (!turned) svg.append(label("client", (box.left + box.right) / 2, box.bottom + 32, { "text-anchor": "middle" }));
  const area = svgNode("rect", { x: box.left, y: 0, width: box.right - box.left, height: box.bottom, fill: "transparent", class: "hover" });
  svg.append(area);
  follow(svg, area, (px, py, event) => {
    const k = Math.max(0, Math.min(clients.length - 1, Math.floor((px - box.left) / cell)));
    const c = Math.floor((box.bottom - py) / tall), rows = [["samples", number(sizes[k])]];
    if (c < classes.length && py > box.top) rows.unshift([`class ${classes[c]}`, number(counts[k][c])]);
    showTip(event, `client ${clients[k]}`, rows);
  });
  return svg;
};

DRAW.points = (chart, width) => {
  const { points, share, value } = chart.data, height = Math.min(420, Math.max(260, width * 0.6));
  const svg = canvasOf(chart, width, height), box = { left: 14, right: width - 14, top: 34, bottom: height - 14 };
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const x = scale(Math.min(...xs), Math.max(...xs), box.left + 12, box.right - 12);
  const y = scale(Math.min(...ys), Math.max(...ys), box.bottom - 12, box.top + 12);
  const known = points.map((p) => p[2]).filter((v) => v !== null), low = Math.min(...known), high = Math.max(...known);
  const most = Math.max(...points.map((p) => p[3]), 1);
  svg.append(svgNode("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "none", stroke: "var(--line)" }));
  points.forEach((p, k) => {
    const fill = p[2] === null ? "var(--empty)" : `rgb(${shade((p[2] - low) / (high - low || 1)).join(",")})`;
    const dot = svgNode("circle", { cx: x(p[0]), cy: y(p[1]), r: 3 + 8 * Math.sqrt(p[3] / most), fill, stroke: "var(--soft)", class: "hover point" });
    svg.append(dot);
    if (points.length <= 60) {
      const right = x(p[0]) < box.right - 40, away = 6 + 8 * Math.sqrt(p[3] / most);
      svg.append(label(String(k), x(p[0]) + (right ? away : -away), y(p[1]) + 4, { "font-size": 11, "text-anchor": right ? "start" : "end" }));
    }
    follow(svg, dot, (_x, _y, event) => showTip(event, `client ${k}`, [[value, number(p[2], share)], ["samples", number(p[3])]]));
  });
  const bar = Math.min(150, width / 3);
  if (known.length) drawShades(svg, width - bar - 64, 4, bar, `${value} ${number(low, share)}`, number(high, share));
  return svg;
};
