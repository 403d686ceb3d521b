// The page of `fei serve`: a photograph in, masks forming, and then the explorer, in the same page.

let offer = null; // what Python wrote into the page
let shown = { number: -1, photo: null, run: null }; // what the server said last
const visit = (what) => `/visits/${offer.visit}/${what}`;

/** Ask the server for something; what it answers is shown, and what went wrong, in a place. */
async function ask(what, body, place) {
  $(place).textContent = "";
  try {
    const answer = await fetch(visit(what), { method: "POST", body });
    if (!answer.ok) throw new Error(await answer.text());
    const told = await answer.json();
    show(told);
    $(place).textContent = told.error;
  } catch (error) {
    $(place).textContent = error instanceof TypeError ? "The server does not answer; is it still running?" : error.message;
  }
}

function order(event) {
  event.preventDefault();
  const asked = new FormData($("asked"));
  const words = { ...Object.fromEntries(asked), targets: asked.getAll("target"), methods: asked.getAll("method"), seed: Number(asked.get("seed")) };
  ask("run", JSON.stringify(words), "trouble");
}

/** Show what the server says, unless something newer is shown: answers may overtake each other. */
function show(told) {
  if (told.number <= shown.number) return;
  const before = shown;
  shown = told;
  if (told.photo?.token !== before.photo?.token) showPhoto();
  if (told.run?.token !== before.run?.token) for (const id of ["photo-trouble", "trouble"]) $(id).textContent = "";
  showRun(told.run, before.run);
}

function showPhoto() {
  $("photo").hidden = !shown.photo;
  if (shown.photo) $("photo").src = visit(`files/photo.jpg?${shown.photo.token}`);
  $("cards").style.setProperty("--photo", `url(${$("photo").src})`);
  showClasses();
}

function showClasses() {
  const classes = shown.photo?.classes[$("network").value] ?? [];
  $("classes").replaceChildren(...(typeof classes === "string" ? [h("p", { class: "trouble" }, classes)]
    : classes.map((guess, i) => h("label", {},
      h("input", { type: "checkbox", name: "target", value: guess.index, checked: i === 0 }), ...guessParts(guess, 1)))));
  $("run").disabled = !Array.isArray(classes) || !classes.length;
  $("names").replaceChildren(...offer.labels[$("network").value].map((name) => h("option", { value: name })));
}

/** Offer the class that was searched for, chosen, beside those that the network sees. */
function addClass() {
  const word = $("search").value.trim();
  const labels = offer.labels[$("network").value];
  const index = /^\d+$/.test(word) ? Number(word) : labels.findIndex((name) => name.toLowerCase() === word.toLowerCase());
  if (!word || index < 0 || (labels.length && index >= labels.length)) return;
  const known = $("classes").querySelector(`input[value="${index}"]`);
  if (known) known.checked = true;
  else $("classes").append(h("label", {}, h("input", { type: "checkbox", name: "target", value: index, checked: true }),
    h("span", { class: "word" }, labels[index] ?? `class ${index}`)));
  $("search").value = "";
}

function showRun(run, before) {
  const active = run?.state === "waiting" || run?.state === "running";
  const changed = run?.token !== before?.token || run?.state !== before?.state;
  const focused = [$("run"), $("cancel")].includes(document.activeElement);
  $("run").hidden = active;
  $("cancel").hidden = !active;
  if (changed && focused) $(active ? "cancel" : "run").focus(); // one stands where the other was
  $("doing").textContent = run?.words ?? "";
  $("progress").hidden = run?.state !== "running";
  $("share").value = run?.share ?? 0;
  if (run?.token !== before?.token) buildCards(run?.cards ?? []);
  run?.cards.forEach((card, i) => paintCard($("cards").children[i], card, i));
  if (!changed) return;
  $("setup").open = !active && run?.state !== "done";
  $("downloads").hidden = true;
  $("main").classList.remove("explored");
  $("dock").hidden = true;
  greet();
  if (run?.state === "done") open(run).catch(({ message }) => { $("trouble").textContent = message; });
}

