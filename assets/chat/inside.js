// The tokens of an answer in order, and its streams of codec tokens below the waveform; a press plays from a row.
// A code is an index into a codebook. An id is unique over all streams; the answer's layout maps ids to codes.
import {colour, make, observeSize, seconds, textButton} from './dom.js';

const WAVE_HEIGHT = 44; // pixels
const LANE_HEIGHT = 15;
const GAP = 6;
const MIN_ROW_WIDTH = 3;
const MAX_ROW_WIDTH = 18;
const MARKERS = ['pad', 'bos', 'eos', 'eot', 'system', 'user', 'assistant', 'text', 'audio'];

// Returns what an id stands for: {kind: 'marker' | 'text' | 'code' | 'pad' | 'other', ...}.
export const decodeId = (id, layout) => {
  if (!layout) return {kind: 'other'};
  const marker = MARKERS.find((name) => layout[name] === id);
  if (marker && id < layout.text_first) return {kind: 'marker', name: marker};
  if (id >= layout.text_first && id < layout.text_end) return {kind: 'text'};
  const index = id - layout.codec_first;
  const stream = Math.floor(index / layout.layer_size);
  if (index < 0 || stream >= layout.streams) return {kind: 'other'};
  const code = (index % layout.layer_size) - 1;
  return code < 0 ? {kind: 'pad', stream} : {kind: 'code', stream, code};
};

// Returns the tokens of stream 0 in groups: each marker, each text token with its text, each run of speech rows.
export const findRuns = (ids, pieces, layout) => {
  const runs = [];
  const texts = []; // one for each token; a text without a token is the rest of the text before
  (pieces || []).forEach(([text, count]) => {
    if (count) texts.push(...Array(count - 1).fill(''), text);
    else if (texts.length) texts[texts.length - 1] += text;
  });
  let textIndex = 0;
  ids.forEach((id, index) => {
    const decoded = decodeId(id, layout);
    const kind = ['code', 'pad'].includes(decoded.kind) ? 'speech' : decoded.kind;
    const lastRun = runs[runs.length - 1];
    if (kind === 'speech' && lastRun?.kind === 'speech') lastRun.count += 1;
    else runs.push({kind, index, id, name: decoded.name, count: 1, text: kind === 'speech' ? '' : texts[textIndex] ?? ''});
    if (kind !== 'speech') textIndex += 1;
  });
  return runs;
};

const percent = (value) => (value === null || value === undefined ? '' : `${(100 * value).toFixed(value > 0.995 ? 1 : 0)} %`);
const codeColour = (code) => `hsl(${((code * 137.508) % 360).toFixed(1)} ${45 + (code % 3) * 12}% ${46 + ((code >> 4) % 5) * 5}%)`;

