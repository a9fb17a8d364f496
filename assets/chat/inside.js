// A look inside an answer: its tokens in order, the streams as a picture over the waveform, and each row to hear.
// Code is a number of a codebook; ids are global, and the answer's layout says which id is which code.
import {colour, make, seconds, textButton} from './dom.js';

const WAVE = 44; // pixels
const LANE = 15;
const GAP = 6;
const NARROW = 3; // pixels of a row at least, and at most
const WIDE = 18;
const MARKERS = ['pad', 'bos', 'eos', 'eot', 'system', 'user', 'assistant', 'text', 'audio'];

// What an id is: {kind: 'marker' | 'text' | 'code' | 'pad' | 'other', ...}.
export const read = (id, layout) => {
  if (!layout) return {kind: 'other'};
  const marker = MARKERS.find((name) => layout[name] === id);
  if (marker && id < layout.text_first) return {kind: 'marker', name: marker};
  if (id >= layout.text_first && id < layout.text_end) return {kind: 'text'};
  const within = id - layout.codec_first;
  const stream = Math.floor(within / layout.layer_size);
  if (within < 0 || stream >= layout.streams) return {kind: 'other'};
  const code = (within % layout.layer_size) - 1;
  return code < 0 ? {kind: 'pad', stream} : {kind: 'code', stream, code};
};

// The tokens of stream 0 in runs: markers alone, text tokens with their text, rows of speech.
export const runs = (ids, pieces, layout) => {
  const found = [];
  const texts = (pieces || []).flatMap(([text, count]) => [...Array(Math.max(0, count - 1)).fill(''), text]);
  let spoken = 0;
  ids.forEach((id, at) => {
    const told = read(id, layout);
    const kind = ['code', 'pad'].includes(told.kind) ? 'speech' : told.kind;
    const last = found[found.length - 1];
    if (kind === 'speech' && last?.kind === 'speech') last.count += 1;
    else found.push({kind, at, id, name: told.name, count: 1, text: kind === 'speech' ? '' : texts[spoken] ?? ''});
    if (kind !== 'speech') spoken += 1;
  });
  return found;
};

const percent = (value) => (value === null || value === undefined ? '' : `${(100 * value).toFixed(value > 0.995 ? 1 : 0)} %`);
const hue = (code) => `hsl(${((code * 137.508) % 360).toFixed(1)} ${45 + (code % 3) * 12}% ${46 + ((code >> 4) % 5) * 5}%)`;

