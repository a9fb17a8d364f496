// The pictures of the Visualise tab: their toolbar, their tokens and their files. The browser draws the arrays that the
// server sent, again and again; only the buttons of the page ask the server for new arrays.
import {copyText, iconButton, make, observeSize, saveFile, seconds, textButton} from '../../chat/scripts/dom.js';
import {clearAddress, formatAddress, readAddress, writeAddress} from './address.js';
import {Chart} from './chart.js';
import {Heads} from './heads.js';
import {Link} from './link.js';
import {Axis, Refused, fetchBytes, readParcel} from './parcel.js';
import {Player} from './sound.js';
import {Table} from './table.js';

const FILE_TYPES = {png: 'image/png', svg: 'image/svg+xml', npz: 'application/zip'};
const INPUT_SELECTOR = 'input, textarea, select, [contenteditable], [role="combobox"]';
const DEFAULT_LIFT = 0.6; // first strength of faint values, from 0 to 1, where most values are faint
const PUBLIC_NOTICE = 'Everybody with the link can hear your recording.';
const TOO_LARGE_NOTICE = 'The recording is too large for the server to store; whoever opens the link must add it again.';

// Scrolls the box of the tokens to a token; the page does not scroll.
const scrollToChip = (chip) => {
  const box = chip.parentElement;
  box.scrollTop = Math.min(Math.max(box.scrollTop, chip.offsetTop + chip.offsetHeight - box.clientHeight), chip.offsetTop);
};

// Whether a layer only repeats the tokens of its side: the page always shows them below the recording.
const isTokenLayer = (side, {kind, over, values}) => {
  const times = side.tokens.filter((token) => token.start !== null).flatMap((token) => [token.start, token.end]);
  return kind === 'spans' && !over && values.codes.length === times.length && times.every((time, index) => Math.abs(time - values.at(index)) < 1e-3);
};

// Returns the layers of a side in groups: a layer, then the layers that are drawn over it.
const groupLayers = (side) => {
  const groups = [];
  for (const layer of side.layers) {
    if (isTokenLayer(side, layer)) continue;
    if (layer.over && groups.length) groups.at(-1).push(layer);
    else groups.push([layer]);
  }
  return groups;
};

// Returns what names a control, so that the same control of later pictures can be found.
const controlName = (control) => `${control.tagName} ${control.getAttribute('aria-label') ?? control.textContent}`;

const tokenText = (token) => token.text.replaceAll('▁', ' ').trim() || token.text;

const VIEW_SETTINGS = ['at', 'begin', 'end', 'from', 'to', 'larger', 'lift']; // in the address, and unknown to the server

class Stage {
  constructor({element, props, watch, restore}) {
    Object.assign(this, {element, props, restore, link: null, player: null, parts: [], addressSettings: readAddress(location.hash)});
    this.notice = make('p', {class: 'notice small', role: 'status'});
    this.root = make('section', {class: 'looking', 'aria-label': 'Pictures'});
    const holder = element.querySelector('.stage') || element;
    this.emptyMessage = holder.querySelector('.empty');
    holder.append(this.notice, this.root);
    this.root.addEventListener('keydown', (event) => this.handleKey(event));
    watch('value', () => this.load());
    observeSize(this.root, () => this.drawAll());
    const redraw = () => requestAnimationFrame(() => this.drawAll());
    new MutationObserver(redraw).observe(document.body, {attributes: true, attributeFilter: ['class']});
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
    this.watchTabs();
    this.load();
    if (this.addressSettings && Object.keys(this.addressSettings).length && !props.value) restore({...this.addressSettings});
  }

  // The address has the settings of this tab while the tab is open, and no settings while another one is.
  watchTabs() {
    document.querySelector('#tabs')?.addEventListener('click', (event) => {
      const tab = event.target.closest('[role="tab"], .overflow-dropdown button');
      if (!tab) return;
      if (tab.textContent.trim() === 'Visualise') setTimeout(() => this.followAddress()); // then the tab is visible
      else { this.player?.stop(); clearAddress(); }
    });
  }

  showNotice(sentence) { this.notice.textContent = sentence; }

