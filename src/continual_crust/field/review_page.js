"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const count = data.names.length, classes = data.classes;
  const NONE = 0, RIGHT = 1, WRONG = 2, OTHER = 3; // OTHER + k: belongs to the class `called[k]`
  const ASIDE = 400; // pixels above and below what is seen that are made ready
  const LEFT_TO_RIGHT = "\u200e"; // or a name written from right to left would draw numbers behind it to its other side
  const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
  const number = (value) => value.toLocaleString("en");
  const plural = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;

  // ---- Marks: what the person says, kept by the browser ------------------------------------------------------------

  const marks = new Int32Array(count);
  const idOf = new Map(data.names.map((name, id) => [`${data.label[id]} ${name}`, id]));
  const called = classes.map(({ name }) => name); // and then classes that the learner does not know yet
  const classOf = new Map(called.map((name, index) => [name, index]));
  const idsOf = classes.map(() => []);
  data.label.forEach((label, id) => idsOf[label].push(id));
  const ours = `continual-crust review ${data.identity} `;
  const place = (label) => `${ours}${data.generation} ${label}`;
  const history = [];

  /** The place in `called` of a class that a person named. */
  const named = (name) => {
    if (!classOf.has(name)) classOf.set(name, called.push(name) - 1);
    return classOf.get(name);
  };

  const asEntry = (id) => {
    const mark = marks[id], name = data.names[id], to = mark - OTHER;
    const [word, target] = mark >= OTHER ? [to < classes.length ? "other" : "new", called[to]]
      : [mark === RIGHT ? "right" : "wrong", ""];
    return [name, word, target, data.print[id]];
  };

  /** Marks in a stored text; anything else in it is passed over. This page may not know the image or its new class. */
  const stored = (key) => {
    const label = key.split(" ").pop(), text = localStorage.getItem(key);
    let entries = [];
    try { entries = JSON.parse(text); } catch { /* not ours */ }
    if (!Array.isArray(entries)) return [];
    return entries.filter(Array.isArray).map((entry) => {
      const [name, word, target, print] = entry, id = idOf.get(`${label} ${name}`);
      const to = word === "new" && typeof target === "string" ? named(target) : classOf.get(target);
      const moved = to === undefined || to === Number(label) ? NONE : OTHER + to;
      const mark = ["other", "new"].includes(word) ? moved : { right: RIGHT, wrong: WRONG }[word] || NONE;
      // After an undo, another image may have come in the place of the one that was meant.
      const meant = id !== undefined && (print === undefined || print === data.print[id]);
      return { entry, id, mark, known: meant && mark !== NONE };
    });
  };

  const store = (key, entries) => {
    if (entries.length) localStorage.setItem(key, JSON.stringify(entries));
    else localStorage.removeItem(key);
  };

  /** Marks of images that this page does not show, which are not its to forget. */
  const unknown = (key) => stored(key).filter(({ known }) => !known).map(({ entry }) => entry);

  /** Whether a mark says more than the learner was told before. */
  const isNews = (id, mark) =>
    Math.min(mark, OTHER) !== data.mark[id] || (mark >= OTHER && data.moved[id] !== mark - OTHER);

  const guarded = (action) => {
    try {
      return action();
    } catch {
      byId("unsaved").hidden = false;
      return null;
    }
  };

  const load = (label) => {
    for (const id of idsOf[label]) marks[id] = NONE;
    for (const { id, mark, known } of guarded(() => stored(place(label))) || []) {
      if (known && isNews(id, mark)) marks[id] = mark;
    }
  };

  const save = (label) => guarded(() => {
    const own = idsOf[label].filter((id) => marks[id] !== NONE).map(asEntry);
    store(place(label), [...own, ...unknown(place(label))]);
  });

  /** Give marks, [[id, mark], …], as one step that can be taken back. */
  const give = (changes, remember = true) => {
    const before = [];
    for (const [id, wanted] of changes) {
      const mark = isNews(id, wanted) ? wanted : NONE;
      if (marks[id] !== mark) before.push([id, marks[id]]);
      marks[id] = mark;
    }
    if (remember && before.length) history.push(before);
    for (const label of new Set(before.map(([id]) => data.label[id]))) save(label);
    paint();
    return before.length;
  };

  /** Marks made on the page of an earlier generation, which was learned over before they were applied. */
  const earlier = () => guarded(() => {
    const found = new Map(), keys = [];
    for (let at = 0; at < localStorage.length; at += 1) {
      const key = localStorage.key(at);
      if (key.startsWith(ours) && !key.startsWith(`${ours}${data.generation} `)) keys.push(key);
    }
    for (const key of keys) {
      const all = stored(key), left = all.filter(({ id, mark, known }) => !known || isNews(id, mark));
      for (const { id, mark, known } of left) if (known && marks[id] === NONE) found.set(id, mark);
      if (left.length < all.length) store(key, left.map(({ entry }) => entry)); // the others were applied
    }
    return { found, keys };
  }) || { found: new Map(), keys: [] };

  const offerEarlier = () => {
    const { found, keys } = earlier();
    byId("earlier").hidden = !found.size;
    if (!found.size) return;
    byId("earlier-count").textContent = plural(found.size, "mark", "marks");
    const done = (action) => () => {
      action();
      guarded(() => keys.forEach((key) => store(key, unknown(key))));
      byId("earlier").hidden = true;
      filter();
    };
    byId("earlier-take").onclick = done(() => give([...found]));
    byId("earlier-forget").onclick = done(() => {});
  };

  // ---- Thumbnails: cut out of sheets, which the browser decodes when they come into sight ---------------------------

  const { width: thumbWidth, height: thumbHeight, pitchX, pitchY, columns: across, per } = data.sheet;
  const sheets = new Map();

  const sheetOf = (index) => {
    if (!sheets.has(index)) {
      const raw = atob(byId(`sheet-${index}`).textContent), bytes = new Uint8Array(raw.length);
      for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
      sheets.set(index, `url(${URL.createObjectURL(new Blob([bytes], { type: "image/webp" }))})`);
    }
    return sheets.get(index);
  };

  /** Make an element of a side in pixels a window onto its thumbnail. */
  const draw = (element, id, side) => {
    const scale = side / Math.max(thumbWidth, thumbHeight), index = Math.floor(id / per), at = id % per;
    const down = Math.ceil(Math.min(per, count - index * per) / across), style = element.style;
    style.backgroundImage = sheetOf(index);
    style.backgroundPosition = `${-(at % across) * pitchX * scale}px ${-Math.floor(at / across) * pitchY * scale}px`;
    style.backgroundSize = `${across * pitchX * scale}px ${down * pitchY * scale}px`;
  };

  // ---- The grid: rows are laid out by arithmetic, and only those in sight are elements ------------------------------

  const grid = byId("grid"), toolbar = byId("toolbar"), detail = byId("detail");
  const filters = ["which-class", "which-kept", "which-mark"].map(byId);
  let shown = []; // ids, as they pass the filters
  let rows = []; // headings and rows of cells, from top to bottom
  let rowOf = []; // of each position in `shown`
  let columns = 1, gridTop = 0, gridWidth = 0, viewHeight = 0, covered = 0;
  let sizes = {}; // in pixels
  let current = 0, anchor = 0; // positions in `shown`: all between them are chosen
  let live = new Map();
  const spare = { class: [], group: [], cells: [] };
  const pen = document.createElement("canvas").getContext("2d"); // knows how wide a text is
  const tails = new Map(), suggestions = new Map(); // names and suggestions, as they fit a cell

  const make = (tag, className, parent) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (parent) parent.append(element);
    return element;
  };

  const button = (parent, className, sign, title) => {
    const element = make("button", className, parent);
    element.type = "button";
    element.tabIndex = -1; // keys reach the mark from the cell itself
    element.textContent = sign;
    element.title = title;
    element.setAttribute("aria-label", title);
    return element;
  };

  const passes = (id, [label, kept, mark]) => {
    if (label !== "" && data.label[id] !== Number(label)) return false;
    if (kept !== "" && data.kept[id] !== (kept === "kept")) return false;
    const told = marks[id] || data.mark[id];
    return {
      "": true, doubtful: data.score[id] < 0.5 && told === NONE, unmarked: told === NONE, marked: marks[id] !== NONE,
      right: told === RIGHT, wrong: told === WRONG, other: told >= OTHER, applied: data.mark[id] !== NONE,
    }[mark];
  };

  /** Choose what is shown. Marking does not come here: nothing may move under the pointer. */
  const filter = () => {
    const stay = shown[current], wanted = filters.map((choice) => choice.value);
    shown = [];
    for (let id = 0; id < count; id += 1) if (passes(id, wanted)) shown.push(id);
    current = anchor = Math.max(stay === undefined ? 0 : shown.indexOf(stay), 0);
    layOut();
  };

  /** Ask the browser once for what it would have to work out anew each time. */
  const measure = () => {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize), style = getComputedStyle(grid);
    const rems = (name) => parseFloat(style.getPropertyValue(name)) * rem;
    sizes = {
      ...sizes, width: rems("--cell-width"), side: rems("--side"), large: rems("--large"), frame: 1.4 * rem,
      class: rems("--class-height"), group: rems("--group-height"), cells: rems("--cell-height"),
    };
    sizes.text = rems("--text");
    pen.font = `${sizes.text}px ${style.fontFamily}`;
    gridTop = grid.getBoundingClientRect().top + window.scrollY;
    gridWidth = grid.clientWidth;
    viewHeight = window.innerHeight;
    covered = toolbar.offsetHeight;
  };

  /** Say where each row lies. */
  const layOut = () => {
    for (const element of live.values()) {
      element.remove();
      spare[element.row.kind].push(element);
    }
    live = new Map();
    measure();
    const fitting = Math.max(2, Math.floor(gridWidth / sizes.width));
    if (fitting !== columns) spare.cells = [];
    columns = fitting;
    sizes.room = gridWidth / columns - sizes.frame;
    tails.clear();
    suggestions.clear();
    rows = [];
    rowOf = [];
    let height = 0;
    const add = (row) => {
      rows.push({ ...row, top: height, bottom: height + sizes[row.kind] });
      height += sizes[row.kind];
    };
    for (let at = 0; at < shown.length;) {
      const label = data.label[shown[at]], kept = data.kept[shown[at]];
      if (at === 0 || data.label[shown[at - 1]] !== label) add({ kind: "class", label });
      let end = at;
      while (end < shown.length && data.label[shown[end]] === label && data.kept[shown[end]] === kept) end += 1;
      add({ kind: "group", label, kept, size: end - at });
      while (at < end) {
        const next = Math.min(at + columns, end);
        for (let position = at; position < next; position += 1) rowOf.push(rows.length);
        add({ kind: "cells", label, kept, from: at, to: next });
        at = next;
      }
    }
    grid.style.height = `${height}px`;
    grid.style.setProperty("--columns", columns);
    grid.setAttribute("aria-rowcount", rows.length);
    grid.setAttribute("aria-colcount", columns);
    byId("nothing").hidden = shown.length > 0;
    render();
    paint();
  };

  /** The first row that ends below a height. */
  const rowBelow = (height) => {
    let low = 0, high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].bottom > height) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  /** Have an element for each row in sight, and for no other. */
  const render = () => {
    const from = window.scrollY - gridTop;
    const first = rowBelow(from - ASIDE), end = Math.min(rows.length, rowBelow(from + viewHeight + ASIDE) + 1);
    for (const [index, element] of live) {
      if (index >= first && index < end) continue;
      element.remove();
      spare[rows[index].kind].push(element);
      live.delete(index);
    }
    for (let index = first; index < end; index += 1) if (!live.has(index)) fill(index);
    const here = from + covered > 0 ? rows[rowBelow(from + covered)] : undefined;
    const group = here === undefined || here.kind === "class" ? "" : here.kept ? ", kept" : ", thrown out";
    const name = here === undefined ? "" : classes[here.label].name + group;
    if (byId("here").textContent !== name) byId("here").textContent = name;
  };

  const fill = (index) => {
    const row = rows[index], element = spare[row.kind].pop() || built[row.kind]();
    element.style.transform = `translateY(${row.top}px)`;
    element.setAttribute("aria-rowindex", index + 1);
    element.row = row;
    live.set(index, element);
    grid.append(element);
    filled[row.kind](element, row);
  };

  const heading = (kind, tag) => () => {
    const element = make("div", `row ${kind}`);
    element.setAttribute("role", "row");
    const inner = make("div", "", element);
    inner.setAttribute("role", "columnheader");
    make(tag, "", inner);
    make("p", "soft", inner);
    return element;
  };

  const built = {
    class: heading("class", "h2"),
    group: heading("group", "h3"),
    cells: () => {
      const element = make("div", "row cells");
      element.setAttribute("role", "row");
      for (let at = 0; at < columns; at += 1) {
        const cell = make("div", "cell", element);
        cell.setAttribute("role", "gridcell");
        cell.setAttribute("aria-colindex", at + 1);
        make("span", "picture", cell);
        make("span", "badge", cell);
        make("span", "name", cell);
        make("span", "score", cell);
        make("span", "instead", cell);
        const buttons = make("span", "buttons", cell);
        button(buttons, "right", "✓", "Right");
        button(buttons, "wrong", "✗", "Wrong");
        button(buttons, "other", "⇄", "Belongs to another class");
      }
      return element;
    },
  };

  const filled = {
    class: (element, { label }) => {
      const about = classes[label], marked = idsOf[label].filter((id) => marks[id] !== NONE).length;
      const [title, facts] = element.firstChild.children;
      title.textContent = about.name;
      facts.textContent = [
        `${number(about.seen)} seen`, `${number(about.kept)} kept`,
        plural(about.wrong, "looks wrong", "look wrong"),
        ...(about.noise ? [`wrong labels, estimated: ${about.noise}`] : []),
        ...(marked ? [`${number(marked)} marked`] : []),
      ].join(" · ");
    },
    group: (element, { kept, size }) => {
      const [title, facts] = element.firstChild.children;
      title.textContent = kept ? "Kept" : "Thrown out";
      facts.textContent = `${plural(size, "image", "images")}, most doubtful first`;
    },
    cells: (element, { from, to }) => {
      [...element.children].forEach((cell, at) => {
        cell.hidden = from + at >= to;
        if (cell.hidden) {
          cell.image = undefined;
          return;
        }
        const id = shown[from + at];
        const [picture, , name, score, instead] = cell.children;
        cell.image = id;
        cell.position = from + at;
        cell.id = `image-${id}`;
        draw(picture, id, sizes.side);
        name.textContent = tail(id);
        cell.title = data.names[id];
        score.textContent = `${percent(data.score[id])} right`;
        score.classList.toggle("doubtful", data.score[id] < 0.5);
        instead.textContent = suggestion(id);
        instead.classList.toggle("likely", data.probability[id] >= 0.5);
        dress(cell);
      });
    },
  };

  /** As much of a name as a cell has room for: its end, where names differ, without the folder that is the class. */
  const tail = (id) => {
    const folder = `${classes[data.label[id]].name}/`;
    const name = data.names[id].startsWith(folder) ? data.names[id].slice(folder.length) : data.names[id];
    if (!tails.has(id)) {
      let cut = name;
      while (cut.length > 2 && !fits(cut)) cut = `…${cut.slice(cut.length > 60 ? -60 : 2)}`;
      tails.set(id, cut);
    }
    return tails.get(id);
  };

  /** Whether a text has room in a cell; no letter is wider than the text is high. */
  const fits = (text) => text.length * sizes.text <= sizes.room || pen.measureText(text).width <= sizes.room;

  /** As much of `rather` as a cell has room for: without the word, or with the beginning of the name. */
  const suggestion = (id) => {
    const [words, probability] = rather(id), whole = words + probability;
    if (!suggestions.has(whole)) {
      const { name } = classes[data.other[id]] || { name: "" };
      let cut = [whole, name + probability].find(fits);
      for (let length = name.length; cut === undefined; length -= 1) {
        const beginning = `${name.slice(0, length)}…${probability}`;
        if (length < 2 || fits(beginning)) cut = beginning;
      }
      suggestions.set(whole, cut);
    }
    return suggestions.get(whole);
  };

  /** The class the learner would give instead, and its probability. */
  const rather = (id) => {
    if (data.other[id] < 0) return ["", ""];
    const word = data.probability[id] >= 0.5 ? "rather" : "or";
    return [`${word} ${classes[data.other[id]].name}`, ` ${LEFT_TO_RIGHT}${percent(data.probability[id])}`];
  };

  const told = (id) => {
    const mark = marks[id] || data.mark[id];
    if (mark === NONE) return "";
    const before = marks[id] === NONE ? ", applied" : "";
    const to = called[marks[id] === NONE ? data.moved[id] : mark - OTHER];
    if (mark >= OTHER) return (to ? `→ ${to}` : "moved") + before;
    return (mark === RIGHT ? "✓ right" : "✗ wrong") + before;
  };

  /** Bring a cell's looks in line with its mark and whether it is chosen. */
  const dress = (cell) => {
    const id = cell.image, mark = Math.min(marks[id] || data.mark[id], OTHER), at = cell.position;
    const word = ["", "right", "wrong", "other"][mark];
    cell.dataset.mark = word;
    cell.classList.toggle("applied", marks[id] === NONE);
    cell.classList.toggle("current", at === current);
    const chosen = at >= Math.min(current, anchor) && at <= Math.max(current, anchor);
    cell.classList.toggle("chosen", chosen);
    cell.setAttribute("aria-selected", chosen);
    cell.children[1].textContent = told(id);
    for (const one of cell.lastChild.children) one.setAttribute("aria-pressed", one.className === word);
    cell.setAttribute("aria-label", `${data.names[id]}, given ${classes[data.label[id]].name}, ${
      percent(data.score[id])} likely right, ${rather(id).join("")}, ${told(id) || "not marked"}`);
  };

  /** Bring all that depends on marks or on the choice up to date. */
  const paint = () => {
    for (const element of live.values()) {
      if (element.row.kind === "class") filled.class(element, element.row);
      if (element.row.kind !== "cells") continue;
      for (const cell of element.children) if (!cell.hidden) dress(cell);
    }
    const sums = [0, 0, 0, 0];
    for (const mark of marks) sums[Math.min(mark, OTHER)] += 1;
    const marked = count - sums[NONE];
    const apart = `${number(sums[RIGHT])} ✓ ${number(sums[WRONG])} ✗ ${number(sums[OTHER])} ⇄`;
    byId("counts").textContent = `${number(shown.length)} of ${number(count)} shown · ${
      marked ? `${number(marked)} marked: ${apart}` : "none marked"}`;
    byId("export").disabled = marked === 0;
    byId("export").textContent = marked ? `Export ${plural(marked, "mark", "marks")}` : "Export marks";
    byId("undo").disabled = history.length === 0;
    describe();
  };

  /** Tell everything about the current image, at the foot of the page. */
  const describe = () => {
    const id = shown[current];
    detail.hidden = id === undefined;
    if (detail.hidden) {
      grid.removeAttribute("aria-activedescendant");
      return;
    }
    draw(byId("large"), id, sizes.large);
    const folder = data.folders[data.folder[id]], chosen = Math.abs(current - anchor) + 1;
    byId("full-name").textContent = data.names[id];
    byId("facts").textContent = [
      `given ${classes[data.label[id]].name}`, data.kept[id] ? "kept" : "thrown out",
      `label right: ${percent(data.score[id])}`, ...(data.other[id] < 0 ? [] : [rather(id).join("")]),
      ...(told(id) ? [told(id)] : []),
      ...(folder ? [`from ${folder}`] : []),
    ].join(" · ");
    byId("chosen").textContent = chosen > 1 ? `${number(chosen)} images chosen` : "";
    const mark = Math.min(marks[id] || data.mark[id], OTHER);
    detail.querySelectorAll("[data-mark]").forEach((one, at) => one.setAttribute("aria-pressed", mark === at + 1));
    grid.setAttribute("aria-activedescendant", `image-${id}`);
  };

  // ---- Choosing and marking -----------------------------------------------------------------------------------------

  const choose = (position, extend, follow = true) => {
    if (!shown.length) return;
    current = Math.min(Math.max(position, 0), shown.length - 1);
    if (!extend) anchor = current;
    if (follow) bringIntoSight();
    paint();
  };

  const bringIntoSight = () => {
    const row = rows[rowOf[current]], from = window.scrollY - gridTop;
    // With the first row of a group comes its heading.
    let top = row.top;
    for (let above = rowOf[current] - 1; above >= 0 && rows[above].kind !== "cells"; above -= 1) top = rows[above].top;
    const room = viewHeight - detail.offsetHeight;
    if (top < from + covered) window.scrollTo(0, top + gridTop - covered);
    else if (row.bottom > from + room) window.scrollTo(0, row.bottom + gridTop - room);
    render();
  };

  /** Up or down to the same column of the next row of cells. */
  const step = (by) => {
    const column = current - rows[rowOf[current]].from;
    let index = rowOf[current] + by;
    while (rows[index] && rows[index].kind !== "cells") index += by;
    return rows[index] ? Math.min(rows[index].from + column, rows[index].to - 1) : current;
  };

  const page = (by) => {
    const seen = Math.max(1, Math.floor((viewHeight - covered - detail.offsetHeight) / sizes.cells));
    return current + by * seen * columns;
  };

  const chosenIds = () => shown.slice(Math.min(current, anchor), Math.max(current, anchor) + 1);

  const say = (text) => { byId("said").textContent = text; };

  /** Mark some images; the same mark again takes it back where `toggle` is set. */
  const mark = (ids, value, toggle = false) => {
    const off = toggle && ids.every((id) => marks[id] === value);
    const changed = give(ids.map((id) => [id, off ? NONE : value]));
    const words = ["not marked", "right", "wrong"][off ? NONE : value] || `belongs to ${called[value - OTHER]}`;
    say(changed ? `${ids.length > 1 ? plural(ids.length, "image", "images") : data.names[ids[0]]}: ${words}` : "");
  };

  const picker = byId("picker"), choice = byId("picker-class"), unheard = byId("picker-new");
  let picking = null;

  /** Ask which class images belong to; `then` is called once it is told. */
  const pick = (ids, then = () => {}) => {
    picking = { ids, then };
    const own = new Set(ids.map((id) => data.label[id])), first = ids[0];
    const before = data.moved[first] < 0 ? data.other[first] : data.moved[first];
    const suggested = marks[first] >= OTHER ? marks[first] - OTHER : before;
    choice.replaceChildren(...called.flatMap((name, index) => {
      if (own.size === 1 && own.has(index)) return [];
      const option = new Option(name, String(index));
      option.selected = index === suggested;
      return [option];
    }));
    if (choice.selectedIndex < 0) choice.selectedIndex = 0;
    choice.size = Math.min(Math.max(choice.length, 2), 10);
    byId("picker-what").textContent = ids.length > 1 ? plural(ids.length, "image", "images") : data.names[first];
    unheard.value = "";
    picker.showModal();
    (choice.length ? choice : unheard).focus();
  };

  const picked = () => {
    const name = unheard.value.trim(), { ids, then } = picking;
    if (!name && choice.selectedIndex < 0) return;
    const target = name ? named(name) : Number(choice.value);
    picker.close();
    // Or the next key might still go to the dialog.
    grid.focus({ preventScroll: true });
    mark(ids.filter((id) => data.label[id] !== target), OTHER + target);
    then();
  };

  const onward = () => { if (current === anchor) choose(current + 1, false); };

  const byKey = {
    r: () => { mark(chosenIds(), RIGHT); onward(); },
    w: () => { mark(chosenIds(), WRONG); onward(); },
    o: () => pick(chosenIds(), onward),
    u: () => mark(chosenIds(), NONE),
    z: () => undo(),
    e: () => offerExport(),
  };

  const undo = () => {
    const before = history.pop();
    if (!before) return;
    give(before, false);
    const at = shown.indexOf(before[0][0]);
    if (at >= 0) choose(at, false);
    say(`Taken back: ${plural(before.length, "mark", "marks")}`);
  };

  document.addEventListener("keydown", (event) => {
    if (event.target.closest("select, input, textarea, dialog, summary") || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.ctrlKey || event.metaKey) {
      if (key !== "z" || event.shiftKey) return;
      event.preventDefault();
      undo();
      return;
    }
    if (!shown.length && key !== "z" && key !== "e") return;
    const moves = {
      ArrowLeft: () => current - 1, ArrowRight: () => current + 1, ArrowUp: () => step(-1), ArrowDown: () => step(1),
      Home: () => 0, End: () => shown.length - 1, PageUp: () => page(-1), PageDown: () => page(1),
    };
    if (Object.hasOwn(moves, key)) choose(moves[key](), event.shiftKey);
    else if (key === "Escape") choose(current, false);
    else if (Object.hasOwn(byKey, key)) byKey[key]();
    else return;
    event.preventDefault();
  });

  grid.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    grid.focus({ preventScroll: true });
    choose(cell.position, event.shiftKey, false);
    const pressed = event.target.closest("button");
    if (!pressed) return;
    if (pressed.className === "other") pick([cell.image]);
    else mark([cell.image], pressed.className === "right" ? RIGHT : WRONG, true);
  });
  // Shift and a click would choose text as well.
  grid.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); });

  detail.addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-mark]");
    if (!pressed) return;
    if (pressed.dataset.mark === "other") pick(chosenIds());
    else mark(chosenIds(), { right: RIGHT, wrong: WRONG, none: NONE }[pressed.dataset.mark]);
  });
  byId("undo").addEventListener("click", undo);
  byId("picker-move").addEventListener("click", picked);
  for (const box of [choice, unheard]) {
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); picked(); } });
  }
  // The last word holds, and only that one shows.
  choice.addEventListener("change", () => { unheard.value = ""; });
  unheard.addEventListener("input", () => { choice.selectedIndex = unheard.value.trim() ? -1 : 0; });
  choice.addEventListener("dblclick", picked);
  for (const close of document.querySelectorAll("dialog .close")) {
    close.addEventListener("click", () => close.closest("dialog").close());
  }

  // ---- Export -------------------------------------------------------------------------------------------------------

  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;

  const csv = () => {
    const lines = ["file,class,mark,new_class"];
    for (let id = 0; id < count; id += 1) {
      if (marks[id] === NONE) continue;
      const [name, word, target] = asEntry(id);
      lines.push([quoted(name), quoted(classes[data.label[id]].name), word, target && quoted(target)].join(","));
    }
    return `${lines.join("\r\n")}\r\n`;
  };

  const offerExport = () => {
    if (marks.every((given) => given === NONE)) return;
    byId("csv").value = csv();
    byId("copied").textContent = "";
    byId("exporting").showModal();
    byId("download").focus();
  };

  byId("export").addEventListener("click", offerExport);
  byId("download").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = data.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    byId("copied").textContent = `Saved as ${data.file}, where your browser puts downloads.`;
  });
  byId("copy").addEventListener("click", async () => {
    const area = byId("csv");
    let done = false;
    try {
      await navigator.clipboard.writeText(csv());
      done = true;
    } catch {
      area.select();
      done = document.execCommand("copy");
    }
    byId("copied").textContent = done
      ? `Copied; paste it into a file called ${data.file}.`
      : "The browser does not allow copying; the text is chosen, copy it with the keyboard.";
  });

  // ---- Start --------------------------------------------------------------------------------------------------------

  classes.forEach(({ name, seen }, at) => filters[0].append(new Option(`${name} (${number(seen)})`, String(at))));
  for (const one of filters) {
    one.addEventListener("change", () => {
      filter();
      if (shown.length) bringIntoSight();
    });
  }
  for (const label of idsOf.keys()) load(label);
  window.addEventListener("scroll", render, { passive: true });
  window.addEventListener("storage", (event) => {
    // Another tab shows the same learner.
    if (event.key !== null && !event.key.startsWith(ours)) return;
    for (const label of idsOf.keys()) load(label);
    paint();
  });
  const resized = () => {
    if (grid.clientWidth !== gridWidth) {
      layOut();
      return;
    }
    measure();
    render();
  };
  window.addEventListener("resize", resized);
  const watcher = new ResizeObserver(resized);
  for (const element of [grid, toolbar, byId("top")]) watcher.observe(element);
  byId("command").textContent = data.command;
  const longest = Math.max(thumbWidth, thumbHeight);
  byId("page").style.setProperty("--thumb-width", thumbWidth / longest);
  byId("page").style.setProperty("--thumb-height", thumbHeight / longest);
  // Small pictures keep their pixels; others would only look coarse.
  byId("page").classList.toggle("coarse", longest <= 20);
  byId("page").hidden = false;
  filter();
  offerEarlier();
})();
