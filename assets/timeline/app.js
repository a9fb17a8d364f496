// The timeline: recordings to choose, waveform and filter bank, lanes of transcripts, and what plays them. The server sends
// {tracks: [{key, name, lanes}], active}: `active` is the key of the lane that the editor of segments shows.
import {icon, make, observeSize, onScreen} from '../../chat/scripts/dom.js';
import {isDark} from '../../visualise/scripts/colours.js';
import {Link} from '../../visualise/scripts/link.js';
import {textScale} from '../../visualise/scripts/paint.js';
import {gestures} from './gestures.js';
import {SHORTCUTS, pressed} from './keys.js';
import {LANE, Lanes, lastBefore, segmentAt, wordAt} from './lanes.js';
import {Marks} from './marks.js';
import {Pane, View, fit} from './pane.js';
import {SPEEDS, Sound} from './sound.js';
import {Tiles} from './tiles.js';
import {Wave, clock} from './wave.js';

const SHORTEST = 0.01; // seconds in view
const RULER = 22; // pixels while text has its usual size
const MAP = 28; // pixels
const NARROW = matchMedia('(max-width: 47.5em)');
const WINDOW = 2; // pixels: border of the stretch in view on the map
const POLL = 150; // milliseconds between questions how far the overview is

const told = async (address) => {
  const answer = await fetch(address);
  const found = await answer.json();
  if (!answer.ok || found.error) throw new Error(found.error || `the server answered ${answer.status}`);
  return found;
};

// Calls a function whenever a pixel of the style sheets has another number of pixels of the screen.
const onSharpness = (does) => {
  const same = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
  same.addEventListener('change', () => { does(); onSharpness(does); }, {once: true});
};