  // Loads the arrays that `props.value` names, and shows them.
  async load() {
    const value = this.props.value;
    if (!value?.key || value.key === this.loadedKey) return;
    this.loadedKey = value.key;
    try {
      const [parcel, sound] = await Promise.all([fetchBytes(`picture/${value.key}`), value.sound ? fetchBytes(`sound/${value.key}`) : null]);
      if (this.loadedKey === value.key) this.show(readParcel(parcel), sound, value);
    } catch (error) {
      if (this.loadedKey !== value.key) return; // newer pictures are being loaded
      this.loadedKey = '';
      this.showNotice(error instanceof Refused ? error.message : 'The pictures could not be drawn; reload the page.');
      if (!(error instanceof Refused)) throw error;
    }
  }

  show(header, sound, value) {
    const previousLink = this.link;
    this.player?.close();
    this.showNotice('');
    this.emptyMessage?.remove();
    Object.assign(this, {header, value, link: new Link(header.seconds || 1)});
    const {link} = this;
    if (previousLink && previousLink.seconds === link.seconds) this.restoreView(previousLink);
    if (header.sides.some((side) => side.layers.some((layer) => layer.values.faint))) link.set({lift: link.lift || DEFAULT_LIFT});
    if (this.addressSettings) this.restoreView(this.addressSettings);
    this.addressSettings = null;
    this.player = new Player(link);
    if (sound) this.player.load(sound);
    for (const side of header.sides) side.choose = (index) => this.choose(side, index);
    const focused = this.root.contains(document.activeElement) ? document.activeElement : null;
    this.build(Boolean(sound));
    if (focused) this.focusAgain(controlName(focused));
    link.watchers.add((changed) => this.follow(changed));
    this.drawAll();
    this.keepAddress();
  }

  // Moves the focus to the control of this name, else to the title: new pictures have replaced the one that had it.
  focusAgain(name) {
    const controls = [...this.root.querySelectorAll('button, input, summary, [tabindex]')];
    (controls.find((control) => controlName(control) === name) || this.root.querySelector('h3')).focus({preventScroll: true});
  }

  // Sets cursor, selection, range in view and enlarged head as they were: in an earlier view of the same recording, or
  // in a link.
  restoreView(settings) {
    const {link} = this;
    const toNumber = (each) => (each === null || each === undefined || each === '' || !Number.isFinite(Number(each)) ? null : Number(each));
    const stretch = settings.stretch || [toNumber(settings.begin), toNumber(settings.end)];
    if (stretch.every((each) => each !== null)) link.select(...stretch);
    if (toNumber(settings.from) !== null && toNumber(settings.to) > toNumber(settings.from)) link.show(toNumber(settings.from), toNumber(settings.to));
    const cursor = toNumber(settings.cursor ?? settings.at);
    if (cursor !== null) link.set({cursor: link.clamp(cursor)});
    const head = toNumber(settings instanceof Link ? settings.head : settings.larger); // `head` in an address is an option of the view
    link.set({head: Number.isInteger(head) && head >= 0 ? head : null, lift: Math.min(Math.max(toNumber(settings.lift) ?? link.lift, 0), 1), loop: Boolean(settings.loop)});
  }

  // Building.

  build(hasSound) {
    const {header, link} = this;
    this.parts = [];
    const addPart = (part) => { this.parts.push(part); return part.root; };
    this.chips = [];
    const content = [make('header', {class: 'view-title'}, make('h3', {tabindex: -1}, header.title), make('p', {class: 'muted small'}, header.sentence))];
    if (header.seconds) content.push(this.buildToolbar(hasSound, addPart));
    for (const side of header.sides.slice(0, 2)) content.push(...this.buildTokens(side, addPart));
    content.push(...header.sides.slice(2).flatMap((side) => side.notes.map((note) => make('p', {class: 'note'}, `${side.title}: ${note}`))));
    const sides = header.sides.map((side) => [side, groupLayers(side)]);
    const names = new Set(sides.flatMap(([, groups]) => groups.map(([layer]) => layer.name)));
    for (const name of names) {
      const matches = sides.flatMap(([side, groups]) => groups.filter(([layer]) => layer.name === name).map((layers) => [side, layers]));
      const hasSeveralSides = header.sides.length > 1;
      const isOfSide = (side) => header.sides.indexOf(side) < 2;
      // The last layer of two models may have two numbers, so one heading does not fit both charts.
      const hasOneTitle = new Set(matches.filter(([side]) => isOfSide(side)).map(([, [layer]]) => layer.title)).size < 2;
      const charts = matches.map(([side, layers]) => {
        const [layer] = layers;
        if (layer.equal) return make('p', {class: 'note', 'data-layer': layer.name}, `${side.title}: none. The values are the same, number for number.`);
        const Part = layer.kind === 'table' ? Table : layer.kind === 'image' && layer.values.shape.length > 2 ? Heads : Chart;
        const name = hasOneTitle || !isOfSide(side) ? side.title : `${side.title}: ${layer.title}`;
        return addPart(new Part(link, side, layers, hasSeveralSides ? name : undefined));
      });
      this.align(matches);
      content.push(make('div', {class: 'group'}, hasSeveralSides && hasOneTitle ? make('h4', {}, matches[0][1][0].title) : null, ...charts));
    }
    content.push(make('footer', {class: 'taking'}, ...header.sides.map((side, index) => this.buildDownloads(side, index))));
    this.root.replaceChildren(...content);
  }

