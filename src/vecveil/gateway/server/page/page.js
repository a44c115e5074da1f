// What the server sends is put into the page as text, never as markup.
const find = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const percent = x => `${(100 * x).toFixed(1)} %`;
const number = x => x.toFixed(3);

let key = "";        // of the server, in memory only
let protectors = []; // as the server describes them
let samples = [];
let limits = {};
let background = "";
let job = null;      // id of the job that runs
let shown = null;    // {result, texts, protector} that is drawn

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers["Authorization"] = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch {
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  let content = null;
  try { content = await answer.json(); } catch { /* said below */ }
  if (answer.status === 401) {
    find("access").hidden = false;
    find("key").focus();
    throw new Refused(401, key ? "The server does not take this key." : "The server asks for a key.");
  }
  if (!answer.ok) throw new Refused(answer.status, content?.error?.message ?? `The server answered with HTTP ${answer.status}.`);
  return content;
}

function complain(error) {
  find("error").textContent = error instanceof Refused ? error.message : "Something unexpected failed in the page.";
  find("error").hidden = false;
  if (!(error instanceof Refused)) console.error(error);
}

function clearError() {
  find("error").hidden = true;
  find("error").textContent = "";
}

const guarded = work => async event => {
  event?.preventDefault?.();
  clearError();
  try { await work(event); } catch (error) { complain(error); }
};

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// What the server has ------------------------------------------------------------------------------

async function start() {
  const state = await ask("/page/state");
  find("access").hidden = true;
  ({ samples, limits, background } = state);
  protectors = state.protectors;
  find("file-limit").textContent = Math.floor(limits.file_bytes / 2 ** 20);
  find("texts-limit").textContent = `${limits.texts} of ${limits.text_characters} characters`;
  find("words-limit").textContent = limits.words;
  if (!find("words").value) find("words").value = state.words.join("\n");
  find("form").hidden = false;
  listProtectors(protectors[0]?.id);
}

function listProtectors(chosen) {
  const options = protectors.map(one =>
    make("option", { value: one.id, textContent: one.served ? `${one.name} (served)` : `${one.name} (loaded)` }));
  find("protector").replaceChildren(...options);
  if (chosen) find("protector").value = chosen;
  describeProtector();
}

function chosenProtector() {
  return protectors.find(one => one.id === find("protector").value);
}