export const createInsideView = (answer, speech, play) => {
  const fields = answer.answer;
  const {layout} = fields;
  const {streams, probabilities} = fields;
  const streamCount = streams?.[0]?.length || 0;
  const root = make('div', {class: 'inside'}, tokens(answer, layout));
  if (!streams?.length) return {root, draw: () => {}, follow: () => {}};
  const firstSpeechRow = (probabilities?.length || 0) ? findSpeechStart(fields, layout) : -1;
  const view = {isAligned: true, showsProbability: false, row: null};
  const canvas = make('canvas', {tabindex: 0, role: 'slider', 'aria-label': 'Rows of codec tokens; Enter plays from the row', 'aria-valuemin': 0});
  const playhead = make('i', {class: 'playhead', hidden: true});
  const scroll = make('div', {class: 'scroll'}, make('div', {class: 'stage'}, canvas, playhead));
  const hint = make('p', {class: 'hint', 'aria-live': 'polite'}, 'Click a row to hear the answer from there.');
  const buttons = make('div', {class: 'columns'});
  const lanes = make('ol', {class: 'lanes', 'aria-hidden': 'true'}, ...Array.from({length: streamCount}, (_, n) => make('li', {}, String(n))));
  root.append(buttons, make('div', {class: 'picture'}, lanes, scroll), hint);

  const count = () => (view.isAligned ? Math.max(0, streams.length - streamCount + 1) : streams.length);
  const idAt = (row, stream) => streams[view.isAligned ? row + stream : row]?.[stream];
  const probabilityAt = (row, stream) => (firstSpeechRow < 0 ? null : probabilities[firstSpeechRow + (view.isAligned ? row + stream : row)]?.[stream] ?? null);
  // Stream n is n rows late, so row t completes frame t - (streams - 1).
  const frameOf = (row) => (view.isAligned ? row : row - streamCount + 1);
  const samplesPerRow = speech ? speech.length / Math.max(1, streams.length - streamCount + 1) : 320;
  const rowWidth = () => Math.max(MIN_ROW_WIDTH, Math.min(MAX_ROW_WIDTH, Math.floor(scroll.clientWidth / Math.max(1, count())) || MIN_ROW_WIDTH));

  const draw = () => {
    const width = rowWidth();
    const scale = devicePixelRatio || 1;
    const [totalWidth, totalHeight] = [width * count(), WAVE_HEIGHT + GAP + streamCount * LANE_HEIGHT];
    if (!totalWidth) return;
    Object.assign(canvas, {width: totalWidth * scale, height: totalHeight * scale});
    Object.assign(canvas.style, {width: `${totalWidth}px`, height: `${totalHeight}px`});
    canvas.setAttribute('aria-valuemax', count() - 1);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    wave(pen, width);
    const [emptyColour, accentColour] = [colour(canvas, '--line'), colour(canvas, '--accent')];
    for (let row = 0; row < count(); row += 1) {
      for (let stream = 0; stream < streamCount; stream += 1) {
        const decoded = decodeId(idAt(row, stream), layout);
        const probability = probabilityAt(row, stream);
        const top = WAVE_HEIGHT + GAP + stream * LANE_HEIGHT;
        pen.globalAlpha = 1;
        if (view.showsProbability) {
          pen.fillStyle = probability === null ? emptyColour : accentColour;
          pen.globalAlpha = probability === null ? 0.5 : 0.08 + 0.92 * probability;
        } else {
          pen.fillStyle = decoded.kind === 'code' ? codeColour(decoded.code) : decoded.kind === 'other' ? codeColour(idAt(row, stream)) : emptyColour;
          if (decoded.kind === 'pad') pen.globalAlpha = 0.5;
        }
        pen.fillRect(row * width, top, width - (width > 5 ? 1 : 0), LANE_HEIGHT - 2);
      }
    }
    pen.globalAlpha = 1;
    if (view.row !== null) {
      pen.strokeStyle = colour(canvas, '--ink');
      pen.lineWidth = 1.5;
      pen.strokeRect(view.row * width - 0.75, 0.75, width + 0.5, totalHeight - 2);
    }
  };

  const wave = (pen, width) => {
    if (!speech?.length) return;
    const samples = speech.samplesFrom();
    pen.fillStyle = colour(canvas, '--wave');
    for (let row = 0; row < count(); row += 1) {
      const frame = frameOf(row);
      if (frame < 0) continue;
      for (let pixel = 0; pixel < width; pixel += 1) {
        const [begin, end] = [(frame + pixel / width) * samplesPerRow, (frame + (pixel + 1) / width) * samplesPerRow];
        let peak = 0;
        for (let index = Math.floor(begin); index < end && index < samples.length; index += 4) peak = Math.max(peak, Math.abs(samples[index]));
        const height = Math.max(1, (peak / 32768) ** 0.6 * WAVE_HEIGHT);
        pen.fillRect(row * width + pixel, (WAVE_HEIGHT - height) / 2, 1, height);
      }
    }
  };

  const describe = (row, stream = null) => {
    const time = Math.max(0, frameOf(row)) * samplesPerRow / (speech?.rate || 16000);
    const code = (n) => { const decoded = decodeId(idAt(row, n), layout); return decoded.kind === 'code' ? decoded.code : decoded.kind === 'pad' ? 'pad' : idAt(row, n); };
    const parts = [`${view.isAligned ? 'frame' : 'row'} ${row}`, seconds(time)];
    if (stream === null) parts.push(`codes ${Array.from({length: streamCount}, (_, n) => code(n)).join(' ')}`);
    else parts.push(`stream ${stream}: code ${code(stream)} (id ${idAt(row, stream)})`, percent(probabilityAt(row, stream)));
    return parts.filter(Boolean).join(' · ');
  };
  const locate = (event) => {
    const rect = canvas.getBoundingClientRect();
    const stream = Math.floor((event.clientY - rect.top - WAVE_HEIGHT - GAP) / LANE_HEIGHT);
    return [Math.max(0, Math.min(count() - 1, Math.floor((event.clientX - rect.left) / rowWidth()))), stream >= 0 && stream < streamCount ? stream : null];
  };
  const select = (row) => {
    view.row = Math.max(0, Math.min(count() - 1, row));
    canvas.setAttribute('aria-valuenow', view.row);
    canvas.setAttribute('aria-valuetext', describe(view.row));
    hint.textContent = describe(view.row);
    draw();
  };
  const playRow = () => { if (speech && view.row !== null) play(Math.round(Math.max(0, frameOf(view.row)) * samplesPerRow)); };
  canvas.addEventListener('pointermove', (event) => { hint.textContent = describe(...locate(event)); });
  canvas.addEventListener('click', (event) => { select(locate(event)[0]); playRow(); });
  canvas.addEventListener('keydown', (event) => {
    const target = {ArrowLeft: (view.row ?? 1) - 1, ArrowRight: (view.row ?? -1) + 1, Home: 0, End: count() - 1}[event.key];
    if (target !== undefined) select(target);
    else if (event.key === 'Enter' || event.key === ' ') playRow();
    else return;
    event.preventDefault();
  });

  const drawButtons = () => {
    const toggle = (label, isPressed, onPress, title) => {
      const button = textButton(label, onPress, 'toggle');
      button.setAttribute('aria-pressed', String(isPressed));
      button.title = title;
      return button;
    };
    const changeView = (changes) => () => { Object.assign(view, changes, {row: null}); drawButtons(); draw(); };
    buttons.replaceChildren(
      toggle('Aligned', view.isAligned, changeView({isAligned: true}), 'A column is a frame: 8 codes for the same time'),
      toggle('Delayed', !view.isAligned, changeView({isAligned: false}), 'A column is a row as the model generates it: stream n is n rows late'),
      ...(firstSpeechRow < 0 ? [] : [
        toggle('Codes', !view.showsProbability, changeView({showsProbability: false}), 'One colour for each code'),
        toggle('Probabilities', view.showsProbability, changeView({showsProbability: true}), 'Probability of each sampled code in the model')]),
      make('span', {class: 'muted small'}, firstSpeechRow < 0 ? 'To see probabilities, switch on the option before you send the message.' : ''));
  };
  drawButtons();
  observeSize(scroll, () => { if (canvas.isConnected) draw(); });
  return {
    root, draw,
    follow: (position, isPlaying) => {
      playhead.hidden = !isPlaying;
      const left = (position / samplesPerRow + (view.isAligned ? 0 : streamCount - 1)) * rowWidth();
      playhead.style.left = `${left}px`;
      if (isPlaying && (left < scroll.scrollLeft || left > scroll.scrollLeft + scroll.clientWidth)) scroll.scrollLeft = left - 40;
    },
  };
};

