// What all pages share: asking the API, following the books, exact numbers, safe elements.
// Text from records only ever becomes text: elements are made here, never from a string.

export async function api(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== null && one !== "") query.append(name, one);
    }
  }
  const answer = await fetch(`/api/${path}?${query}`, { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error ?? found.detail ?? answer.statusText);
  return found;
}

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

export const byId = (id) => document.getElementById(id);

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat());
}

// Exact decimals: money comes as text and is added up as whole numbers of its smallest unit.
const places = (text) => (text.split(".")[1] ?? "").length;

function whole(text, scale) {
  const [front, back = ""] = text.replace("-", "").split(".");
  const number = BigInt(front + back.padEnd(scale, "0"));
  return text.startsWith("-") ? -number : number;
}

function asText(number, scale) {
  const digits = (number < 0n ? -number : number).toString().padStart(scale + 1, "0");
  const sign = number < 0n ? "-" : "";
  return scale ? `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}` : sign + digits;
}

export function add(one, other) {
  const [a, b] = [String(one ?? 0), String(other ?? 0)];
  const scale = Math.max(places(a), places(b));
  return asText(whole(a, scale) + whole(b, scale), scale);
}

export const minus = (one, other) => add(one, negative(String(other ?? 0)));
export const negative = (text) => (text.startsWith("-") ? text.slice(1) : isZero(text) ? text : `-${text}`);
export const isZero = (text) => /^-?0*(\.0*)?$/.test(text);
export const same = (one, other) => isZero(minus(one, other));

// Exact digits in the reader's own way of writing: a decimal as text is not rounded.
export function readable(value, least = 2) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  const [, back = ""] = text.split(".");
  const needed = Math.max(least, back.replace(/0+$/, "").length);
  return new Intl.NumberFormat(undefined, { minimumFractionDigits: needed, maximumFractionDigits: Math.min(needed, 20) }).format(text);
}

export const count = (value) => new Intl.NumberFormat().format(value ?? 0);

// A moment as the command line writes it, 2026-11-13 10:31: what is read here can be asked for there.
// Swedish is the browser's name for that order.
export function clock(iso, withDay = false) {
  if (!iso) return "";
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone() };
  const day = { year: "numeric", month: "2-digit", day: "2-digit", second: "2-digit" };
  const said = new Intl.DateTimeFormat("sv-SE", withDay ? { ...options, ...day } : options).format(new Date(iso));
  return said.replace(/(:\d\d):00$/, "$1");
}

// A page may name the zone in which its times are read; else it is UTC.
export const zone = () => document.querySelector("[data-zone]")?.dataset.zone ?? "UTC";

export function table(caption, columns, rows) {
  const head = element("tr", {}, columns.map((c) => element("th", { scope: "col", class: c.number ? "number" : "" }, c.title)));
  const body = rows.map((row) =>
    element("tr", row.properties ?? {}, columns.map((c) => {
      const cell = c.cell(row);
      return element("td", { class: [c.number ? "number" : "", c.class ?? ""].join(" ").trim() }, cell);
    })),
  );
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, body));
}

export const empty = (...words) => element("p", { class: "empty" }, ...words);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function draw(place, traces, layout = {}, onClick = null) {
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("due"), automargin: true };
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), family: "system-ui, sans-serif" },
    margin: { l: 60, r: 12, t: 8, b: 36 }, legend: { orientation: "h", y: 1.12 }, hovermode: "x unified",
    hoverlabel: { bgcolor: colour("panel"), font: { color: colour("ink") } }, ...layout,
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
  const reacted = Plotly.react(place, traces, whole, { responsive: true, displaylogo: false, displayModeBar: false });
  place.removeAllListeners?.("plotly_click");
  if (onClick) place.on("plotly_click", (event) => onClick(event.points[0]));
  place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  return reacted;
}

// The live feed. A browser comes again by itself after a cut and says what it saw last; after a
// refusal (the server is away) we do the same.
export function follow(onBatch) {
  const shown = byId("live");
  let last = null;
  let timer = null;
  function say(state, words) {
    shown.dataset.state = state;
    shown.textContent = words;
  }
  function connect() {
    const stream = new EventSource(last === null ? "/api/events" : `/api/events?after=${last}`);
    const seen = (event) => {
      const facts = JSON.parse(event.data);
      last = facts.batch;
      say("live", `live · batch ${count(facts.batch)}`);
      return facts;
    };
    stream.addEventListener("hello", (event) => {
      const before = last;
      const facts = seen(event);
      if (before !== null && facts.batch !== before) onBatch(facts);
    });
    stream.addEventListener("batch", (event) => onBatch(seen(event)));
    stream.addEventListener("anew", (event) => onBatch(seen(event)));
    stream.addEventListener("error", () => {
      say("lost", "connection lost, trying again");
      if (stream.readyState === EventSource.CLOSED) {
        clearTimeout(timer);
        timer = setTimeout(connect, 1000);
      }
    });
  }
  connect();
}

// Batches may come faster than a page can be read: one refresh at a time, and one more if needed.
export function refreshing(work) {
  let busy = false;
  let again = false;
  return async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    do {
      again = false;
      try {
        await work();
        byId("problem")?.remove();
      } catch (error) {
        complain(error);
      }
    } while (again);
    busy = false;
  };
}

export function complain(error) {
  byId("problem")?.remove();
  byId("content").prepend(element("p", { id: "problem", class: "banner", "data-state": "bad", role: "alert" }, `This could not be read: ${error.message}`));
}

export function options(select, values, chosen, words = (value) => value) {
  const before = [...select.options].map((option) => option.value).join("\n");
  if (before !== values.join("\n")) {
    fill(select, values.map((value) => element("option", { value }, words(value))));
  }
  if (values.includes(chosen)) select.value = chosen;
}

byId("theme")?.addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  document.dispatchEvent(new Event("theme"));
});
