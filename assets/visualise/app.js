// The pictures of the Visualise tab: what they share, and everything around them. A picture of the server is drawn
// again without asking it; the server is asked for a new one with the buttons of the page.
import {copyText, iconButton, make, saveFile, seconds, textButton} from '../../chat/scripts/dom.js';
import {clearAddress, readAddress, writeAddress} from './address.js';
import {Chart} from './chart.js';
import {Heads} from './heads.js';
import {Link} from './link.js';
import {Axis, Refused, fetchBytes, readParcel} from './parcel.js';
import {Player} from './sound.js';
import {Table} from './table.js';

const KINDS = {png: 'image/png', svg: 'image/svg+xml', npz: 'application/zip'};
const TYPING = 'input, textarea, select, [contenteditable], [role="combobox"]';
const FAINT = 0.6; // how much stronger faint values are drawn at first where most values are faint
const OWN = 'Everybody with the link can hear your recording.';
const LARGE = 'The recording is too large for the server to store; whoever opens the link must add it again.';

// Scrolls the box of a token to it, and nothing around the box.
const reveal = (chip) => {
  const box = chip.parentElement;
  box.scrollTop = Math.min(Math.max(box.scrollTop, chip.offsetTop + chip.offsetHeight - box.clientHeight), chip.offsetTop);
};

// Whether a layer shows the side's tokens, which stand below the recording in any case.
const repeated = (side, {kind, over, values}) => {
  const times = side.tokens.filter((token) => token.start !== null).flatMap((token) => [token.start, token.end]);
  return kind === 'spans' && !over && values.codes.length === times.length && times.every((time, place) => Math.abs(time - values.at(place)) < 1e-3);
};

// Layers with those that are drawn over them.
const chunks = (side) => {
  const found = [];
  for (const layer of side.layers) {
    if (repeated(side, layer)) continue;
    if (layer.over && found.length) found.at(-1).push(layer);
    else found.push([layer]);
  }
  return found;
};

const spoken = (token) => token.text.replaceAll('▁', ' ').trim() || token.text;

class Stage {
  constructor({element, props, watch, restore}) {
    Object.assign(this, {element, props, link: null, player: null, parts: [], asked: readAddress(location.hash)});
    this.notice = make('p', {class: 'notice small', role: 'status'});
    this.root = make('section', {class: 'looking', 'aria-label': 'Pictures'});
    const holder = element.querySelector('.stage') || element;
    this.empty = holder.querySelector('.empty');
    holder.append(this.notice, this.root);
    this.root.addEventListener('keydown', (event) => this.key(event));
    watch('value', () => this.load());
    new ResizeObserver(() => this.drawAll()).observe(this.root);
    const again = () => requestAnimationFrame(() => this.drawAll());
    new MutationObserver(again).observe(document.body, {attributes: true, attributeFilter: ['class']});
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
    this.watchTabs();
    this.load();
    if (this.asked && Object.keys(this.asked).length && !props.value) restore({...this.asked});
  }

  // Another tab has no settings in the address; this one has them again when it is opened.
  watchTabs() {
    document.querySelector('#tabs')?.addEventListener('click', (event) => {
      const tab = event.target.closest('[role="tab"], .overflow-dropdown button');
      if (!tab) return;
      if (tab.textContent.trim() === 'Visualise') this.keepAddress();
      else { this.player?.stop(); clearAddress(); }
    });
  }

  say(sentence) { this.notice.textContent = sentence; }

  // A picture of the server: `props.value` names it.
  async load() {
    const value = this.props.value;
    if (!value?.key || value.key === this.shown) return;
    this.shown = value.key;
    try {
      const [parcel, sound] = await Promise.all([fetchBytes(`picture/${value.key}`), value.sound ? fetchBytes(`sound/${value.key}`) : null]);
      if (this.shown === value.key) this.show(readParcel(parcel), sound, value);
    } catch (error) {
      if (this.shown !== value.key) return; // newer pictures are on their way
      this.shown = '';
      this.say(error instanceof Refused ? error.message : 'The pictures could not be drawn; reload the page.');
      if (!(error instanceof Refused)) throw error;
    }
  }

  show(header, sound, value) {
    const before = this.link;
    this.player?.close();
    this.say('');
    this.empty?.remove();
    Object.assign(this, {header, value, link: new Link(header.seconds || 1)});
    const {link} = this;
    if (before && before.seconds === link.seconds) this.takeOver(before);
    if (header.sides.some((side) => side.layers.some((layer) => layer.values.faint))) link.set({lift: link.lift || FAINT});
    if (this.asked) this.takeOver(this.asked);
    this.asked = null;
    this.player = new Player(link);
    if (sound) this.player.load(sound);
    for (const side of header.sides) side.choose = (index) => this.choose(side, index);
    this.build(Boolean(sound));
    link.watchers.add((changed) => this.follow(changed));
    this.drawAll();
    this.keepAddress();
  }