export const inside = (answer, speech, play) => {
  const told = answer.answer;
  const {layout} = told;
  const {streams, probabilities} = told;
  const number = streams?.[0]?.length || 0;
  const root = make('div', {class: 'inside'}, tokens(answer, layout));
  if (!streams?.length) return {root, draw: () => {}, follow: () => {}};
  const first = (probabilities?.length || 0) ? firstRow(told, layout) : -1;
  const view = {aligned: true, likely: false, row: null};
  const canvas = make('canvas', {tabindex: 0, role: 'slider', 'aria-label': 'Rows of codec tokens; Enter plays from the row', 'aria-valuemin': 0});
  const head = make('i', {class: 'playhead', hidden: true});
  const scroll = make('div', {class: 'scroll'}, make('div', {class: 'stage'}, canvas, head));
  const hint = make('p', {class: 'hint', 'aria-live': 'polite'}, 'Click a row to hear the answer from there.');
  const buttons = make('div', {class: 'columns'});
  const lanes = make('ol', {class: 'lanes', 'aria-hidden': 'true'}, ...Array.from({length: number}, (_, n) => make('li', {}, String(n))));
  root.append(buttons, make('div', {class: 'picture'}, lanes, scroll), hint);

  const count = () => (view.aligned ? Math.max(0, streams.length - number + 1) : streams.length);
  const idAt = (row, stream) => streams[view.aligned ? row + stream : row]?.[stream];
  const chanceAt = (row, stream) => (first < 0 ? null : probabilities[first + (view.aligned ? row + stream : row)]?.[stream] ?? null);
  // Row t completes frame t - (streams - 1): what is heard at a row begins that many rows earlier.
  const frameOf = (row) => (view.aligned ? row : row - number + 1);
  const hop = speech ? speech.length / Math.max(1, streams.length - number + 1) : 320;
  const width = () => Math.max(NARROW, Math.min(WIDE, Math.floor(scroll.clientWidth / Math.max(1, count())) || NARROW));

  const draw = () => {
    const each = width();
    const scale = devicePixelRatio || 1;
    const [wide, tall] = [each * count(), WAVE + GAP + number * LANE];
    if (!wide) return;
    Object.assign(canvas, {width: wide * scale, height: tall * scale});
    Object.assign(canvas.style, {width: `${wide}px`, height: `${tall}px`});
    canvas.setAttribute('aria-valuemax', count() - 1);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    wave(pen, each);
    const [empty, strong] = [colour(canvas, '--line'), colour(canvas, '--accent')];
    for (let row = 0; row < count(); row += 1) {
      for (let stream = 0; stream < number; stream += 1) {
        const what = read(idAt(row, stream), layout);
        const chance = chanceAt(row, stream);
        const top = WAVE + GAP + stream * LANE;
        pen.globalAlpha = 1;
        if (view.likely) {
          pen.fillStyle = chance === null ? empty : strong;
          pen.globalAlpha = chance === null ? 0.5 : 0.08 + 0.92 * chance;
        } else {
          pen.fillStyle = what.kind === 'code' ? hue(what.code) : what.kind === 'other' ? hue(idAt(row, stream)) : empty;
          if (what.kind === 'pad') pen.globalAlpha = 0.5;
        }
        pen.fillRect(row * each, top, each - (each > 5 ? 1 : 0), LANE - 2);
      }
    }
    pen.globalAlpha = 1;
    if (view.row !== null) {
      pen.strokeStyle = colour(canvas, '--ink');
      pen.lineWidth = 1.5;
      pen.strokeRect(view.row * each - 0.75, 0.75, each + 0.5, tall - 2);
    }
  };

  const wave = (pen, each) => {
    if (!speech?.length) return;
    const samples = speech.from();
    pen.fillStyle = colour(canvas, '--wave');
    for (let row = 0; row < count(); row += 1) {
      const frame = frameOf(row);
      if (frame < 0) continue;
      for (let part = 0; part < each; part += 1) {
        const [begin, end] = [(frame + part / each) * hop, (frame + (part + 1) / each) * hop];
        let peak = 0;
        for (let at = Math.floor(begin); at < end && at < samples.length; at += 4) peak = Math.max(peak, Math.abs(samples[at]));
        const high = Math.max(1, (peak / 32768) ** 0.6 * WAVE);
        pen.fillRect(row * each + part, (WAVE - high) / 2, 1, high);
      }
    }
  };

  const describe = (row, stream = null) => {
    const at = Math.max(0, frameOf(row)) * hop / (speech?.rate || 16000);
    const code = (n) => { const what = read(idAt(row, n), layout); return what.kind === 'code' ? what.code : what.kind === 'pad' ? 'pad' : idAt(row, n); };
    const parts = [`${view.aligned ? 'frame' : 'row'} ${row}`, seconds(at)];
    if (stream === null) parts.push(`codes ${Array.from({length: number}, (_, n) => code(n)).join(' ')}`);
    else parts.push(`stream ${stream}: code ${code(stream)} (id ${idAt(row, stream)})`, percent(chanceAt(row, stream)));
    return parts.filter(Boolean).join(' · ');
  };
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const stream = Math.floor((event.clientY - box.top - WAVE - GAP) / LANE);
    return [Math.max(0, Math.min(count() - 1, Math.floor((event.clientX - box.left) / width()))), stream >= 0 && stream < number ? stream : null];
  };
  const select = (row) => {
    view.row = Math.max(0, Math.min(count() - 1, row));
    canvas.setAttribute('aria-valuenow', view.row);
    canvas.setAttribute('aria-valuetext', describe(view.row));
    hint.textContent = describe(view.row);
    draw();
  };
  const hear = () => { if (speech && view.row !== null) play(Math.round(Math.max(0, frameOf(view.row)) * hop)); };
  canvas.addEventListener('pointermove', (event) => { hint.textContent = describe(...place(event)); });
  canvas.addEventListener('click', (event) => { select(place(event)[0]); hear(); });
  canvas.addEventListener('keydown', (event) => {
    const to = {ArrowLeft: (view.row ?? 1) - 1, ArrowRight: (view.row ?? -1) + 1, Home: 0, End: count() - 1}[event.key];
    if (to !== undefined) select(to);
    else if (event.key === 'Enter' || event.key === ' ') hear();
    else return;
    event.preventDefault();
  });

  const choices = () => {
    const toggle = (label, on, press, title) => {
      const button = textButton(label, press, 'toggle');
      button.setAttribute('aria-pressed', String(on));
      button.title = title;
      return button;
    };
    const turn = (change) => () => { Object.assign(view, change, {row: null}); choices(); draw(); };
    buttons.replaceChildren(
      toggle('Aligned', view.aligned, turn({aligned: true}), 'A column is a frame: 8 codes for the same time'),
      toggle('Delayed', !view.aligned, turn({aligned: false}), 'A column is a row as the model generates it: stream n is n rows late'),
      ...(first < 0 ? [] : [
        toggle('Codes', !view.likely, turn({likely: false}), 'One colour for each code'),
        toggle('Probabilities', view.likely, turn({likely: true}), 'Probability of each sampled code in the model')]),
      make('span', {class: 'muted small'}, first < 0 ? 'To see probabilities, switch on the option before you send the message.' : ''));
  };
  choices();
  new ResizeObserver(() => { if (canvas.isConnected) draw(); }).observe(scroll);
  return {
    root, draw,
    follow: (position, playing) => {
      head.hidden = !playing;
      const at = (position / hop + (view.aligned ? 0 : number - 1)) * width();
      head.style.left = `${at}px`;
      if (playing && (at < scroll.scrollLeft || at > scroll.scrollLeft + scroll.clientWidth)) scroll.scrollLeft = at - 40;
    },
  };
};