  // Gives the lines and bars of both sides one range of values.
  align(matches) {
    const rangedParts = this.parts.filter((part) => part.range && matches.some(([side, [layer]]) => part.layer === layer && this.header.sides.indexOf(side) < 2));
    rangedParts.forEach((part) => part.range());
    const partsWithRange = rangedParts.filter((part) => part.low !== undefined);
    const [low, high] = [Math.min(...partsWithRange.map((part) => part.low)), Math.max(...partsWithRange.map((part) => part.high))];
    partsWithRange.forEach((part) => Object.assign(part, {low, high}));
  }

  // Returns what stays at the top: buttons, the waveform with its times, and the position of the cursor.
  buildToolbar(hasSound, addPart) {
    const {link, header} = this;
    const toggle = (name, label, press) => { const button = iconButton(name, label, press); button.setAttribute('aria-pressed', 'false'); return button; };
    this.playButton = iconButton('play', 'Play (space)', () => this.player.toggle(), 'play-sound');
    this.loopButton = toggle('retry', 'Repeat the selection', () => link.set({loop: !link.loop}));
    this.positionOutput = make('output', {class: 'where', 'aria-live': 'off'});
    const images = header.sides.some((side) => side.layers.some((layer) => layer.kind === 'image'));
    const lift = make('input', {type: 'range', min: 0, max: 100, value: Math.round(100 * link.lift), 'aria-label': 'Strength of faint values',
      oninput: () => link.set({lift: Number(lift.value) / 100})});
    const bar = make('div', {class: 'tools', role: 'toolbar', 'aria-label': 'Recording'},
      ...(hasSound ? [this.playButton, this.loopButton] : []),
      textButton('−', () => link.zoom(2)), textButton('+', () => link.zoom(0.5)),
      textButton('Selection', () => link.stretch && link.show(...link.stretch)), textButton('Whole', () => link.show(0, link.seconds)),
      this.positionOutput, images ? make('label', {class: 'lift'}, 'Faint values', lift) : null,
      textButton('Copy link', () => this.copyLink(), 'quiet copy-link'));
    const names = ['Show more time', 'Show less time', 'Selection: show it alone', 'Whole recording'];
    names.forEach((name, index) => bar.querySelectorAll('.quiet')[index].setAttribute('aria-label', name));
    const {samples, rate} = this.player;
    const wave = {kind: 'wave', name: 'wave', title: 'Recording', samples, rate, labels: [], values: {shape: [samples.length], codes: samples},
      x: new Axis({label: 'time', unit: 'seconds', time: [0, 1 / rate]}, samples.length), y: new Axis({}, 1)};
    const chart = new Chart(link, {title: 'the recording', tokens: [], layers: []}, [wave], '');
    chart.canvas.removeAttribute('role');
    chart.canvas.removeAttribute('aria-label');
    for (const [name, value] of Object.entries({role: 'slider', tabindex: 0, 'aria-label': 'Cursor in the recording', 'aria-valuemin': 0,
      'aria-valuemax': header.seconds.toFixed(2)})) chart.plot.setAttribute(name, value);
    this.slider = chart.plot;
    return make('div', {class: 'strip'}, bar, addPart(chart));
  }