  // Cursor, selection and enlarged head stay while views of the same recording change, and come from a link.
  takeOver(given) {
    const {link} = this;
    const real = (each) => (each === null || each === undefined || each === '' || !Number.isFinite(Number(each)) ? null : Number(each));
    const stretch = given.stretch || [real(given.begin), real(given.end)];
    if (stretch.every((each) => each !== null)) link.select(...stretch);
    if (real(given.from) !== null && real(given.to) > real(given.from)) link.show(real(given.from), real(given.to));
    const cursor = real(given.cursor ?? given.at);
    if (cursor !== null) link.set({cursor: link.clamp(cursor)});
    link.set({head: real(given.head), lift: Math.min(Math.max(real(given.lift) ?? link.lift, 0), 1), loop: Boolean(given.loop)});
  }

  // Building.

  build(heard) {
    const {header, link} = this;
    this.parts = [];
    const add = (part) => { this.parts.push(part); return part.root; };
    this.chips = [];
    const inside = [make('header', {class: 'view-title'}, make('h3', {tabindex: -1}, header.title), make('p', {class: 'muted small'}, header.sentence))];
    if (header.seconds) inside.push(this.head(heard, add));
    for (const side of header.sides.slice(0, 2)) inside.push(...this.said(side, add));
    inside.push(...header.sides.slice(2).flatMap((side) => side.notes.map((note) => make('p', {class: 'note'}, `${side.title}: ${note}`))));
    const sides = header.sides.map((side) => [side, chunks(side)]);
    const names = new Set(sides.flatMap(([, listed]) => listed.map(([layer]) => layer.name)));
    for (const name of names) {
      const found = sides.flatMap(([side, listed]) => listed.filter(([layer]) => layer.name === name).map((layers) => [side, layers]));
      const several = header.sides.length > 1;
      const drawn = found.map(([side, layers]) => {
        const [layer] = layers;
        if (layer.equal) return make('p', {class: 'note', 'data-layer': layer.name}, `${side.title}: none. The values are the same, number for number.`);
        const Made = layer.kind === 'table' ? Table : layer.kind === 'image' && layer.values.shape.length > 2 ? Heads : Chart;
        return add(new Made(link, side, layers, several ? side.title : undefined));
      });
      this.align(found);
      inside.push(make('div', {class: 'group'}, several ? make('h4', {}, found[0][1][0].title) : null, ...drawn));
    }
    inside.push(make('footer', {class: 'taking'}, ...header.sides.map((side, place) => this.taking(side, place))));
    this.root.replaceChildren(...inside);
  }

  // Lines and bars of two sides have the same numbers at the bottom and the top.
  align(found) {
    const drawn = this.parts.filter((part) => part.range && found.some(([side, [layer]]) => part.layer === layer && this.header.sides.indexOf(side) < 2));
    drawn.forEach((part) => part.range());
    const known = drawn.filter((part) => part.low !== undefined);
    const [low, high] = [Math.min(...known.map((part) => part.low)), Math.max(...known.map((part) => part.high))];
    known.forEach((part) => Object.assign(part, {low, high}));
  }

  // What stays in view: buttons, the recording with its times, the cursor's place.
  head(heard, add) {
    const {link, header} = this;
    const toggle = (name, label, press) => { const made = iconButton(name, label, press); made.setAttribute('aria-pressed', 'false'); return made; };
    this.playButton = iconButton('play', 'Play (space)', () => this.player.toggle(), 'play-sound');
    this.loopButton = toggle('retry', 'Repeat the selection', () => link.set({loop: !link.loop}));
    this.where = make('output', {class: 'where', 'aria-live': 'off'});
    const images = header.sides.some((side) => side.layers.some((layer) => layer.kind === 'image'));
    const lift = make('input', {type: 'range', min: 0, max: 100, value: Math.round(100 * link.lift), 'aria-label': 'Strength of faint values',
      oninput: () => link.set({lift: Number(lift.value) / 100})});
    const bar = make('div', {class: 'tools', role: 'toolbar', 'aria-label': 'Recording'},
      ...(heard ? [this.playButton, this.loopButton] : []),
      textButton('−', () => link.zoom(2)), textButton('+', () => link.zoom(0.5)),
      textButton('Selection', () => link.stretch && link.show(...link.stretch)), textButton('Whole', () => link.show(0, link.seconds)),
      this.where, images ? make('label', {class: 'lift'}, 'Faint values', lift) : null,
      textButton('Copy link', () => this.copyLink(), 'quiet copy-link'));
    const [minus, plus] = bar.querySelectorAll('.quiet');
    minus.setAttribute('aria-label', 'Show more time');
    plus.setAttribute('aria-label', 'Show less time');
    const {samples, rate} = this.player;
    const wave = {kind: 'wave', name: 'wave', title: 'Recording', samples, rate, labels: [], values: {shape: [samples.length], codes: samples},
      x: new Axis({label: 'time', unit: 'seconds', time: [0, 1 / rate]}, samples.length), y: new Axis({}, 1)};
    const chart = new Chart(link, {title: 'the recording', tokens: [], layers: []}, [wave], '');
    chart.under.removeAttribute('role');
    chart.under.removeAttribute('aria-label');
    for (const [name, value] of Object.entries({role: 'slider', tabindex: 0, 'aria-label': 'Cursor in the recording', 'aria-valuemin': 0,
      'aria-valuemax': header.seconds.toFixed(2)})) chart.plot.setAttribute(name, value);
    this.slider = chart.plot;
    return make('div', {class: 'strip'}, bar, add(chart));
  }