// Where the rows of speech begin among the tokens of stream 0.
const firstRow = (told, layout) => told.token_ids.findIndex((id) => ['code', 'pad'].includes(read(id, layout).kind));

const tokens = (answer, layout) => {
  const told = answer.answer;
  const chance = (at) => told.probabilities?.[at]?.[0] ?? null;
  const free = (told.settings?.modalities ?? 'auto') === 'auto';
  const list = make('ol', {class: 'tokens', 'aria-label': 'Tokens in the order in which they were generated'});
  runs(told.token_ids, answer.pieces, layout).forEach((run) => {
    const likely = percent(chance(run.at));
    if (run.kind === 'speech') {
      list.append(make('li', {class: 'speech'}, `${run.count} rows of speech`));
    } else if (run.kind === 'marker') {
      const chose = {text: 'text', audio: 'speech'}[run.name];
      const why = chose ? `${free ? 'chooses' : 'set:'} ${chose}` : {eos: 'ends the answer', eot: 'ends the part'}[run.name] || '';
      list.append(make('li', {class: `marker ${run.name}`, title: `id ${run.id}`}, make('code', {}, `<|${run.name}|>`), make('small', {}, [why, likely].filter(Boolean).join(' · '))));
    } else {
      const item = make('li', {class: 'word', title: [`id ${run.id}`, likely].filter(Boolean).join(' · ')}, run.text || '·');
      if (likely) item.style.setProperty('--likely', chance(run.at));
      item.classList.toggle('rated', Boolean(likely));
      list.append(item);
    }
  });
  return list;
};