function describeProtector() {
  const one = chosenProtector();
  if (!one) return;
  const facts = [["Method", one.method], ["Concept", one.concept ?? "unnamed"],
    ["Encoder", one.encoder_known ? one.encoder : `${one.encoder ?? "unnamed"} (no fingerprint: verified by its dimension only)`],
    ["Dimension", one.dimension]];
  find("facts").replaceChildren(...facts.map(([name, value]) =>
    make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
  find("statement").textContent = `Guarantee (${one.kind}): ${one.statement}`;
  find("guarantee").textContent = one.guarantee;
}

async function loadFile(file) {
  if (!file) return;
  if (file.size > limits.file_bytes) throw new Refused(0, `The file is larger than ${Math.floor(limits.file_bytes / 2 ** 20)} MiB.`);
  find("status").textContent = "Loading the file";
  try {
    const one = await ask("/page/protectors", {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-File-Name": file.name.replace(/[^\x20-\x7e]/g, "") },
      body: file,
    });
    protectors.push(one);
    listProtectors(one.id);
    find("status").textContent = "The protector is loaded.";
  } catch (error) {
    find("status").textContent = "";
    throw error;
  } finally {
    find("file").value = "";
  }
}

// A job --------------------------------------------------------------------------------------------

const lines = id => find(id).value.split(/\r?\n/).map(line => line.trim()).filter(Boolean);

function running(on) {
  find("run").disabled = on;
  find("cancel").disabled = !on;
  find("progress").hidden = !on;
  find("form").setAttribute("aria-busy", String(on));
}

async function guess() {
  const texts = lines("texts"), words = lines("words"), protector = chosenProtector();
  running(true);
  find("progress").value = 0;
  find("status").textContent = "Starting";
  try {
    const begun = await ask("/page/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ protector: protector?.id ?? "", texts, words }),
    });
    job = begun.id;
    const result = await watch();
    if (!result) return;
    shown = { result, texts, protector };
    showResult();
  } catch (error) {
    find("status").textContent = "";
    throw error;
  } finally {
    job = null;
    running(false);
  }
}

async function watch() {
  for (;;) {
    const state = await ask(`/page/jobs/${job}`);
    if (state.state === "failed") {
      if (state.code === "upstream_authentication") find("access").hidden = false; // the server sends the client's key on
      throw new Refused(0, state.error);
    }
    if (state.state === "cancelled") { find("status").textContent = "Cancelled."; return null; }
    if (state.state === "done") { find("status").textContent = "Done."; return state.result; }
    find("progress").value = state.share;
    const said = state.what.charAt(0).toUpperCase() + state.what.slice(1);
    if (!find("cancel").disabled && find("status").textContent !== said) find("status").textContent = said;
    await new Promise(done => setTimeout(done, 300));
  }
}

async function cancel() {
  if (!job) return;
  find("cancel").disabled = true;
  find("status").textContent = "Stopping at the next step";
  await ask(`/page/jobs/${job}`, { method: "DELETE" });
}

// The result ---------------------------------------------------------------------------------------

function showResult() {
  const { result, protector } = shown;
  const slider = find("noise");
  slider.max = result.levels.length - 1;
  slider.value = result.chosen;
  find("scale").hidden = result.levels.length < 2;
  find("no-scale").hidden = result.levels.length > 1;
  find("result").hidden = false;
  find("method").textContent = describeMethod(result, protector);
  drawLevels();
  drawCurve();
  showLevel();
  find("result").focus({ preventScroll: true });
  find("result").scrollIntoView({ block: "start" });
}

function describeMethod(result, protector) {
  const { background: count, learnt, judged, found } = result.practice;
  const after = result.rewrites
    ? "After: kernel ridge regression, trained on vectors of the rewritten texts."
    : "After: the same, trained anew for each level of noise on vectors that this protector protects; it knows the method and "
      + "its noise, and protects its training texts as often as it likes.";
  return `The attacker has the encoder and ${count} texts of ${background}. ${found} of them contain some of the words; in the `
    + `others, and in a copy of each of these, a word was put in, so that every word occurs. It learnt from ${learnt} such texts; the figures `
    + `are measured on ${judged} others. Before: kernel ridge regression on clean vectors and on made-up ones, to which the difference that `
    + `a word makes was moved from another text (the attack "transplant"). ${after} Words recovered: the share of a text's k words `
    + `among the attacker's k best guesses (R-precision). Chance: guessing by how frequent a word is, or blindly, whichever finds more. Similarity kept: the correlation of `
    + `cosines between texts with the clean ones, noise on both sides. Measured for ${protector.name}, on these texts, with a fixed seed.`;
}

function noiseName(level, i) {
  return i === shown.result.chosen ? "the protector as it is" : `${level.factor} × its noise`;
}

function showLevel() {
  const { result } = shown;
  const at = result.levels.length > 1 ? Number(find("noise").value) : 0;
  const level = result.levels[at];
  const said = `${noiseName(level, at)}: similarity kept ${number(level.utility.value)}`;
  find("noise-label").textContent = said;
  find("noise").setAttribute("aria-valuetext", said);
  find("summary").textContent = `From clean vectors the attacker recovers ${percent(result.clean.leakage.value)} of the words of texts it has not `
    + `seen, from protected ones ${percent(level.leakage.value)} (95 % interval ${percent(level.leakage.low)} to ${percent(level.leakage.high)}); `
    + `chance is ${percent(level.leakage.chance)}. Similarity kept: ${number(level.utility.value)}.`;
  const marker = find("curve").querySelector(".marker");
  marker.setAttribute("cx", across(level.utility.value));
  marker.setAttribute("cy", down(level.leakage.value));
  [...find("levels").tBodies[0].rows].forEach((row, i) => row.classList.toggle("current", i === at + 1));
  drawGuesses(level);
}

function drawGuesses(level) {
  const { result, texts } = shown;
  const rows = texts.map((text, i) => {
    const held = new Set(result.held[i]);
    const words = [...held].map(word => result.words[word]).join(", ");
    const title = make("th", { scope: "row" }, make("span", { textContent: text }),
      make("small", { textContent: words ? `contains: ${words}` : "contains none of the words" }));
    return make("tr", {}, title,
      guessCell("Before: clean vector", result.clean.guesses[i], held, "before"),
      guessCell("After: protected vector", level.guesses[i], held, "after"));
  });
  find("guesses").tBodies[0].replaceChildren(...rows);
}

function guessCell(label, guesses, held, side) {
  const items = guesses.map(([word, score]) => {
    const bar = make("span", { className: "bar" });
    bar.style.width = `${100 * score}%`;
    const item = make("li", {}, make("span", { textContent: shown.result.words[word] + (held.has(word) ? " ✓" : "") }),
      make("span", { textContent: score.toFixed(2) }), bar);
    item.classList.toggle("held", held.has(word));
    return item;
  });
  const cell = make("td", {}, make("ol", { className: `words ${side}` }, ...items));
  cell.dataset.label = label;
  return cell;
}

// The curve: similarity kept across, words recovered upwards ----------------------------------------------

const LEFT = 64, RIGHT = 620, TOP = 16, BOTTOM = 262;
const across = x => LEFT + (RIGHT - LEFT) * Math.min(1, Math.max(0, x));
const down = y => BOTTOM - (BOTTOM - TOP) * Math.min(1, Math.max(0, y));

function drawCurve() {
  const { result } = shown, svg = find("curve");
  const parts = [];
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(draw("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: down(tick), y2: down(tick) }));
    parts.push(draw("text", { x: LEFT - 8, y: down(tick) + 5, "text-anchor": "end" }, `${100 * tick} %`));
    parts.push(draw("text", { x: across(tick), y: BOTTOM + 22, "text-anchor": "middle" }, tick));
  }
  parts.push(draw("line", { class: "axis", x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM }));
  parts.push(draw("text", { x: (LEFT + RIGHT) / 2, y: BOTTOM + 48, "text-anchor": "middle" }, "similarity kept"));
  parts.push(draw("text", { x: LEFT + 6, y: TOP + 14 }, "words recovered"));
  const chance = down(result.clean.leakage.chance);
  parts.push(draw("line", { class: "chance", x1: LEFT, x2: RIGHT, y1: chance, y2: chance }));
  parts.push(draw("text", { class: "chance-label", x: LEFT + 6, y: chance - 6 }, "chance"));
  const points = result.levels.map(level => [across(level.utility.value), down(level.leakage.value)]);
  parts.push(draw("polyline", { class: "line", points: points.map(point => point.join(",")).join(" ") }));
  result.levels.forEach((level, i) => {
    const [x, y] = points[i];
    parts.push(draw("line", { class: "interval", x1: x, x2: x, y1: down(level.leakage.low), y2: down(level.leakage.high) }));
    const point = draw("circle", { class: "point", cx: x, cy: y, r: 5 });
    point.append(draw("title", {}, `${noiseName(level, i)}: similarity ${number(level.utility.value)}, words recovered ${percent(level.leakage.value)}`));
    point.addEventListener("click", () => { find("noise").value = i; showLevel(); });
    parts.push(point);
  });
  const clean = draw("rect", { class: "clean", x: across(1) - 5, y: down(result.clean.leakage.value) - 5, width: 10, height: 10 });
  clean.append(draw("title", {}, `clean: words recovered ${percent(result.clean.leakage.value)}`));
  parts.push(clean, draw("text", { x: across(1) - 12, y: down(result.clean.leakage.value) + 5, "text-anchor": "end" }, "clean"));
  parts.push(draw("circle", { class: "marker", r: 8 }));
  svg.replaceChildren(...parts);
  find("curve-caption").textContent = "Each circle is a level of noise, its line the 95 % interval; the filled one is chosen. The square is the same "
    + "attack on clean vectors, the dashed line chance. Lower and further right is better.";
}

function drawLevels() {
  const { result } = shown;
  const rows = [[result.clean, "clean vectors"], ...result.levels.map((level, i) => [level, noiseName(level, i)])];
  find("levels").tBodies[0].replaceChildren(...rows.map(([level, name]) => make("tr", {},
    make("th", { scope: "row", textContent: name }),
    ...[number(level.utility.value), percent(level.leakage.value), `${percent(level.leakage.low)} to ${percent(level.leakage.high)}`,
      percent(level.leakage.chance)].map(textContent => make("td", { textContent })))));
}

// Events -------------------------------------------------------------------------------------------

find("access-form").addEventListener("submit", guarded(async () => {
  key = find("key").value.trim();
  find("key").value = "";
  await start();
}));
find("form").addEventListener("submit", guarded(guess));
find("cancel").addEventListener("click", guarded(cancel));
find("protector").addEventListener("change", describeProtector);
find("file").addEventListener("change", guarded(event => loadFile(event.target.files[0])));
find("samples").addEventListener("click", () => { find("texts").value = samples.join("\n"); find("texts").focus(); });
find("noise").addEventListener("input", showLevel);
for (const kind of ["dragover", "dragleave", "drop"]) {
  find("drop").addEventListener(kind, event => {
    event.preventDefault();
    find("drop").classList.toggle("over", kind === "dragover");
  });
}
find("drop").addEventListener("drop", guarded(event => loadFile(event.dataTransfer.files[0])));
window.addEventListener("pagehide", () => {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (job) fetch(`/page/jobs/${job}`, { method: "DELETE", headers, keepalive: true });
});
guarded(start)();