function buildCards(cards) {
  $("cards").replaceChildren(...cards.map(({ method }) => h("figure", {},
    h("div", { class: "view" }, h("img", { hidden: true })),
    h("figcaption", {}, h("span", { class: "name" }, method), h("span", { class: "faint" })))));
}

function paintCard(figure, { method, words, frame, preview }, number) {
  const picture = figure.querySelector("img");
  picture.alt = `${method}: ${preview ? "a preview" : "the map so far"}`;
  figure.querySelector(".name").textContent = preview ? `${method} (preview)` : method;
  picture.hidden = !frame;
  if (frame) picture.src = visit(`files/${number}.jpg?${shown.run.token}-${frame}`);
  figure.querySelector(".faint").textContent = words;
}

/** The explorer of what was found: the very file that can be downloaded. */
async function open({ token }) {
  for (const [id, file] of [["zip", "fei-results.zip"], ["page", "explorer.html"]]) $(id).href = visit(`files/${file}`);
  const file = await (await fetch($("page").href)).text();
  const found = await readData(/ id="data">(.*)<\/script>/.exec(file)[1]);
  if (shown.run?.token !== token) return;
  history.replaceState(null, "", state.theme === "auto" ? "#" : `#theme=${state.theme}`);
  $("main").classList.add("explored");
  $("downloads").hidden = false;
  explore(found);
  scrollTo(0, 0);
}

const greet = () => Object.entries($("studio").dataset).forEach(([id, words]) => { $(id).textContent = words; });

/** What can be chosen. */
function buildOffer() {
  $("examples").replaceChildren(...offer.examples.map((name, i) => h("button", {
    type: "button", "aria-label": `Example: ${name}`, title: name, "data-example": i,
  }, h("img", { src: `/examples/${i}.jpg`, alt: "" }))));
  options($("network"), offer.networks.map((name) => [name, name]), offer.networks[0]);
  $("families").replaceChildren(...offer.families.map(([title, about, methods]) => h("fieldset", { class: "chips" },
    h("legend", {}, `${title}. ${about}`),
    h("div", {}, ...methods.map((name) => pick("checkbox", "method", name, offer.chosen.includes(name),
      offer.controls.includes(name) ? `${name} (control)` : name))))));
  $("about").replaceChildren(...Object.entries(offer.about).flatMap(([name, about]) => [h("dt", {}, name), h("dd", {}, about)]));
  $("presets").append(...offer.presets.map(([name, steps]) => pick("radio", "preset", name, name === offer.presets[0][0], `${name}: ${steps} steps`)));
  $("seed").max = String(offer.seeds - 1);
}

function listenToVisitor() {
  $("file").addEventListener("change", () => { // a file that is dropped on the input is chosen, too
    const [file] = $("file").files;
    if (file?.size > offer.most) $("photo-trouble").textContent = offer.tooLarge;
    else if (file) ask("photo", file, "photo-trouble");
    $("file").value = "";
  });
  $("asked").addEventListener("submit", order);
  $("network").addEventListener("change", showClasses);
  $("search").addEventListener("change", addClass);
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // it chooses the class, and starts nothing
    addClass();
  });
  $("cancel").addEventListener("click", () => ask("cancel", "{}", "trouble"));
  $("examples").addEventListener("click", (event) => {
    const number = event.target.closest("button")?.dataset.example;
    if (number !== undefined) ask("example", JSON.stringify({ number: Number(number) }), "photo-trouble");
  });
  const stream = new EventSource(visit("stream"));
  stream.onopen = () => { shown.number = -1; }; // another server counts anew
  stream.onmessage = ({ data: told }) => show(JSON.parse(told));
}

async function serve() {
  offer = readPayload();
  readWords();
  $("main").prepend($("studio"));
  buildOffer();
  listen();
  $("link").hidden = true; // what was found goes with the visit
  paintTheme();
  greet();
  listenToVisitor();
}