  // Returns the tokens that a side recognised, as text and as a chart over time, and its notes.
  buildTokens(side, addPart) {
    const elements = [];
    const isTitled = this.header.sides.length > 1;
    if (side.tokens.length) {
      const chips = side.tokens.map((token, index) => {
        const isTimed = token.start !== null && token.start !== undefined;
        return make('button', {type: 'button', class: 'token', title: isTimed ? `${token.start.toFixed(2)} to ${token.end.toFixed(2)} s` : null,
          onclick: () => this.choose(side, index)}, tokenText(token));
      });
      this.chips.push({side, chips});
      elements.push(make('p', {class: 'tokens', role: 'group', 'aria-label': `Tokens of ${side.title}`}, make('span', {class: 'label'}, isTitled ? side.title : 'Tokens'), ...chips));
      const times = side.tokens.filter((token) => token.start !== null && token.start !== undefined);
      if (times.length) {
        const layer = {kind: 'spans', name: 'tokens', title: 'Tokens', labels: times.map(tokenText), ofTokens: true,
          values: {shape: [times.length, 2], codes: Float32Array.from(times.flatMap((token) => [token.start, token.end])), at(index) { return this.codes[index]; }},
          x: new Axis({label: 'time', unit: 'seconds', time: [0, 1]}, 1), y: new Axis({}, 1)};
        elements.push(make('div', {class: 'lane'}, addPart(new Chart(this.link, side, [layer], ''))));
      }
    }
    for (const note of side.notes) elements.push(make('p', {class: 'note'}, isTitled ? `${side.title}: ${note}` : note));
    return elements.length ? [make('div', {class: 'said-by'}, ...elements)] : [];
  }