  // What a side wrote: its tokens as text and in time.
  said(side, add) {
    const made = [];
    const titled = this.header.sides.length > 1;
    if (side.tokens.length) {
      const chips = side.tokens.map((token, index) => {
        const timed = token.start !== null && token.start !== undefined;
        return make('button', {type: 'button', class: 'token', title: timed ? `${token.start.toFixed(2)} to ${token.end.toFixed(2)} s` : null,
          onclick: () => this.choose(side, index)}, spoken(token));
      });
      this.chips.push({side, chips});
      made.push(make('p', {class: 'tokens', role: 'group', 'aria-label': `Tokens of ${side.title}`}, make('span', {class: 'label'}, titled ? side.title : 'Tokens'), ...chips));
      const times = side.tokens.filter((token) => token.start !== null && token.start !== undefined);
      if (times.length) {
        const layer = {kind: 'spans', name: 'tokens', title: 'Tokens', labels: times.map(spoken), ofTokens: true,
          values: {shape: [times.length, 2], codes: Float32Array.from(times.flatMap((token) => [token.start, token.end])), at(place) { return this.codes[place]; }},
          x: new Axis({label: 'time', unit: 'seconds', time: [0, 1]}, 1), y: new Axis({}, 1)};
        made.push(make('div', {class: 'lane'}, add(new Chart(this.link, side, [layer], ''))));
      }
    }
    for (const note of side.notes) made.push(make('p', {class: 'note'}, titled ? `${side.title}: ${note}` : note));
    return made.length ? [make('div', {class: 'said-by'}, ...made)] : [];
  }