export class Timeline {
  constructor({element, open}) {
    Object.assign(this, {element, openLane: open, tracks: [], track: null, link: null, view: null, grabbed: null, active: ''});
    this.place = element.querySelector('.timeline-place') || element;
    this.block = element.closest('.block');
    this.build();
    this.lanes = new Lanes(this.root);
    this.sounds = new Pane(this.soundBox, (...part) => this.paintSounds(...part));
    this.rows = new Pane(this.rowBox, (...part) => this.paintRows(...part), (view) => this.lanes.edge(view));
    this.map = new Pane(this.mapPicture, (...part) => this.wave.waveform(...part, 0, MAP));
    gestures(this.stage, {
      link: () => this.link || new Link(1),
      width: () => this.width,
      time: (x) => this.timeAt(x),
      hit: (event) => this.hit(event),
      hover: (event) => this.hover(event),
      seek: (time) => { this.stage.focus({preventScroll: true}); this.sound?.seek(time); },
      selected: () => { this.link.set({loop: true}); this.sound.seek(this.link.stretch?.[0] ?? this.link.cursor); },
      twice: (event) => this.loopSegment(event),
      grab: (border) => { this.grabbed = border; this.paintLanes(); },
      drag: (time) => this.dragBorder(time),
      release: () => this.releaseBorder(),
    });
    this.root.addEventListener('keydown', (event) => {
      if (!pressed(event, this)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    observeSize(this.stage, () => this.resize());
    new MutationObserver(() => this.recolour()).observe(document.body, {attributes: true, attributeFilter: ['class']});
    NARROW.addEventListener('change', onScreen(() => this.settle()));
    onSharpness(onScreen(() => this.resize())); // paper has another one
    this.listen();
  }

  // The editor of segments, elsewhere on the page, tells what it shows, and takes corrected times.
  listen() {
    const heard = (name, does) => document.addEventListener(name, (event) => { if (this.element.isConnected) does(event.detail); });
    heard('segments:shown', ({key, rows}) => {
      const lane = this.lanes.list.find((each) => each.key === key);
      if (!lane) return;
      lane.segments = rows.map(([start, end, text], row) => [start, end, text, row])
        .filter(([start, end]) => end >= start).sort((one, other) => one[0] - other[0]);
      lane.longest = Math.max(0, ...lane.segments.map(([start, end]) => end - start));
      this.paintLanes();
    });
    heard('segments:play', ({key, start, end}) => {
      if (!this.link || !this.lanes.list.some((lane) => lane.key === key)) return;
      this.reveal(start, end);
      this.sound.playOnce(start, end);
    });
  }

  build() {
    const tool = (name, label, press) => make('button', {type: 'button', class: 'tool', 'aria-label': label, title: label, onclick: press}, name);
    const canvas = (settings = {}) => make('canvas', {'aria-hidden': 'true', ...settings});
    [this.soundBox, this.rowBox, this.mapPicture] = [canvas(), canvas(), canvas()];
    const [over, overMap] = [canvas({class: 'over'}), canvas({class: 'over'})];
    [this.marks, this.window] = [new Marks(over), new Marks(overMap)];
    this.names = make('div', {class: 'names'});
    this.laneBox = make('div', {class: 'lanes'}, this.rowBox, this.names);
    this.stage = make('div', {class: 'stage', tabindex: '0', role: 'slider', 'aria-label': 'Position in the recording', 'aria-valuemin': '0'},
      this.soundBox, this.laneBox, over);
    this.mapBox = make('div', {class: 'map', title: 'The whole recording; drag to move'}, this.mapPicture, overMap);
    this.chosen = make('select', {'aria-label': 'Recording on the timeline', onchange: () => this.choose(this.chosen.value)});
    this.name = make('b');
    this.facts = make('span', {class: 'muted'});
    this.playing = tool(icon('play'), 'Play', () => this.sound?.toggle());
    this.playing.classList.add('main');
    this.now = make('output', {class: 'now', 'aria-live': 'off'}, '0:00');
    this.speed = make('select', {'aria-label': 'Speed', title: 'Speed', onchange: () => this.setSpeed(Number(this.speed.value))},
      ...SPEEDS.map((each) => make('option', {value: each, selected: each === 1}, `${each}×`)));
    this.loop = make('button', {type: 'button', class: 'tool word', 'aria-pressed': 'false', title: 'Repeat the selected part (R); drag over the waveform to select one',
      onclick: () => this.toggleLoop()}, 'Loop');
    this.save = make('a', {class: 'tool word', download: '', title: 'Save the sound, or the selected part, as WAV'}, 'Save WAV');
    this.spoken = make('p', {class: 'spoken muted small'});
    this.note = make('p', {class: 'said muted small', role: 'status'});
    this.legend = make('p', {class: 'marks small', 'aria-hidden': 'true'});
    this.root = make('section', {class: 'timeline', 'aria-label': 'Timeline', hidden: true},
      make('header', {}, this.chosen, this.name, this.facts),
      this.stage, this.mapBox,
      this.controls = make('div', {class: 'controls'}, this.playing, this.now, this.speed, this.loop,
        make('span', {class: 'group'}, tool('−', 'Zoom out', () => this.link?.zoom(2)), tool('+', 'Zoom in', () => this.link?.zoom(0.5)),
          make('button', {type: 'button', class: 'tool word', title: 'Show the whole recording (0)', onclick: () => this.link?.show(0, this.link.seconds)}, 'Whole')),
        this.save, this.spoken),
      this.legend, this.note,
      this.shortcuts = make('details', {class: 'shortcuts small'}, make('summary', {}, 'Keyboard'),
        make('dl', {}, ...SHORTCUTS.map(([keys, does]) => make('div', {}, make('dt', {}, keys), make('dd', {}, does))),
          make('div', {}, make('dt', {}, 'Mouse'), make('dd', {}, 'press: go there · drag: loop · on the ruler: pan · Ctrl + wheel: zoom · double press on a segment: loop it')),
          make('div', {}, make('dt', {}, 'Fingers'), make('dd', {}, 'one: pan · two: zoom · double tap on a segment: loop it')))));
    this.place.append(this.root);
    let held = null;
    const move = (event) => {
      const box = this.mapBox.getBoundingClientRect();
      const {link} = this;
      const middle = (event.clientX - box.left) / box.width * link.seconds;
      const half = (link.to - link.from) / 2;
      link.show(middle - half, middle + half);
    };
    this.mapBox.addEventListener('pointerdown', (event) => { held = event.pointerId; this.mapBox.setPointerCapture(held); move(event); });
    this.mapBox.addEventListener('pointermove', (event) => { if (event.pointerId === held) move(event); });
    for (const name of ['pointerup', 'pointercancel']) this.mapBox.addEventListener(name, () => { held = null; });
  }

  // Shows what the server sent.
  take(value) {
    this.tracks = value?.tracks || [];
    const wanted = value?.active || '';
    const moved = wanted && wanted !== this.active;
    this.active = wanted;
    this.root.hidden = !this.tracks.length;
    const options = this.tracks.map(({key, name}) => make('option', {value: key}, name));
    this.chosen.replaceChildren(...options);
    this.chosen.hidden = this.tracks.length < 2;
    this.name.hidden = this.tracks.length > 1;
    const owner = moved && this.tracks.find((track) => track.lanes.some((lane) => lane.key === wanted));
    const track = owner || this.tracks.find(({key}) => key === this.track?.key) || this.tracks.at(-1);
    if (!track) { this.leave(); this.settle(); return; }
    this.show(track);
  }

  choose(key) { this.show(this.tracks.find((track) => track.key === key)); }

  show(track) {
    const other = track.key !== this.track?.key;
    this.track = track;
    this.chosen.value = track.key;
    this.name.textContent = track.name;
    this.stage.setAttribute('aria-label', `Position in ${track.name}`);
    this.lanes.take(track.lanes);
    this.drawNames();
    this.settle();
    if (other) this.open(track);
    else this.resize();
    // The editor may have been there first.
    document.dispatchEvent(new CustomEvent('segments:wanted'));
  }

  leave() {
    this.sound?.close();
    Object.assign(this, {sound: null, link: null, about: null, wave: null, track: null, view: null});
    this.root.dataset.ready = '';
  }

  // Opens a recording: what is known of it, then its pictures as they are computed.
  async open(track) {
    this.sound?.close();
    Object.assign(this, {sound: null, link: null, about: null, wave: null, view: null});
    this.root.dataset.ready = '';
    this.facts.textContent = '';
    this.note.textContent = 'Opening the recording';
    this.clear();
    this.setReadable(true);
    const address = new URL(`timeline/${track.key}/`, document.baseURI);
    const current = () => this.track?.key === track.key && this.element.isConnected;
    try {
      for (;;) {
        const about = await told(new URL('about', address));
        if (!current()) return;
        if (about.ready) this.learn(track, address, about);
        else this.note.textContent = 'Decoding the recording';
        if (about.finished) return;
        await new Promise((resolve) => { setTimeout(resolve, POLL); });
        if (!current()) return;
      }
    } catch (error) {
      if (!current()) return;
      this.note.textContent = error.message;
      this.setReadable(Boolean(this.link));
    }
  }

  // What cannot be opened can be neither seen nor played: of it stand here its name and the reason.
  setReadable(yes) {
    for (const each of [this.stage, this.mapBox, this.controls, this.shortcuts]) each.hidden = !yes;
    this.note.classList.toggle('fault', !yes);
  }

  learn(track, address, about) {
    const first = !this.link;
    this.about = Object.assign(this.about || {}, about);
    if (first) {
      this.link = new Link(about.seconds, SHORTEST);
      this.link.watchers.add((changed) => this.changed(changed));
      this.tiles = new Tiles(address, () => this.arrived());
      this.wave = new Wave(this.root, this.about, this.tiles);
      this.sound = new Sound(this.link, () => { this.note.textContent = 'The browser cannot play the sound of this recording; it may have been removed from the server.'; });
      this.sound.load(new URL('sound.wav', address).href);
      this.setSpeed(1);
      this.save.href = new URL('sound.wav?save=1', address).href;
      this.stage.setAttribute('aria-valuemax', about.seconds.toFixed(2));
    } else {
      this.tiles.renew(about.finished);
      if (about.finished && about.seconds < this.link.seconds) { // less than the file stated
        this.link.seconds = about.seconds;
        this.link.show(this.link.from, this.link.to);
      }
    }
    this.tiles.finished = about.finished;
    const rate = about.rate / 1000;
    this.facts.textContent = `${clock(about.seconds, about.seconds < 60 ? 0.01 : 1)} · ${Number(rate.toFixed(3))} kHz`;
    this.note.textContent = about.finished ? about.notes.join('. ') : `Computing the pictures, ${Math.floor(100 * about.share)} %`;
    this.wave.recolour(isDark(this.element));
    this.resize();
    this.changed(new Set(['cursor', 'stretch', 'playing', 'loop']));
  }

  // Where the timeline stands: on a phone beside the recordings until there is a transcript below it.
  settle() {
    const near = document.querySelector(`[data-timeline="${this.block?.id}"]`);
    const place = NARROW.matches && near && !this.lanes.list.length ? near : this.place;
    if (this.root.parentElement !== place) place.append(this.root);
    this.block?.classList.toggle('away', !this.tracks.length || place === near);
  }

  drawNames() {
    this.names.replaceChildren(...this.lanes.list.map((lane, row) => {
      const open = lane.key === this.active;
      const title = open ? `${lane.title}: its segments are below; drag their borders to correct times` : `Segments and export of ${lane.title}`;
      return make('button', {type: 'button', style: `top: ${row * LANE / 16}rem`, title, 'aria-pressed': String(open), onclick: () => this.openLane(lane.key)},
        lane.title, lane.note ? make('small', {}, ` ${lane.note}`) : null);
    }));
    const words = this.lanes.list.flatMap((lane) => lane.words);
    const marks = [
      [words.some(([, , , differs]) => differs), make('span', {class: 'differs'}, 'models differ')],
      [this.lanes.list.some((lane) => lane.missing.length), make('span', {class: 'missing-word'}, 'others have a word here')],
      [words.some(([, , , , , sure]) => sure !== null && sure < 0.9), make('span', {class: 'unsure'}, 'the model is not sure')],
    ];
    this.legend.replaceChildren(...marks.filter(([shown]) => shown).map(([, mark]) => mark));
    this.lit = null;
  }

  clear() {
    for (const pane of [this.sounds, this.rows, this.map]) pane.clear();
    this.marks.show(null, null);
  }

  get heights() { return NARROW.matches ? {wave: 64, bank: 44} : {wave: 84, bank: 64}; }

  get ruler() { return RULER * this.lanes.scale; }

  resize() {
    const width = this.stage.clientWidth;
    if (!width || !this.link) return;
    this.lanes.scale = textScale();
    const {ruler} = this;
    const {wave, bank} = this.heights;
    const sharp = Math.min(devicePixelRatio || 1, 2);
    const mapWidth = this.mapBox.clientWidth || width - 2; // it may be hidden; it has a border
    Object.assign(this, {width, sharp});
    fit(this.soundBox, width, ruler + wave + bank, sharp);
    fit(this.rowBox, width, this.lanes.height, sharp);
    fit(this.mapPicture, mapWidth, MAP, sharp);
    this.marks.resize(width, ruler + wave + bank + this.lanes.height, sharp);
    this.window.resize(mapWidth, MAP, sharp);
    for (const marks of [this.marks, this.window]) marks.recolour(this.root);
    this.laneBox.hidden = !this.lanes.list.length;
    this.view = new View(this.link, this.soundBox.width, sharp);
    this.sounds.show(this.view, true);
    this.paintLanes();
    this.map.show(new View({from: 0, to: this.link.seconds}, this.mapPicture.width, sharp), true);
    this.placeWindow();
    this.placeMarks();
    this.root.dataset.ready = this.about.finished ? 'whole' : 'part';
  }

  recolour() {
    this.lanes.recolour();
    this.wave?.recolour(isDark(this.element));
    this.resize();
  }

  arrived() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => {
      this.due = 0;
      for (const pane of [this.sounds, this.map]) pane.fill();
    });
  }

  // Called once for each frame of the screen in which something changed.
  changed(changed) {
    const {link} = this;
    if (!link) return;
    const moved = changed.has('from') || changed.has('to');
    if (moved) this.move();
    if (changed.has('cursor')) {
      if (this.lanes.litAt(link.cursor) !== this.lit) this.paintLanes();
      this.say();
    }
    if (moved || changed.has('cursor') || changed.has('stretch')) this.placeMarks();
    if (changed.has('playing')) {
      this.playing.replaceChildren(icon(link.playing ? 'pause' : 'play'));
      const label = link.playing ? 'Pause' : 'Play';
      this.playing.setAttribute('aria-label', label);
      this.playing.title = `${label} (Space)`;
    }
    if (changed.has('stretch') || changed.has('loop')) {
      this.loop.setAttribute('aria-pressed', String(Boolean(link.loop && link.stretch)));
      const url = new URL(this.save.href);
      url.search = '';
      url.searchParams.set('save', '1');
      if (link.stretch) { url.searchParams.set('from', link.stretch[0].toFixed(4)); url.searchParams.set('to', link.stretch[1].toFixed(4)); }
      this.save.href = url.href;
      this.save.textContent = link.stretch ? 'Save selection' : 'Save WAV';
    }
  }

  // Shows what is in view now.
  move() {
    if (!this.view) return; // hidden since the recording was opened
    this.view = new View(this.link, this.soundBox.width, this.sharp, this.view);
    this.sounds.show(this.view);
    if (this.lanes.list.length) this.rows.show(this.view);
    this.placeWindow();
  }

  paintSounds(context, view, left, right) {
    const {wave, ruler} = this;
    const high = this.heights;
    wave.ruler(context, view, left, right, ruler, this.lanes.scale);
    const known = wave.waveform(context, view, left, right, ruler, high.wave);
    return wave.filterbank(context, view, left, right, ruler + high.wave, high.bank) && known;
  }

  paintRows(context, view, left, right) {
    this.lanes.paint(context, view, left, right, this.link.cursor, this.active, this.grabbed);
    return true;
  }

  // Paints all lanes again after something in them has changed.
  paintLanes() {
    if (!this.view || !this.lanes.list.length) return;
    this.rows.show(this.view, true);
    this.lit = this.lanes.litAt(this.link.cursor);
  }

  placeMarks() {
    const {link, view} = this;
    if (!view) return;
    this.marks.show(link.stretch && link.stretch.map((time) => view.x(time)), view.x(link.cursor));
    this.shownTime = link.cursor; // for tests
  }

  placeWindow() {
    const {from, to, seconds} = this.link;
    this.mapBox.classList.toggle('idle', to - from >= 0.999 * seconds);
    const {shown} = this.map;
    const [left, right] = [shown.x(from), shown.x(to)];
    this.window.show([left, Math.max(right, left + 2 * WINDOW)], null, WINDOW);
  }

  // The time, and what is spoken now.
  say() {
    const {link} = this;
    const step = link.playing ? 0.1 : 0.01;
    const shown = clock(link.cursor, step);
    if (this.now.textContent !== shown) this.now.textContent = shown;
    const moment = performance.now();
    if (link.playing && moment - (this.lastSaid || 0) < 250) return;
    this.lastSaid = moment;
    this.stage.setAttribute('aria-valuenow', link.cursor.toFixed(2));
    const heard = this.lanes.list.map((lane) => lane.segments[segmentAt(lane, link.cursor)]?.[2]).filter(Boolean)[0];
    this.stage.setAttribute('aria-valuetext', `${clock(link.cursor)} of ${clock(link.seconds)}${heard ? `: ${heard}` : ''}`);
  }

  timeAt(x) {
    const box = this.stage.getBoundingClientRect();
    const {from, to} = this.link || {from: 0, to: 1};
    return from + Math.min(Math.max((x - box.left) / box.width, 0), 1) * (to - from);
  }

  // What is under a pointer: whether a drag there pans, and the border of a segment that it would move.
  hit(event) {
    const box = this.stage.getBoundingClientRect();
    const touch = event.pointerType !== 'mouse';
    const found = {pans: touch || event.clientY - box.top < this.ruler, border: null, lane: null};
    if (!this.link) return found;
    const lanes = this.rowBox.getBoundingClientRect();
    if (event.clientY < lanes.top || !this.lanes.list.length) return found;
    const under = this.lanes.under(event.clientX - lanes.left, event.clientY - lanes.top, this.link, this.width, this.active, touch ? 14 : 6);
    return {...found, border: under?.border && {...under.border, lane: under.lane}, lane: under};
  }

  hover(event) {
    const under = this.hit(event).lane;
    let said = '';
    if (under) {
      const word = under.word >= 0 ? under.lane.words[under.word] : null;
      const [start, end, text, , timed, sure] = word && under.time <= word[1] + 0.5 ? word : [];
      if (text && timed) said = `${text} · ${start.toFixed(2)} to ${end.toFixed(2)} s${sure === null ? '' : ` · ${Math.round(100 * sure)} % sure`}`;
      else if (under.segment >= 0) {
        const [begin, finish, whole] = under.lane.segments[under.segment];
        said = `${whole} · ${begin.toFixed(2)} to ${finish.toFixed(2)} s`;
      }
    }
    if (this.spoken.textContent !== said) this.spoken.textContent = said;
  }

  loopSegment(event) {
    const under = this.hit(event).lane;
    if (!under || under.segment < 0) return;
    const [start, end] = under.lane.segments[under.segment];
    this.setLoop(start, end);
    this.sound.seek(start);
  }

  dragBorder(time) {
    const {lane, index, column} = this.grabbed;
    const segment = lane.segments[index];
    const [before, after] = [lane.segments[index - 1], lane.segments[index + 1]];
    const old = segment[column];
    const limits = column === 0
      ? [before && before[1] <= old ? before[1] : 0, segment[1] - SHORTEST]
      : [segment[0] + SHORTEST, after && after[0] >= old ? after[0] : this.link.seconds];
    segment[column] = Math.min(Math.max(time, limits[0]), Math.max(...limits));
    this.grabbed.moved = true;
    this.spoken.textContent = `${this.grabbed.side} at ${segment[column].toFixed(3)} s`;
    this.paintLanes();
  }

  releaseBorder() {
    const {lane, index, moved} = this.grabbed;
    this.grabbed = null;
    this.paintLanes();
    if (!moved) return;
    const [start, end, , row = index] = lane.segments[index];
    document.dispatchEvent(new CustomEvent('segments:retime', {detail: {key: lane.key, row, start, end}}));
  }

  // What keys and buttons do.

  setSpeed(value) {
    if (this.sound) this.sound.speed = value;
    this.speed.value = String(value);
  }

  faster() { this.setSpeed(SPEEDS.find((each) => each > this.sound.speed) ?? SPEEDS.at(-1)); }

  setLoop(from, to) {
    this.link.select(from, to);
    if (this.link.stretch) this.link.set({loop: true});
  }

  toggleLoop() {
    const {link} = this;
    if (!link) return;
    if (!link.stretch) {
      const lane = this.lanes.list.find((each) => each.key === this.active) || this.lanes.list[0];
      const segment = lane?.segments[segmentAt(lane, link.cursor)];
      this.setLoop(...(segment || [link.from, link.to]));
    } else {
      link.set({loop: !link.loop});
    }
  }

  toSegment(by) {
    const lane = this.lanes.list.find((each) => each.key === this.active) || this.lanes.list[0];
    if (!lane?.segments.length) return;
    const {link} = this;
    const here = lastBefore(lane.segments, link.cursor + 0.001);
    const index = by > 0 ? here + 1 : link.cursor - (lane.segments[here]?.[0] ?? 0) > 0.5 ? here : here - 1;
    const segment = lane.segments[Math.min(Math.max(index, 0), lane.segments.length - 1)];
    this.sound.seek(segment[0]);
  }

  // Brings a stretch into view without a change of zoom, where it is not.
  reveal(start, end) {
    const {link} = this;
    const length = link.to - link.from;
    if (start < link.from || end > link.to) link.show(start - 0.1 * length, start + 0.9 * length);
  }

  // For tests: the word that is lit in each lane.
  get litWords() { return this.lanes.list.map((lane) => lane.words[wordAt(lane, this.link.cursor)]?.[2] ?? ''); }
}

export const open = (tools) => {
  const timeline = new Timeline(tools);
  timeline.root.timeline = timeline; // for tests
  tools.watch('value', () => timeline.take(tools.props.value));
  timeline.take(tools.props.value);
};