// Returns the index of the first speech row among the tokens of stream 0, or -1.
const findSpeechStart = (fields, layout) => fields.token_ids.findIndex((id) => ['code', 'pad'].includes(decodeId(id, layout).kind));

const tokens = (answer, layout) => {
  const fields = answer.answer;
  const probabilityOf = (index) => fields.probabilities?.[index]?.[0] ?? null;
  const isAutomatic = (fields.settings?.modalities ?? 'auto') === 'auto';
  const list = make('ol', {class: 'tokens', 'aria-label': 'Tokens in the order in which they were generated'});
  findRuns(fields.token_ids, answer.pieces, layout).forEach((run) => {
    const percentage = percent(probabilityOf(run.index));
    if (run.kind === 'speech') {
      list.append(make('li', {class: 'speech'}, `${run.count} rows of speech`));
    } else if (run.kind === 'marker') {
      const modality = {text: 'text', audio: 'speech'}[run.name];
      const reason = modality ? `${isAutomatic ? 'chooses' : 'set:'} ${modality}` : {eos: 'ends the answer', eot: 'ends the part'}[run.name] || '';
      list.append(make('li', {class: `marker ${run.name}`, title: `id ${run.id}`}, make('code', {}, `<|${run.name}|>`), make('small', {}, [reason, percentage].filter(Boolean).join(' · '))));
    } else {
      const item = make('li', {class: 'word', title: [`id ${run.id}`, percentage].filter(Boolean).join(' · ')}, run.text || '·');
      if (percentage) item.style.setProperty('--likely', probabilityOf(run.index));
      item.classList.toggle('rated', Boolean(percentage));
      list.append(item);
    }
  });
  return list;
};