  taking(side, place) {
    const lines = make('pre', {tabindex: 0, 'aria-label': `Python for ${side.title}`}, side.code);
    const copy = textButton('Copy', async () => {
      await copyText(side.code);
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    return make('div', {class: 'take'}, make('span', {class: 'label'}, side.title),
      ...Object.keys(KINDS).map((kind) => textButton(kind.toUpperCase(), () => this.save(side, place, kind), `quiet save-${kind}`)),
      side.code ? make('details', {}, make('summary', {}, 'Python'), lines, copy) : null);
  }

  async save(side, place, kind) {
    this.say(`Making the ${kind.toUpperCase()} file…`);
    try {
      const bytes = await fetchBytes(`file/${this.value.key}/${place}.${kind}`);
      saveFile(`${side.file}.${kind}`, new Blob([bytes], {type: KINDS[kind]}));
      this.say('');
    } catch (error) {
      this.say(error instanceof Refused ? error.message : 'The file could not be saved.');
    }
  }

  async copyLink() {
    this.keepAddress();
    await copyText(location.href);
    const {sample, recording} = this.value.settings;
    const held = recording ? OWN : sample || !this.value.sound ? '' : LARGE;
    this.say(`The link is copied. ${held}`.trim());
  }

  // A token was chosen: its time is selected, or where its attention is greatest.
  choose(side, index) {
    const {link} = this;
    const token = side.tokens[index];
    if (link.token?.side === side.title && link.token.index === index) { link.set({token: null, stretch: null, peak: null}); return; }
    link.set({token: {side: side.title, index}});
    if (token.start !== null && token.start !== undefined) {
      link.select(token.start, token.end);
      link.go(token.start);
      return;
    }
    for (const part of this.parts) {
      const chart = part.chart || part;
      if (chart.side !== side || chart.layer.kind !== 'image' || !chart.layer.y.tokens || !chart.layer.x.time || !chart.peakOf) continue;
      const span = chart.layer.x.span(chart.peakOf(chart.layer.y.tokens.indexOf(index)));
      link.select(...span);
      link.go(span[0]);
      return;
    }
  }

  // Following.

  drawAll() { for (const part of this.parts) part.draw(); this.tell(); }

  follow(changed) {
    const whole = ['from', 'to', 'lift', 'head'].some((name) => changed.has(name));
    for (const part of this.parts) {
      if (whole) part.draw();
      else part.drawAbove();
    }
    this.tell();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.keepAddress(), 500);
  }

  // What is said around the pictures, and in the root's data for programs that look at the page.
  tell() {
    const {link, root} = this;
    if (!link) return;
    const now = link.hover?.time ?? link.cursor;
    for (const {side, chips} of this.chips) {
      chips.forEach((chip, index) => {
        const {start, end} = side.tokens[index];
        const inside = start !== null && start !== undefined && now >= start && now < end;
        if (inside && !chip.classList.contains('now')) reveal(chip);
        chip.classList.toggle('now', inside);
        const chosen = link.token?.side === side.title && link.token.index === index;
        const selected = Boolean(link.stretch) && start !== null && start !== undefined && end > link.stretch[0] + 1e-6 && start < link.stretch[1] - 1e-6;
        chip.setAttribute('aria-pressed', String(chosen || selected));
      });
    }
    const places = {cursor: link.cursor.toFixed(3), from: link.from.toFixed(3), to: link.to.toFixed(3), playing: link.playing ? 'yes' : 'no',
      stretch: link.stretch ? link.stretch.map((each) => each.toFixed(3)).join(' ') : '', level: (this.player?.level ?? 0).toFixed(4)};
    Object.assign(root.dataset, places);
    if (!this.slider) return;
    const said = this.sayOf(now);
    if (this.where.textContent !== said) this.where.textContent = said;
    this.slider.setAttribute('aria-valuenow', link.cursor.toFixed(2));
    this.slider.setAttribute('aria-valuetext', this.sayOf(link.cursor));
    this.loopButton.setAttribute('aria-pressed', String(link.loop));
    const playing = link.playing ? 'pause' : 'play';
    if (this.playButton.dataset.shows !== playing) {
      this.playButton.dataset.shows = playing;
      const fresh = iconButton(playing, link.playing ? 'Pause (space)' : 'Play (space)', () => {});
      this.playButton.replaceChildren(...fresh.childNodes);
      for (const name of ['aria-label', 'title']) this.playButton.setAttribute(name, fresh.getAttribute(name));
    }
  }

  // A moment in words: its time, its tokens, and how much is selected.
  sayOf(time) {
    const {stretch} = this.link;
    const inside = this.header.sides.slice(0, 2).flatMap((side) => side.tokens.filter(({start, end}) => start !== null && time >= start && time < end));
    return [`${time.toFixed(2)} s`, ...new Set(inside.map(spoken)), stretch ? `selected ${seconds(stretch[1] - stretch[0])}` : ''].filter(Boolean).join(' · ');
  }

  keepAddress() {
    const {link, value, root} = this;
    if (!value || !root.checkVisibility()) return;
    const fixed = (each) => Number(each.toFixed(3));
    const whole = link.from === 0 && link.to === link.seconds;
    writeAddress({...value.settings, at: link.cursor ? fixed(link.cursor) : '', begin: link.stretch ? fixed(link.stretch[0]) : '', end: link.stretch ? fixed(link.stretch[1]) : '',
      from: whole ? '' : fixed(link.from), to: whole ? '' : fixed(link.to), head: link.head, lift: link.lift});
  }

  // The keyboard: arrows move the cursor, with shift they select, space plays.
  key(event) {
    const {link} = this;
    if (!link || event.target.closest(TYPING) || event.altKey || event.ctrlKey || event.metaKey) return;
    const scrolls = event.target.closest('.scroll, pre');
    const step = (link.to - link.from) / 100;
    const move = (by) => {
      const to = link.clamp(link.cursor + by);
      if (event.shiftKey) {
        const [from, end] = link.stretch || [];
        link.select(link.cursor === from ? end : link.cursor === end ? from : link.cursor, to);
      }
      link.go(to);
    };
    const actions = {
      ArrowLeft: () => move(-step), ArrowRight: () => move(step), PageDown: () => move(10 * step), PageUp: () => move(-10 * step),
      Home: () => move(-link.seconds), End: () => move(link.seconds),
      ' ': () => this.player.toggle(), Escape: () => { this.player.stop(); link.set({stretch: null, token: null, peak: null}); },
      '+': () => link.zoom(0.5), '-': () => link.zoom(2), 0: () => link.show(0, link.seconds), l: () => link.set({loop: !link.loop}),
    };
    if (!(event.key in actions) || (event.key === ' ' && event.target.closest('button, summary')) || (scrolls && event.key !== ' ')) return;
    event.preventDefault();
    actions[event.key]();
  }
}

export const open = (tools) => new Stage(tools);