  buildDownloads(side, sideIndex) {
    const codeBlock = make('pre', {tabindex: 0, 'aria-label': `Python for ${side.title}`}, side.code);
    const copy = textButton('Copy', async () => {
      await copyText(side.code);
      copy.textContent = 'Copied';
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    const saveButtons = Object.keys(FILE_TYPES).map((kind) => textButton(kind.toUpperCase(), () => this.save(side, sideIndex, kind), `quiet save-${kind}`));
    for (const button of saveButtons) button.setAttribute('aria-label', `${button.textContent} of ${side.title}`); // each side has these
    return make('div', {class: 'take'}, make('span', {class: 'label'}, side.title), ...saveButtons,
      side.code ? make('details', {}, make('summary', {}, 'Python'), codeBlock, copy) : null);
  }

  async save(side, sideIndex, kind) {
    this.showNotice(`Making the ${kind.toUpperCase()} file…`);
    try {
      const bytes = await fetchBytes(`file/${this.value.key}/${sideIndex}.${kind}`);
      saveFile(`${side.file}.${kind}`, new Blob([bytes], {type: FILE_TYPES[kind]}));
      this.showNotice('');
    } catch (error) {
      this.showNotice(error instanceof Refused ? error.message : 'The file could not be saved.');
    }
  }

  async copyLink() {
    this.keepAddress();
    await copyText(location.href);
    const {sample, recording} = this.value.settings;
    const notice = recording ? PUBLIC_NOTICE : sample || !this.value.sound ? '' : TOO_LARGE_NOTICE;
    this.showNotice(`The link is copied. ${notice}`.trim());
  }

  // Selects the time of a token; a token without a time selects the cell of its greatest attention.
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

  // Drawing.

  drawAll() { for (const part of this.parts) part.draw(); this.showState(); }

  follow(changed) {
    const isFullRedraw = ['from', 'to', 'lift', 'head'].some((name) => changed.has(name));
    for (const part of this.parts) {
      if (isFullRedraw) part.draw();
      else part.drawOverlay();
    }
    this.showState();
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => this.keepAddress(), 500);
  }

  // Shows cursor, selection and current tokens around the pictures, and writes them into `data-` attributes for tests.
  showState() {
    const {link, root} = this;
    if (!link) return;
    const time = link.hover?.time ?? link.cursor;
    for (const {side, chips} of this.chips) {
      chips.forEach((chip, index) => {
        const {start, end} = side.tokens[index];
        const isCurrent = start !== null && start !== undefined && time >= start && time < end;
        if (isCurrent && !chip.classList.contains('now')) scrollToChip(chip);
        chip.classList.toggle('now', isCurrent);
        const isChosen = link.token?.side === side.title && link.token.index === index;
        const isSelected = Boolean(link.stretch) && start !== null && start !== undefined && end > link.stretch[0] + 1e-6 && start < link.stretch[1] - 1e-6;
        chip.setAttribute('aria-pressed', String(isChosen || isSelected));
      });
    }
    const state = {cursor: link.cursor.toFixed(3), from: link.from.toFixed(3), to: link.to.toFixed(3), playing: link.playing ? 'yes' : 'no',
      stretch: link.stretch ? link.stretch.map((each) => each.toFixed(3)).join(' ') : '', level: (this.player?.level ?? 0).toFixed(4)};
    Object.assign(root.dataset, state);
    if (!this.slider) return;
    const description = this.describe(time);
    if (this.positionOutput.textContent !== description) this.positionOutput.textContent = description;
    this.slider.setAttribute('aria-valuenow', link.cursor.toFixed(2));
    this.slider.setAttribute('aria-valuetext', this.describe(link.cursor));
    this.loopButton.setAttribute('aria-pressed', String(link.loop));
    const iconName = link.playing ? 'pause' : 'play';
    if (this.playButton.dataset.shows !== iconName) {
      this.playButton.dataset.shows = iconName;
      const button = iconButton(iconName, link.playing ? 'Pause (space)' : 'Play (space)', () => {});
      this.playButton.replaceChildren(...button.childNodes);
      for (const name of ['aria-label', 'title']) this.playButton.setAttribute(name, button.getAttribute(name));
    }
  }

  // Returns a text about a time: the time, its tokens, and the length of the selection.
  describe(time) {
    const {stretch} = this.link;
    const tokens = this.header.sides.slice(0, 2).flatMap((side) => side.tokens.filter(({start, end}) => start !== null && time >= start && time < end));
    return [`${time.toFixed(2)} s`, ...new Set(tokens.map(tokenText)), stretch ? `selected ${seconds(stretch[1] - stretch[0])}` : ''].filter(Boolean).join(' · ');
  }

  keepAddress() {
    if (this.value && this.root.checkVisibility()) writeAddress(this.addressOfView());
  }

  addressOfView() {
    const {link, value} = this;
    const round = (each) => Number(each.toFixed(3));
    const isWholeRecording = link.from === 0 && link.to === link.seconds;
    return {...value.settings, at: link.cursor ? round(link.cursor) : '', begin: link.stretch ? round(link.stretch[0]) : '', end: link.stretch ? round(link.stretch[1]) : '',
      from: isWholeRecording ? '' : round(link.from), to: isWholeRecording ? '' : round(link.to), larger: link.head, lift: link.lift};
  }

  // Shows what the address names: the visitor may have opened a link, or gone back, on the open page.
  followAddress() {
    const settings = readAddress(location.hash);
    const hasSettings = settings && Object.keys(settings).length;
    const shown = this.value && this.addressOfView();
    if (!hasSettings || (shown && formatAddress(shown) === location.hash)) { this.keepAddress(); return; }
    const names = Object.keys({...this.value?.settings, ...settings}).filter((name) => !VIEW_SETTINGS.includes(name));
    if (shown && names.every((name) => String(shown[name] ?? '') === String(settings[name] ?? ''))) {
      this.restoreView(settings);
    } else {
      this.addressSettings = settings;
      this.restore({...settings});
    }
  }

  // Handles the keyboard: arrows move the cursor, arrows with Shift select, Space plays.
  handleKey(event) {
    const {link} = this;
    if (!link || event.target.closest(INPUT_SELECTOR) || event.altKey || event.ctrlKey || event.metaKey) return;
    const isInScrollBox = event.target.closest('.scroll, pre');
    const step = (link.to - link.from) / 100;
    const move = (offset) => {
      const target = link.clamp(link.cursor + offset);
      if (event.shiftKey) {
        const [from, stretchEnd] = link.stretch || [];
        link.select(link.cursor === from ? stretchEnd : link.cursor === stretchEnd ? from : link.cursor, target);
      }
      link.go(target);
    };
    const actions = {
      ArrowLeft: () => move(-step), ArrowRight: () => move(step), PageDown: () => move(10 * step), PageUp: () => move(-10 * step),
      Home: () => move(-link.seconds), End: () => move(link.seconds),
      ' ': () => this.player.toggle(), Escape: () => { this.player.stop(); link.set({stretch: null, token: null, peak: null}); },
      '+': () => link.zoom(0.5), '-': () => link.zoom(2), 0: () => link.show(0, link.seconds), l: () => link.set({loop: !link.loop}),
    };
    if (!(event.key in actions) || (event.key === ' ' && event.target.closest('button, summary')) || (isInScrollBox && event.key !== ' ')) return;
    event.preventDefault();
    actions[event.key]();
  }
}

export const open = (tools) => new Stage(tools);
